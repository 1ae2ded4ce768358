"""The whole book as a PDF: `python tools/printed.py`, from the site in _docs.

Chromium prints the pages of the site one by one, since the time for a document grows faster than its length, and pypdf
binds them behind title and contents. What is looked up and never read in a row, the part "Workshop", is left out; links
to it lead to the published site.
"""

import base64
import io
import re
import shutil
import sys
from collections import Counter
from contextlib import closing
from html import escape
from pathlib import Path

from book import HERE, BookError, Structure, page_of, text_of

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND"]
INDEX = "Index of definitions and theorems"
COLUMN = 498  # pixels between the margins of printed.css
WAITS = 1800  # seconds for one step of the browser, on a busy machine
STATEMENT = re.compile(r'<div id="([^"]+)" class="book-statement [^"]*">\s*<p><strong>([^<]+)</strong> '
                       r"\((.*?)\)\.(?=\s|</p>)", re.DOTALL)
# Styles, fonts and pictures have arrived. Then each anchor is named by a link, since Chromium notes the places of those
# only, what is wider than its room is made smaller, down to half, and what still sticks out of the column is told.
SETTLED = """
const [column, done] = arguments, all = what => [...document.querySelectorAll(what)];
(async () => {
  if (document.readyState != "complete") await new Promise(loaded => addEventListener("load", loaded));
  const missing = all("link[rel=stylesheet]").filter(link => !link.sheet);
  await document.fonts.ready;
  await Promise.all(all("img").map(image => image.decode().catch(() => missing.push(image))));
  if (missing.length) return [missing.map(part => "did not come: " + (part.href || part.src)), 0];
  const links = all("[id]").filter(e => !e.closest("svg")).map(e => `<a href="#${e.id}">.</a>`);
  document.body.insertAdjacentHTML("beforeend", `<div hidden>${links.join("")}</div>`);
  document.body.style.width = column + "px";
  let shrunk = 0;
  for (const box of all("math:not([display=block]), .math, table")) {
    const outer = box.parentElement.closest("p, li, td, th, div, figure, figcaption, summary, section, article");
    const room = (box.matches(".math") ? box : outer || document.body).clientWidth;
    const wide = Math.max(box.getBoundingClientRect().width, ...[box, ...box.children].map(e => e.scrollWidth || 0));
    if (wide <= room + 1) continue;
    const by = Math.max(0.5, Math.floor(1000 * room / wide - 8) / 1000);
    if (box.matches("table")) box.style.zoom = by;
    else box.style.setProperty("font-size", 100 * by + "%", "important");
    shrunk += 1;
  }
  const edge = document.body.getBoundingClientRect().right + 2;
  const wide = all("pre, table, img, svg, math, p, li, h2, h3, summary")
    .filter(box => box.getBoundingClientRect().right > edge)
    .map(box => `wider than the page: <${box.tagName}> ${box.textContent.trim().slice(0, 60)}`);
  document.body.style.width = "";
  return [wide, shrunk];
})().then(done, error => done([[String(error)], 0]));
"""


def article(site: Path, name: str) -> str:
    "What a page of the site says, with all open that is folded there, and nothing that asks for a script."
    path = site / f"{name}.html"
    found = re.search(r"<article>.*?</article>", path.read_text(encoding="utf-8") if path.exists() else "", re.DOTALL)
    if not found:
        raise BookError(f"{path} is no page of the site; run `python tools/book.py` first")
    body = re.sub(r"<(script|button)\b.*?</\1>", "", found[0], flags=re.DOTALL)
    body = re.sub(r"<details\b(?![^>]*\bopen\b)", "<details open", body)
    body = re.sub(r"<pre>(?=(?:(?!</pre>)[^\n]*\n){0,12}[^\n]*</pre>)", '<pre class="short">', body)
    return body.replace("<article>", '<article id="top">', 1)


def articles(site: Path, s: Structure):
    "(the part that begins here, name, text) of all pages in the order of the sidebar; last, the references."
    before = ""
    listed = [(part, page_of(name)) for part, pages in s.parts for name, _ in pages if part != "Workshop"]
    for part, name in [*listed, ("", "references")]:
        yield part * (part != before), name, article(site, name)
        before = part


def statements(pages) -> list[tuple]:
    "(title and number, page, anchor) of the statements that have a title, by the alphabet."
    found = [(f"{text[:1].upper()}{text[1:]}, {number}", name, anchor) for _, name, body in pages
             for anchor, number, text in STATEMENT.findall(body)]
    return sorted(found, key=lambda item: re.sub(r"<[^>]+>|[^\w ]", "", item[0]).lower())


class Press:
    """A browser without a window or a network, the pieces that it printed, and which number the page of a place has."""

    def __init__(self, site: Path):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        binary, driver = next(filter(None, map(shutil.which, CHROMIUM)), None), shutil.which("chromedriver")
        if not (binary and driver):
            raise BookError("Chromium and chromedriver are needed, as by `apt-get install chromium chromium-driver`")
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in FLAGS:
            options.add_argument(flag)
        self.site, self.pieces, self.numbers, self.pages, self.shrunk = site, {}, {}, 0, 0
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.close = self.driver.quit
        self.driver.command_executor.client_config.timeout = WAITS
        self.driver.set_script_timeout(WAITS)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})

    def show(self, name: str, body: str, head: str = "", number: str = "decimal") -> None:
        "Show this text as a page of the site; what in it is too wide is made smaller."
        css = (HERE / "printed.css").read_text(encoding="utf-8").replace("NUMBER", number)
        css = css.replace("HEAD", head.replace("\\", "\\\\").replace('"', '\\"'))
        path = self.site / f"_printed_{name}.html"
        path.write_text(
            f'<!DOCTYPE html><html lang="en" data-theme="light" style="counter-reset: page {self.pages}"><head>'
            f'<meta charset="utf-8"><title>{escape(name)}</title><link rel="stylesheet" href="styles.css">'
            f"<style>{css}</style></head><body>{body}</body></html>", encoding="utf-8")
        try:
            self.driver.get(path.as_uri())
            wrong, shrunk = self.driver.execute_async_script(SETTLED, COLUMN)
        finally:
            path.unlink()
        if wrong:
            raise BookError("\n".join(f"{name}: {line}" for line in wrong))
        self.shrunk += shrunk

    def add(self, name: str, body: str, head: str = "", number: str = "decimal") -> None:
        "Print this text, and note the places in it."
        from pypdf import PdfReader

        self.show(name, body, head, number)
        how = {"printBackground": True, "preferCSSPageSize": True, "generateTaggedPDF": False}
        made = self.driver.execute_cdp_cmd("Page.printToPDF", how)
        self.pieces[name] = piece = PdfReader(io.BytesIO(base64.b64decode(made["data"])))
        for anchor, place in piece.named_destinations.items():
            self.numbers[name, anchor.lstrip("/")] = self.pages + piece.get_destination_page_number(place) + 1
        self.pages += len(piece.pages)

    def line(self, kind: str, name: str, anchor: str, text: str) -> str:
        "A line of contents or index."
        text = re.sub(r"</?a\b[^>]*>", "", text)
        number = self.numbers[name, anchor]
        return f'<a class="{kind}" href="{name}.html#{anchor}"><span>{text}</span><i></i><b>{number}</b></a>'


def cover(s: Structure) -> str:
    "The title page, with the sign of the site."
    return (f'<section class="cover"><h1>{escape(s.title)}</h1><p><em>{escape(s.description)}</em></p>'
            f'<img src="{escape(s.favicon)}" alt=""><p>{escape(s.settings["author"])}</p>'
            f'<p>Version {escape(s.settings["version"])} · {escape(s.url)}</p></section>')


def make_pdf(site: Path, root: Path, out: Path) -> str:
    "Pages, then the index of their statements; last what stands before them and names the numbers of their pages."
    s = Structure(root)
    pages = list(articles(site, s))
    sections = {name: re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body, re.DOTALL) for _, name, body in pages}
    usual = Counter(title for found in sections.values() for _, title in found)     # such as "Exercises"
    outline = []
    with closing(Press(site)) as press:
        for part, name, body in pages:
            title = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.DOTALL)[1]
            opening = f'<section class="opening" id="part"><h1>{escape(part)}</h1></section>' if part else ""
            press.add(name, opening + body, text_of(title))
            outline += [("part", name, "part", escape(part))] * bool(part) + [("chapter", name, "top", title)]
            outline += [("section", name, *found) for found in sections[name] if usual[found[1]] < 5]
        outline.append(("chapter", "statements", "top", INDEX))
        lines = "".join(press.line("entry", name, anchor, text) for text, name, anchor in statements(pages))
        press.add("statements", f'<section class="toc" id="top"><h1>{INDEX}</h1>{lines}</section>')
        total, press.pages = press.pages, 0
        lines = "".join(press.line(*item) for item in outline)
        press.add("", f'{cover(s)}<nav class="toc"><h1>Contents</h1>{lines}</nav>', number="lower-roman")
        bind(press, s, outline, out)
    return f"{press.pages} + {total} pages; {press.shrunk} formulas and tables were made smaller to fit"


def bind(press: Press, s: Structure, outline: list[tuple], out: Path) -> None:
    "The pieces as one file, with links from one to the other, an outline of parts, chapters and sections, and a title."
    from pypdf import PdfWriter
    from pypdf.generic import ArrayObject, FloatObject, NameObject, NullObject, TextStringObject

    writer, places, home, lost, above = PdfWriter(), {}, press.site.as_uri(), set(), []
    order = {"": press.pieces.pop(""), **press.pieces}
    owners = [name for name, piece in order.items() for page in piece.pages if writer.add_page(page)]
    for name, piece in order.items():
        for anchor, place in piece.named_destinations.items():
            page = owners.index(name) + piece.get_destination_page_number(place)
            corner = (FloatObject(place["/Left"]), FloatObject(place["/Top"]))
            places[f"{name}#{anchor.lstrip('/')}"] = ArrayObject([
                writer.pages[page].indirect_reference, NameObject("/XYZ"), *corner, NullObject()])
    for place in sorted(places):
        writer.add_named_destination_array(TextStringObject(place), places[place])
    for owner, page in zip(owners, writer.pages, strict=True):
        for link in (link.get_object() for link in page.get("/Annots", [])):
            address = str(link["/A"].get("/URI", "")) if "/A" in link else f"{home}/{owner}.html#{link['/Dest'][1:]}"
            name, _, anchor = address.removeprefix(f"{home}/").partition("#")
            place = f"{name.removesuffix('.html')}#{anchor or 'top'}"
            if address.startswith(home) and place in places:
                link[NameObject("/Dest")] = places[place]
                link.pop("/A", None)
            elif address.startswith(home):
                lost |= {place} if name.removesuffix(".html") in order else set()
                link["/A"][NameObject("/URI")] = TextStringObject(address.replace(home, s.url, 1))
    if lost:
        raise BookError("\n".join(["links lead nowhere:", *sorted(lost)]))
    front = len(order[""].pages)
    for kind, name, anchor, text in outline:            # a part holds chapters, a chapter sections
        above = above[:["part", "chapter", "section"].index(kind)] if name not in ("references", "statements") else []
        number = front + press.numbers[name, anchor] - 1
        above.append(writer.add_outline_item(title=text_of(text), page_number=number,
                                              parent=above[-1] if above else None))
    writer.set_page_label(0, front - 1, style="/r")
    writer.set_page_label(front, len(owners) - 1, style="/D")
    writer.add_metadata({"/Title": s.title, "/Author": s.settings["author"], "/Subject": s.description,
                         "/Creator": s.url})
    writer.root_object[NameObject("/Lang")] = TextStringObject("en")
    writer.write(out)


def main(kind: str, make) -> None:
    "Make a file of the whole book, _build/NAME.kind, from the site in _docs."
    root = Path.cwd()
    out = root / "_build" / f"{Structure(root).settings['lib_name']}.{kind}"
    out.parent.mkdir(exist_ok=True)
    try:
        print(f"{out}: {make(root / '_docs', root, out)}")
    except BookError as error:
        sys.exit(f"The book was not made:\n{error}")


if __name__ == "__main__":
    main("pdf", make_pdf)

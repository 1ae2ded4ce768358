"""The whole book as a PDF: `python tools/printed.py [--site DIR] [--out FILE] [--workshop]`.

The pages of the site are put together in the order of the sidebar, and Chromium prints them. What is looked up and
never read in a row, the part "Workshop", is left out unless it is asked for; links to it lead to the published site.
"""

from __future__ import annotations

import argparse
import base64
import functools
import html
import http.server
import io
import itertools
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE),) if path not in sys.path]

from book import BookError, Structure, page_of  # noqa: E402

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
PAGE = (6.69, 9.61)  # inches: 170 x 244 mm, a common format of textbooks
NUMBERS = itertools.count()
WAITS = 1800  # seconds for one step of the browser; whole books on a busy machine take minutes


@dataclass(frozen=True)
class Page:
    """One page of the site: its name, its title with the number, the inside of its article, and its part."""

    name: str
    title: str
    body: str
    part: str


class Printed:
    """The pages of a site as one text: every anchor carries the name of its page, every link leads to one of them."""

    def __init__(self, site: Path, root: Path, library: bool = False):
        self.site, self.root, self.structure = Path(site), Path(root), Structure(root)
        parts = [part for part in self.structure.parts if library or part[0] != "Workshop"]
        names = [(part, page_of(name)) for part, pages in parts for name, _ in pages]
        if (self.site / "references.html").exists():
            names.append(("", "references"))
        self.names = {name for _, name in names}
        self.pages = [self.read(name, part) for part, name in names]
        self.settings = self.structure.settings

    def read(self, name: str, part: str) -> Page:
        path = self.site / f"{name}.html"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found = re.search(r"<article>(.*?)</article>", text, re.DOTALL)
        if not found:
            raise BookError(f"{path} is no page of the site; run `python tools/book.py` first")
        body = re.sub(r'<(script|button)\b.*?</\1>|<p class="links">.*?</p>', "", found[1], flags=re.DOTALL)
        title = html.unescape(re.sub(r"<[^>]+>", "", re.search(r"<h1[^>]*>(.*?)</h1>", body, re.DOTALL)[1]))
        body = re.sub(r"<details\b(?![^>]*\bopen\b)", '<details open="open"', body)
        return Page(name, title.strip(), re.sub(r"<[a-zA-Z][^<>]*>", functools.partial(self.tag, name), body), part)

    def tag(self, page: str, match: re.Match) -> str:
        "An opening tag with its anchors and links made unique."
        text = re.sub(r'(\s)id="([^"]*)"', rf'\1id="{page}--\2"', match[0])
        text = re.sub(r'(\saria-(?:labelledby|describedby|controls))="([^"]*)"', rf'\1="{page}--\2"', text)
        text = re.sub(r"url\(#", f"url(#{page}--", text)
        text = re.sub(r'(\s(?:xlink:)?href)="([^"]*)"', lambda m: f'{m[1]}="{self.target(page, m[2])}"', text)
        return re.sub(r'(\ssrc)="(?!data:|https?:)([^"]*)"', r'\1="/\2"', text)

    def target(self, page: str, link: str) -> str:
        "Where a link leads: within the book, or to the published site."
        if re.match(r"[a-z]+:", link):
            return link
        path, _, anchor = link.partition("#")
        name = path.removesuffix(".html") or page
        if (not path or path.endswith(".html")) and name in self.names:
            return f"#{name}--{anchor}" if anchor else f"#{name}"
        return f"{self.structure.url}/{link}"

    def statements(self) -> list[tuple[str, str, str]]:
        "(title, kind and number, anchor) of all definitions and theorems with a title, in the order of the titles."
        found = []
        for page in self.pages:
            for match in re.finditer(r'<div id="([^"]+)" class="book-statement [^"]*">\s*<p><strong>([^<]+)</strong> '
                                     r'\((.*?)\)\.(?=\s|</p>)', page.body, re.DOTALL):
                title = re.sub(r"</?(?:a|span class=\"std)\b[^>]*>", "", match[3])
                found.append((title[:1].upper() + title[1:], match[2], match[1]))
        return sorted(found, key=lambda item: re.sub(r"<[^>]+>|[^\w ]", "", item[0]).lower())

    def styles(self) -> str:
        "The style sheet of the site."
        return '<link rel="stylesheet" href="/styles.css">'


# ---- the PDF: each chapter is printed by itself, since the time for a document grows faster than its length ----

def lowered(body: str) -> str:
    "Headings one level down, since parts stand above the chapters."
    return re.sub(r"<(/?)h([1-5])\b", lambda m: f"<{m[1]}h{int(m[2]) + 1}", body)


def sections(page: Page) -> list[tuple[str, str]]:
    "(anchor, title) of the sections of a page."
    found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', page.body, re.DOTALL)
    return [(anchor, re.sub(r"</?a\b[^>]*>", "", title)) for anchor, title in found]


def contents(book: Printed) -> str:
    "The list of parts, chapters and sections; page numbers are filled in after the first printing."
    line = '<a class="toc-{kind}" href="#{anchor}"><span>{text}</span><i></i><b data-page="{anchor}"></b></a>'
    lines, part = [], ""
    usual = Counter(title for page in book.pages for _, title in sections(page))   # such as "Exercises"
    for page in book.pages:
        if page.part and page.part != part:
            part = page.part
            lines.append(f'<p class="toc-part">{html.escape(part)}</p>')
        lines.append(line.format(kind="chapter", anchor=page.name, text=html.escape(page.title)))
        lines += [line.format(kind="section", anchor=anchor, text=title)
                  for anchor, title in sections(page) if usual[title] < 5]
    lines.append(line.format(kind="chapter", anchor="statements", text="Index of definitions and theorems"))
    return f'<nav class="toc"><h1>Contents</h1>{"".join(lines)}</nav>'


def index(book: Printed) -> str:
    line = '<a class="toc-section" href="#{2}"><span>{0}, {1}</span><i></i><b data-page="{2}"></b></a>'
    lines = [line.format(*item) for item in book.statements()]
    title = "<h1>Index of definitions and theorems</h1>"
    return f'<section id="statements" class="toc index">{title}{"".join(lines)}</section>'


def cover(book: Printed) -> str:
    "The title page; its picture is a product of two maps, as chapter 8 draws it."
    rows, columns = (2, 5, 9, 14, 9, 5, 2), (3, 12, 5, 2, 5, 12, 3)
    cell = '<rect x="{}" y="{}" width="37" height="37" fill="#1f5f99" fill-opacity="{:.2f}"/>'
    cells = "".join(cell.format(40 * c, 40 * r, a * b / 180 + 0.04) for r, a in enumerate(rows)
                    for c, b in enumerate(columns))
    return (f'<section class="cover"><h1>{html.escape(book.structure.title)}</h1><p class="cover-about">'
            f'{html.escape(book.structure.description)}</p><svg viewBox="0 0 277 277" aria-hidden="true">{cells}</svg>'
            f'<p class="cover-author">{html.escape(book.settings["author"])}</p>'
            f'<p class="cover-foot">Version {html.escape(book.settings["version"])} · '
            f"{html.escape(book.structure.url)}</p></section>")


ELSEWHERE = "http://elsewhere.invalid/#"  # a link to another piece, until the pieces are put together


def piece(book: Printed, body: str, head: str, before: int, linked: list[str]) -> str:
    """One printed piece: its running head, the pages before it, and the anchors that other pieces link to. Chromium
    notes the places of those anchors only that some link names."""
    css = (HERE / "printed.css").read_text(encoding="utf-8")
    head = head.replace("\\", "\\\\").replace('"', '\\"')
    own = set(re.findall(r'\sid="([^"]+)"', body))
    body = re.sub(r'(\shref=")#([^"]+)"', lambda m: m[0] if m[2] in own else f'{m[1]}{ELSEWHERE}{m[2]}"', body)
    body = re.sub(r"<pre>(.*?)</pre>", lambda m: m[0] if m[1].count("\n") > 12 else m[0].replace(
        "<pre>", '<pre class="short">', 1), body, flags=re.DOTALL)
    named = "".join(f'<a href="#{anchor}">.</a>' for anchor in linked if anchor in own)
    return ('<!DOCTYPE html><html lang="en" data-theme="light" '
            f'style="counter-reset: page {before}"><head><meta charset="utf-8">'
            f"<title>{html.escape(book.structure.title)}</title>{book.styles()}<style>{css}"
            f'@page {{ @top-center {{ content: "{head}"; font: 7.5pt "Liberation Sans", Arial, sans-serif; '
            "color: #646c76 } }"
            f"</style></head><body>{body}<div hidden>{named}</div></body></html>")


def chapters(book: Printed) -> list[tuple[str, str]]:
    "(running head, body) of the pieces between contents and index: pages, the first of a part with its title."
    made, part = [], ""
    for page in book.pages:
        title = f'<section class="part"><h1>{html.escape(page.part)}</h1></section>'
        title = title if page.part and page.part != part else ""
        part = page.part or part
        made.append((page.title, f'{title}<article id="{page.name}" class="chapter">{lowered(page.body)}</article>'))
    return made


# In the browser: styles, fonts and pictures have arrived; then whatever is wider than the column is made smaller.
SETTLED = """
const done = arguments[arguments.length - 1];
(async () => {
  for (const link of document.querySelectorAll("link[rel=stylesheet]"))
    if (!link.sheet) return "no style sheet: " + link.href;
  await document.fonts.ready;
  await Promise.all([...document.images].map(i => i.decode().catch(() => done("no picture: " + i.src))));
  return "";
})().then(done, e => done(String(e)));
"""
FIT = """
document.body.style.width = arguments[0] + "px";
const shrunk = [], part = (room, wide) => Math.max(0.5, Math.floor(1000 * room / wide - 8) / 1000);
const note = (what, box, by) => shrunk.push([what, (box.closest("[id]") || {}).id, by]);
for (const math of document.querySelectorAll('math:not([display="block"])')) {
  const room = (math.closest("p, li, td, th, dd, div, figcaption, summary, section") || document.body).clientWidth;
  const wide = math.getBoundingClientRect().width;        // elements of MathML know no offsetWidth
  if (wide <= room) continue;
  const by = part(room, wide);
  math.style.setProperty("font-size", 100 * by + "%", "important");
  note("formula in a line", math, by);
}
for (const math of document.querySelectorAll(".math")) {
  const inner = math.querySelectorAll(":scope > math");
  const wide = Math.max(...[math, ...inner].map(e => e.scrollWidth));
  if (wide <= math.clientWidth + 1) continue;
  const by = part(math.clientWidth, wide);
  math.style.fontSize = 100 * by + "%";
  note("formula", math, by);
}
for (const table of document.querySelectorAll("table")) {
  const room = table.parentElement.getBoundingClientRect().width, wide = table.scrollWidth;
  if (wide <= room + 1) continue;
  table.style.zoom = part(room, wide);
  note("table", table, part(room, wide));
}
return shrunk;
"""
# What still sticks out to the right of the column, by its text.
TOO_WIDE = """
const edge = document.body.getBoundingClientRect().right + 2, found = [];
for (const box of document.querySelectorAll("pre, table, img, svg, math, p, li, h2, h3, summary"))
  if (box.getBoundingClientRect().right > edge)
    found.push((box.closest("[id]") || {}).id + ": <" + box.tagName + "> " + box.textContent.trim().slice(0, 60));
return found;
"""
class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, *args) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """A page asks for dozens of files at once."""

    request_queue_size = 256


@contextmanager
def browser(folder: Path):
    "Chromium without a window or a network, and the address at which it finds this folder."
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    binary, driver_path = next(filter(None, map(shutil.which, CHROMIUM)), None), shutil.which("chromedriver")
    if not (binary and driver_path):
        raise BookError("Chromium and chromedriver are needed, as by `apt-get install chromium chromium-driver`")
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*FLAGS, f"--user-data-dir={profile}", f"--window-size={round(96 * PAGE[0])},1200"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        try:
            driver.command_executor.client_config.timeout = WAITS
            driver.set_script_timeout(WAITS)
            driver.set_page_load_timeout(WAITS)
            yield driver, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            driver.quit()
            server.shutdown()


def open_book(driver, address: str, site: Path, text: str) -> None:
    "Show this text as a page of the site."
    path = site / f"_one_page_{next(NUMBERS)}.html"     # a new name, or the browser may show what it remembers
    path.write_text(text, encoding="utf-8")
    try:
        for _ in range(2):              # on a busy machine a style sheet or a picture can fail to come the first time
            driver.get(f"{address}/{path.name}")
            if not (said := driver.execute_async_script(SETTLED)):
                return
        raise BookError(f"the book cannot be shown: {said}")
    finally:
        path.unlink()


def print_piece(driver, address: str, book: Printed, text: str) -> tuple[bytes, list]:
    "The PDF of one piece, and what was made smaller in it to fit the page."
    open_book(driver, address, book.site, text)
    shrunk = driver.execute_script(FIT, round(96 * (PAGE[0] - 1.5)))
    if wide := driver.execute_script(TOO_WIDE):
        raise BookError("\n".join(["wider than the page:", *map(str, wide)]))
    driver.execute_script("document.body.style.width = ''")
    made = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True,
                                                      "generateTaggedPDF": False})
    return base64.b64decode(made["data"]), shrunk


def places_in(pdf: bytes) -> tuple[int, dict[str, int]]:
    "The number of pages, and the page, counted from 0, of each anchor that a link leads to."
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(pdf))
    numbers = {page.indirect_reference.idnum: n for n, page in enumerate(reader.pages)}
    return len(numbers), {name.lstrip("/"): numbers[place.raw_get("/Page").idnum]
                          for name, place in reader.named_destinations.items()}


def make_pdf(book: Printed, out: Path) -> str:
    "Front matter, chapters, index; then the front matter again, with the numbers of the pages."
    numbers, made, shrunk, names = {}, [], [], book.names
    text = "".join(page.body for page in book.pages) + contents(book) + index(book)
    wanted = sorted({*re.findall(r'href="#([^"]+)"', text)})
    with browser(book.site) as (driver, address):
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        head = cover(book) + contents(book)
        front, _ = print_piece(driver, address, book, piece(book, head, "", 0, []))
        total = places_in(front)[0]
        for title, body in chapters(book):
            pdf, smaller = print_piece(driver, address, book, piece(book, body, title, total, wanted))
            count, places = places_in(pdf)
            numbers |= {name: total + 1 + n for name, n in places.items()}
            total, made, shrunk = total + count, [*made, pdf], [*shrunk, *smaller]
        numbers["statements"] = total + 1
        tail = numbered(index(book), numbers)
        pdf, _ = print_piece(driver, address, book, piece(book, tail, "", total, ["statements"]))
        again, _ = print_piece(driver, address, book, piece(book, numbered(head, numbers), "", 0, []))
    if places_in(again)[0] != places_in(front)[0]:
        counts = [places_in(pdf)[0] for pdf in (front, again)]
        raise BookError(f"the contents take {counts[0]} pages without page numbers, and {counts[1]} with them")
    out.write_bytes(bound(book, [again, *made, pdf], numbers))
    lost = [name for name in wanted if name not in numbers and name.partition("--")[0] in names]
    if lost:
        raise BookError("\n".join(["links lead nowhere:", *lost]))
    return f"{total + places_in(pdf)[0]} pages; {len(shrunk)} formulas and tables were made smaller to fit"


def numbered(text: str, numbers: dict[str, int]) -> str:
    return re.sub(r'<b data-page="([^"]+)"></b>', lambda m: f"<b>{numbers.get(m[1], '')}</b>", text)


def bound(book: Printed, pieces: list[bytes], numbers: dict[str, int]) -> bytes:
    "The pieces as one file, with links from one to the other, an outline of parts, chapters and sections, and a title."
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import ArrayObject, FloatObject, NameObject, NullObject, TextStringObject

    writer, places = PdfWriter(), {}
    for data in pieces:
        before, reader = len(writer.pages), PdfReader(io.BytesIO(data))
        for page in reader.pages:
            writer.add_page(page)
        own = {page.indirect_reference.idnum: writer.pages[before + n].indirect_reference
               for n, page in enumerate(reader.pages)}
        for name, place in reader.named_destinations.items():
            corner = (FloatObject(place["/Left"]), FloatObject(place["/Top"]))
            places[name.lstrip("/")] = ArrayObject([own[place.raw_get("/Page").idnum], NameObject("/XYZ"), *corner,
                                                    NullObject()])
    for name in sorted(places):
        writer.add_named_destination_array(TextStringObject(name), places[name])
    for page in writer.pages:
        for link in (link.get_object() for link in page.get("/Annots", [])):
            address = str(link["/A"].get("/URI", "") if "/A" in link else "")
            name = address.removeprefix(ELSEWHERE) if address.startswith(ELSEWHERE) else str(link.get("/Dest", ""))
            if name.lstrip("/") in places:
                link[NameObject("/Dest")] = places[name.lstrip("/")]
                link.pop("/A", None)
    part, above = "", None
    for page in book.pages:
        if page.part != part:
            part = page.part
            above = writer.add_outline_item(title=part, page_number=numbers[page.name] - 2) if part else None
        own = writer.add_outline_item(title=page.title, page_number=numbers[page.name] - 1, parent=above)
        for anchor, title in sections(page):
            if anchor in numbers:
                plain = html.unescape(re.sub(r"<[^>]+>|\\[()]", "", title))
                writer.add_outline_item(title=plain, page_number=numbers[anchor] - 1, parent=own)
    writer.add_outline_item(title="Index of definitions and theorems", page_number=numbers["statements"] - 1)
    writer.add_metadata({"/Title": book.structure.title, "/Author": book.settings["author"],
                         "/Subject": book.structure.description, "/Creator": book.structure.url})
    writer.root_object[NameObject("/Lang")] = TextStringObject("en")
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole book as a PDF.")
    parser.add_argument("--site", type=Path, default=Path("_docs"), help="the site (default: _docs)")
    parser.add_argument("--out", type=Path, help="the file (default: _build/NAME.pdf)")
    parser.add_argument("--workshop", action="store_true", help="with the part “Workshop”")
    options = parser.parse_args()
    root = Path.cwd()
    try:
        book = Printed(options.site.resolve(), root, options.workshop)
        out = options.out or root / "_build" / f"{book.settings['lib_name']}.pdf"
        out.parent.mkdir(parents=True, exist_ok=True)
        print(f"{out}: {make_pdf(book, out)}")
    except BookError as error:
        sys.exit(f"The book was not made:\n{error}")


if __name__ == "__main__":
    main()

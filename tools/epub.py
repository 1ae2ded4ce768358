"""The book as an EPUB 3: pages of tools/printed.py as XHTML, formulas as MathML, packed as the format asks.

    python tools/printed.py epub
"""

from __future__ import annotations

import base64
import html
import re
import uuid
import zipfile
from pathlib import Path

from crossref import BookError
from printed import HERE, PAGE, Printed, browser, cover, open_book, sections

KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".gif": "image/gif"}
XHTML = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">
<head><title>{title}</title><link rel="stylesheet" type="text/css" href="book.css"/></head>
<body>{body}</body>
</html>
"""
CONTAINER = """<?xml version="1.0" encoding="utf-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="book/package.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="id">urn:uuid:{id}</dc:identifier><dc:title>{title}</dc:title><dc:language>en</dc:language>
<dc:creator>{author}</dc:creator><dc:description>{description}</dc:description><dc:rights>{rights}</dc:rights>
<meta property="dcterms:modified">{modified}</meta><meta name="cover" content="cover-image"/>
<meta property="schema:accessMode">textual</meta><meta property="schema:accessMode">visual</meta>
<meta property="schema:accessibilityFeature">MathML</meta>
<meta property="schema:accessibilityFeature">alternativeText</meta>
<meta property="schema:accessibilityFeature">tableOfContents</meta>
<meta property="schema:accessibilityHazard">none</meta>
</metadata>
<manifest>
{manifest}
</manifest>
<spine>
{spine}
</spine>
</package>
"""

# What the format does not know: scripts, forms, pieces that HTML allows and XHTML does not. In its MathML 3 only
# mstyle sets the style and the level of what it holds.
SERIALIZE = r"""
const made = {};
for (const page of document.querySelectorAll("div.chapter")) {
  for (const e of page.querySelectorAll("script, button, input, select, .ledger-tools")) e.remove();
  for (const e of page.querySelectorAll("details")) {
    const div = document.createElement("div"); div.className = e.className + " folded";
    if (e.id) div.id = e.id;
    div.append(...e.childNodes); e.replaceWith(div); }
  for (const e of page.querySelectorAll("summary")) {
    const titles = e.querySelectorAll("p.expanded");
    const p = document.createElement("div"); p.className = "admonition-title";
    p.append(...(titles.length ? titles[0].childNodes : e.childNodes)); e.replaceWith(p); }
  for (const e of page.querySelectorAll("p div, p ul, p table")) {
    const p = e.closest("p"); if (p) p.replaceWith(...p.childNodes); }
  for (const e of page.querySelectorAll("math :is([displaystyle], [scriptlevel]):not(mstyle)")) {
    const style = document.createElementNS("http://www.w3.org/1998/Math/MathML", "mstyle");
    for (const name of ["displaystyle", "scriptlevel"])
      if (e.hasAttribute(name)) { style.setAttribute(name, e.getAttribute(name)); e.removeAttribute(name); }
    e.replaceWith(style); style.append(e); }
  for (const e of page.querySelectorAll("*")) {
    for (const a of e.closest("svg, img") ? [] : [...e.attributes])
      if (/^(on|data-|align$|border$|frame$|rules$|width$|valign$)/.test(a.name)) e.removeAttribute(a.name);
    if (e.getAttribute("role") === "doc-biblioentry") e.removeAttribute("role");
    if (e.tagName === "FIGURE" && e.getAttribute("role") === "img") e.setAttribute("role", "figure");
    if (e.id && document.getElementById(e.id) !== e) e.removeAttribute("id");
  }
  made[page.id] = [...page.childNodes].map(n => new XMLSerializer().serializeToString(n)).join("");
}
return made;
"""


def links(body: str, own: str, names: set[str]) -> str:
    "Links from one file to another, and pictures from the folder of pictures."
    def to(match):
        name = match[1].partition("--")[0]
        return f'href="#{match[1]}"' if name == own and match[1] != own else (
            f'href="{name}.xhtml' + (f'#{match[1]}"' if match[1] != name else '"') if name in names else match[0])

    body = re.sub(r'href="#([^"]+)"', to, body)
    return re.sub(r'src="/_images/([^"?]+)[^"]*"', r'src="images/\1"', body)


def contents(book: Printed) -> str:
    "The table of contents, which readers also show beside the text: parts, chapters, sections."
    def entry(page):
        inner = "".join(f'<li><a href="{page.name}.xhtml#{anchor}">{re.sub("<[^>]+>", "", title)}</a></li>'
                        for anchor, title in sections(page))
        return (f'<li><a href="{page.name}.xhtml">{html.escape(page.title)}</a>'
                + (f"<ol>{inner}</ol>" if inner else "") + "</li>")

    lines, part = ['<li><a href="cover.xhtml">Title page</a></li>'], None
    for page in book.pages:
        if part and page.part != part:
            lines.append("</ol></li>")
        if page.part and page.part != part:
            lines.append(f"<li><span>{html.escape(page.part)}</span><ol>")
        lines.append(entry(page))
        part = page.part
    lines.append("</ol></li>" if part else "")
    return f'<nav epub:type="toc" id="toc"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav>'


def index(book: Printed) -> str:
    lines = [f'<li><a href="{anchor.partition("--")[0]}.xhtml#{anchor}">{re.sub("<[^>]+>", "", title)}, {kind}</a></li>'
             for title, kind, anchor in book.statements()]
    return f"<section><h1>Index of definitions and theorems</h1><ul>{''.join(lines)}</ul></section>" if lines else ""


def properties(body: str) -> str:
    found = [name for name, mark in (("mathml", "<math"), ("svg", "<svg")) if mark in body]
    return f' properties="{" ".join(found)}"' if found else ""


def bodies(book: Printed) -> tuple[dict[str, str], bytes]:
    "The pages as XHTML, and a picture of the cover, both made by the browser."
    text = "".join(f'<div id="{page.name}" class="bd-article chapter">{page.body}</div>' for page in book.pages)
    head = '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
    css = (HERE / "printed.css").read_text(encoding="utf-8") + ".cover { height: 95vh }"
    with browser(book.site) as (driver, address):
        driver.set_window_size(*(round(96 * side) for side in PAGE))
        front = f"{head}{book.styles()}<style>{css}</style></head><body>{cover(book)}</body></html>"
        open_book(driver, address, book.site, front)
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        open_book(driver, address, book.site, f"{head}</head><body>{text}</body></html>")
        return driver.execute_script(SERIALIZE), base64.b64decode(shot)


def make_epub(book: Printed, out: Path) -> str:
    made, shot = bodies(book)
    made = {name: links(body, name, book.names) for name, body in made.items()}
    titles = {page.name: page.title for page in book.pages}
    files = {f"{name}.xhtml": XHTML.format(title=html.escape(titles[name]), body=made[name]) for name in titles}
    front = f'<section class="cover"><img src="images/cover.png" alt="{html.escape(book.structure.title)}"/></section>'
    files = {"cover.xhtml": XHTML.format(title=html.escape(book.structure.title), body=front),
             "nav.xhtml": XHTML.format(title="Contents", body=contents(book)), **files}
    if found := index(book):
        files["statements.xhtml"] = XHTML.format(title="Index", body=found)
    used = sorted({name for body in made.values() for name in re.findall(r'src="images/([^"]+)"', body)})
    pictures = {"cover.png": shot, **{name: (book.site / "_images" / name).read_bytes() for name in used}}
    check(files, pictures)
    write(book, out, files, pictures)
    return f"{len(files)} pages, {len(pictures)} pictures, {out.stat().st_size / 1e6:.1f} MB"


def check(files: dict[str, str], pictures: dict[str, bytes]) -> None:
    "Every page is XML, and every link and picture is there."
    from xml.etree import ElementTree

    ids, wrong = {}, []
    for name, text in files.items():
        try:
            root = ElementTree.fromstring(text.encode())
        except ElementTree.ParseError as error:
            raise BookError(f"{name} is not XML: {error}") from None
        ids[name] = [e.get("id") for e in root.iter() if e.get("id")]
        wrong += [f"{name} has #{i} twice" for i in set(ids[name]) if ids[name].count(i) > 1]
        shown = [e.get("src") for e in root.iter() if e.get("src") and not e.get("src").startswith("data:")]
        wrong += [f"{name} shows {path}" for path in shown if path.removeprefix("images/") not in pictures]
    for name, text in files.items():
        for link in re.findall(r'<a\b[^>]*?\shref="([^"]+)"', text):
            path, _, anchor = html.unescape(link).partition("#")
            there = (path or name) in files and (not anchor or anchor in ids[path or name])
            if not there and not re.match(r"[a-z]+:", link):
                wrong.append(f"{name} links to {link}")
    if wrong:
        raise BookError("\n".join(wrong))


def write(book: Printed, out: Path, files: dict[str, str], pictures: dict[str, bytes]) -> None:
    "The archive: its kind first and not compressed, then everything that the package lists."
    moment = "2000-01-01T00:00:00Z"
    about = {"title": book.structure.title, "author": book.settings["author"],
             "description": book.structure.description,
             "rights": f"{book.settings['copyright']}. License: {book.settings['license']}"}
    item = '<item id="{}" href="{}" media-type="{}"{}/>'
    roles = {name: properties(text) for name, text in files.items()} | {"nav.xhtml": ' properties="nav"'}
    listed = [item.format(Path(name).stem, name, "application/xhtml+xml", role) for name, role in roles.items()]
    front = ("cover-image", ' properties="cover-image"')
    for n, name in enumerate(pictures):
        key, role = front if name == "cover.png" else (f"picture-{n}", "")
        listed.append(item.format(key, f"images/{name}", KINDS[Path(name).suffix], role))
    listed.append(item.format("css", "book.css", "text/css", ""))
    package = PACKAGE.format(
        **{key: html.escape(value) for key, value in about.items()}, modified=moment,
        id=uuid.uuid5(uuid.NAMESPACE_URL, f"{book.structure.url}/{book.settings['version']}"),
        manifest="\n".join(listed), spine="\n".join(f'<itemref idref="{Path(name).stem}"/>' for name in files))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("mimetype"), "application/epub+zip")
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("book/package.opf", package)
        archive.writestr("book/book.css", (HERE / "epub.css").read_text(encoding="utf-8") + code_colors())
        for name, text in files.items():
            archive.writestr(f"book/{name}", text)
        for name, data in pictures.items():
            archive.writestr(f"book/images/{name}", data)


def code_colors() -> str:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(style="friendly").get_style_defs(".highlight").replace("background: #f0f0f0;", "")

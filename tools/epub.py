"""The book as an EPUB 3, from the pages of the site, by pandoc: `python tools/epub.py`.

What is folded on the site is open here. The part "Workshop" is left out; links to it lead to the site.
"""

import json
import re
import zipfile
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from book import BookError, Structure, astray
from printed import HERE, INDEX, articles, main, statements

GONE = "script, button, input, select, form, .ledger-tools, .moving-controls, .links"  # what needs a script or the site
SPACES = {"math": "http://www.w3.org/1998/Math/MathML", "svg": "http://www.w3.org/2000/svg"}
MIXED = {name.lower(): name for name in ("viewBox preserveAspectRatio markerWidth markerHeight refX refY clipPath "
                                         "linearGradient textLength").split()}      # which the parser writes small
# open elements that end where this tag stands, though HTML lets the page not say so
ENDS = {"td": "td th", "th": "td th", "tr": "td th tr", "/tr": "td th", "/thead": "td th tr", "/tbody": "td th tr",
        "li": "li", "/ul": "li", "/ol": "li"}


def closed(markup: str) -> str:
    "With the ends of cells, rows and entries that the site leaves out."
    opened = []

    def see(tag: re.Match) -> str:
        ends = ""
        while opened and opened[-1] in ENDS.get(tag[1], "").split():
            ends += f"</{opened.pop()}>"
        if not tag[1].startswith("/"):
            opened.append(tag[1])
        elif opened and opened[-1] == tag[1][1:]:
            opened.pop()
        return ends + tag[0]
    return re.sub(r"<(/?(?:t[dhr]|thead|tbody|table|li|[uo]l))\b[^>]*>", see, markup)


def xhtml(markup: str, address=str):
    "A piece of a page as the format asks for it: closed tags, nothing that needs a script; `address` changes links."
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(closed(markup), "html.parser")
    for element in soup.select(f"{GONE}, path[d='']"):
        element.decompose()
    for element in soup.select("*"):
        known = element.name == "svg" or element.find_parent("svg")
        element.attrs = {MIXED.get(name, name): value for name, value in element.attrs.items()
                         if known or not re.match(r"on|open$|data-|v?align$|border$|frame$|rules$", name)}
        if element.name in SPACES:
            element["xmlns"] = SPACES[element.name]
        elif element.name == "a" and element.get("href"):
            element["href"] = address(element["href"])
        elif element.name == "figure" and element.get("role") == "img":
            element["role"] = "figure"
        elif element.name in ("details", "summary"):
            element["class"] = [*element.get("class", []), {"details": "folded"}.get(element.name, "summary")]
            element.name = "div"
        element.name = re.sub(r"^h([2-5])$", lambda m: f"h{int(m[1]) + 1}", MIXED.get(element.name, element.name))
    return soup


def make_epub(site: Path, root: Path, out: Path) -> str:
    "Parts, in them chapters, in them sections, as pandoc knows them; what stands between is left as it is."
    import pypandoc

    s = Structure(root)
    pages = list(articles(site, s))
    listed = [f'<li><a href="{name}.html#{anchor}">{text}</a></li>' for text, name, anchor in statements(pages)]
    pages.append(("", "statements", f"<article><h1>{INDEX}</h1><ul>{''.join(listed)}</ul></article>"))
    heads, files = [], {}
    for part, name, _ in pages:
        heads.append(part or "Before you begin" * (not heads))
        files[name] = f"ch{len(files) + 1 + sum(map(bool, heads)):03}.xhtml"        # pandoc counts each head

    def address(link: str) -> str:
        page, hash, anchor = link.partition("#")
        inside = files.get(page.removesuffix(".html"), "")
        return link if not page or ":" in page else f"{inside}{hash}{anchor}" if inside else f"{s.url}/{link}"

    text, pieces = "", []
    for head, (_, name, body) in zip(heads, pages, strict=True):
        article, level = xhtml(body, address).article, 1 if name in ("references", "statements") else 2
        text += f"<h1>{escape(head)}</h1>" * bool(head)
        text += f'<h{level} id="page-{name}">{article.h1.extract().decode_contents()}</h{level}>'
        for element in article.children:
            text += str(element) if element.name == "h3" else "<p>.</p>"
            pieces += [str(element)] * (element.name != "h3")
    doc, rest = json.loads(pypandoc.convert_text(text, "json", "html", extra_args=["--quiet"])), iter(pieces)
    doc["blocks"] = [{"t": "RawBlock", "c": ["html", next(rest)]} if block["t"] == "Para" else block
                     for block in doc["blocks"]]
    meta = {"title": s.title, "author": s.settings["author"], "lang": "en", "description": s.description,
            "rights": f"{s.settings['copyright']}. License: {s.settings['license']}", "date": "2000-01-01",
            "identifier": f"{s.url}/{s.settings['version']}", "css": str(HERE / "epub.css")}
    if s.image and (site / s.image).exists():
        meta["cover-image"] = str(site / s.image)
    doc["meta"] = {key: {"t": "MetaString", "c": value} for key, value in meta.items()}
    pypandoc.convert_text(json.dumps(doc), "epub3", "json", outputfile=str(out), extra_args=[
        "--mathml", "--toc", "--toc-depth=3", "--split-level=2", f"--resource-path={site}", "--fail-if-warnings"])
    return check(out)


def check(path: Path) -> str:
    "Every page is XML, every anchor is there once, and every link and picture leads somewhere."
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        texts = {name: archive.read(name).decode() for name in names if name.endswith(".xhtml")}
    for name, text in texts.items():
        try:
            ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise BookError(f"{name} is not XML: {error}") from None
    if wrong := astray(texts, names):
        raise BookError("\n".join(wrong))
    pictures = sum(name.endswith((".png", ".svg", ".jpg")) for name in names)
    return f"{len(texts)} pages, {pictures} pictures, {path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    main("epub", make_epub)

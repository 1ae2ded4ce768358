"""The book as an EPUB 3: `python tools/epub.py [--out FILE]`, by pandoc, from the outputs that notebooks store.

Formulas are MathML; what is folded on the site is open. The part "Workshop" is left out; links to it lead to the site.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE),) if path not in sys.path]

from book import Book, BookError, pandoc  # noqa: E402

GONE = "script, button, input, select, form, .ledger-tools, .moving-controls"  # what needs a script


def xhtml(markup: str) -> str:
    "HTML of an output as the format asks for it: closed tags, and nothing that needs a script."
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(markup, "html.parser")
    for element in soup.select(f"{GONE}, path[d='']"):
        element.decompose()
    for element in soup.select("*"):
        known = element.name == "svg" or element.find_parent("svg")
        for name in [n for n in element.attrs if not known and re.match(r"on|data-|v?align$|border$|frame$|rules$", n)]:
            del element[name]
        if element.name == "figure" and element.get("role") == "img":
            element["role"] = "figure"
    names = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio", "markerwidth": "markerWidth",
             "markerheight": "markerHeight", "refx": "refX", "refy": "refY", "clippath": "clipPath",
             "lineargradient": "linearGradient", "textlength": "textLength"}        # which the parser writes small
    return re.sub(rf"\b({'|'.join(names)})\b(?=[= >])", lambda m: names[m[1]], str(soup))


def make_epub(root: Path, out: Path) -> str:
    book, folder = Book(root), root / "_build" / "epub"
    s = book.structure
    parts = {name: part for part, pages in s.parts for name, _ in pages}
    pages = book.processed(folder)
    for page in pages:
        page |= {"absent": page["file"] in book.names("Workshop"), "part": parts[page["file"]] or "Before you begin",
                 "subtitle": book.titles[page["file"]][1]}
        for output in (out for cell in page["cells"] for out in cell.get("outputs", ())):
            if "text" in output:                # links within an output lead to the site
                output["text"] = re.sub(r'href="(?=[\w-]+\.html)', f'href="{s.url}/', output["text"])
            if output["kind"] == "html":
                output["text"] = xhtml(output["text"])
            elif output["kind"] == "markdown":
                output["text"] = output["text"].replace("<br>", "<br/>")
            elif output["kind"] == "image":
                output["src"] = str(folder / output["src"])
    meta = {"title": s.title, "author": s.settings["author"], "lang": "en", "description": s.description,
            "rights": f"{s.settings['copyright']}. License: {s.settings['license']}", "date": "2000-01-01",
            "identifier": f"{s.url}/{s.settings['version']}", "css": str(HERE / "epub.css")}
    if s.image and (book.nbs / s.image).exists():
        meta["cover-image"] = str(book.nbs / s.image)
    out.parent.mkdir(parents=True, exist_ok=True)
    pandoc({**book.work("epub", out.resolve(), pages), "meta": meta}, root / "_build" / "book")
    return check(out)


def check(path: Path) -> str:
    "Every page is XML, every anchor is there once, and every link and picture leads somewhere."
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    texts, ids, wrong = {}, {}, []
    for name in (name for name in files if name.endswith(".xhtml")):
        try:
            texts[name] = ElementTree.fromstring(files[name])
        except ElementTree.ParseError as error:
            raise BookError(f"{name} is not XML: {error}") from None
        ids[name] = [e.get("id") for e in texts[name].iter() if e.get("id")]
        wrong += [f"{name} has #{i} twice" for i in sorted(set(ids[name])) if ids[name].count(i) > 1]
    for name, text in texts.items():
        for element in text.iter():
            link = element.get("href") or element.get("src") or ""
            there, _, anchor = link.partition("#")
            target = (Path(name).parent / there).as_posix() if there else name
            target = re.sub(r"[^/]+/\.\./", "", target)
            known = re.match(r"[a-z]+:", link) or target in files and (not anchor or anchor in ids[target])
            if link and not known:
                wrong.append(f"{name} links to {link}")
    if wrong:
        raise BookError("\n".join(wrong))
    pictures = sum(name.endswith((".png", ".svg", ".jpg")) for name in files)
    return f"{len(texts)} pages, {pictures} pictures, {path.stat().st_size / 1e6:.1f} MB"


def main() -> None:
    from nbdev.config import get_config

    parser = argparse.ArgumentParser(description="The whole book as an EPUB.")
    parser.add_argument("--out", type=Path, help="the file (default: _build/NAME.epub)")
    options, config = parser.parse_args(), get_config()
    sys.path.insert(0, str(config.config_path))
    out = options.out or config.config_path / "_build" / f"{config.lib_name}.epub"
    try:
        print(f"{out}: {make_epub(config.config_path, out)}")
    except BookError as error:
        sys.exit(f"The book was not made:\n{error}")


if __name__ == "__main__":
    main()

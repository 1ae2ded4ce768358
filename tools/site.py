"""Build the book's site: `python tools/site.py [--nbs DIR] [--out DIR] [--sphinx]`.

nbdev processes the notebooks (documentation of exported code, hidden cells). Quarto renders them
where it is on PATH, Sphinx where it is not. Title, parts, chapters and links are read from
_quarto.yml. Nothing is executed here, and a reference, link or citation that leads nowhere fails.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE),) if path not in sys.path]

import finish  # noqa: E402
from crossref import (  # noqa: E402
    NOTEBOOKS,
    Book,
    BookError,
    QuartoWriter,
    chapter_of,
    copy_files,
    downloads,
    mark_cell,
    online,
    page_of,
)
from lab import write_downloads  # noqa: E402
from pictures import slim_pictures  # noqa: E402

QUARTO_COMPLAINTS = re.compile(
    rf"Unable to resolve (crossref|link target: (?!{NOTEBOOKS}/))|Citeproc: citation .* not found")

SCRIPTS = ("moving.js", "reading.js")  # moving pictures; glances at what links lead to. _quarto.yml names them too
PICTURE = "preview.png"  # shown with a link to a page, by those who are sent one
RAW = re.compile(r":::|\$\$|\{#|\?@|\{cite:|\{container\}")  # marks of the source that are no text
VERBATIM = ("code", "pre", "script", "style", "textarea", "annotation")
COPIED = (":not(.book-api) > div:is(.highlight-python, .highlight-ipython3, .highlight-bash, .highlight-sh,"
          " .highlight-console) > div.highlight > pre")
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")


class ShownText(HTMLParser):
    """The text of a page that is read as text, without code and scripts."""

    def __init__(self, page: str):
        super().__init__()
        self.verbatim, self.parts = [], []
        self.feed(page)
        self.close()
        self.text = " ".join("".join(self.parts).split())

    def handle_starttag(self, tag, attrs):
        if (self.verbatim or tag in VERBATIM) and tag not in VOID:
            self.verbatim.append(tag)
        elif tag not in ("a", "b", "em", "i", "span", "strong"):
            self.parts.append(" ")

    def handle_endtag(self, tag):
        if tag in self.verbatim:  # with it ends what was left open inside
            del self.verbatim[len(self.verbatim) - 1 - self.verbatim[::-1].index(tag):]

    def handle_data(self, data):
        if not self.verbatim:
            self.parts.append(data)


def left_raw(page: str) -> list[str]:
    "Marks of the source that a reader would see in the text of a page, each with the words around it."
    text = ShownText(page).text
    return [f"“…{text[max(m.start() - 40, 0): m.end() + 40]}…”" for m in RAW.finditer(text)]


def check_pages(out: Path) -> None:
    "Whoever rendered the pages: nothing may be left in their text that should have become something."
    found = [f"{path.name}: {words}" for path in sorted(out.glob("*.html"))
             for words in left_raw(path.read_text(encoding="utf-8"))]
    if found:
        raise BookError("\n".join(["marks of the source are left in the text", *found]))


class Structure:
    """The site as _quarto.yml describes it."""

    def __init__(self, path: Path):
        site = yaml.safe_load(path.read_text(encoding="utf-8"))["website"]
        self.title = site["title"]
        self.description = site.get("description", "")
        self.url = site.get("site-url", "").rstrip("/")
        self.repo = site.get("repo-url", "").rstrip("/")
        self.branch = site.get("repo-branch", "main")
        self.favicon = site["favicon"]
        self.folder = site.get("repo-subdir", "")
        self.parts: list[tuple[str, list[tuple[str, str]]]] = []
        for item in site["sidebar"]["contents"]:
            if isinstance(item, dict) and "section" in item:
                self.parts.append((item["section"], [self.page(i) for i in item["contents"]]))
            else:
                self.parts.append(("", [self.page(item)]))

    @staticmethod
    def page(item) -> tuple[str, str]:
        "File name and, where it differs from the title, text of a page in the sidebar."
        return (item, "") if isinstance(item, str) else (item["href"], item.get("text", ""))

    @property
    def pages(self) -> list[str]:
        return [name for _, pages in self.parts for name, _ in pages]

    def check(self, book: Book) -> None:
        "Sidebar and notebooks name the same pages."
        listed, there = set(self.pages), set(book.notebooks)
        problems = [f"_quarto.yml lists {name}, which is not there" for name in listed - there]
        problems += [f"{name} is missing in the sidebar of _quarto.yml" for name in there - listed]
        if problems:
            raise BookError("\n".join(sorted(problems)))


def process(nbs: Path, proc: Path) -> None:
    "nbdev's part; from scratch, since its cache keeps pages of notebooks that are gone."
    from nbdev.serve import proc_nbs

    shutil.rmtree(proc, ignore_errors=True)
    proc_nbs(str(nbs), n_workers=2)


def render_with_quarto(nbs: Path, out: Path, config) -> None:
    "nbdev_docs, which renders in `_proc` and calls crossref.py there; its warnings count."
    shutil.rmtree(config.config_path / "_proc", ignore_errors=True)
    command = [str(Path(sys.executable).with_name("nbdev_docs")), "--path", str(nbs),
               "--n_workers", "2"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           encoding="utf-8", cwd=config.config_path)
    complaints = []
    for line in run.stdout:
        print(line, end="")
        if QUARTO_COMPLAINTS.search(line):
            complaints.append(line.strip())
    if run.wait() or complaints:
        raise BookError("\n".join(["Quarto did not render the book", *complaints]))
    check_pages(config.doc_path)
    remake_formulas(config.doc_path)
    if config.doc_path.resolve() != out.resolve():
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(config.doc_path, out)


def remake_formulas(out: Path) -> None:
    "Formulas as Sphinx's pages have them: long ones break in the text, accents stand above their letters. Shapes too."
    import mathml

    for path in sorted(out.glob("*.html")):
        try:
            text = mathml.remade(path.read_text(encoding="utf-8"))
            path.write_text(finish.whole_shapes(text), encoding="utf-8")
        except mathml.MathError as error:
            raise BookError(f"{path.name}: {error}") from error


def render_with_sphinx(nbs: Path, out: Path, config, book: Book, structure: Structure) -> None:
    "The same processed notebooks as MyST, rendered by Sphinx in _build, then put in place."
    proc, build = config.config_path / "_proc", config.config_path / "_build" / "sphinx"
    process(nbs, proc)
    shutil.rmtree(build, ignore_errors=True)
    source = build / "source"
    places, abouts = write_pages(proc, source, book, structure)
    run_sphinx(build, sphinx_settings(config, structure, source, abouts), places)
    check_pages(build / "html")
    finish.slim(build / "html")
    slim_pictures(build / "html" / "_images")
    write_twins(proc, build / "html", book, structure)
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(build / "html", out)


def write_pages(proc: Path, source: Path, book: Book, structure: Structure) -> tuple[dict, dict]:
    "Sources for Sphinx, one page for each notebook; returns where their cells come from, and what each is about."
    import myst

    processed = {name: json.loads((proc / name).read_text(encoding="utf-8"))
                 for name in structure.pages}
    api = myst.Api(processed, book.keys)
    copy_files(book.nbs, source)
    places, abouts = {}, {}
    for name, nb in processed.items():
        abouts[page_of(name)] = " ".join(myst.front_matter(nb).get("description", "").split()) or structure.description
        writer = myst.MystWriter(book, name, structure.url, api)
        nb, places[page_of(name)] = myst.convert(nb, writer, page_links(name, book, structure))
        if page_of(name) == "index":
            nb["cells"].append(mark_cell(toctrees(structure)) | {"id": "sidebar"})
        text = json.dumps(nb, ensure_ascii=False)
        (source / f"{page_of(name)}.ipynb").write_text(text, encoding="utf-8")
    (source / "references.md").write_text("# References\n\n```{bibliography}\n```\n")
    return places, abouts


def page_links(name: str, book: Book, structure: Structure) -> str:
    "HTML of what a reader can do with a page."
    links = [f'<a href="{NOTEBOOKS}/{file}" download>{text}</a>' for text, file in downloads(book, name)]
    links += [f'<a href="{url}">{text}</a>' for text, url in online(book.root, name)]
    if structure.repo:
        for action, text in (("blob", "View its source"), ("edit", "Edit it")):
            url = "/".join(part for part in (structure.repo, action, structure.branch, structure.folder, name) if part)
            links.append(f'<a href="{url}">{text}</a>')
    return f'<p class="book-links">{" · ".join(links)}</p>'


def toctrees(structure: Structure) -> str:
    "The sidebar: one table of contents for each part, and the references at the end."
    parts = [*structure.parts, ("Back matter", [("references.md", "")])]
    trees = [["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "",
              *[entry_of(name, text) for name, text in pages], "```", ""]
             for caption, pages in parts]
    return "\n".join(line for tree in trees for line in tree)


def entry_of(name: str, text: str) -> str:
    page = "self" if page_of(name) == "index" else page_of(name)
    return f"{text} <{page}>" if text else page


def sphinx_settings(config, structure: Structure, source: Path, abouts: dict) -> dict:
    scripts = [source / name for name in SCRIPTS if (source / name).exists()]
    picture = PICTURE if (source / PICTURE).exists() else ""
    theme = {
        "repository_url": structure.repo, "repository_branch": structure.branch,
        "path_to_docs": structure.folder, "use_repository_button": bool(structure.repo),
        "use_issues_button": bool(structure.repo), "use_download_button": False,
        "use_fullscreen_button": False, "show_toc_level": 2, "show_navbar_depth": 1,
        "logo": {"text": structure.title}, "navigation_with_keys": False,
        "pygments_light_style": "github-light", "pygments_dark_style": "github-dark",
        "toc_title": "On this page", "navbar_persistent": [],
    }
    return {
        "extensions": ["myst_nb", "sphinxcontrib.bibtex", "sphinx_copybutton", "booksphinx", "findable"],
        "project": structure.title, "html_title": structure.title, "author": config.author,
        "copyright": config.copyright, "html_theme": "sphinx_book_theme",
        "html_theme_options": theme,
        "html_static_path": [str(path) for path in (source / "styles.css", *scripts, *source.glob("*.woff2"))],
        "html_css_files": ["styles.css"], "html_copy_source": False,
        "html_js_files": [(script.name, {"defer": "defer"}) for script in scripts],
        "html_show_sourcelink": False, "html_show_sphinx": False, "html_use_index": False,
        "html_context": {"default_mode": "auto"}, "html_favicon": str(source / structure.favicon),
        "html_baseurl": structure.url and f"{structure.url}/",
        "book_about": abouts, "book_picture": picture, "html_extra_path": [str(source / picture)] if picture else [],
        "copybutton_selector": COPIED,
        "root_doc": "index", "html_math_renderer": "mathml",
        "nb_execution_mode": "off",
        "nb_render_markdown_format": "myst", "bibtex_bibfiles": [str(source / "references.bib")],
        "bibtex_reference_style": "author_year", "bibtex_default_style": "plain",
        "myst_enable_extensions": ["attrs_inline", "colon_fence", "dollarmath", "smartquotes",
                                   "replacements", "strikethrough"],
        "myst_dmath_allow_space": False, "myst_dmath_allow_digits": False,
        "suppress_warnings": ["myst.header", "config.cache"], "numfig": False,
    }


def run_sphinx(build: Path, settings: dict, places: dict) -> None:
    "Run Sphinx; its warnings are problems of the book, told in terms of the notebooks."
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema takes a second to import a grammar of addresses
    warnings = io.StringIO()
    with patch_docutils(), docutils_namespace():
        app = Sphinx(str(build / "source"), None, str(build / "html"), str(build / "doctrees"),
                     "html", confoverrides=settings, status=None, warning=warnings, parallel=os.cpu_count() or 1)
        app.build()
    text = re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue())
    if text or app.statuscode:
        raise BookError("\n".join(in_source(line, build / "source", places)
                                  for line in text.splitlines()))


def in_source(line: str, source: Path, places: dict) -> str:
    "A warning of Sphinx with the notebook and cell in place of its own file and line."
    match = re.match(rf"{re.escape(str(source))}/([\w-]+)\.ipynb:(\d+): (.*)", line)
    if not match or match[1] not in places:
        return line.replace(f"{source}/", "")
    cell, at = divmod(int(match[2]), 10000)
    cells = places[match[1]]
    return f"{cells[min(max(cell - 1, 0), len(cells) - 1)]}, near line {at}: {match[3]}"


def write_twins(proc: Path, html: Path, book: Book, structure: Structure) -> None:
    "Each page as Markdown beside it, as Quarto writes them."
    import myst

    for name in structure.pages:
        nb = json.loads((proc / name).read_text(encoding="utf-8"))
        title = f"{chapter_of(name)} {book.titles[name]}".strip()
        text = myst.twin(nb, QuartoWriter(book, name), title)
        (html / f"{page_of(name)}.html.md").write_text(text, encoding="utf-8")


def write_list(proc: Path, html: Path, book: Book, structure: Structure) -> None:
    "llms.txt, which lists the pages as Markdown."
    import myst

    lines = [f"# {structure.title}", "", f"> {structure.description}", ""]
    for name in structure.pages:
        title = f"{chapter_of(name)} {book.titles[name]}".strip()
        about = myst.front_matter(json.loads((proc / name).read_text(encoding="utf-8"))).get("description", "")
        lines.append(f"- [{title}]({structure.url}/{page_of(name)}.html.md): {about}")
    (html / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def build(nbs: Path | None, out: Path | None, sphinx: bool) -> Path:
    "Build the site of the project in the current directory; returns where it lies."
    from nbdev.config import get_config

    config = get_config()
    sys.path.insert(0, str(config.config_path))  # nbdev imports the library that it documents
    nbs, out = nbs or config.nbs_path, out or config.doc_path
    structure = Structure(config.config_path / "_quarto.yml")
    book = Book(nbs, config.config_path).check_or_raise()
    structure.check(book)
    if shutil.which("quarto") and not sphinx:
        render_with_quarto(nbs, out, config)
    else:
        render_with_sphinx(nbs, out, config, book, structure)
    write_list(config.config_path / "_proc", out, book, structure)
    write_downloads(book, out, structure.pages)
    finish.write_not_found(out, structure.title, structure.url)
    finish.write_sitemap(out, structure.url)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the book's site.")
    parser.add_argument("--nbs", type=Path, help="folder of notebooks (default: as in settings.ini)")
    parser.add_argument("--out", type=Path, help="folder for the site (default: as in settings.ini)")
    parser.add_argument("--sphinx", action="store_true", help="even where Quarto is installed")
    options = parser.parse_args()
    try:
        out = build(options.nbs, options.out, options.sphinx)
    except BookError as error:
        sys.exit(f"The site was not built:\n{error}")
    print(f"The site is in {out}: open {out / 'index.html'}, or serve it with\n"
          f"  python -m http.server --directory {out}")


if __name__ == "__main__":
    main()

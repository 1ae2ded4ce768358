"""The notebooks that readers download, written for JupyterLab.

Jupyter knows neither labels nor Quarto's blocks and options. So a statement gets its kind, number and title in bold,
a reference becomes a link to the site, an equation its number by \\tag, a folded block <details>, folded code a cell
whose source is hidden until it is opened, under a line that says what it is. Outputs are left out: who downloads a
notebook runs it. Nothing beyond the standard library is imported, since Quarto runs this too.
"""

from __future__ import annotations

import json
import re
import zipfile
from functools import lru_cache
from pathlib import Path

import handover
import learners
from crossref import (
    ANSWERS,
    NOTEBOOKS,
    Book,
    Writer,
    chapter_of,
    has_answers,
    page_of,
    source_of,
    unbroken,
)
from grammar import KEY, Block, Cell


def site_of(book: Book) -> str:
    "The address of the site, as _quarto.yml says."
    found = re.search(r"^  site-url:\s*(\S+)", (book.root / "_quarto.yml").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].rstrip("/") if found else ""


@lru_cache
def authors(bib: Path) -> dict[str, str]:
    "key -> Su (2024), Ho et al. (2019)."
    found = {}
    for entry in re.split(r"^@", bib.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        key = re.match(r"\w+\s*\{\s*([^,\s]+)", entry)[1]
        said = {k: v for k, v in re.findall(r"^\s*(author|year)\s*=\s*\{(.*)\}", entry, re.MULTILINE)}
        names = [re.sub(r"[{}\\\"']", "", name.split(",")[0]) for name in said.get("author", key).split(" and ")]
        shown = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) > 1 else "")
        found[key] = f"{shown} ({said['year']})" if "year" in said else shown
    return found


class LabWriter(Writer):
    """Markdown as Jupyter shows it."""

    def __init__(self, book: Book, notebook: str):
        super().__init__(book, notebook)
        self.site = site_of(book)

    def href(self, target) -> str:
        return f"{self.site}/{target.page}.html#{target.label}"

    def page_href(self, notebook: str) -> str:
        return f"{self.site}/{page_of(notebook)}.html"

    def cite_in_text(self, key: str, locator: str) -> str:
        name = authors(self.book.nbs / "references.bib").get(key, key)
        return f"[{name}{', ' + locator if locator else ''}]({self.page_href(self.notebook)})"

    def cite(self, items: str) -> str:
        return f"({re.sub(rf'@({KEY})', lambda match: self.cite_in_text(match[1], ''), items)})"

    def on_open(self, block: Block) -> None:
        super().on_open(block)
        if block.label and block.title:
            self.head = f"**{self.book.targets[block.label].name} ({self.inline(block.title)}).**"

    def open_statement(self, block: Block) -> None:
        self.indented(block, "---")

    def open_proof(self, block: Block) -> None:
        pass

    def open_callout(self, block: Block, title: str) -> None:
        if block.attrs.get("collapse") == "true":
            self.indented(block, f"<details><summary>{title or 'More'}</summary>")
        elif title:
            self.indented(block, f"**{title}**")

    def on_close(self, block: Block) -> None:
        opened = self.open.pop()
        folded = opened.attrs.get("collapse") == "true"
        self.indented(block, "</details>" if folded else "---" if opened.label else "")

    def on_heading(self, block: Block) -> None:
        chapter = f"{chapter_of(self.notebook)} " if block.attrs["level"] == 1 and chapter_of(self.notebook) else ""
        self.paragraph("#" * block.attrs["level"] + f" {chapter}{self.inline(block.text)}")

    def on_math(self, block: Block) -> None:
        tag = f" \\tag{{{self.book.targets[block.label].number}}}" if block.label else ""
        self.indented(block, "$$", block.text + tag, "$$")

    def on_table(self, block: Block) -> None:
        caption = ["", f"*{self.caption(block)}*"] if block.title or block.label else []
        self.indented(block, self.inline(block.text), *caption)

    def on_image(self, block: Block) -> None:
        self.indented(block, f"![{block.attrs['fig-alt']}]({self.site}/{block.text})", "", f"*{self.caption(block)}*")


SHOWDOC = re.compile(r"^from nbdev\.showdoc import \*\n?", re.MULTILINE)
HOW_TO_RUN = ('> This notebook runs after `pip install "{package}"`; where the package is missing, the next cell '
              "installs it. Its outputs are on [its page]({page}).")
INSTALL = """import importlib.util
import subprocess
import sys

%config InlineBackend.print_figure_kwargs = {{"bbox_inches": "tight", "facecolor": "white"}}
if importlib.util.find_spec("{name}") is None:          # in a new environment, such as Colab's
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "{package}"], check=True)"""
LEARNERS = " The answers to its exercises were left out; the page it comes from also has it with them."


def text_cell(name: str, text: str) -> dict:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": handover.lines_of(text)}


def code_for_readers(cell: dict, writer: LabWriter) -> list[dict]:
    "A cell of code, without the options of the site; what it is called, or shows, in cells of text beside it."
    parsed = Cell.parse(SHOWDOC.sub("", source_of(cell)))
    if not re.sub(r"^#.*", "", parsed.body, flags=re.MULTILINE).strip():
        return [cell] if parsed.body.strip() and not parsed.options else []
    options, metadata, before, after = parsed.options, dict(cell["metadata"]), [], []
    if options.get("code-fold") == "true" or options.get("echo") == "false" or "hide" in options:
        metadata = {**metadata, "jupyter": {"source_hidden": True}}
        said = options.get("code-summary") or ("" if "hide" in options else "Code of the figure below")
        before = [text_cell(f"{cell['id']}-said", f"▸ *{said}*")] if said else []
    if options.get("fig-cap"):
        name = f"{writer.book.targets[options['label']].name}: " if options.get("label") else ""
        after = [text_cell(f"{cell['id']}-caption", f"*{name}{writer.inline(options['fig-cap'])}*")]
    return [*before, {**cell, "metadata": metadata, "source": handover.lines_of(parsed.body.strip("\n"))}, *after]


def for_readers(book: Book, notebook: str, answers: bool = True) -> dict:
    "A notebook as readers download it: rendered for Jupyter, with the line that installs the rest."
    nb, left_out, cells = json.loads((book.nbs / notebook).read_text(encoding="utf-8")), 0, []
    if not answers:
        nb, left_out = learners.without_answers(nb)
    writer = LabWriter(book, notebook)
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            cells += code_for_readers(cell, writer)
        else:
            cells.append({**cell, "source": handover.lines_of(writer.write(unbroken(source_of(cell))))})
    url = book.files.partition("/blob/")[0]
    name = url.rpartition("/")[2]
    package = f"{name}[book] @ git+{url}"
    note = HOW_TO_RUN.format(package=package, page=writer.page_href(notebook)) + (LEARNERS if left_out else "")
    install = {"cell_type": "code", "id": "how-to-install", "metadata": {}, "execution_count": None, "outputs": [],
               "source": handover.lines_of(INSTALL.format(name=name, package=package))}
    return {**nb, "cells": [*cells[:1], text_cell("how-to-run", note), install, *cells[1:]]}


def without_outputs(nb: dict) -> dict:
    "Whoever downloads a notebook runs it; what it shows then stands on the page already."
    return {**nb, "cells": [{**cell, "outputs": [], "execution_count": None} if cell["cell_type"] == "code" else cell
                            for cell in nb["cells"]]}


def write_downloads(book: Book, out: Path, names) -> None:
    "The notebooks that readers download, into a folder of the site: without answers, and all with them in an archive."
    url = book.files.partition("/blob/")[0]
    (out / NOTEBOOKS).mkdir(exist_ok=True)
    package = f"{url.rpartition('/')[2]}[book] @ git+{url}"
    for file, line in (("requirements.txt", package), ("runtime.txt", "python-3.12")):     # what Binder installs
        (out / NOTEBOOKS / file).write_text(line + "\n", encoding="utf-8")
    full = {}
    for name in names:
        (out / NOTEBOOKS / name).write_text(as_file(for_readers(book, name, answers=False)), encoding="utf-8")
        if has_answers(book, name):
            full[name] = as_file(for_readers(book, name, answers=True))
    if full:
        write_archive(out / NOTEBOOKS / ANSWERS, full)


def as_file(nb: dict) -> str:
    "A notebook to be downloaded: without outputs, and with the source of each cell in one piece, which is shorter."
    nb = without_outputs(nb)
    nb["cells"] = [{**cell, "source": source_of(cell)} for cell in nb["cells"]]
    return json.dumps(nb, ensure_ascii=False, separators=(",", ":")) + "\n"


def write_archive(path: Path, files: dict[str, str]) -> None:
    "Of equal files an equal archive is made, whenever that is."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)                              # of the first day that archives know
            member.external_attr = 0o644 << 16
            archive.writestr(member, text, zipfile.ZIP_DEFLATED, 9)

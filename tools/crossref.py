"""Numbers and references of the book, computed once for both ways to render it.

Quarto numbers statements within a page only, and Sphinx does not know Quarto's labels. So the
book counts for itself: chapter 2's third theorem is "Theorem 2.3" wherever it is named. Labels
are read from the source notebooks; text is rewritten in the processed ones (`_proc`). Whatever
the grammar of a chapter does not know is an error that names notebook, cell and line, so that
no text can go astray on its way to the page.

Quarto runs this file before it renders (`pre-render` in _quarto.yml), with whichever Python it
finds: so nothing beyond the standard library is imported here. The Sphinx build imports it.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections import Counter
from configparser import ConfigParser
from dataclasses import dataclass
from html import escape
from pathlib import Path

import apiindex
import handover
import learners
from apidoc import Entry
from grammar import (
    DIRECTIVES,
    INLINE,
    KEY,
    LIST_ITEM,
    NOT_PORTABLE,
    NUMBERED,
    PREFIXES,
    STATEMENTS,
    Block,
    Cell,
    Problem,
    Reader,
    checked_label,
)

LEDGER = "verdicts.csv"  # of nbs: its rows name the cells that decide them
NOTEBOOKS = "notebooks"  # folder of the site where the notebooks lie that readers download; the branch with the same


class BookError(Exception):
    """All problems of a book, one line each."""


def decisive_cells(ledger: Path) -> set[tuple[str, str]]:
    "(notebook, id of a cell) for all cells that the ledger of verdicts names; links lead to them."
    if not ledger.exists():
        return set()
    with open(ledger, encoding="utf-8", newline="") as file:
        places = " ".join(row["decided"] for row in csv.DictReader(file)).split()
    return {(notebook, cell) for notebook, _, cell in (place.partition("#") for place in places)}


@dataclass(frozen=True)
class Target:
    """What a label stands for."""

    label: str
    name: str  # "Theorem 2.3", "equation (2.1)", or a heading's text
    number: str
    notebook: str  # file name
    where: str

    @property
    def page(self) -> str:
        return page_of(self.notebook)


def page_of(notebook: str) -> str:
    "Name of a notebook's page without suffix; nbdev drops the number the same way."
    return re.sub(r"^\d+[a-zA-Z]?_", "", Path(notebook).stem)


def chapter_of(notebook: str) -> str:
    "Number of the chapter as text, 11a for a sibling; empty where the file name begins with none."
    match = re.match(r"0*(\d+[a-zA-Z]?)_", notebook)
    return match[1] if match else ""


def repository_url(quarto: Path) -> str:
    "Where the files of the repository are shown, as _quarto.yml says (read without a parser)."
    text = quarto.read_text(encoding="utf-8") if quarto.exists() else ""
    found = dict(re.findall(r"^\s+(repo-url|repo-branch):\s*(\S+)", text, re.MULTILINE))
    return f"{found.get('repo-url', '').rstrip('/')}/blob/{found.get('repo-branch', 'main')}/"


def source_of(cell: dict) -> str:
    return "".join(cell["source"])


def markdown_of(output: dict) -> str:
    return "".join(output.get("data", {}).get("text/markdown", ""))


DRAWN = ('<figure class="schematic"', '<div class="moving"')


def drawn(cell: dict) -> list[dict]:
    "The outputs of a cell that are schematics or moving pictures: drawings as text, which say themselves what is seen."
    return [out for out in cell.get("outputs", [])
            if "".join(out.get("data", {}).get("text/html", "")).startswith(DRAWN)]


def unbroken(text: str) -> str:
    "A mean and its deviation are one number: no line ends between them."
    return re.sub(r"(?<=\d)(%?) ± (?=\d)", "\\1\u00a0±\u00a0", text)


def unbroken_outputs(cell: dict) -> None:
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        data.update({kind: unbroken("".join(data[kind])) for kind in ("text/html", "text/markdown") if kind in data})


def describe(cell: dict, alt: str) -> None:
    "What is seen in the schematics of a cell, in the words of the cell where it has some."
    for out in drawn(cell) if alt else []:
        out["data"]["text/html"] = re.sub(r'aria-label="[^"]*"', lambda _: f'aria-label="{escape(alt)}"',
                                          "".join(out["data"]["text/html"]), count=1)


class Book:
    """The source notebooks: their labels, numbers and citation keys, and what is wrong in them."""

    def __init__(self, nbs: Path, root: Path | None = None):
        self.nbs = Path(nbs)
        self.root = Path(root or self.nbs.parent)  # of the repository: links ../FILE lead there
        self.files = repository_url(self.root / "_quarto.yml")
        self.problems: list[str] = []
        self.targets: dict[str, Target] = {}
        self.titles: dict[str, str] = {}
        bib = self.nbs / "references.bib"
        text = bib.read_text(encoding="utf-8") if bib.exists() else ""
        self.decisive = decisive_cells(self.nbs / LEDGER)
        self.keys = set(re.findall(r"^\s*@\w+\s*\{\s*([^,\s]+)\s*,", text, re.MULTILINE))
        self.notebooks = {
            path.name: json.loads(path.read_text(encoding="utf-8"))["cells"]
            for path in sorted(self.nbs.glob("*.ipynb")) if path.name[0] not in "_."
        }
        self.cells = {name: {c.get("id"): i for i, c in enumerate(cells, 1)}
                      for name, cells in self.notebooks.items()}
        for name, cells in self.notebooks.items():
            self.collect(name, cells)
        for name, cells in self.notebooks.items():
            self.check(name, cells)

    def check_or_raise(self) -> Book:
        if self.problems:
            raise BookError("\n".join(self.problems))
        return self

    def complain(self, name: str, cell: int, problem: Problem) -> None:
        self.problems.append(f"{name}, cell {cell}, line {problem.line}: {problem}")

    def collect(self, name: str, cells: list[dict]) -> None:
        "Register the labels of one notebook, in the order of the page."
        counts: Counter = Counter()
        for number, cell in enumerate(cells, 1):
            try:
                found = list(self.labels_in(cell))
            except Problem as problem:
                self.complain(name, number, problem)
                continue
            for label, text, line in found:
                self.add(name, number, line, label, text, counts)

    @staticmethod
    def labels_in(cell: dict):
        if cell["cell_type"] == "markdown":
            for block in Reader(source_of(cell)).read():
                if block.label:
                    yield block.label, block.text, block.line
        elif cell["cell_type"] == "code":
            parsed = Cell.parse(source_of(cell))
            if parsed.shown and parsed.options.get("label"):
                line = list(parsed.options).index("label") + 1
                yield checked_label(parsed.options["label"], ["fig"], line), "", line

    def add(self, name, cell, line, label, text, counts) -> None:
        where = f"{name}, cell {cell}, line {line}"
        if label in self.targets:
            self.problems.append(f"{where}: label #{label} is taken by {self.targets[label].where}")
            return
        kind = label.split("-")[0]
        if kind == "sec":
            target = Target(label, text, "", name, where)
        else:
            counts[kind] += 1
            chapter = chapter_of(name)
            number = f"{chapter}.{counts[kind]}" if chapter else str(counts[kind])
            shown = f"({number})" if kind == "eq" else number
            target = Target(label, f"{NUMBERED[kind]} {shown}", number, name, where)
        self.targets[label] = target

    def check(self, name: str, cells: list[dict]) -> None:
        "Everything that would lose text, or name what is not there."
        self.check_title(name, cells)
        for number, cell in enumerate(cells, 1):
            try:
                if cell["cell_type"] == "markdown":
                    for block in Reader(source_of(cell)).read():
                        self.check_block(name, number, block)
                elif cell["cell_type"] == "code":
                    self.check_code(name, number, cell)
            except Problem as problem:
                message = f"{name}, cell {number}, line {problem.line}: {problem}"
                if message not in self.problems:
                    self.problems.append(message)

    def check_title(self, name: str, cells: list[dict]) -> None:
        "nbdev makes the first cell the page's title and drops what else stands in it."
        source = source_of(cells[0]) if cells else ""
        if not re.fullmatch(r"# +\S[^\n]*(\n+> +\S[^\n]*)?\s*", source):
            self.complain(name, 1, Problem(
                1, "the first cell holds `# Title` and, on one line, `> subtitle`; nothing else"))
            return
        self.titles[name] = source.splitlines()[0].lstrip("# ").strip()

    def check_block(self, name: str, cell: int, block: Block) -> None:
        "References, citations, links and raw HTML in the text of a block."
        texts = {"text": [block.text], "heading": [block.text], "table": [block.text, block.title],
                 "image": [block.title], "open": [block.title]}
        for text in texts.get(block.kind, []):
            for match in INLINE.finditer(text):
                message = self.wrong(name, match)
                if message:
                    line = block.line + text[: match.start()].count("\n")
                    self.complain(name, cell, Problem(line, message))
        if block.kind == "image":
            self.check_file(name, cell, block.line, block.text)

    def check_file(self, name: str, cell: int, line: int, path: str) -> None:
        if not re.match(r"[a-z]+:", path) and not (self.nbs / path).exists():
            self.complain(name, cell, Problem(line, f"there is no file {path}"))

    def wrong(self, name: str, match: re.Match) -> str:
        "What is wrong with an inline construct; empty if nothing is."
        if match["html"]:
            return f"raw HTML ({match[0]}) is not part of the grammar"
        if match["short"]:
            return "Quarto's shortcodes are not part of the grammar"
        if match["display"]:
            return "$$ starts a line of its own"
        if match["span"]:
            return "attributes on a span or link are not part of the grammar"
        if match["math"] and (found := NOT_PORTABLE.search(match[0])):
            return f"{found[0]} does not work in both renderers"
        if match["link"]:
            return self.wrong_link(name, match["target"])
        if match["ref"]:
            return self.wrong_key(match["label"])
        if match["group"]:
            keys = re.findall(rf"(?<![\w@])@({KEY})", match["items"])
            labels = [k for k in keys if k in self.targets]
            if labels:
                return f"write @{labels[0]} without brackets"
            return next((w for k in keys if (w := self.wrong_key(k))), "")
        return ""

    def wrong_key(self, key: str) -> str:
        if key in self.targets or key in self.keys:
            return ""
        if key.split("-")[0] in PREFIXES:
            return f"unknown label @{key}"
        return f"@{key} is neither a label nor a key of references.bib"

    def wrong_link(self, name: str, target: str) -> str:
        if re.match(r"[a-z]+:", target):
            return ""
        path, _, fragment = target.partition("#")
        if path.endswith(".ipynb") and path not in self.notebooks:
            return f"link to {path}: there is no such chapter"
        if path and not path.endswith(".ipynb"):
            if path.startswith("../") and (self.root / path[3:]).exists():
                return ""
            return f"link to {path}: only chapters and ../FILE of the repository can be linked"
        if fragment and fragment not in self.targets:
            return f"link to #{fragment}: there is no such label"
        if fragment and self.targets[fragment].notebook != (path or name):
            return f"link to {target}: that label stands in {self.targets[fragment].notebook}"
        return ""

    def check_code(self, name: str, number: int, cell: dict) -> None:
        parsed = Cell.parse(source_of(cell))
        for line, key in enumerate(parsed.options, 1):
            if key not in DIRECTIVES:
                raise Problem(line, f"unknown cell option #| {key}")
        options = parsed.options
        if not parsed.shown:
            return
        images = any(kind.startswith("image/") for out in cell.get("outputs", [])
                     for kind in out.get("data", {}))
        schematic = bool(drawn(cell))
        if "label" in options and not options.get("fig-cap"):
            raise Problem(1, "a figure with a label needs a fig-cap")
        if "label" in options and not (images or schematic):
            raise Problem(1, "this figure's cell holds no picture: execute the notebook and save it")
        if "label" in options and sum(out["output_type"] != "stream" for out in cell.get("outputs", [])) > 1:
            raise Problem(1, "a figure's cell shows the picture alone: what else it says stands in a cell of its own")
        if (images or "fig-cap" in options and not schematic) and not options.get("fig-alt"):
            raise Problem(1, "a figure needs a fig-alt, which says what is seen")
        if "fig-cap" in options:
            line = list(options).index("fig-cap") + 1
            self.check_block(name, number, Block("text", line, text=options["fig-cap"]))

    def anchor(self, name: str, cell: dict) -> str:
        "Where links to a cell lead that decides a claim of a paper; empty for the others."
        return f"cell-{cell['id']}" if (name, cell.get("id")) in self.decisive else ""

    def place(self, name: str, cell: dict, before: str) -> str:
        "Where a processed cell stands in its source; one that nbdev made stands after `before`."
        number = self.cells[name].get(cell.get("id"))
        return f"{name}, cell {number}" if number else before


class Writer:
    """Writes blocks with their numbers filled in; a renderer says how each construct looks."""

    def __init__(self, book: Book, notebook: str):
        self.book = book
        self.notebook = notebook

    # what a renderer decides
    def href(self, target: Target) -> str:
        raise NotImplementedError

    def page_href(self, notebook: str) -> str:
        raise NotImplementedError

    def cite(self, items: str) -> str:
        return f"[{items}]"

    def cite_in_text(self, key: str, locator: str) -> str:
        return f"@{key}" + (f" [{locator}]" if locator else "")

    def external(self, url: str) -> str:
        return url

    # text
    def inline(self, text: str) -> str:
        "Resolve references, citations and links in running text; code and formulas stay."
        return INLINE.sub(lambda match: self.resolved(match, text), text)

    def resolved(self, match: re.Match, text: str) -> str:
        if match["linked"]:  # nbdev linked `name` inside a link; the author's link wins
            return match["inner"]
        if match["link"]:
            return f"]({self.linked(match['target'])}{match['title'] or ''})"
        if match["group"]:
            return self.cite(match["items"])
        if match["ref"]:
            target = self.book.targets.get(match["label"])
            if target is None:
                return self.cite_in_text(match["label"], match["locator"] or "")
            locator = f" [{match['locator']}]" if match["locator"] else ""
            return self.reference(target, text[: match.start()]) + locator
        return match[0]

    def reference(self, target: Target, before: str) -> str:
        name = target.name
        if name.startswith("equation") and re.search(r"(^|[.!?]\s+)\s*$", before):
            name = name.capitalize()
        if target.label.startswith("sec-"):
            name = re.sub(r"\[(`[^`]+`)\]\([^()]*\)", r"\1", name)
        return f"[{name}]({self.href(target)})"

    def linked(self, target: str) -> str:
        if re.match(r"[a-z]+:", target):
            return self.external(target)
        path, _, fragment = target.partition("#")
        if fragment in self.book.targets:
            return self.href(self.book.targets[fragment])
        if path.startswith("../"):
            return self.book.files + path[3:]
        return self.page_href(path) if path.endswith(".ipynb") else target

    # blocks
    def write(self, source: str) -> str:
        "The source of a Markdown cell, resolved."
        self.lines: list[str] = []
        self.head = ""
        self.open: list[Block] = []
        for block in Reader(source).read():
            if self.head and block.kind not in ("blank", "text"):
                self.paragraph(block.indent + self.head)
                self.head = ""
            getattr(self, "on_" + block.kind)(block)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self.lines)).strip("\n")

    def paragraph(self, *lines: str) -> None:
        "Lines with an empty one on both sides."
        self.lines += ["", *lines, ""]

    def indented(self, block: Block, *lines: str) -> None:
        text = "\n".join(lines).split("\n")
        self.paragraph(*[(block.indent + line) if line else "" for line in text])

    def on_blank(self, block: Block) -> None:
        self.lines.append("")

    def on_text(self, block: Block) -> None:
        text = self.inline(block.text)
        if self.head and (LIST_ITEM.match(text) or text.startswith(">")):
            self.paragraph(self.head)
        elif self.head:
            body = text.lstrip()
            text = text[: len(text) - len(body)] + self.head + " " + body
        self.head = ""
        self.lines += text.split("\n")

    def on_code(self, block: Block) -> None:
        self.indented(block, block.text)

    def on_open(self, block: Block) -> None:
        self.open.append(block)
        title = self.inline(block.title)
        if block.cls in STATEMENTS:
            name = self.book.targets[block.label].name
            self.open_statement(block)
            self.head = f"**{name}**" + (f" ({title})." if title else ".")
            if not title:
                self.head = f"**{name}.**"
        elif block.cls == "proof":
            self.open_proof(block)
            self.head = "*Proof.*"
        else:
            self.open_callout(block, title)

    def on_close(self, block: Block) -> None:
        self.open.pop()
        self.indented(block, ":" * self.colons(len(self.open)))

    @staticmethod
    def colons(depth: int) -> int:
        "Length of a fence: outer fences are longer, so that both renderers nest them."
        return 8 - depth

    def caption(self, block: Block) -> str:
        text = self.inline(block.title)
        if not block.label:
            return text
        name = self.book.targets[block.label].name
        return f"{name}: {text}" if text else name


class QuartoWriter(Writer):
    """Quarto's Markdown without the labels that Quarto would number by itself.

    Anchors are empty spans: Quarto gives meaning to identifiers of blocks, not of spans. The
    classes begin with `book-`, since Quarto puts words of its own before `.proof` and `.remark`.
    """

    def href(self, target: Target) -> str:
        page = "" if target.notebook == self.notebook else f"{target.page}.html"
        return f"{page}#{target.label}"

    def page_href(self, notebook: str) -> str:
        return f"{page_of(notebook)}.html"

    def fence(self, attrs: str) -> str:
        return ":" * self.colons(len(self.open) - 1) + f" {{{attrs}}}"

    def open_statement(self, block: Block) -> None:
        anchor = f"[]{{#{block.label}}}"
        self.indented(block, self.fence(f".book-statement .book-{block.cls}"), "", anchor)

    def open_proof(self, block: Block) -> None:
        self.indented(block, self.fence(".book-proof"))

    def open_callout(self, block: Block, title: str) -> None:
        pairs = "".join(f' {key}="{value}"' for key, value in block.attrs.items())
        lines = [self.fence(f".{block.cls}{pairs}")] + (["", f"## {title}"] if title else [])
        self.indented(block, *lines)

    def on_heading(self, block: Block) -> None:
        label = f" {{#{block.label}}}" if block.label else ""
        self.paragraph("#" * block.attrs["level"] + f" {self.inline(block.text)}{label}")

    def on_math(self, block: Block) -> None:
        if not block.label:
            return self.indented(block, "$$", block.text, "$$")
        number = self.book.targets[block.label].number
        self.indented(block, f"[]{{#{block.label}}}", "$$", f"{block.text} \\qquad({number})", "$$")

    def on_table(self, block: Block) -> None:
        anchor = [f"[]{{#{block.label}}}", ""] if block.label else []
        caption = ["", f": {self.caption(block)}"] if block.title or block.label else []
        self.indented(block, *anchor, self.inline(block.text), *caption)

    def on_image(self, block: Block) -> None:
        anchor = [f"[]{{#{block.label}}}", ""] if block.label else []
        image = f'![{self.caption(block)}]({block.text}){{fig-alt="{block.attrs["fig-alt"]}"}}'
        self.indented(block, *anchor, image)


def quarto_entry(entry: Entry, chapter: str = "") -> str:
    "In a chapter, where the code stands beside it, the arguments open at a click."
    source = f"\n[source]({entry.source}){{.api-source}}\n" if entry.source else ""
    arguments = f"```python\n{entry.signature}\n```", f"{entry.table()}\n"
    if chapter:
        return (f"### {entry.name}\n{source}\n{entry.doc}\n\n<details><summary>Arguments</summary>\n\n"
                + "\n\n".join(arguments) + "\n</details>\n")
    return f"### {entry.name}\n{source}\n{arguments[0]}\n\n{entry.doc}\n\n{arguments[1]}"


def numbered_title(front_matter: str, notebook: str) -> str:
    "Put the chapter's number before the title in nbdev's front matter."
    chapter = chapter_of(notebook)
    return re.sub(r"^(title: ['\"]?)", rf"\g<1>{chapter} " if chapter else r"\1", front_matter,
                  count=1, flags=re.MULTILINE)


def mark_cell(text: str) -> dict:
    "A Markdown cell."
    return {"cell_type": "markdown", "metadata": {}, "source": text}


ANSWERS = "with_answers.zip"


def downloads(book: Book, notebook: str) -> list[tuple[str, str]]:
    """What a page offers for download: text and file. Where answers were left out, there are also the notebooks with
    them: all in one archive, which is a quarter of their size."""
    plain = [("Download this notebook", notebook)]
    return [*plain, ("all notebooks with the answers", ANSWERS)] if has_answers(book, notebook) else plain


def has_answers(book: Book, notebook: str) -> bool:
    return bool(learners.without_answers({"cells": book.notebooks[notebook]})[1])


def online(root: Path, notebook: str) -> list[tuple[str, str]]:
    """Where a notebook can be run without installing anything: text and address, for the user and the repository of
    settings.ini. The branch holds what readers download; .github/workflows/site.yml puts it there."""
    settings = ConfigParser()
    settings.read(root / "settings.ini", encoding="utf-8")
    user, repo = (settings["DEFAULT"].get(key, "") for key in ("user", "repo"))
    if not (user and repo):
        return []
    return [("Open in Colab", f"https://colab.research.google.com/github/{user}/{repo}/blob/{NOTEBOOKS}/{notebook}"),
            ("Open in Binder", f"https://mybinder.org/v2/gh/{user}/{repo}/{NOTEBOOKS}?labpath={notebook}")]


def download_link(book: Book, notebook: str) -> str:
    links = [(text, f"{NOTEBOOKS}/{file}") for text, file in downloads(book, notebook)] + online(book.root, notebook)
    return " · ".join(f"[{text}]({target}){{.download}}" for text, target in links)


def for_quarto(nb: dict, book: Book, notebook: str) -> dict:
    "A processed notebook with everything resolved; one that already is stays as it is."
    if nb["metadata"].get("book") == "resolved":
        return nb
    writer = QuartoWriter(book, notebook)
    cells = []
    for cell in nb["cells"]:
        source = source_of(cell)
        if cell["cell_type"] == "raw":
            cell["source"] = numbered_title(source, notebook)
        elif cell["cell_type"] == "markdown" and not source.startswith("<!--"):
            cell["source"] = writer.write(unbroken(source))
        elif cell["cell_type"] == "code":
            unbroken_outputs(cell)
            anchor = book.anchor(notebook, cell)
            cells += [mark_cell(f"[]{{#{anchor}}}")] if anchor else []
            before, after = figure_for_quarto(cell, source, writer)
            as_markdown(cell)
            cells += [*before, cell, *after]
        if cell["cell_type"] != "code":
            cells.append(cell)
        if cell["cell_type"] == "raw":
            cells.append(mark_cell(download_link(book, notebook)))
    cells += [mark_cell(writer.write(text)) for text in apiindex.of_book(notebook, book.root)]
    nb["metadata"]["book"] = "resolved"
    return handover.in_lines({**nb, "cells": cells})


def as_markdown(cell: dict) -> None:
    """HTML among the outputs of a cell, as Markdown that says it is HTML. Where Quarto finds it as HTML, it takes it
    for a widget, and the page loads RequireJS and jQuery from another host."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data:
            html = "".join(data.pop("text/html")).strip("\n")
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", html))])
            data["text/markdown"] = f"{fence}{{=html}}\n{html}\n{fence}\n"


LONG = 30  # lines of exported code that a page shows at once


def fold_long(options: dict, body: str) -> None:
    "Exported code that fills a screen opens at a click, under its names; short code is seen at once."
    if options.get("code-fold") != "show" or body.strip().count("\n") < LONG:
        return
    names = re.findall(r"^(?:class|(?:async )?def) (\w+)", body, re.MULTILINE)
    options["code-fold"] = "true"
    options["code-summary"] = f"Source of {', '.join(names) or 'this part'}: {body.strip().count(chr(10)) + 1} lines"


def figure_for_quarto(cell: dict, source: str, writer: QuartoWriter) -> tuple[list, list]:
    """Number a code cell's figure and write its API entries; returns the cells to put before and after it:
    the anchor, and the caption of a schematic, since Quarto sets captions under images only."""
    for output in cell.get("outputs", []):
        if entry := Entry.parse(markdown_of(output)):
            output["data"]["text/markdown"] = quarto_entry(entry, chapter_of(writer.notebook))
    parsed = Cell.parse(source)
    options, written = parsed.options, dict(parsed.options)
    describe(cell, options.get("fig-alt", ""))
    fold_long(options, parsed.body)
    if "fig-cap" not in options:
        if options != written or source.count("#| code-fold:") > 1:     # nbdev marks exported code as well
            cell["source"] = in_cell(options, parsed.body)
        return [], []
    label = options.pop("label", "")
    name = f"{writer.book.targets[label].name}: " if label else ""
    options["fig-cap"] = name + writer.inline(options["fig-cap"])
    after = []
    if drawn(cell):
        after = [mark_cell(f"::: {{.book-caption}}\n{options.pop('fig-cap')}\n:::")]
        options.pop("fig-alt", None)
    cell["source"] = in_cell(options, parsed.body)
    return [mark_cell(f"[]{{#{label}}}")] if label else [], after


def in_cell(options: dict, body: str) -> str:
    head = [f"#| {key}: {json.dumps(value, ensure_ascii=False) if key in TEXTS else value}"
            for key, value in options.items()]
    return "\n".join([*head, body])


def copy_files(nbs: Path, out: Path) -> None:
    "Images, styles, bibliography: all but notebooks and hidden files. nbdev leaves folders behind."
    for path in sorted(nbs.rglob("*")):
        parts = path.relative_to(nbs).parts
        if path.is_file() and path.suffix != ".ipynb" and not any(p[0] in "_." for p in parts):
            target = out.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


TEXTS = ("fig-cap", "fig-alt", "code-summary")


def main() -> None:
    "Resolve the notebooks of the current directory, if that is nbdev's `_proc`."
    import lab  # which writes with the Writer above

    here = Path.cwd()
    if here.name != "_proc":
        return
    nbs = here.parent / "nbs"
    try:
        book = Book(nbs).check_or_raise()
    except BookError as error:
        sys.exit(f"The book cannot be built:\n{error}")
    copy_files(nbs, here)
    ready = {path.name: for_quarto(json.loads(path.read_text(encoding="utf-8")), book, path.name)
             for path in sorted(here.glob("*.ipynb"))}
    pages = {name: page_of(name) for name in ready}
    if found := handover.problems(ready, pages, book.root / "_quarto.yml"):
        sys.exit("\n".join(["The book cannot be handed to Quarto:", *found]))
    for name, nb in ready.items():
        text = json.dumps(nb, ensure_ascii=False, indent=1) + "\n"
        (here / name).write_text(text, encoding="utf-8")
    lab.write_downloads(book, here, ready)


if __name__ == "__main__":
    main()

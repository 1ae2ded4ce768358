"""Numbers and references of the book, computed once for both ways to render it.

Quarto numbers statements within a page only, and Sphinx does not know Quarto's labels. So the
book counts for itself: chapter 02's third theorem is "Theorem 2.3" wherever it is named. Labels
are read from the source notebooks; text is rewritten in the processed ones (`_proc`). Whatever
the grammar of a chapter does not know is an error that names notebook, cell and line, so that
no text can go astray on its way to the page.

Quarto runs this file before it renders (`pre-render` in _quarto.yml), with whichever Python it
finds: so nothing beyond the standard library is imported here. The Sphinx build imports it.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import sys
import textwrap
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

STATEMENTS = {
    "thm": "Theorem", "lem": "Lemma", "cor": "Corollary", "prp": "Proposition",
    "def": "Definition", "exm": "Example", "exr": "Exercise", "rem": "Remark",
}
NUMBERED = STATEMENTS | {"eq": "equation", "fig": "Figure", "tbl": "Table"}
PREFIXES = [*NUMBERED, "sec"]
CALLOUTS = ("note", "tip", "warning", "important", "caution")
DIRECTIVES = {  # of nbdev and Quarto, in the lines `#|` at the head of a code cell
    "default_exp", "export", "exports", "exporti", "exec_doc", "hide", "hide_line", "slow",
    "echo", "output", "eval", "include", "label", "fig-cap", "fig-alt", "code-fold",
    "code-summary",
}
NOT_PORTABLE = re.compile(
    r"\\(tag|label|newcommand|renewcommand|def|DeclareMathOperator|eqref|ref)\b"
    r"|\\begin\{(\w*smallmatrix|equation|align)\*?\}"
)
NOTEBOOKS = "notebooks"  # folder of the site where the notebooks lie that readers download

LABEL = rf"(?:{'|'.join(PREFIXES)})-[a-z0-9]+(?:-[a-z0-9]+)*"
KEY = r"[A-Za-z](?:[\w:.+-]*\w)?"
FENCE = re.compile(r"(`{3,}|~{3,})\s*(.*)$")
DIV = re.compile(r"(:{3,})\s*(.*?)\s*$")
HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*$")
ATTRS_AT_END = re.compile(r"\s*\{([^{}]*)\}\s*$")
IMAGE = re.compile(r"!\[(?P<alt>.*)\]\((?P<path>[^()\s]+)\)(?:\{(?P<attrs>[^{}]*)\})?$")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
ATTR = re.compile(r"""#(?P<id>[^\s#.]+)|\.(?P<cls>[\w-]+)|(?P<key>[\w-]+)=(?P<val>"[^"]*"|\S+)""")
INLINE = re.compile(
    rf"""
    (?P<code>(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))
  | (?P<esc>\\[^\w\s])
  | (?P<display>\$\$)
  | (?P<math>\$(?=\S)(?:\\.|[^$\\])*?(?<!\s)\$(?!\d))
  | (?P<auto><(?:https?://|mailto:)[^<>\s]+>|<[\w.+-]+@[\w.-]+>)
  | (?P<html></?[A-Za-z][^<>]*>|<!--)
  | (?P<short>\{{\{{[<%])
  | (?P<linked>\[(?P<inner>`[^`]+`)\]\([^()]*\)(?=[^\[\]]*\]\())
  | (?P<span>\]\{{|\]\([^()\s]+\)\{{)
  | (?P<link>\]\((?P<target>[^()\s]+)(?P<title>\s+"[^"]*")?\))
  | (?P<group>\[(?P<items>[^\[\]$`]*(?<![\w@])@{KEY}[^\[\]]*)\](?!\())
  | (?P<ref>(?<![\w@/.-])@(?P<label>{KEY})(?:\s\[(?P<locator>[^\[\]@]+)\](?!\())?)
    """,
    re.VERBOSE | re.DOTALL,
)


class BookError(Exception):
    """All problems of a book, one line each."""


class Problem(Exception):
    """A line that the grammar does not know; the notebook and the cell are added by the caller."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


@dataclass
class Block:
    """A piece of a Markdown cell: what it is, where it stands, what it carries."""

    kind: str  # blank text code math heading table image open close
    line: int  # of the cell, counted from 1
    indent: str = ""
    text: str = ""
    label: str = ""
    cls: str = ""  # of a div: a statement's prefix, "proof" or a callout's kind
    title: str = ""  # of a statement or callout; caption of a table or image
    attrs: dict = field(default_factory=dict)


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
    "Number of the chapter as text, empty where the file name begins with none."
    match = re.match(r"(\d+)[a-zA-Z]?_", notebook)
    return str(int(match[1])) if match else ""


def parse_attrs(text: str, line: int) -> tuple[str, list[str], dict]:
    "Identifier, classes and key-value pairs of Pandoc's attributes, given without braces."
    if ATTR.sub("", text).strip():
        raise Problem(line, f"attributes {{{text}}} are not understood")
    ident, classes, pairs = "", [], {}
    for match in ATTR.finditer(text):
        if match["id"]:
            ident = match["id"]
        elif match["cls"]:
            classes.append(match["cls"])
        else:
            pairs[match["key"]] = match["val"].strip('"')
    return ident, classes, pairs


def checked_label(ident: str, allowed: list[str], line: int) -> str:
    "`ident` if it is empty or a label of an allowed kind."
    if ident and not (re.fullmatch(LABEL, ident) and ident.split("-")[0] in allowed):
        raise Problem(
            line, f"label #{ident} must be one of {', '.join(p + '-' for p in allowed)} "
                  "followed by lower-case words joined by hyphens")
    return ident


class Reader:
    """Splits the source of a Markdown cell into blocks."""

    def __init__(self, source: str):
        self.lines = source.splitlines()
        self.at = 0
        self.open: list[Block] = []

    def read(self) -> list[Block]:
        blocks = []
        while self.at < len(self.lines):
            blocks.append(self.block())
        if self.open:
            raise Problem(self.open[-1].line, "this ::: block is never closed")
        return blocks

    def peek(self, skip: int = 0) -> str:
        "The first line from `skip` lines ahead that is not blank, moving nothing."
        rest = self.lines[self.at + skip:]
        return next((line.strip() for line in rest if line.strip()), "")

    def skip_blank(self) -> None:
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1

    def block(self) -> Block:
        line, number = self.lines[self.at], self.at + 1
        body = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        self.at += 1
        if not body:
            return Block("blank", number)
        if FENCE.match(body):
            return self.code(number, indent, body)
        if body.startswith(":::"):
            return self.div(number, indent, body)
        if body.startswith("$$"):
            return self.math(number, indent, body)
        if HEADING.match(line):
            return self.heading(number, line)
        if body.startswith("|"):
            return self.table(number, indent, body)
        if body.startswith("+--"):
            raise Problem(number, "grid tables are not part of the grammar; use a pipe table")
        if re.match(r":\s", body):
            raise Problem(number, "a caption needs a pipe table and a blank line above it")
        image = IMAGE.match(body)
        if image and self.alone():
            return self.image(number, indent, image)
        return self.text(number, line)

    def alone(self) -> bool:
        "Is the line just read a paragraph of its own?"
        before = self.lines[self.at - 2].strip() if self.at > 1 else ""
        after = self.lines[self.at].strip() if self.at < len(self.lines) else ""
        return all(not s or s.startswith(":::") for s in (before, after))

    def code(self, number: int, indent: str, body: str) -> Block:
        marks, info = FENCE.match(body).groups()
        if info.startswith("{"):
            raise Problem(number, f"code with attributes ({info}) is not part of the grammar")
        lines = [body]
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            lines.append(line[len(indent):] if line.startswith(indent) else line)
            if re.fullmatch(rf"{marks[0]}{{{len(marks)},}}", line.strip()):
                return Block("code", number, indent, "\n".join(lines))
        raise Problem(number, f"this {marks} code is never closed")

    def div(self, number: int, indent: str, body: str) -> Block:
        rest = DIV.match(body)[2]
        if not rest:
            if not self.open:
                raise Problem(number, "::: closes a block that was never opened")
            self.open.pop()
            return Block("close", number, indent)
        if not (rest.startswith("{") and rest.endswith("}")):
            raise Problem(number, f"a block opens with `::: {{…}}`, not with `::: {rest}`")
        block = self.opened(number, indent, rest[1:-1])
        self.open.append(block)
        return block

    def opened(self, number: int, indent: str, text: str) -> Block:
        ident, classes, attrs = parse_attrs(text, number)
        block = Block("open", number, indent, attrs=attrs)
        if ident:
            if classes or attrs:
                raise Problem(number, f"a statement carries its label only: ::: {{#{ident}}}")
            block.label = checked_label(ident, list(STATEMENTS), number)
            block.cls = ident.split("-")[0]
        elif classes == ["proof"] and not attrs:
            block.cls = "proof"
        elif classes in [[f"callout-{kind}"] for kind in CALLOUTS]:
            block.cls = classes[0]
            if set(attrs) - {"collapse"}:
                raise Problem(number, f"a callout takes collapse= only: {{{text}}}")
        else:
            raise Problem(number, f"unknown kind of block {{{text}}}")
        if block.cls != "proof" and (match := HEADING.match(self.peek())):
            self.skip_blank()
            self.at += 1
            block.title = match[2]
        return block

    def math(self, number: int, indent: str, body: str) -> Block:
        text = body[2:]
        while "$$" not in text:
            if self.at == len(self.lines):
                raise Problem(number, "this $$ is never closed")
            line = self.lines[self.at].strip()
            self.at += 1
            if not line or line.startswith(":::"):
                raise Problem(self.at, "no blank line and no ::: inside $$ … $$")
            text += "\n" + line
        text, _, rest = text.partition("$$")
        text = text.strip("\n").strip()
        if not text:
            raise Problem(number, "empty $$ $$")
        if match := NOT_PORTABLE.search(text):
            raise Problem(number, f"{match[0]} does not work in both renderers; "
                                  "use aligned, a {#eq-label}, and plain commands")
        block = Block("math", number, indent, text)
        if rest.strip():
            match = ATTRS_AT_END.fullmatch(rest)
            if not match:
                raise Problem(self.at, f"after the closing $$ only {{#eq-name}} may stand: {rest}")
            ident, classes, attrs = parse_attrs(match[1], self.at)
            if not ident or classes or attrs:
                raise Problem(self.at, f"an equation takes a label only: {rest.strip()}")
            block.label = checked_label(ident, ["eq"], self.at)
        return block

    def heading(self, number: int, line: str) -> Block:
        marks, text = HEADING.match(line).groups()
        if self.open:
            raise Problem(number, "a heading inside ::: is its title and stands first in it")
        if text.endswith(" -"):
            raise Problem(number, "nbdev drops headings that end in a dash")
        block = Block("heading", number, text=text, attrs={"level": len(marks)})
        if match := ATTRS_AT_END.search(text):
            ident, classes, attrs = parse_attrs(match[1], number)
            if not ident or classes or attrs:
                raise Problem(number, f"a heading takes a label only: {match[0].strip()}")
            block.label = checked_label(ident, ["sec"], number)
            block.text = text[: match.start()]
        return block

    def table(self, number: int, indent: str, body: str) -> Block:
        rows = [body]
        while self.at < len(self.lines) and self.lines[self.at].strip().startswith("|"):
            rows.append(self.lines[self.at].strip())
            self.at += 1
        self.check_rows(rows, number)
        block = Block("table", number, indent, "\n".join(rows))
        match = re.fullmatch(r":\s+(.*)", self.peek())
        if match and not (self.at < len(self.lines) and self.lines[self.at].strip()):
            self.skip_blank()
            self.at += 1
            block.title = match[1].strip()
            if found := ATTRS_AT_END.search(block.title):
                ident, classes, attrs = parse_attrs(found[1], self.at)
                if not ident or classes or attrs:
                    raise Problem(self.at, f"a table takes a label only: {found[0].strip()}")
                block.label = checked_label(ident, ["tbl"], self.at)
                block.title = block.title[: found.start()]
        return block

    @staticmethod
    def check_rows(rows: list[str], number: int) -> None:
        "Rows with other numbers of cells than the head lose text in one renderer or the other."
        if len(rows) < 2 or not re.fullmatch(r"[|:\s-]+", rows[1]):
            raise Problem(number, "a pipe table needs a line like |---|---| below its head")
        widths = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
        for offset, (row, width) in enumerate(zip(rows, widths, strict=True)):
            if not row.endswith("|"):
                raise Problem(number + offset, "a row of a table ends with |")
            if width != widths[1]:
                raise Problem(
                    number + offset, f"this row has {width - 1} cells, the table {widths[1] - 1} "
                                     "(write \\lvert, \\Vert or \\mid for a bar in a formula)")

    def image(self, number: int, indent: str, match: re.Match) -> Block:
        ident, classes, attrs = parse_attrs(match["attrs"] or "", number)
        if classes or set(attrs) - {"fig-alt"}:
            raise Problem(number, f"an image takes #fig-name and fig-alt: {{{match['attrs']}}}")
        if not attrs.get("fig-alt"):
            raise Problem(number, 'an image needs fig-alt="…", which says what is seen')
        label = checked_label(ident, ["fig"], number)
        return Block("image", number, indent, match["path"], label, title=match["alt"], attrs=attrs)

    def text(self, number: int, line: str) -> Block:
        "A paragraph, list item or quote: lines up to a blank one or to another kind of block."
        lines = [line]
        while self.at < len(self.lines):
            body = self.lines[self.at].strip()
            if not body or FENCE.match(body) or body.startswith((":::", "$$", "|")):
                break
            if HEADING.match(self.lines[self.at]):
                raise Problem(self.at + 1, "a heading needs a blank line above it")
            lines.append(self.lines[self.at])
            self.at += 1
        first = lines[0]
        if not (LIST_ITEM.match(first) or first.startswith((" ", "\t", ">"))):
            for offset, later in enumerate(lines[1:], 1):
                if LIST_ITEM.match(later) or later.startswith(">"):
                    raise Problem(number + offset, "a list or quote needs a blank line above it")
        return Block("text", number, text="\n".join(lines))


@dataclass
class Cell:
    """A code cell's options (`#| key: value`) and the rest of its source."""

    options: dict
    body: str

    @classmethod
    def parse(cls, source: str) -> Cell:
        options, lines = {}, source.splitlines()
        while lines and (match := re.match(r"\s*#\s*\|\s*([\w-]+)\s*:?\s*(.*?)\s*$", lines[0])):
            options[match[1]] = unquoted(match[2], len(options) + 1)
            lines.pop(0)
        return cls(options, "\n".join(lines))

    @property
    def shown(self) -> bool:
        "Does anything of this cell reach the page?"
        return not (self.options.keys() & {"hide", "export", "exporti", "default_exp"}
                    or self.options.get("include") == "false")


def unquoted(value: str, line: int = 1) -> str:
    "A YAML scalar as text."
    if value.startswith("'") and value.endswith("'"):
        return value[1:-1].replace("''", "'")
    if value.startswith('"'):
        try:
            return json.loads(value)
        except ValueError:
            raise Problem(line, f"{value} is no valid string (write backslashes double)") from None
    return value


def repository_url(quarto: Path) -> str:
    "Where the files of the repository are shown, as _quarto.yml says (read without a parser)."
    text = quarto.read_text(encoding="utf-8") if quarto.exists() else ""
    found = dict(re.findall(r"^\s+(repo-url|repo-branch):\s*(\S+)", text, re.MULTILINE))
    return f"{found.get('repo-url', '').rstrip('/')}/blob/{found.get('repo-branch', 'main')}/"


def source_of(cell: dict) -> str:
    return "".join(cell["source"])


def markdown_of(output: dict) -> str:
    return "".join(output.get("data", {}).get("text/markdown", ""))


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
        if "label" in options and not options.get("fig-cap"):
            raise Problem(1, "a figure with a label needs a fig-cap")
        if "label" in options and not images:
            raise Problem(1, "this figure's cell holds no picture: execute the notebook and save it")
        if (images or "fig-cap" in options) and not options.get("fig-alt"):
            raise Problem(1, "a figure needs a fig-alt, which says what is seen")
        if "fig-cap" in options:
            line = list(options).index("fig-cap") + 1
            self.check_block(name, number, Block("text", line, text=options["fig-cap"]))

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


@dataclass
class Entry:
    """What `show_doc` says about one symbol."""

    name: str
    source: str  # link to the code
    signature: str
    rows: list[tuple[str, str, str, str]]  # argument, type, default, meaning
    doc: str

    PATTERN = re.compile(
        r"\A---\n+(?:\[source\]\((?P<source>[^)]+)\)\{[^}]*\}\n+)?"
        r"#+ (?P<name>[^\n]+)\n+```python\n(?P<code>.*?)\n```\n*(?P<doc>.*)\Z", re.DOTALL)

    @classmethod
    def parse(cls, markdown: str) -> Entry | None:
        match = cls.PATTERN.match(markdown.strip() + "\n")
        if match is None:
            return None
        signature, rows = signature_of(match["code"])
        return cls(match["name"].strip(), match["source"] or "", signature, rows,
                   match["doc"].strip())

    def table(self) -> str:
        "Arguments with their types, defaults and meanings; empty columns are left out."
        if not any(any(row[1:]) for row in self.rows):
            return ""
        columns = [c for c in range(4) if c == 0 or any(row[c] for row in self.rows)]
        head = ("", "Type", "Default", "Meaning")
        rows = [[head[c] for c in columns], ["---"] * len(columns)]
        rows += [[row[c] for c in columns] for row in self.rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def signature_of(code: str) -> tuple[str, list]:
    "The signature without comments, and a row for each argument that carries one."
    try:
        node = ast.parse(code + "\n    pass").body[0]
        comments = comments_in(code + "\n    pass\n")
    except (SyntaxError, tokenize.TokenError):  # a default whose repr is no Python
        return code, []
    rows = [argument_row(arg, default, mark, comments) for arg, default, mark in arguments(node)]
    if node.returns is not None:
        meaning = comments.get(node.returns.lineno, "") if code.count("\n") else ""
        rows.append(("*returns*", code_span(ast.unparse(node.returns)), "", escaped(meaning)))
    return plain_signature(node), rows


def comments_in(code: str) -> dict[int, str]:
    "Comment of each line that has one."
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {t.start[0]: t.string.lstrip("# ").strip() for t in tokens if t.type == tokenize.COMMENT}


def arguments(node) -> list:
    "All arguments of a function with default and stars, in the order of the signature."
    args = node.args
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + args.defaults
    found = [(a, d, "") for a, d in zip(plain, defaults, strict=True)]
    found += [(args.vararg, None, "*")] if args.vararg else []
    found += [(a, d, "") for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return found + ([(args.kwarg, None, "**")] if args.kwarg else [])


def argument_row(arg, default, mark: str, comments: dict) -> tuple:
    kind = code_span(ast.unparse(arg.annotation)) if arg.annotation else ""
    value = code_span(ast.unparse(default)) if default is not None else ""
    return code_span(mark + arg.arg), kind, value, escaped(comments.get(arg.lineno, ""))


def code_span(text: str) -> str:
    "Code for a cell of a table; a bar there would end the cell in one renderer or the other."
    return " or ".join(f"`{part.strip()}`" for part in text.split("|"))


def escaped(text: str) -> str:
    "A comment is plain text: what Markdown would read as a mark is escaped."
    parts = re.split(r"`([^`]*)`", text)
    parts[::2] = [re.sub(r"([\\*_|<>\[\]$~^])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [code_span(part) for part in parts[1::2]]
    return "".join(parts)


def plain_signature(node) -> str:
    "Name, arguments and defaults; on one line where it fits."
    node.body = [ast.Pass()]
    for arg, _, _ in arguments(node):
        arg.annotation = None
    node.returns = None
    line = ast.unparse(node).split("\n")[-2].removeprefix("def ").removesuffix(":")
    if len(line) <= 80:
        return line
    name, _, rest = line.partition("(")
    return f"{name}(\n" + textwrap.fill(rest[:-1], 76, initial_indent="    ",
                                        subsequent_indent="    ") + "\n)"


def quarto_entry(entry: Entry) -> str:
    source = f"\n[source]({entry.source}){{.api-source}}\n" if entry.source else ""
    return (f"### {entry.name}\n{source}\n```python\n{entry.signature}\n```\n\n{entry.doc}\n\n"
            f"{entry.table()}\n")


def numbered_title(front_matter: str, notebook: str) -> str:
    "Put the chapter's number before the title in nbdev's front matter."
    chapter = chapter_of(notebook)
    return re.sub(r"^(title: ['\"]?)", rf"\g<1>{chapter} " if chapter else r"\1", front_matter,
                  count=1, flags=re.MULTILINE)


def mark_cell(text: str) -> dict:
    "A Markdown cell."
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def download_link(notebook: str) -> str:
    return f"[Download this notebook]({NOTEBOOKS}/{notebook}){{.download}}"


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
            cell["source"] = writer.write(source)
        elif cell["cell_type"] == "code":
            cells += figure_for_quarto(cell, source, writer)
        cells.append(cell)
        if cell["cell_type"] == "raw":
            cells.append(mark_cell(download_link(notebook)))
    nb["metadata"]["book"] = "resolved"
    return {**nb, "cells": cells}


def figure_for_quarto(cell: dict, source: str, writer: QuartoWriter) -> list[dict]:
    "Number a code cell's figure and write its API entries; returns the anchor to put before it."
    for output in cell.get("outputs", []):
        if entry := Entry.parse(markdown_of(output)):
            output["data"]["text/markdown"] = quarto_entry(entry)
    parsed = Cell.parse(source)
    if "fig-cap" not in parsed.options:
        return []
    label = parsed.options.pop("label", "")
    name = f"{writer.book.targets[label].name}: " if label else ""
    parsed.options["fig-cap"] = name + writer.inline(parsed.options["fig-cap"])
    head = [f"#| {key}: {json.dumps(value, ensure_ascii=False) if key in TEXTS else value}"
            for key, value in parsed.options.items()]
    cell["source"] = "\n".join(head + [parsed.body])
    return [mark_cell(f"[]{{#{label}}}")] if label else []


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
    here = Path.cwd()
    if here.name != "_proc":
        return
    nbs = here.parent / "nbs"
    try:
        book = Book(nbs).check_or_raise()
    except BookError as error:
        sys.exit(f"The book cannot be built:\n{error}")
    copy_files(nbs, here)
    (here / NOTEBOOKS).mkdir(exist_ok=True)
    for path in sorted(here.glob("*.ipynb")):
        nb = for_quarto(json.loads(path.read_text(encoding="utf-8")), book, path.name)
        path.write_text(json.dumps(nb, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        shutil.copy2(nbs / path.name, here / NOTEBOOKS / path.name)


if __name__ == "__main__":
    main()

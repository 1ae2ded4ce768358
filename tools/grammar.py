"""The grammar of a chapter: Markdown cells as blocks, code cells as options and code.

Whatever is not in the grammar is a `Problem` with its line, so that no text can go astray on its
way to the page. Nothing beyond the standard library is imported, since Quarto runs this too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

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

"""What nbdev's `show_doc` says about a symbol, as signature and table of arguments."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from dataclasses import dataclass


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
        rows.append(("*returns*", type_name(node.returns), "", escaped(meaning)))
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
    kind = type_name(arg.annotation) if arg.annotation else ""
    value = code_span(ast.unparse(default)) if default is not None else ""
    return code_span(mark + arg.arg), kind, value, escaped(comments.get(arg.lineno, ""))


def type_name(annotation) -> str:
    "A type by its own name: the module that a class comes from makes columns wide and says little."
    return code_span(re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", ast.unparse(annotation)))


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

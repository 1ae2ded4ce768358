"""One style sheet for all pages, with those rules that can apply to something in them.

A page shows nothing before it has its style sheets. The theme brings seven, nearly 500 kB, mostly for what this book
does not have.
"""

from __future__ import annotations

import re
from pathlib import Path

SHEET = re.compile(r'[ \t]*<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="([^"?]+)[^>]*>\n?')
PART = re.compile(r"""/\*.*?\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{};]|(?:[^{};"'/]|/(?!\*))+""", re.DOTALL)
NESTED = ("@media", "@supports", "@layer", "@container")
NAME = re.compile(r"[.#]((?:[\w-]|\\.)+)")
MAYBE = re.compile(r":(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)|\[[^]]*\]")  # says nothing of what must be there
URL = re.compile(r"""url\((["']?)(?!data:|["'#])""")
IMPORT = re.compile(r"""@import (?:url\()?["']([^"']+)["']\)?;""")
NAMES = re.compile(r'\b(?:class|id)="([^"]*)"')
WORD = re.compile(r"[\w-]+")
VARIABLE = re.compile(r"""(?<=[{;\s])(--[\w-]+)\s*:(?:[^;{}"']|"[^"]*"|'[^']*')*(?:;|(?=}))""")
MENTIONED = re.compile(r"--[\w-]+(?!\s*:|[\w-])")
BUNDLED = ("carousel", "modal", "offcanvas", "popover", "toast")  # in a script, perhaps on no page
JOINED = "book.css"


def join(html: Path, pages: dict[Path, str]) -> dict[Path, str]:
    "Put what the pages need of their style sheets into one, and link to it; the others are deleted."
    sheets = list(dict.fromkeys(sheet for page in pages.values() for sheet in SHEET.findall(page)))
    words, scripts = names_in(pages.values()), [s.read_text(encoding="utf-8") for s in (html / "_static").rglob("*.js")]
    absent = tuple(name for name in BUNDLED if name not in words)
    words |= {word for script in scripts for word in WORD.findall(script) if not word.startswith(absent or " ")}
    parts = [slim(read(html / sheet, html / "_static"), words) for sheet in sheets]
    parts = [without_unused("\n".join(parts), "".join([*scripts, *pages.values()]))]
    for path in (html / "_static").rglob("*.css"):
        path.unlink()
    (html / "_static" / JOINED).write_text("\n".join(parts), encoding="utf-8")
    link = f'  <link rel="stylesheet" href="_static/{JOINED}" />\n'
    return {path: SHEET.sub(once(link), page) for path, page in pages.items()}


def once(text: str):
    "The text for the first match, nothing for the others."
    left = [text]
    return lambda match: left.pop() if left else ""


def names_in(pages) -> set[str]:
    "The classes and names of all elements; each of their words, since a script may put them together."
    return {word for page in pages for names in set(NAMES.findall(page)) for word in WORD.findall(names)}


def read(sheet: Path, static: Path) -> str:
    "A sheet with those that it imports in their place, and with addresses as seen from the joined one."
    text = IMPORT.sub(lambda m: read(sheet.parent / m[1], static), sheet.read_text(encoding="utf-8"))
    text = text.replace("code.literal", "code.notranslate")      # one of its two names is left on a page
    folder = sheet.parent.relative_to(static).as_posix() if sheet.is_relative_to(static) else "."
    return text if folder == "." else URL.sub(rf"url(\1{folder}/", text)


def slim(sheet: str, words: set[str]) -> str:
    "The sheet without comments and without rules for names that are not among these words."
    return "".join(kept(list(rules(sheet)), words))


def without_unused(sheet: str, other: str) -> str:
    "The sheet without variables that neither its rules nor the other text mention."
    while True:
        used = set(MENTIONED.findall(sheet)) | set(MENTIONED.findall(other))
        less = VARIABLE.sub(lambda m, used=used: m[0] if m[1] in used else "", sheet)
        if less == sheet:
            return sheet
        sheet = less


def rules(sheet: str):
    "Head and body of each rule; the body of a statement such as @import is None."
    head, body, depth = [], [], 0
    for part in PART.findall(sheet):
        if part.startswith("/*"):
            continue
        depth -= part == "}"
        if depth:
            body.append(part)
        elif part == "}":
            yield "".join(head).strip(), "".join(body)
            head, body = [], []
        elif part == ";":
            yield "".join(head).strip(), None
            head = []
        elif part != "{":
            head.append(part)
        depth += part == "{"


def kept(found, words: set[str]):
    for head, body in found:
        if body is None:
            yield f"{head};"
        elif head.startswith(NESTED):
            if inner := slim(body, words):
                yield f"{head}{{{inner}}}\n"
        elif head.startswith("@"):
            yield f"{head}{{{' '.join(body.split())}}}\n"
        elif used := [s for s in selectors(head) if may_apply(s, words)]:
            yield f"{','.join(used)}{{{' '.join(body.split())}}}\n"


def selectors(head: str) -> list[str]:
    "What commas outside of brackets separate."
    parts, depth = [""], 0
    for letter in " ".join(head.split()):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def may_apply(selector: str, words: set[str]) -> bool:
    names = [name.replace("\\", "") for name in NAME.findall(MAYBE.sub("", selector))]
    return all(part in words for name in names for part in WORD.findall(name))

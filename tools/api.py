"""What pages say of the library's names: tables of arguments, from what nbdev's `show_doc` shows, and the index of all
public names by module, added to the end of api.ipynb whenever the site is built: it is never older than the library."""

import ast
import io
import re
import textwrap
import tokenize
from pathlib import Path

PAGE, WIDTH = "api.ipynb", 84
SHOWN = re.compile(r"\A---\n+(?:\[source\]\((?P<source>[^)]+)\)\{[^}]*\}\n+)?"
                   r"#+ (?P<name>[^\n]+)\n+```python\n(?P<code>.*?)\n```\n*(?P<doc>.*)\Z", re.DOTALL)


def entry(markdown: str) -> dict | None:
    "What `show_doc` says of one name, in parts for book.lua; nothing where the text is not of its making."
    match = SHOWN.match(markdown.strip() + "\n")
    if match is None:
        return None
    made = {"kind": "api", "name": match["name"].strip(), "source": match["source"] or "", "doc": match["doc"].strip()}
    try:
        node = ast.parse(match["code"] + "\n    pass").body[0]
        tokens = list(tokenize.generate_tokens(io.StringIO(match["code"] + "\n    pass\n").readline))
    except (SyntaxError, tokenize.TokenError):          # a default whose repr is no Python
        return made | {"signature": match["code"], "table": ""}
    notes = {t.start[0]: t.string.lstrip("# ").strip() for t in tokens if t.type == tokenize.COMMENT}
    rows = [(code_span(mark + arg.arg), code_span(kind(arg.annotation)), code_span(default and ast.unparse(default)),
             escaped(notes.get(arg.lineno, ""))) for arg, default, mark in arguments(node) if arg]
    if node.returns is not None:
        meaning = notes.get(node.returns.lineno, "") if "\n" in match["code"] else ""
        rows.append(("*returns*", code_span(kind(node.returns)), "", escaped(meaning)))
    return made | {"signature": signature(node.name, node, types=False), "table": table(rows)}


def table(rows: list[tuple]) -> str:
    "Arguments with their types, defaults and meanings; empty columns are left out."
    kept = [c for c in range(4) if c == 0 or any(row[c] for row in rows)]
    rows = [("", "Type", "Default", "Meaning"), ("---",) * 4, *rows]
    return "\n".join("| " + " | ".join(row[c] for c in kept) + " |" for row in rows) if len(kept) > 1 else ""


def arguments(node) -> list[tuple]:
    "(argument, default, stars) in the order of the signature; a star alone has no argument."
    args = node.args
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + args.defaults
    found = [(a, d, "") for a, d in zip(plain, defaults, strict=True)]
    found += [(args.vararg, None, "*")] if args.vararg or args.kwonlyargs else []
    found += [(a, d, "") for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return found + ([(args.kwarg, None, "**")] if args.kwarg else [])


def kind(annotation) -> str:
    "A type by its own name: the module that a class comes from makes columns wide and says little."
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", ast.unparse(annotation)) if annotation else ""


def code_span(text: str | None) -> str:
    "Code for a cell of a table; a bar there would end the cell in one renderer or the other."
    return " or ".join(f"`{part.strip()}`" for part in text.split("|")) if text else ""


def escaped(text: str) -> str:
    "Plain text in which code may stand: what Markdown would read as a mark is escaped."
    parts = re.split(r"`([^`]*)`", text)
    parts[::2] = [re.sub(r"([\\*_|<>\[\]$~^@{])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [code_span(part) for part in parts[1::2]]
    return "".join(parts)


def signature(name: str, node, types: bool = True, bound: bool = False) -> str:
    "Name, arguments and defaults, with types or without; `bound` leaves out the first argument, self."
    args = []
    for arg, default, mark in arguments(node)[bound:]:
        typed = types and arg and arg.annotation
        text = mark + (arg.arg if arg else "") + (f": {kind(arg.annotation)}" if typed else "")
        args.append(text + (f"{' = ' if typed else '='}{ast.unparse(default)}" if default else ""))
    return folded(name, args, returned(node) if types and node.name != "__init__" else "")


def returned(node) -> str:
    return f" -> {kind(node.returns)}" if node.returns else ""


def folded(name: str, args: list[str], end: str = "") -> str:
    "A signature in as many lines as it needs."
    line = f"{name}({', '.join(args)}){end}"
    if len(line) <= WIDTH:
        return line
    rows = [""]
    for arg in args:
        if rows[-1] and len(rows[-1]) + len(arg) > WIDTH - 6:
            rows.append("")
        rows[-1] += f"{arg}, "
    return f"{name}(\n" + "".join(f"    {row.rstrip()}\n" for row in rows) + f"){end}"


# ---- the index: the exported files are read as text, nothing of them is imported ----

def index(notebook: str, root: Path, site: str) -> list[str]:
    "What is added to a page, a text for each module: the index to its own page, where there is a library."
    made = next(root.glob("*/_modidx.py"), None)
    if notebook != PAGE or made is None:
        return []
    package, text = made.parent, made.read_text(encoding="utf-8")
    links = {name: f"{site}/{place[0]}" for names in ast.literal_eval(text[text.index("{"):])["syms"].values()
             for name, place in names.items()}
    trees = {".".join(path.relative_to(package).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
             for path in sorted(package.rglob("*.py")) if not path.name.startswith("_")}
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    return [of_module(f"{package.name}.{name}", tree, links, classes) for name, tree in trees.items() if public(tree)]


def public(tree: ast.Module) -> set[str]:
    return {name for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            for name in ast.literal_eval(node.value)}


def of_module(module: str, tree: ast.Module, links: dict[str, str], classes: dict) -> str:
    parts, names = [f"## `{module}`", summary(tree)], public(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            url, about = links.get(f"{module}.{node.name}"), summary(node)
            name = f"[`{node.name}`]({url})" if url else f"`{node.name}`"
            code = of_class(node, classes) if isinstance(node, ast.ClassDef) else signature(node.name, node)
            parts += [f"**{name}**" + (f": {about}" if about else ""), f"```python\n{code}\n```"]
    return "\n\n".join(filter(None, parts))


def summary(node) -> str:
    "The first sentence of what a piece says of itself."
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return escaped(re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[0])


def maker(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef | None:
    "`__init__` of a class, or of the first of its ancestors in the library that has one; a data class has none."
    if any("dataclass" in ast.unparse(d) for d in node.decorator_list):
        return None
    own = (m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__")
    parents = (classes[name] for b in node.bases if (name := kind(b).rpartition(".")[2]) in classes)
    return next(own, None) or next((m for parent in parents if (m := maker(parent, classes))), None)


def of_class(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> str:
    "How an object is made (the arguments of a data class are its fields), and what can be asked of it."
    made, bases = maker(node, classes), ", ".join(b for b in map(kind, node.bases) if not b.startswith("_"))
    fields = [f"{f.target.id}: {kind(f.annotation)}" + (f" = {ast.unparse(f.value)}" if f.value else "")
              for f in node.body if isinstance(f, ast.AnnAssign) and not f.target.id.startswith("_")]
    head = signature(node.name, made, bound=True) if made else folded(node.name, fields)
    lines = [f"class {head}" + (f"  # is a {bases}" if bases else "")]
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            kinds = {ast.unparse(d).rpartition(".")[2] for d in method.decorator_list}
            text = (f"{method.name}{returned(method)}" if kinds & {"property", "cached_property"}
                    else signature(method.name, method, bound="staticmethod" not in kinds))
            lines.append(textwrap.indent(text, "    "))
    return "\n".join(lines)

"""The index of the library: every public name by module, with its arguments, their types and defaults, and its methods.

It is read from the exported files as text, nothing is imported, since Quarto runs this with any Python. It is
added to the end of api.ipynb whenever the site is built, and so is never older than the library.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

PAGE = "api.ipynb"
WIDTH = 84


def of_book(notebook: str, root: Path) -> list[str]:
    "What is added to a page: the index to its own page, where there is a library; nothing to others."
    package = next(root.glob("*/_modidx.py"), None)
    if notebook != PAGE or package is None:
        return []
    site = re.search(r"^\s+site-url:\s*(\S+)", (root / "_quarto.yml").read_text(encoding="utf-8"), re.MULTILINE)
    return cells(package.parent, site[1].rstrip("/") if site else "")


def cells(package: Path, site: str) -> list[str]:
    "Markdown of the index, one text for each module."
    links = pages_of(package, site)
    trees = {".".join(path.relative_to(package).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
             for path in sorted(package.rglob("*.py"))}
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    return [module_text(f"{package.name}.{name}", tree, names, links, classes)
            for name, tree in trees.items() if not name.rpartition(".")[2].startswith("_") and (names := public(tree))]


def pages_of(package: Path, site: str) -> dict[str, str]:
    "Where each name is explained, as nbdev noted it."
    text = (package / "_modidx.py").read_text(encoding="utf-8")
    found = ast.literal_eval(text[text.index("{"):])["syms"]
    return {name: f"{site}/{place[0]}" for names in found.values() for name, place in names.items()}


def public(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return {e.value for e in ast.walk(node.value) if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    return set()


def module_text(module: str, tree: ast.Module, names: set[str], links: dict[str, str], classes: dict) -> str:
    parts = [f"## `{module}`", summary(tree)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            url = links.get(f"{module}.{node.name}")
            name = f"[`{node.name}`]({url})" if url else f"`{node.name}`"
            about = summary(node)
            code = class_code(node, classes) if isinstance(node, ast.ClassDef) else signature(node.name, node)
            parts += [f"**{name}**" + (f": {about}" if about else ""), f"```python\n{code}\n```"]
    return "\n\n".join(part for part in parts if part)


def summary(node) -> str:
    "The first sentence of what a piece says of itself, as plain text."
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    text = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[0]
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\\*_|<>\[\]$~^@{])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def maker(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef | None:
    "`__init__` of a class, or of the first of its ancestors in the library that has one; a data class has none."
    if any("dataclass" in ast.unparse(d) for d in node.decorator_list):
        return None
    own = (m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__")
    parents = (classes[name] for b in node.bases if (name := kind(b).rpartition(".")[2]) in classes)
    return next(own, None) or next((m for parent in parents if (m := maker(parent, classes))), None)


def class_code(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> str:
    "How an object is made, and what can be asked of it."
    methods, made = [m for m in node.body if isinstance(m, ast.FunctionDef)], maker(node, classes)
    bases = ", ".join(name for b in node.bases if not (name := kind(b)).startswith("_"))
    head = signature(node.name, made, bound=True) if made else fields(node)
    lines = [f"class {head}" + (f"  # is a {bases}" if bases else "")]
    for method in methods:
        if not method.name.startswith("_"):
            kinds = {ast.unparse(d).rpartition(".")[2] for d in method.decorator_list}
            text = (f"{method.name}{returned(method)}" if kinds & {"property", "cached_property"}
                    else signature(method.name, method, bound="staticmethod" not in kinds))
            lines.append(textwrap.indent(text, "    "))
    return "\n".join(lines)


def fields(node: ast.ClassDef) -> str:
    "The arguments of a data class are its fields."
    args = []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and not item.target.id.startswith("_"):
            value = f" = {ast.unparse(item.value)}" if item.value else ""
            args.append(f"{item.target.id}: {kind(item.annotation)}{value}")
    return folded(node.name, args, "")


def signature(name: str, node: ast.FunctionDef, bound: bool = False) -> str:
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + a.defaults
    args = [argument(x, d) for x, d in zip(plain, defaults, strict=True)][1 if bound and plain else 0:]
    args += [f"*{argument(a.vararg, None)}"] if a.vararg else ["*"] if a.kwonlyargs else []
    args += [argument(x, d) for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    args += [f"**{argument(a.kwarg, None)}"] if a.kwarg else []
    return folded(name, args, "" if node.name == "__init__" else returned(node))


def argument(arg: ast.arg, default) -> str:
    if arg.annotation is None:
        return arg.arg + (f"={ast.unparse(default)}" if default else "")
    return f"{arg.arg}: {kind(arg.annotation)}" + (f" = {ast.unparse(default)}" if default else "")


def returned(node: ast.FunctionDef) -> str:
    return f" -> {kind(node.returns)}" if node.returns else ""


def kind(annotation) -> str:
    "A type by its own name, as in the tables of arguments."
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", ast.unparse(annotation))


def folded(name: str, args: list[str], end: str) -> str:
    "A signature in as many lines as it needs."
    line = f"{name}({', '.join(args)}){end}"
    if len(line) <= WIDTH:
        return line
    lines, row = [], ""
    for arg in args:
        if row and len(row) + len(arg) > WIDTH - 6:
            lines.append(row)
            row = ""
        row += f"{arg}, "
    rows = "\n".join(f"    {r.rstrip()}" for r in [*lines, row] if r)
    return f"{name}(\n{rows}\n){end}"

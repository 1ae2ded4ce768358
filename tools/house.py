"""The house as it stands: which module imports which, who writes it, how long it is.

    python tools/house.py          print the floors from the ground up, with their arrows
    python tools/house.py --check  fail if there is a circle, a module has two writers, a private import, or is too long

A module stands one floor above the highest that it imports. An import inside a function counts like one at the top.
What a table of names holds as text (`"hot_nbdev.adapters:…"`) and imports on use is no arrow.
"""
import argparse
import ast
import graphlib
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, NBS = ROOT / "hot_nbdev", ROOT / "nbs"
OPEN = ["__init__", "_modidx"]      # the front door, and nbdev's index: no rooms
MOST = 350


def writers(folder=NBS):
    "module -> the notebooks that export to it."
    found = {}
    for path in sorted(folder.glob("*.ipynb")):
        code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        for module in dict.fromkeys(re.findall(r"^#\|\s*(?:default_exp|exports?)[ \t]+([\w.]+)", code, re.M)):
            found.setdefault(module, []).append(path.name)
    return found


def modules(package=PACKAGE):
    "Dotted name within the package -> file."
    files = {".".join(p.relative_to(package).with_suffix("").parts): p for p in sorted(package.rglob("*.py"))}
    return {name: p for name, p in files.items() if name.split(".")[-1] not in OPEN}


def imported(path, name="", package=PACKAGE.name):
    "(module, names taken from it) of the package, anywhere in a module, which has this dotted name."
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == package):
            above = name.split(".")[:-node.level] if node.level else []
            rest = (node.module or "").split(".") if node.level else node.module.split(".")[1:]
            yield ".".join(filter(None, [*above, *rest])), [a.name for a in node.names]
        elif isinstance(node, ast.Import):
            yield from ((a.name.partition(".")[2], []) for a in node.names if a.name.startswith(f"{package}."))


def graph(package=PACKAGE):
    "module -> modules that it imports."
    files = modules(package)
    def meant(to, taken):           # a module, or names in it that may be modules themselves
        return {m for m in (to, *(f"{to}.{t}".strip(".") for t in taken)) if m in files}
    return {name: set().union(*(meant(*each) for each in imported(path, name))) - {name}
            for name, path in files.items()}


def private_imports(path, name=""):
    "Names with a leading underscore that a module takes from another of the package."
    return sorted(f"{to}.{t}" for to, taken in imported(path, name) for t in taken if t.startswith("_"))


def circle(arrows):
    "One circle of imports, or None."
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]


def floors(arrows):
    "module -> floor, from 1; without circles."
    found = {}
    for name in graphlib.TopologicalSorter(arrows).static_order():
        found[name] = 1 + max((found[to] for to in arrows[name]), default=0)
    return found


def faults(arrows, written, lines, private, most=MOST):
    "What is wrong with the house, a line each."
    found = [f"{name}: written by {', '.join(written.get(name, ())) or 'nobody'}" for name in arrows
             if len(written.get(name, ())) != 1]
    if around := circle(arrows):
        found.append(f"a circle: {' -> '.join(around)}")
    found += [f"{name}: {n} lines, more than {most}" for name, n in lines.items() if n > most]
    found += [f"{name}: imports the private {', '.join(names)}" for name, names in private.items() if names]
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if something is wrong")
    given = parser.parse_args(argv)
    arrows, files, written = graph(), modules(), writers()
    lines = {n: len(p.read_text().splitlines()) for n, p in files.items()}
    wrong = faults(arrows, written, lines, {n: private_imports(p, n) for n, p in files.items()})
    level = floors(arrows) if not circle(arrows) else dict.fromkeys(arrows, 0)
    for name in sorted(arrows, key=lambda n: (level[n], n)):
        page, targets = ", ".join(written.get(name, ())), ", ".join(sorted(arrows[name])) or "–"
        print(f"{level[name]:2} {name:20} {lines[name]:4} lines  {page:28} <- {targets}")
    print(f"\n{len(arrows)} modules, {sum(lines.values())} lines, {max(level.values())} floors, "
          f"{sum(map(len, arrows.values()))} arrows; longest: {max(lines, key=lines.get)}, {max(lines.values())} lines")
    print("\n".join(wrong) or "no circle, one writer for each module, no private import")
    sys.exit(given.check and bool(wrong))


if __name__ == "__main__":
    main()

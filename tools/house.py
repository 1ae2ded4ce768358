"""The house as it stands: which module imports which, who writes it, how long it is.

    python tools/house.py          print the rooms in reading order, with their arrows
    python tools/house.py --check  exit with 1 if an arrow points down, a circle exists, a module has two
                                   writers or none, or is longer than MOST lines

The reading order is that of the sidebar in _quarto.yml; the rooms of GROUND stand below all others. An
import inside a function counts like one at the top, unless the name is imported on use from a table of
names (`"hot_nbdev.adapters:nd_feed_forward"`), which is how a lower room can be open to a higher one.
"""
import ast
import re
import sys
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, NBS = ROOT / "hot_nbdev", ROOT / "nbs"
GROUND = ["storage", "config"]      # what every room may stand on
OPEN = ["__init__", "_modidx"]      # the front door, and nbdev's index: no rooms
MOST = 450


def sidebar(entries):
    "File names in the sidebar, in order."
    for entry in entries:
        if isinstance(entry, dict) and "contents" in entry:
            yield from sidebar(entry["contents"])
        else:
            yield entry["href"] if isinstance(entry, dict) else entry


def writers(folder=NBS):
    "module -> the notebooks that export to it."
    found = {}
    for path in sorted(folder.glob("*.ipynb")):
        code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        for module in dict.fromkeys(re.findall(r"^#\|\s*(?:default_exp|exports?)[ \t]+(\w+)", code, re.M)):
            found.setdefault(module, []).append(path.name)
    return found


def rooms(site=ROOT / "_quarto.yml", written=None):
    "Modules from the ground up."
    pages = list(sidebar(yaml.safe_load(site.read_text())["website"]["sidebar"]["contents"]))
    by_page = {page: module for module, all_of in (written or writers()).items() for page in all_of}
    order = [by_page[p] for p in pages if p in by_page]
    return GROUND + [m for m in order if m not in GROUND + OPEN]


def imports(path):
    "Modules of the package that a module imports, anywhere in it."
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(PACKAGE.name)):
            module = (node.module or "").removeprefix(PACKAGE.name).strip(".")
            found |= {module.split(".")[0]} if module else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith(f"{PACKAGE.name}.")}
    return found


def private_imports(path):
    "Names with a leading underscore that a module takes from another of the package."
    return sorted(f"{node.module or ''}.{a.name}" for node in ast.walk(ast.parse(path.read_text()))
                  if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(PACKAGE.name))
                  for a in node.names if a.name.startswith("_"))


def graph(package=PACKAGE):
    "module -> modules that it imports."
    files = {p.stem: p for p in sorted(package.glob("*.py")) if p.stem not in OPEN}
    return {name: imports(path) & files.keys() for name, path in files.items()}


def circle(arrows):
    "One circle of imports, or None."
    done = set()

    def walk(node, path):
        if node in path:
            return [*path[path.index(node):], node]
        if node in done:
            return None
        found = next(filter(None, (walk(to, [*path, node]) for to in sorted(arrows[node]))), None)
        done.add(node)
        return found
    return next(filter(None, (walk(node, []) for node in arrows)), None)


def faults(order, arrows, written, lines, private, most=MOST):
    "What is wrong with the house, a line each."
    found = [f"{name}: no page of the sidebar writes it" for name in arrows if name not in order]
    found += [f"{name}: written by {', '.join(written[name])}" for name in arrows if len(written.get(name, ())) > 1]
    place = {name: i for i, name in enumerate(order)}
    for name, targets in arrows.items():
        found += [f"{name} imports {to}, which comes later" for to in sorted(targets)
                  if place.get(to, 0) > place.get(name, len(place))]
    if around := circle(arrows):
        found.append(f"a circle: {' -> '.join(around)}")
    found += [f"{name}: {n} lines, more than {most}" for name, n in lines.items() if n > most]
    found += [f"{name}: imports the private {', '.join(names)}" for name, names in private.items() if names]
    return found


def main():
    written, arrows = writers(), graph()
    order = rooms(written=written)
    lines = {n: len((PACKAGE / f"{n}.py").read_text().splitlines()) for n in arrows}
    private = {n: private_imports(PACKAGE / f"{n}.py") for n in arrows}
    for name in sorted(arrows, key=lambda n: order.index(n) if n in order else len(order)):
        page = ", ".join(written.get(name, ["–"]))
        print(f"{name:20} {lines[name]:4} lines  {page:28} <- {', '.join(sorted(arrows[name])) or '–'}")
    wrong = faults(order, arrows, written, lines, private)
    count = sum(map(len, arrows.values()))
    print(f"\n{len(arrows)} modules, {count} arrows; longest: {max(lines, key=lines.get)}, {max(lines.values())} lines")
    print("\n".join(wrong) or "no circle, no arrow to a later room, one writer for each module, no private import")
    if "--check" in sys.argv[1:] and wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The house as it stands: which module imports which, who writes it, how long it is.

    python tools/house.py          print the rooms in reading order, with their arrows
    python tools/house.py --check  exit with 1 if an arrow points down, a circle exists, a module has two
                                   writers or none, or has more than MOST lines

ROOMS is the plan of the house: a module may import from rooms that stand before its own. An import inside
a function counts like one at the top. What a table of names holds as text (`"hot_nbdev.adapters:…"`) and
imports on use is no arrow: so an early room can be open to a later one without knowing it.
"""
import ast
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, NBS = ROOT / "hot_nbdev", ROOT / "nbs"
ROOMS = [room for floor in """
    storage config book checks drawing shapes
    tensor kronecker factorization
    streams layer attention stochastic mode_scores kronecker_attention variants kernels positions registry
    patches ragged windows groups axial transformer model_config models streaming sharding sharding_cost hub cost
    ndlinear replacing adapters adapter_files peft_method
    files series volumes scenes data
    parts tasks devices results explaining paired runs training
    linear convolution fields moved maps plot
    predict jobs motion tables commands profiling
    """.strip().splitlines() for room in floor.split()]
OPEN = ["__init__", "_modidx"]      # the front door, and nbdev's index: no rooms
MOST = 449


def writers(folder=NBS):
    "module -> the notebooks that export to it."
    found = {}
    for path in sorted(folder.glob("*.ipynb")):
        code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        for module in dict.fromkeys(re.findall(r"^#\|\s*(?:default_exp|exports?)[ \t]+(\w+)", code, re.M)):
            found.setdefault(module, []).append(path.name)
    return found


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
    found = [f"{name}: has no room in the plan" for name in arrows if name not in order]
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
    lines = {n: len((PACKAGE / f"{n}.py").read_text().splitlines()) for n in arrows}
    private = {n: private_imports(PACKAGE / f"{n}.py") for n in arrows}
    for name in sorted(arrows, key=lambda n: ROOMS.index(n) if n in ROOMS else len(ROOMS)):
        page = ", ".join(written.get(name, ["–"]))
        print(f"{name:20} {lines[name]:4} lines  {page:28} <- {', '.join(sorted(arrows[name])) or '–'}")
    wrong = faults(ROOMS, arrows, written, lines, private)
    count = sum(map(len, arrows.values()))
    print(f"\n{len(arrows)} modules, {count} arrows; longest: {max(lines, key=lines.get)}, {max(lines.values())} lines")
    print("\n".join(wrong) or "no circle, no arrow to a later room, one writer for each module, no private import")
    if "--check" in sys.argv[1:] and wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()

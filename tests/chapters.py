"""Reading chapters: what the tests over notebooks share."""
import ast
import re
from functools import cache
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent
NBS = ROOT / "nbs"
CHAPTERS = sorted(NBS.glob("[0-3][0-9]*_*.ipynb"))         # from 40 on: the workshop


def sidebar(entries):
    "File names in the sidebar, in order."
    for entry in entries:
        if isinstance(entry, dict) and "contents" in entry:
            yield from sidebar(entry["contents"])
        else:
            yield entry["href"] if isinstance(entry, dict) else entry


SIDEBAR = list(sidebar(yaml.safe_load((ROOT / "_quarto.yml").read_text())["website"]["sidebar"]["contents"]))
# pages that are no chapters, in the order of the sidebar
REFERENCE = [NBS / name for name in SIDEBAR if NBS / name not in CHAPTERS and name != "index.ipynb"]


def options(cell):
    "The `#|` lines of a code cell, without the mark."
    return re.findall(r"^#\|\s*(.+?)\s*$", cell.source, re.M)


def exported(cell):
    return any(o.split()[0] in ("export", "exports", "exporti") for o in options(cell))


def runs(cell):
    return cell.cell_type == "code" and not any(re.match(r"eval:\s*false", o) for o in options(cell))


class Chapter:
    "A notebook, with the questions that tests ask of it."

    def __init__(self, path):
        self.path = path
        self.cells = nbformat.read(path, as_version=4).cells
        self.code = [c for c in self.cells if c.cell_type == "code"]
        self.text = "\n\n".join(c.source for c in self.cells if c.cell_type == "markdown")
        # the module that the chapter makes, or the earlier chapter's module that it adds to; and all of them
        self.modules = re.findall(r"^#\|\s*(?:default_exp|exports?)[ \t]+([\w.]+)",
                                  "\n".join(c.source for c in self.code), re.M)
        self.module = self.modules[0] if self.modules else None

    def public_names(self):
        "Functions and classes that the chapter exports."
        nodes = [n for c in self.code if exported(c) for n in ast.parse(c.source).body]
        kinds = ast.FunctionDef | ast.ClassDef
        return [n.name for n in nodes if isinstance(n, kinds) and not n.name.startswith("_")]

    def lessons(self):
        "Code cells that are read and run, and not exported."
        return [c for c in self.code if runs(c) and not exported(c)]

    def headings(self):
        return re.findall(r"^#+\s+(.+?)\s*(?:\{#.*\})?$", self.text, re.M)


@cache
def all_pages():
    "Chapters, then pages of reference."
    return [Chapter(p) for p in CHAPTERS + REFERENCE]


def all_chapters():
    return all_pages()[:len(CHAPTERS)]

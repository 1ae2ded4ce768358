"""The notebooks that readers download, written for JupyterLab.

Jupyter knows neither labels nor Quarto's blocks and options. So book.lua writes their text as Jupyter shows it: a
statement has its kind, number and title in bold, a reference is a link to the site, an equation has its number by
\\tag, a folded block is <details>; and here folded code becomes a cell whose source is hidden until it is opened, under
a line that says what it is. Outputs are left out: who downloads a notebook runs it. In those for learners an answer, a
code cell that is folded under "Solution" or "Answer", is replaced by the call that checks the reader's own.
"""

import json
import re
import zipfile
from pathlib import Path

from book import ANSWERS, NOTEBOOKS, Book, Code, load, page_of, source_of

SUMMARY = re.compile(r"""^#\|\s*code-summary:\s*["']?(?:Solution|Answer)\b""", re.MULTILINE)
CHECK = re.compile(r"^check_\w+\(.*\)\s*$", re.MULTILINE)
HOW_TO_RUN = ('> This notebook runs after `pip install "{package}"`; where the package is missing, the next cell '
              "installs it. Its outputs are on [its page]({page}).")
INSTALL = """import importlib.util
import subprocess
import sys

%config InlineBackend.print_figure_kwargs = {{"bbox_inches": "tight", "facecolor": "white"}}
if importlib.util.find_spec("{name}") is None:          # in a new environment, such as Colab's
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "{package}"], check=True)"""
LEARNERS = " The answers to its exercises were left out; the page it comes from also has it with them."


def package_of(book: Book) -> str:
    return f"{book.structure.settings['lib_name']}[book] @ git+{book.structure.repo}"


def text_cell(name: str, text: str) -> dict:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def is_solution(cell: dict) -> bool:
    return cell["cell_type"] == "code" and bool(SUMMARY.search(source_of(cell)))


def emptied(cell: dict) -> dict:
    "In place of a solution: the call that checks the reader's own."
    checks = [f'# {call.strip()}; print("right")' for call in CHECK.findall(source_of(cell))]
    text = "\n".join(["# Fill in the stub above, then take away the # below and run this cell.", *checks])
    return {**cell, "source": text}


def code_for_readers(cell: dict, name: str, texts: dict) -> list[dict]:
    "A cell of code, without the options of the site; what it is called, or shows, in cells of text beside it."
    code = Code.parse(source_of(cell))
    if not code.body.strip():
        return []
    options, metadata, before, after = code.options, dict(cell["metadata"]), [], []
    if options.get("code-fold") == "true" or options.get("echo") == "false" or options.keys() & {"hide", "folded"}:
        metadata = {**metadata, "jupyter": {"source_hidden": True}}
        unsaid = "" if "hide" in options else "Code of the figure below"
        said = options.get("code-summary") or options.get("folded") or unsaid
        before = [text_cell(f"{cell['id']}-said", f"▸ *{said}*")] if said else []
    if caption := texts.get(f"{name}#{cell['id']}"):
        after = [text_cell(f"{cell['id']}-caption", caption[0].strip())]
    return [*before, {**cell, "metadata": metadata, "source": code.body.strip("\n")}, *after]


def for_readers(book: Book, name: str, texts: dict, answers: bool = True) -> dict:
    "A notebook as readers download it: rendered for Jupyter, with the line that installs the rest."
    nb, cells, left_out = load(book.nbs / name), [], False
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            cell = {**cell, "outputs": [], "execution_count": None}
            solution = is_solution(cell) and not answers
            cells += [emptied(cell)] if solution else code_for_readers(cell, name, texts)
        else:
            found = texts.get(f"{name}#{cell['id']}", [""])
            solution = not answers and len(found) > 1
            cells.append({**cell, "source": found[-1 if solution else 0].strip("\n")})
        left_out = left_out or solution
    s = book.structure
    note = HOW_TO_RUN.format(package=package_of(book), page=f"{s.url}/{page_of(name)}.html") + LEARNERS * left_out
    install = {"cell_type": "code", "id": "how-to-install", "metadata": {}, "execution_count": None, "outputs": [],
               "source": INSTALL.format(name=s.settings["lib_name"], package=package_of(book))}
    return {**nb, "cells": [*cells[:1], text_cell("how-to-run", note), install, *cells[1:]]}


def write_downloads(book: Book, out: Path, texts: dict) -> None:
    "The notebooks that readers download, into a folder of the site: without answers, and all with them in an archive."
    folder = out / NOTEBOOKS
    folder.mkdir(exist_ok=True)
    for file, line in (("requirements.txt", package_of(book)), ("runtime.txt", "python-3.12")):
        (folder / file).write_text(line + "\n", encoding="utf-8")       # what Binder installs
    with zipfile.ZipFile(folder / ANSWERS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in book.downloads:
            (folder / name).write_text(written(for_readers(book, name, texts, answers=False)), encoding="utf-8")
            if any(map(is_solution, load(book.nbs / name)["cells"])):
                member = zipfile.ZipInfo(name)          # of the first day that archives know: equal archives
                member.external_attr = 0o644 << 16
                archive.writestr(member, written(for_readers(book, name, texts)), zipfile.ZIP_DEFLATED, 9)


def written(nb: dict) -> str:
    return json.dumps(nb, ensure_ascii=False, separators=(",", ":")) + "\n"

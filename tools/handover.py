"""What is handed to Quarto, checked before it is handed over.

Quarto reads a notebook in its own way: it joins the lines of a cell as they are, takes the page's
title from the first cell, and deletes files that it made on the way. What breaks one of these rules
is rendered all the same, only wrongly; so it is a problem here, named by notebook and cell.

Nothing beyond the standard library is imported, since Quarto runs this too.
"""

from __future__ import annotations

import re
from pathlib import Path

KEPT = re.compile(r"^format:\n(?:[ \t].*\n)*?  html:\n(?:    .*\n)*?    keep-md: true$", re.MULTILINE)
CODE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[^\n]*\n(?:.*?\n)??\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)

WIDGETS = ("text/html", "application/javascript", "application/vnd.jupyter.widget-view+json")


def lines_of(text: str) -> list[str]:
    "Text as notebooks store it: lines that keep their ends."
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def in_lines(nb: dict) -> dict:
    "The notebook with every text of its cells as a list of lines: Quarto joins nothing else rightly."
    for cell in nb["cells"]:
        cell["source"] = lines_of("".join(cell["source"]))
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = lines_of("".join(output["text"]))
            data = output.get("data", {})
            data.update({kind: lines_of("".join(value)) for kind, value in data.items()
                         if kind.startswith("text/")})
    return nb


def problems(notebooks: dict[str, dict], outputs: dict[str, str], settings: Path) -> list[str]:
    "All that is wrong in what Quarto gets: notebooks, the page that each becomes, and _quarto.yml."
    found = [f"{name}, {problem}" for name, nb in notebooks.items() for problem in of_notebook(nb)]
    return found + clashes(outputs, bool(KEPT.search(settings.read_text(encoding="utf-8"))))


def of_notebook(nb: dict) -> list[str]:
    "What is wrong in one notebook, with the number of the cell as Quarto counts."
    found = front_matter_problem(nb)
    for number, cell in enumerate(nb["cells"], 1):
        texts = [cell["source"], *texts_of(cell)]
        found += [f"cell {number}: an output of type {kind} makes the page load scripts from another host"
                  for output in cell.get("outputs", []) for kind in WIDGETS if kind in output.get("data", {})]
        if not all(is_lines(text) for text in texts):
            found.append(f"cell {number}: its text must be a list of lines that keep their ends")
        markdown = [cell["source"]] if cell["cell_type"] == "markdown" else markdown_outputs(cell)
        found += [f"cell {number}: {p}" for text in markdown for p in open_fences("".join(text))]
    return found


def front_matter_problem(nb: dict) -> list[str]:
    "The title and the name of the page stand in the first cell and nowhere else."
    raw = [number for number, cell in enumerate(nb["cells"], 1) if cell["cell_type"] == "raw"]
    source = "".join(nb["cells"][0]["source"]) if nb["cells"] else ""
    if raw != [1] or not re.fullmatch(r"---\n.*\n---\s*", source, re.DOTALL):
        return ["cell 1: front matter between lines of `---` must be the first cell, and the only raw one"]
    return []


def texts_of(cell: dict) -> list:
    "The texts that a cell shows."
    outputs = cell.get("outputs", [])
    texts = [output["text"] for output in outputs if "text" in output]
    return texts + [value for output in outputs for kind, value in output.get("data", {}).items()
                    if kind.startswith("text/")]


def markdown_outputs(cell: dict) -> list:
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    return [d["text/markdown"] for d in data if "text/markdown" in d]


def is_lines(text) -> bool:
    "Is this a list of lines, each but the last with its end?"
    return isinstance(text, list) and all(line.endswith("\n") for line in text[:-1]) and all(
        line.count("\n") == line.endswith("\n") for line in text)


def open_fences(text: str) -> list[str]:
    "Fences that a cell opens and does not close, or the other way around: they swallow what follows."
    rest = CODE.sub("", text)
    found = ["a fence of code is never closed"] if re.search(r"^[ \t]*(```|~~~)", rest, re.MULTILINE) else []
    depth = 0
    for marks in re.findall(r"^[ \t]*:{3,}[ \t]*([^\n:]*)$", rest, re.MULTILINE):
        depth += 1 if marks else -1
        if depth < 0:
            return [*found, "::: closes a block that was never opened"]
    found += ["a ::: block is never closed"] if depth else []
    odd = SPAN.sub("", rest).count("$$") % 2
    return found + (["$$ is never closed"] if odd else [])


def clashes(outputs: dict[str, str], kept: bool) -> list[str]:
    """Pages that take a name which is already used. On the way to NAME.html Quarto makes NAME.html.md and
    deletes it afterwards, unless it is told to keep it: with it goes the page as Markdown."""
    pages = list(outputs.values())
    found = [f"{name}: another notebook becomes {page}.html too" for name, page in outputs.items()
             if pages.count(page) > 1]
    taken = {Path(name).stem: name for name in outputs}
    if not kept:
        found += [f"{name}: its page as Markdown, {page}.html.md, is deleted with what Quarto makes of "
                  f"{taken[page]}; write `keep-md: true` under html in _quarto.yml"
                  for name, page in outputs.items() if page in taken]
    return found

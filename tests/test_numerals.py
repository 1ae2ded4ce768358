"""Numerals in prose beside results come from a cell: rows are made again, and the text must not be left behind."""
import ast
import re

import nbformat
import pytest
from chapters import NBS

# Chapters on results
CHAPTERS = ["15b_adapters", "17_comparing", "18_forecasting", "19_volumes", "20_scenes", "21_maps", "22_motion",
            "ablations", "forecasting_rows", "kin_rows", "motion_rows", "ndlinear_measured", "ndlinear_time", "pairs",
            "papers_checked", "scenes_rows", "separability_measured", "volumes_rows"]
# Numerals that no cell has to produce: (chapter, numeral) -> reason.
ALLOWED = {
    ("ablations", "137"): "series of the published data set Solar",
    ("ablations", "321"): "series of the published data set ECL",
    ("ndlinear_measured", "75 %"): "printed in the paper",
    **{("separability_measured", n): "printed in the paper" for n in ("4.5%", "15.2%", "15", "30%")},
}
READERS = {"results_file", "read_rows", "read_scores"}
NUMBER = re.compile(r"(?<![\w.,^_{/-])[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w}])(?:\s?%)?")
# Where something stands is no result (figure 5, tables 5 and 6, "first paper, 5.3.1"), nor which of several (seed 3).
THINGS = "figure table section chapter equation part appendix version seed mode case head block".replace(" ", "|")
PLACE = re.compile(rf"\b(?:(?:{THINGS})s?|(?:paper|second),)"
                   r" \(?[A-D]?\.?\d[\d.]*(?:(?:,| and| to| or|–) [A-D]?\.?\d[\d.]*)*", re.IGNORECASE)


def prose(text):
    "A markdown cell without formulas (but for plain numbers), code, references, headings, tables, theorems and proofs."
    text = re.sub(r"^(:{3,})\s*\{.*?^\1\s*$", " ", text, flags=re.M | re.S)
    text = re.sub(r"^\*(?:About )?\d+ (?:minutes?|hours?), [^*\n]*\*", " ", text, flags=re.M)     # time told
    text = re.sub(r"\$\$.*?\$\$(?:\s*\{#[\w-]+\})?", " ", text, flags=re.S)
    text = re.sub(r"\$([^$]+)\$", lambda m: m[1] if re.fullmatch(r"-?[\d.,]+", m[1]) else " ", text)
    text = re.sub(r"^#.*$|^\|.*$|^\d+\\?\. |`[^`]*`|\[@[^\]]*\]|@[\w-]+|\]\([^)]*\)", " ", text, flags=re.M)
    return PLACE.sub(" ", text)


def numerals(text):
    return [m[0].strip() for m in NUMBER.finditer(prose(text))]


def produced(cells):
    "All numbers in the code of cells and in what they show."
    texts = [c.source for c in cells]
    outputs = [o for c in cells for o in c.outputs]
    texts += [o.text if o.output_type == "stream" else o.get("data", {}).get("text/plain", "") for o in outputs]
    found = re.findall(r"(?<![\w.])-?(?:\d+(?:[,_]\d{3})*\.?\d*|\.\d+)(?:e-?\d+)?", "\n".join(texts))
    return {abs(float(number.replace(",", "").replace("_", ""))) for number in found}


def comes_from(numeral, numbers):
    "Is it one of the numbers, perhaps rounded, without its sign, in hundredths or thousandths?"
    bare = re.sub(r"[-−%\s,]", "", numeral)
    x, digits = float(bare), len(bare.partition(".")[2])
    scales = (1, 100) if "%" in numeral else (1, 100, 1000)

    def rounded(y, scale):
        return (digits or scale > 1) and abs(y * scale - x) <= 0.5001 * 10 ** -digits
    return x in numbers or any(rounded(y, scale) for y in numbers for scale in scales)


def names(node, context):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def with_results(cells):
    "Ids of the code cells that read rows, or compute with something that was made from rows."
    made, found = set(READERS), set()
    for cell in (c for c in cells if c.cell_type == "code"):
        for node in ast.parse(cell.source).body:
            new = {node.name} if isinstance(node, ast.FunctionDef) else names(node, ast.Store)
            if names(node, ast.Load) & made:
                made |= new
                found |= set() if isinstance(node, ast.FunctionDef) else {cell.id}
            else:
                made -= new - READERS
    return found


def sections(cells):
    "Lists of cells from one heading of the second level to the next, but for exercises and what follows them."
    found = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            found.append([])
        found[-1].append(cell)
    skip = re.compile(r"## (What the papers say|Exercises|Further reading)")
    return [s for s in found if s and not skip.match(s[0].source)]


def unproduced(cells):
    "(cell id, numeral) of prose directly before or behind a cell with results, if no cell of the section has it."
    results = with_results(cells)
    for section in sections(cells):
        numbers = produced([c for c in section if c.cell_type == "code"])
        for i, cell in enumerate(section):
            beside = {c.id for c in section[max(i - 1, 0):i + 2]}
            if cell.cell_type == "markdown" and beside & results:
                yield from ((cell.id, n) for n in numerals(cell.source) if not comes_from(n, numbers))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_numerals_beside_results_are_produced(chapter):
    cells = nbformat.read(NBS / f"{chapter}.ipynb", as_version=4).cells
    found = [(cell, n) for cell, n in unproduced(cells) if (chapter, n) not in ALLOWED]
    assert not found, f"{chapter}: let a cell show these numbers, or leave them out: {found}"


def test_the_allow_list_is_short_and_used():
    assert len(ALLOWED) <= 10
    for chapter, numeral in ALLOWED:
        cells = nbformat.read(NBS / f"{chapter}.ipynb", as_version=4).cells
        assert numeral in {n for _, n in unproduced(cells)}, f"{numeral} has a cell now, or is gone from {chapter}"

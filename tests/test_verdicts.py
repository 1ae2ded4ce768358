"""The ledger of verdicts: all claims once, and a deciding cell for each verdict."""
import builtins
import re

import book
import nbformat
from assertions import asserted
from chapters import NBS, runs

from hot_nbdev.train.results import read_rows

ROWS = read_rows(NBS / "verdicts.csv")
PAPERS = {"HOT, version 1": 94, "HOT, version 2": 105, "NdLinear": 56, "correction": 46, "this book": 20}
VERDICTS = {"true", "false as printed", "incomplete or ambiguous", "not decided", "our own result"}


def test_each_claim_stands_there_once_and_none_is_lost():
    assert {paper: sum(row["paper"] == paper for row in ROWS) for paper in PAPERS} == PAPERS
    numbered = [row["id"] for row in ROWS if row["paper"] in ("correction", "this book")]
    assert numbered == [*(f"F{i}" for i in range(1, 47)), *(f"R{i}" for i in range(20))]
    names = [re.sub(r"[^\w.]+", "-", row["id"]).strip("-") for row in ROWS]      # as the page makes anchors of them
    assert len(set(names)) == len(names)


def test_each_row_is_complete():
    for row in ROWS:
        assert row["place"] and row["says"] and row["verdict"] in VERDICTS, row["id"]
        assert bool(row["reason"]) == (row["verdict"] == "not decided"), row["id"]
        assert row["decided"] or row["verdict"] == "not decided", row["id"]
        assert row["correction"] or row["verdict"] in ("true", "not decided", "our own result"), row["id"]
        assert (row["verdict"] == "our own result") == (row["paper"] == "this book") == (row["id"][0] == "R"), row["id"]
        for text in (row["says"], row["correction"], row["reason"]):
            assert "|" not in text and "\n" not in text and text.count("$") % 2 == 0, row["id"]     # a row of a table
            assert not text or text[-1] in ".!", row["id"]


def test_corrections_name_claims_that_are_there():
    known = {row["id"] for row in ROWS}
    text = " ".join(row["correction"] + row["reason"] for row in ROWS)
    for name in re.findall(r"\b(?:HOT[12]|ND)-[\w.]+(?:-\w+)*", text):
        assert name.rstrip(".") in known, name
    for row in ROWS:
        if row["paper"] == "correction":
            rest = row["place"]
            for name in sorted(known, key=len, reverse=True):
                rest = rest.replace(name, "")
            assert not re.search(r"\w", rest), row["id"]


def test_each_link_leads_to_a_cell_that_runs_and_can_fail():
    cells = {f"{path.name}#{cell.id}": cell for path in NBS.glob("*.ipynb")
             for cell in nbformat.read(path, as_version=4).cells}
    for row in ROWS:
        for link in row["decided"].split():
            assert link in cells, f"{row['id']}: there is no cell {link}"
            assert cells[link].cell_type == "code" and runs(cells[link]), f"{row['id']}: {link} is not executed"
            assert book.Code.parse(cells[link].source).shown, f"{row['id']}: {link} is on no page"
            assert asserted([cells[link].source]) - set(dir(builtins)), f"{row['id']}: no assertion in {link}"


def test_the_page_shows_the_ledger_as_it_is():
    page = nbformat.read(NBS / "verdicts.ipynb", as_version=4)
    shown = next(o.data["text/markdown"] for c in page.cells if c.id == "vd-table" for o in c.outputs)
    words = re.sub(r"</?a\b[^>]*>", "", shown)
    for row in ROWS:
        name, right = f'{row["id"]}<br>{row["paper"]}, {row["place"]}', row["correction"] or row["reason"]
        assert f'| {name} | {row["says"]} | {row["verdict"]} | {right} |' in words, row["id"]
        for link in row["decided"].split():
            notebook, cell = link.split("#")
            address = "" if notebook == "verdicts.ipynb" else f"{book.page_of(notebook)}.html"
            assert f'href="{address}#cell-{cell}"' in shown, row["id"]
    anchors = set(re.findall(r'<a id="(claim-[^"]+)"', shown))
    assert len(anchors) == len(ROWS) and set(re.findall(r'href="#(claim-[^"]+)"', shown)) <= anchors

"""The ledger of verdicts: all claims once, a deciding cell for each verdict, and no codes in the chapters."""
import builtins
import re

import crossref
import nbformat
import pytest
import verdicts
from assertions import asserted
from chapters import CHAPTERS, NBS, runs
from verdicts import LEDGER, cells_of, lost, mended, read, write

from hot_nbdev.results import read_rows

ROWS = read()
PAPERS = {"HOT, version 1": 94, "HOT, version 2": 105, "NdLinear": 56, "correction": 46, "this book": 20}
VERDICTS = {"true", "false as printed", "incomplete or ambiguous", "not decided", "our own result"}
IDS = """
HOT1: A1; A2; A3; A4; C1–C3; RW1; RW2; Not; Def1; Def2; Def3; Def4; Def5; Prop1; Eq1; Eq2; QKV; Eq3; Eq3s; Eq4; Cx0;
Eq5; rank; Eq6; 6a; 6b; Thm; Thm-b; Thm-c; Prf; fn1; CP; pool; Eq7; Cx7; Eq8; Eq9; Cx9a; Cx9b; Cx9c; Eq10; Z; Eq11–12;
SMReg; Cx12a; Cx12b; Cx12c; Alg1.1–13; Fig1; Fig2; 5.1-task; 5.1-data; 5.1-base; Tab1; Tab1-par; 5.1a; 5.1b; 5.1c;
5.1d; 5.1e; 5.2-task; 5.2-data; 5.2-base; Tab2; 5.2a; 5.2b; 5.2c; 5.2d; 5.3.1; 5.3.1b; Fig3, Fig4; 5.3.2a; 5.3.2b;
5.3.2c; Tab3, Tab4; 5.3.3a; 5.3.3b; 5.3.3c; Tab5; Tab6; Con; C1; Tab7; C2; Tab8; Tab9; D-ts; D-3d; D-opt; D-prot;
Tab10; Tab11; Tab12; Tab12u
HOT2: A1; A2; A3; A4; RW; Def3.1–3.3; Def3.4; Def3.5; Def3.6; Def3.7a; Def3.7b; Prop3.8; QKV; Eq1; Eq2; Cx2; Eq3; Eq4;
Thm4.1 / A.1; Cor4.2 / A.2; pool; Eq5–6; 5v1; Eq7; Cx7; Eq8; Eq9; Cx9; mask; Arch1; Arch2; Arch3; 4.4.1a; 4.4.1b;
Eq10; Eq11; Eq12n; Eq12d; Eq13; Eq14; Eq15; Eq16; Eq17; Eq18; 18b; 4.4.1c; 4.4.1d; 4.4.2a; 4.4.2b; Thm4.3 / A.3;
Thm4.3-b; 4.4.2c; 4.4.2d; Prf; A.2-CP; Eq19; Cx19; Eq20; A.2-why; A.3a–d; Fig1, 2; 5.1-data; 5.1-base; Tab1-acc;
Tab1-par; Tab1-flop; 5.1a; 5.1b; 5.1c; 5.1d; 5.1e; 5.2-base; Tab2-acc; Tab2-res; Tab2-cdt; Tab2-flop; 5.2a; 5.2b;
5.2c; v1v2; 5.3-data; Tab3; 5.3a; 5.3b; 5.4.1; Fig3, 4; 5.4.2; 5.4.3a; Fig7; Fig6; 5.5, Fig8–13; 6; Tab4; Tab5; B.3;
Tab6; B.4; C; D.1 / Tab7; D.1a; D.1b; D.1c; D.2 / Tab8; D.3 / Tab9, 10; code
ND: A1; A2; A3; A4; A5; I1; I2; RW1; RW2; Def; Alg1; TP; impl; Bartlett; Thm3.1; 3.1p; 3.1e; P1; P2; F1; Eq1; M1; M2;
sep; Tucker; Eq2a; Eq2b; Eq2c; dom; Eq3; 3.4p; 3.4r, Fig1; 4a; 4b; LoRA; Tab1-par; Tab1-acc; 4.1.1a; 4.1.1b; 4.1.2;
4.1.3; 4.2; Tab3; Tab2; 4.3; 4.4.1; 4.4.2; Tab4; 4.4.3; 4.5.1a; 4.5.1b; 4.5.1c; 4.5.2a; 4.5.2b; 4.5.2c; 5
"""


def claims():
    "All names of rows, by paper, and the numbered ones."
    for paper, names in re.findall(r"^(HOT1|HOT2|ND): ((?:.|\n(?!HOT1:|HOT2:|ND:))+)", IDS, re.M):
        yield from (f"{paper}-{name.strip()}" for name in names.replace("\n", " ").split(";"))
    yield from (f"F{i}" for i in range(1, 47))
    yield from (f"R{i}" for i in range(20))


def test_each_claim_stands_there_once_in_order():
    assert [row["id"] for row in ROWS] == list(claims())
    assert {paper: sum(row["paper"] == paper for row in ROWS) for paper in PAPERS} == PAPERS
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
    assert lost(ROWS, cells_of(NBS)) == []
    found = {path.name: nbformat.read(path, as_version=4).cells for path in NBS.glob("*.ipynb")}
    for row in ROWS:
        for link in row["decided"].split():
            notebook, name = link.split("#")
            cell = next(c for c in found[notebook] if c.id == name)
            assert runs(cell), link
            assert asserted([cell.source]) - set(dir(builtins)), f"{row['id']}: no assertion in {link}"


def test_moved_cells_are_found_again():
    row = {"id": "F1", "decided": "05_attention.ipynb#aa 01_tensor.ipynb#bb gone.ipynb#cc"}
    here, code = ("attention_library.ipynb", "aa"), {"cell_type": "code", "source": ["assert x"]}
    cells = {here: code, ("01_tensor.ipynb", "bb"): code | {"source": ["#| eval: false\n", "x"]}}
    assert mended([row], cells)[0]["decided"] == "attention_library.ipynb#aa 01_tensor.ipynb#bb gone.ipynb#cc"
    twice = cells | {("05_attention.ipynb", "aa"): code}
    assert mended([row], twice)[0]["decided"] == row["decided"]
    assert lost(mended([row], cells), cells) == [
        "F1: 01_tensor.ipynb#bb is not executed", "F1: there is no cell gone.ipynb#cc"]


def test_the_ledger_is_written_as_it_was_read(tmp_path):
    write(ROWS, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == LEDGER.read_bytes()
    assert read_rows(LEDGER) == ROWS == verdicts.read()


def test_the_page_shows_the_ledger_as_it_is():
    page = nbformat.read(NBS / "verdicts.ipynb", as_version=4)
    shown = next(o.data["text/markdown"] for c in page.cells if c.id == "vd-table" for o in c.outputs)
    words = re.sub(r"</?a\b[^>]*>", "", shown)
    for row in ROWS:
        name, right = f'{row["id"]}<br>{row["paper"]}, {row["place"]}', row["correction"] or row["reason"]
        assert f'| {name} | {row["says"]} | {row["verdict"]} | {right} |' in words, row["id"]
        for link in row["decided"].split():
            notebook, cell = link.split("#")
            address = "" if notebook == "verdicts.ipynb" else f"{crossref.page_of(notebook)}.html"
            assert f'href="{address}#cell-{cell}"' in shown, row["id"]
    anchors = set(re.findall(r'<a id="(claim-[^"]+)"', shown))
    assert len(anchors) == len(ROWS) and set(re.findall(r'href="#(claim-[^"]+)"', shown)) <= anchors


CODES = re.compile(
    r"\b(?:HOT[12]|ND)-[A-Z\d]|\bR(?:\d|1[0-8])\b|\bF(?:[2-9]|[1-3]\d|4[0-6])\b|\bfinding F1\b|\bCx\d|\b5v1\b")


def plain(text):
    "Without formulas, code, addresses and references."
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.S)
    return re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|\{#[^}]*\}|@[\w-]+", " ", text)


@pytest.mark.parametrize("path", [*CHAPTERS, NBS / "notation.ipynb"], ids=lambda p: p.stem)
def test_no_code_stands_in_a_chapter(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            found = CODES.search(plain(cell.source))
            assert not found, f"{path.name}, cell {cell.id}: {found[0]}"
        elif cell.cell_type == "code":
            comments = " ".join(re.findall(r"#(?!\|)(.*)", cell.source))
            assert not re.search(r"\b(?:HOT[12]|ND)-[A-Z\d]|\bfinding F\d", comments), f"{path.name}, cell {cell.id}"

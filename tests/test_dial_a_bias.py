"""The scripts behind the appendix on separability: their targets are those of that page, and every run has its row."""
import csv

import pytest
import torch
from chapters import NBS, Chapter
from fastcore import test as fastcore_test
from scripts import load

from hot_nbdev.book import results_file


def rows(name):
    with results_file(f"{name}.csv").open(newline="") as f:
        return list(csv.DictReader(f))


@pytest.fixture
def dial():
    return load("dial_a_bias")


def test_the_script_and_the_appendix_define_the_same_pieces(dial):
    chapter = Chapter(NBS / "separability_measured.ipynb")
    space = {"torch": torch, "assert_close": torch.testing.assert_close,
             "test_close": fastcore_test.test_close}
    for cell in chapter.lessons():
        if "\nn = 32\n" in cell.source or "\ndef variances(" in cell.source:
            exec(cell.source, space)
    z = space["z"][:500]
    assert list(space["pieces"]) == list(dial.PIECES)
    for name, piece in space["pieces"].items():
        torch.testing.assert_close(dial.PIECES[name](z), piece(z), rtol=1e-4, atol=1e-4)


def test_a_run_is_the_same_twice_whatever_ran_before(dial):
    plan = ("samples", "means", "hadamard", 0.1, "nd 16x16", 300, 7, 1e-2)
    first = dial.run(*plan, quick=True)
    dial.run(*plan[:5], 200, 7, 1e-2, quick=True)
    second = dial.run(*plan, quick=True)
    seconds = dial.HEAD.index("cpu_seconds")
    assert first[:seconds] + first[seconds + 1:] == second[:seconds] + second[seconds + 1:]


BOTH = ("dial_a_bias", "radius_bump")


@pytest.mark.parametrize("name", BOTH)
def test_every_run_has_one_row(name):
    script, found = load(name), rows(name)
    keys = [tuple(row[k] for k in script.KEY) for row in found]
    assert len(keys) == len(set(keys)) and not any(script.following(plan, found) for plan in script.todo())


@pytest.mark.parametrize("name", BOTH)
def test_a_search_comes_before_its_run(name):
    "Rates are tried until the best one is inside; then comes the run, and then nothing."
    script, found, asked = load(name), [], []
    plan = script.todo()[0]
    while runs := script.following(plan, found):
        asked.append(sorted({run[-1] for run in runs}))
        for run in runs:
            found.append(dict(zip(script.KEY, map(str, run), strict=True)) | {"valid_mse": str(abs(run[-1] - 0.01))})
    assert asked == [[0.001, 0.003, 0.01], [0.03], [0.01]]
    assert found[-1]["seed"] == "0" and {r["seed"] for r in found[:-1]} <= {"97", "98", "99"}
    found = [r for r in found if r["rate"] != "0.003"]          # rows that were lost are made again
    assert {run[-1] for run in script.following(plan, found)} == {0.003}


def test_summaries_are_paired_by_seed():
    from math import log

    from scipy import stats
    dial, bump = load("dial_a_bias"), load("radius_bump")
    ours, theirs = [0.1, 0.2, 0.15], [0.3, 0.5, 0.2]
    p = stats.ttest_rel([log(v) for v in ours], [log(v) for v in theirs]).pvalue
    where = dict(study="dial", separable="means", entangled="hadamard", alpha="0.0", samples="10000")
    found = [where | dict(model=m, seed=str(s), test_mse=str(v))
             for m, values in (("nd 16x16", ours), ("dense 256", theirs)) for s, v in enumerate(values)]
    found.append(found[-1] | dict(study="rate", seed="99", test_mse="7"))
    (line,) = dial.summary(found)
    assert line.startswith("dial means hadamard 0.0 10000: nd 16x16 - dense 256 = -0.767")
    assert line.endswith(f"corrected {p:.3g}")
    found = [dict(model=m, width="32", s="0.2", seed=str(s), test_mse=str(v), entropy=str(1 + v))
             for m, values in (("mode", ours), ("dense", theirs)) for s, v in enumerate(values)]
    lines = list(bump.summary(found))
    assert len(lines) == 2 and f"corrected {p:.3g}" in lines[0] and lines[1].startswith("entropy width 32 s 0.2")

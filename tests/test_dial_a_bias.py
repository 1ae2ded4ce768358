"""The scripts behind the appendix on separability: their targets are those of that page, and every run has its row."""
from math import log

import pytest
import torch
from chapters import NBS, Chapter
from fastcore import test as fastcore_test
from scipy import stats
from scripts import load

from hot_nbdev.book import results_file
from hot_nbdev.train.results import read_rows

dial = load("dial_a_bias")


def test_the_script_and_the_appendix_define_the_same_pieces():
    space = {"torch": torch, "assert_close": torch.testing.assert_close, "test_close": fastcore_test.test_close}
    for cell in Chapter(NBS / "separability_measured.ipynb").lessons():
        if "\nn = 32\n" in cell.source or "\ndef variances(" in cell.source:
            exec(cell.source, space)
    z = space["z"][:500]
    assert list(space["pieces"]) == list(dial.PIECES)
    for name, piece in space["pieces"].items():
        torch.testing.assert_close(dial.PIECES[name](z), piece(z), rtol=1e-4, atol=1e-4)


def test_a_run_is_the_same_twice_whatever_ran_before():
    plan = ("samples", "means", "hadamard", 0.1, "nd 16x16", 300, 7, 1e-2)
    first = dial.run(*plan, quick=True)
    dial.run(*plan[:5], 200, 7, 1e-2, quick=True)
    second = dial.run(*plan, quick=True)
    seconds = dial.HEAD.index("cpu_seconds")
    assert first[:seconds] + first[seconds + 1:] == second[:seconds] + second[seconds + 1:]


@pytest.mark.parametrize("name", ["dial_a_bias", "radius_bump"])
def test_every_run_has_one_row(name):
    script, found = load(name), read_rows(results_file(f"{name}.csv"))
    keys = [tuple(row[k] for k in script.KEY) for row in found]
    assert len(keys) == len(set(keys)) and not any(script.following(plan, found) for plan in script.todo())


def test_summaries_are_paired_by_seed():
    ours, theirs = [0.1, 0.2, 0.15], [0.3, 0.5, 0.2]
    p = stats.ttest_rel([log(v) for v in ours], [log(v) for v in theirs]).pvalue
    where = dict(study="dial", separable="means", entangled="hadamard", alpha="0.0", samples="10000")
    found = [where | dict(model=m, seed=str(s), test_mse=str(v))
             for m, values in (("nd 16x16", ours), ("dense 256", theirs)) for s, v in enumerate(values)]
    found.append(found[-1] | dict(study="rate", seed="99", test_mse="7"))
    (line,) = dial.summary(found)
    assert line.startswith("dial means hadamard 0.0 10000: nd 16x16 - dense 256 = -0.767")
    assert line.endswith(f"corrected {p:.3g}")

"""Scores of every test sample beside a row, and tests of two models on the same samples."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scripts import load

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")
pytest.importorskip("sklearn", reason="metrics need scikit-learn: pip install 'hot_nbdev[train]'")

from sklearn.metrics import roc_auc_score

from hot_nbdev.train.loop import evaluate
from hot_nbdev.train.paired import add_rows, delong, read_scores, scores_name, write_scores
from hot_nbdev.train.results import read_rows
from hot_nbdev.train.tasks import Forecasting, Task


def two_scores(seed, ties):
    "Labels, and scores of two models that make similar errors."
    g = np.random.default_rng(seed)
    label, both = (np.arange(80) % 4 == 0).astype(int), g.standard_normal(80)
    found = [label + 0.7 * both + 0.3 * g.standard_normal(80) for _ in range(2)]
    return label, *((np.round(s, 1) if ties else s) for s in found)


@pytest.mark.parametrize("ties", [False, True])
def test_delong_gives_the_areas_of_scikit_learn_and_a_normal_test_of_their_difference(ties):
    "Page 56 has its error, from all pairs of samples."
    label, one, other = two_scores(0, ties)
    found = delong(label, one, other)
    assert np.allclose((found.one, found.other), [roc_auc_score(label, s) for s in (one, other)], atol=1e-14)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(found.difference) / found.error), rel=1e-9)
    assert (found.low, found.high) == pytest.approx(
        (found.difference - 1.96 * found.error, found.difference + 1.96 * found.error), abs=1e-4)
    a, b = (delong(label, s, 0 * s).error for s in (one, other))            # a constant has no error
    assert found.error ** 2 == pytest.approx(a ** 2 + b ** 2 - 2 * found.correlation * a * b, rel=1e-9)
    turned = delong(label, other, one)
    assert turned.difference == -found.difference and turned.p == pytest.approx(found.p)
    ranks = delong(label.astype(bool), *(stats.rankdata(s) for s in (one, other)))      # only the order counts
    assert (ranks.error, ranks.correlation) == pytest.approx((found.error, found.correlation), rel=1e-10)


def test_delong_where_there_is_no_variance():
    label = np.array([0, 0, 1, 1])
    same = delong(label, label, label)
    assert (same.difference, same.error, same.p) == (0, 0, 1) and math.isnan(same.correlation)
    assert delong(label, label, 1 - label)[2:4] == (1, 0) and delong(label, label, 1 - label).p == 0


@pytest.mark.parametrize("label, one, other, message", [
    ([0, 1, 2], [1, 2, 3], [1, 2, 3], "give labels 0 and 1"),
    ([0, 1, 0], [1, 2], [1, 2], "two scores that are numbers for each"),
    ([0, 1, 0], [1, math.nan, 1], [1, 2, 3], "two scores that are numbers"),
    ([0, 1, 0], [1, 2, 3], [1, 2, 3], "at least two of each"),
])
def test_what_delong_cannot_do_is_said(label, one, other, message):
    with pytest.raises(ValueError, match=message):
        delong(np.array(label), np.array(one), np.array(other))


def test_an_archive_holds_what_the_files_held_and_the_same_bytes_in_any_sequence(tmp_path):
    runs = {f"r{i}": {"a": torch.full((3,), float(i)), "b": torch.ones(2)} for i in range(3)}
    for folder, order in (("one", [["r0", "r1", "r2"]]), ("other", [["r2"], ["r0", "r1"]])):
        for names in order:
            for name in names:
                write_scores(tmp_path / folder / "scores" / f"{name}.npz", [runs[name]])
            assert load("pack").pack(tmp_path / folder) == len(names)
        assert not list((tmp_path / folder / "scores").iterdir())
        found = read_scores({"scores": "scores/r1.npz"}, tmp_path / folder)
        assert found["a"].tolist() == [1, 1, 1] and set(found) == {"a", "b"}
        with pytest.raises(ValueError, match="there is no file scores/r.npz"):
            read_scores({"scores": "scores/r.npz"}, tmp_path / folder)
    assert (tmp_path / "one" / "scores.npz").read_bytes() == (tmp_path / "other" / "scores.npz").read_bytes()


@pytest.mark.parametrize("row, message", [
    ({"run": "r", "scores": ""}, "the row of r has no scores"),
    ({"scores": "scores/none.npz"}, "there is no file scores/none.npz"),
    ({"scores": "../a/x.npz"}, "there is no file"),
    ({"scores": "scores/pickled.npz"}, "allow_pickle=False"),
])
def test_scores_that_are_not_there_or_are_a_pickle(tmp_path, row, message):
    write_scores(tmp_path / "a" / "x.npz", [{"a": torch.ones(1)}])
    (tmp_path / "a" / "scores").mkdir()
    np.savez(tmp_path / "a" / "scores" / "pickled.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=message):
        read_scores(row, tmp_path / "a")
    with pytest.raises(ValueError, match="there is no file"):
        read_scores({"scores": str(tmp_path / "a" / "x.npz")}, tmp_path)


def test_a_task_of_ones_own_keeps_nothing_and_needs_nothing(tmp_path):
    class Plain(Forecasting):
        each = Task.each
    kept = []
    part = torch.utils.data.TensorDataset(torch.ones(5, 2), torch.zeros(5, 1))
    evaluate(torch.nn.Linear(2, 1), part, Plain(), 2, kept=kept)
    assert kept == [None] * 3 and scores_name("r", 96, kept) == "" == scores_name("r", None, [])
    add_rows(tmp_path / "t.csv", [{"run": "r", "scores": ""}], [kept])
    assert read_rows(tmp_path / "t.csv")[0]["scores"] == "" and not (tmp_path / "scores").exists()

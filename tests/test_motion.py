"""Runs on what moves: from the command to the row, the saved model and the next frame of a file."""
import json

import numpy as np
import pytest
import torch
from chapters import ROOT
from scripts import load
from smallfiles import fails

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")
from hot_nbdev.book import results_file  # noqa: E402
from hot_nbdev.cli.commands import hot_motion, hot_predict  # noqa: E402
from hot_nbdev.cli.fields import MotionJob  # noqa: E402
from hot_nbdev.cli.tables import made_by, planned, read_tables  # noqa: E402
from hot_nbdev.models import load_model  # noqa: E402
from hot_nbdev.train.paired import read_scores  # noqa: E402
from hot_nbdev.train.results import read_rows, summarize  # noqa: E402

SMALL = ["--data", "white", "--size", "8", "8", "--samples", "64", "--epochs", "2", "--cpu", "--no-progress"]
TINY = [*SMALL, "--dim", "8", "--heads", "2"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_leaves_a_row_scores_and_a_model_that_predicts(here, capsys):
    hot_motion([*TINY, "--attention-options", "qk_norm=true", "--draws", "32", "--out", "run"])
    assert capsys.readouterr().out.splitlines()[-1] == "next: hot_predict run FILE, with frames, .npy, for FILE"
    (line,) = read_rows("results/motion.csv")
    assert line["data"] == "white" and line["attention"] == "product" and 0.5 < float(line["test_nmse"]) < 1.5
    squares = read_scores(line, "results")["square"]
    assert len(squares) == 512 and abs(squares.mean() - float(line["test_mse"])) < 1e-5
    frames = np.random.default_rng(0).normal(3, 2, (5, 2, 8, 8)).astype(np.float32)
    np.save("frames.npy", frames)
    hot_predict(["run", "frames.npy"])
    told = np.load("frames-next.npy")
    one = torch.from_numpy(frames[1]).movedim(0, -1)
    std, mean = torch.std_mean(one, correction=0)
    with torch.no_grad():
        want = load_model("run")((one - mean) / std)[..., 0] * std + mean
    assert told.shape == (5, 8, 8) and np.allclose(told[1], want, atol=1e-4)


@pytest.mark.parametrize("words, channels", [
    ([*TINY, "--move", "align", "--stem", "linear"], 3),
    ([*SMALL, "--model", "dilated", "--model-option", "width=4"], 2)])
def test_moves_and_rivals_train(here, words, channels):
    hot_motion([*words, "--out", "run"])
    assert load_model("run").config.in_channels == channels
    assert np.isfinite(float(read_rows("results/motion.csv")[0]["test_nmse"]))


def test_a_film_of_ones_own(here, capsys):
    film = np.random.default_rng(0).normal(3, 2, (20, 20, 20))
    np.save("film.npy", film), np.save("frames.npy", film[:2, :8, :8])
    words = [w if w != "white" else "film.npy" for w in TINY]
    hot_motion([*words, "--out", "run"])
    line, = read_rows("results/motion.csv")
    hot_predict(["run", "frames.npy"])                       # scaled as the training part was, and not by itself
    x, mean, std = torch.from_numpy(film[:2, :8, :8]), film[:14].mean(), film[:14].std()
    with torch.no_grad():
        want = load_model("run")(((x - mean) / std).float().movedim(0, -1))[..., 0] * std + mean
    assert np.allclose(np.load("frames-next.npy"), want, atol=1e-4)
    assert line["data"] == "film" and json.loads(line["model"])["stem_padding"] == "zeros"      # no torus
    assert "smaller reach" in fails(capsys, hot_motion, *words, "--reach", 9, 9)


def test_every_batch_of_a_motion_is_new():
    job = MotionJob.from_dict({"data": "smooth", "size": [16, 12], "samples": 4})
    parts = job.parts()
    x, y = parts.train[torch.arange(4)]
    assert not torch.equal(job.augmentation(parts)(x, y)[0], x)


def mean_errors(rows, **where):
    "Method or model -> mean error on the test part, of the rows where these columns hold."
    chosen = [r for r in rows if where.items() <= r.items() and not r["method"].startswith("true")]
    return {line["method"]: line["test_nmse"] for line in summarize(chosen, "method", "test_nmse")}


def test_the_first_page_names_the_best_rival_of_each_comparison():
    "Of what learns and of what needs no training, by the rows; and the product is not called best where it is not."
    first = json.loads((ROOT / "nbs" / "index.ipynb").read_text(encoding="utf-8"))
    told = "".join(next("".join(c["source"]) for c in first["cells"] if "## Measured" in "".join(c["source"])))
    said = told[told.index("## Measured"):].replace("\n", " ")
    added, simple = (read_rows(results_file(name)) for name in ("motion_rivals.csv", "motion_simple.csv"))
    shifts = {**mean_errors(added, run="shifts", size="32"), **mean_errors(simple, data="white", size="32")}
    assert min(shifts, key=shifts.get) in said and "correlation layer" in said and shifts["correlation layer"] < 1e-9
    for condition in ("clean", "noise 0.3", "noise 0.6", "a fifth missing"):
        found = mean_errors(added, size="16 x 16 in another order", condition=condition)
        found.pop("Hungarian") if condition == "clean" else None         # both are exact there, to rounding
        assert min(found, key=found.get) in said, condition
    real = mean_errors(simple, data="a1b")
    assert min(real, key=real.get) in said
    tables, rows = read_tables(), read_rows(results_file("motion.csv"))
    errors = {}
    for model in tables["motion-a1b"].rows:
        plans = planned("motion-a1b", tables["motion-a1b"], [model], None, range(5))
        jobs = [MotionJob.from_dict(plan.settings) for plan in plans]
        errors[model] = sum(float(r["test_nmse"]) for r in rows if any(made_by(job, r) for job in jobs)) / 5
    assert min(errors, key=errors.get).capitalize() in said                # the Fourier operator


def test_a_correlation_layer_follows_any_shift_and_soft_assignment_any_order():
    rivals = load("motion_rivals")
    u0 = torch.randn(3, 12, 20, generator=torch.Generator().manual_seed(0))
    u1, u2 = u0.roll((5, -3), (1, 2)), u0.roll((10, -6), (1, 2))
    torch.testing.assert_close(rivals.correlation_layer(u0, u1), u2, rtol=0, atol=1e-5)
    a = torch.randn(4, 9, 12, generator=torch.Generator().manual_seed(1))
    rows, columns = torch.randperm(9), torch.randperm(12)
    p, q = rivals.soft_assignment(a, a[:, rows][:, :, columns])
    assert (p.argmax(-1) == rows).all() and (q.argmax(-1) == columns).all()
    assert torch.allclose(p.sum(-1), torch.ones(4, 9)) and torch.allclose(p.sum(-2), torch.ones(4, 9), atol=1e-3)


def test_rows_of_the_untrained_rivals_are_what_the_script_gives():
    rivals = load("motion_rivals")
    stored = {(r["condition"], r["method"]): float(r["test_nmse"])
              for r in read_rows(results_file("motion_rivals.csv")) if (r["run"], r["seed"]) == ("orders", "0")}
    a, b, sheet, y = rivals.spoiled_tests(0, "noise 0.3")
    assert abs(rivals.nmse(rivals.hungarian(a, b, sheet), y) - stored["noise 0.3", "Hungarian"]) < 1e-3
    p, q = rivals.soft_assignment(a, b)
    assert rivals.nmse(p @ sheet @ q.mT, y) < 1e-3 and stored["noise 0.3", "soft assignment"] < 1e-3

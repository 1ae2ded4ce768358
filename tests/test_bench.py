"""Benchmarks and studies run and count what they say; how fast anything is stands in bench/rows, not here."""
import argparse
import copy
import importlib.util
import shutil
import sys
from itertools import product
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from official import official
from scripts import load, once
from smallfiles import write_series

from hot_nbdev import names
from hot_nbdev.book import results_file
from hot_nbdev.cli.jobs import job_class
from hot_nbdev.cli.tables import is_done, planned, read_tables
from hot_nbdev.data import volume_data
from hot_nbdev.data.moved import Shifted, motion_data, white_fields
from hot_nbdev.data.series import SERIES
from hot_nbdev.model_config import SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.train.results import read_rows
from hot_nbdev.train.tasks import Fields
from hot_nbdev.variants import Centred

ROOT = Path(__file__).parents[1]


@pytest.fixture
def args(tmp_path):
    return argparse.Namespace(device=torch.device("cpu"), rounds=2, least=0, about=[2, "", "", "", 1, ""],
                              out=tmp_path / "rows.csv")


@pytest.mark.parametrize("training", [False, True])
def test_rivals_of_ndlinear_agree_and_are_timed(args, training):
    "A rival that computes anything else raises."
    import tensorly
    bench = load("ndlinear")
    published = bench.published() or pytest.skip('needs ndlinear: pip install "hot_nbdev[peers]"')
    assert published.__module__.startswith("ndlinear")          # not a file of ours
    with tensorly.backend_context("pytorch"):
        found = bench.measure(published, 2, (3, 4), (5, 2), training, True, args)
    installed = {"FastKron"} if importlib.util.find_spec("pyfastkron") else set()
    assert set(found) == {"published", "NdLinear", "plain", "at once", "einsum", "TensorLy", "dense"} | installed
    assert found["published"] == [1] * 4 + found["published"][4:]
    assert all(len(numbers) == 5 and min(numbers) > 0 for numbers in found.values())


def test_attention_is_timed(args):
    bench = load("attention")
    rows = list(bench.measure(1, (3, 2), 16, False, args))
    assert {len(row) for row in rows} == {len(bench.HEAD)} and rows[0][4:6] == ["floor", "1.00"]
    bench.write(args, bench.HEAD, rows)
    assert len(args.out.read_text().splitlines()) == len(rows) + 1
    bench.write(SimpleNamespace(about=args.about, out=None), bench.HEAD, rows)      # --quick: into no file


def test_long_calls_drop_out_of_the_rounds(args):
    "After five rounds, once they have had a second."
    timing = load("timing")
    short, long = lambda: None, lambda: None
    timing.seconds = lambda call, times, device: 0.3 if call is long else 0.001
    args.rounds, args.least = 8, 0.01
    times = timing.in_turns({"short": short, "long": long}, args)
    assert len(times["short"]) == len(times["second"]) == 8 and len(times["long"]) == 5
    assert timing.over(times["long"], times["short"]) == pytest.approx([300] * 5)


def test_numbers_of_a_shape():
    pytest.importorskip("sklearn", reason='needs scikit-learn: pip install "hot_nbdev[train]"')
    bench = load("volumes")
    x = torch.zeros(2, 6, 6, 6)
    x[0, 1:3, 2:4, 2:4], x[1, 0, 0, :4] = 1, 1                  # a cube inside, a rod at an edge
    found = bench.numbers(x)
    assert found["voxels"][:, 0].tolist() == [8, 4] and found["faces"][:, 0].tolist() == [24, 18]
    assert found["logistic, 84 sums over slices"].shape == (2, 18)
    y, bench.DRAWS = torch.tensor([0, 0, 1, 1]).numpy(), 20
    assert (bench.bootstrap(y, [y, -y])[:5] == [1, 0]).all()


def test_tables_name_the_rates_that_the_study_found():
    "Each run of a table whose rate was searched has one, by a title of the table, and a row of its last seed is there."
    rows = {}
    for name, table in read_tables().items():
        runs = planned(name, table, seeds=table.seeds[-1:]) if table.rates else []
        assert set(table.rates) <= {run.title.rpartition(", seed ")[0] for run in runs}
        assert all("rate" in run.settings for run in runs), name
        for run in runs:
            job = job_class(table.command).from_dict(run.settings)
            path = ROOT / job.results / f"{job.kind}.csv"
            rows[path] = rows.get(path) or read_rows(path)
            mine = [row for row in rows[path] if f'"rate": {job.rate}' in row["training"]]      # `is_done` looks at all
            assert is_done(job, mine), f"{name}: {run.title}"
    assert rows


def same(stored, found, near=1e-12):
    "Are these columns those of a row, but for the last digits?"
    def alike(one, other):
        try:
            return float(one) == pytest.approx(float(other), rel=1e-9, abs=near)
        except ValueError:
            return one == other
    return all(stored[key] == value or alike(stored[key], value) for key, value in found.items())


@pytest.mark.parametrize("study, made", [("defaults", 3), ("marks", 4), ("pair", 2)])
def test_what_a_study_decides_and_shows_follows_from_its_rows(study, made, tmp_path, monkeypatch):
    script, here = load(study), ROOT / "studies" / study
    shutil.copy(here / "tables.json", tmp_path)
    monkeypatch.setattr(script, "HERE", tmp_path)
    monkeypatch.setattr(script, "told", once(script.told))
    monkeypatch.setattr("sys.argv", [study, "--rows", str(here / "rows")])
    script.main()
    found = {path.name: read_rows(path) for path in tmp_path.glob("*.csv")}
    assert len(found) == made
    for name, lines in found.items():
        for line, stored in zip(lines, read_rows(here / name), strict=True):
            assert line.keys() == stored.keys() and same(stored, line), (name, line, stored)


def test_the_rule_finds_a_large_gap_and_none_in_noise():
    bench, names, families = load("defaults"), [f"setting {i}" for i in range(6)], list("aabcdefgg")
    assert set(bench.simulated(3, 1, 2, names, families, draws=400)) == {"setting 4"}
    assert set(bench.simulated(0, 1, 2, names, families, draws=400)) == {"setting 0"}


def test_phase_correlation_and_best_overlap_find_every_move():
    bench = load("motion_simple")
    fields = white_fields(5, (9, 12), torch.Generator().manual_seed(0))
    answers, y = bench.moved_answers(Shifted(fields, (9, 12), (4, 6), 40))
    assert torch.equal(answers["phase correlation"][..., None], y)
    fields = white_fields(4, (20, 24), torch.Generator().manual_seed(1))
    fields[fields > 1.5] = torch.nan
    answers, y = bench.moved_answers(Shifted(fields, (8, 10), (3, 2), 30, torus=False))
    assert torch.equal(answers["best overlap"][..., None][~y.isnan()], y[~y.isnan()])


def test_tables_of_motion_are_what_their_rows_and_the_measured_pace_say(monkeypatch, capsys):
    bench, made = load("motion_pace"), load("motion_tables")
    for r in read_rows(results_file("motion_pace.csv")):
        size, move, budget = int(r["size"]), r["move"], int(r["budget"])
        assert budget == bench.BUDGETS[size, move] and bench.fits(r["model"], size, move)
        assert int(r["epochs"]) == max(1, round(budget / float(r["seconds_per_update"]) / bench.EVERY))
    monkeypatch.setattr(made, "read_rows", lambda path: [r for r in read_rows(path) if r.get("seed", "99") == "99"])
    monkeypatch.setattr(made, "told", once(made.told))
    monkeypatch.setattr("sys.argv", ["motion_tables"])
    made.main()
    assert capsys.readouterr().out == ""
    job = bench.MotionJob.from_dict({**bench.settings("product", (8, 8), "shift"), "samples": 64})
    update, weights, each = bench.updater(job)
    update()
    assert weights > 1000 and each == 2


def test_rows_of_data_that_are_not_at_hand_stay_and_in_their_place(tmp_path):
    path, put = tmp_path / "rows.csv", load("rows").put
    for new in ([("a", 1), ("b", 2), ("b", 3)], [("a", 4), ("c", 5)], [("b", 6)], []):
        put(path, [{"data": data, "score": score} for data, score in new], "data")
    assert path.read_text() == "data,score\na,4\nb,6\nc,5\n"


def test_a_run_of_the_papers_has_one_title_and_folder_whichever_part_asks_for_it():
    script = load("run")
    whole, (kernel, rest) = script.wanted(None), map(script.wanted, (["papers-kernel"], ["papers-rest-series"]))
    assert kernel.keys() & rest.keys() and all(whole[title] == job for title, job in (kernel | rest).items())


def test_real_fields_keep_their_missing_values(tmp_path, monkeypatch):
    "A file as the packages carry them, small: land stays unknown, and a package that is absent is named."
    h5py, bench = pytest.importorskip("h5py", reason="h5py reads NetCDF files"), load("motion_fields")
    with pytest.raises(SystemExit, match="pip install --no-deps no-such-package"):
        bench.packaged("no-such-package", "file.nc")
    values = np.arange(24.0).reshape(2, 3, 4)
    values[:, 1, 1] = 1e20
    with h5py.File(tmp_path / "sea.nc", "w") as f:
        f["surface_temperature"] = values.astype("float32")
        f["surface_temperature"].attrs["_FillValue"] = np.float32([1e20])
    monkeypatch.setattr(bench, "packaged", lambda package, ending: tmp_path / "sea.nc")
    found = bench.ostia()
    assert np.isnan(found).sum() == 2 and np.isnan(found[:, 1, 1]).all() and found[1, 2, 3] == 23


def test_simple_forecasts_have_their_rows():
    official("exchange_rate", SERIES["exchange_rate"].file)
    columns = [f"{part}_{score}" for part in ("val", "test") for score in ("mse", "mae", "smape")]
    stored = {r["method"]: r for r in read_rows(results_file("simple_forecasts.csv"))
              if (r["data"], r["horizon"]) == ("exchange_rate", "96")}
    for row in load("simple_forecasts").rows("exchange_rate", (96,)):
        assert same(stored.pop(row["method"]), {key: row[key] for key in columns}, 2e-3)
    assert not stored


def test_errors_of_variables_have_the_mean_of_the_row(tmp_path, monkeypatch):
    bench, path = load("simple_forecasts"), str(tmp_path / "waves.csv")
    write_series(path, rows=400)
    monkeypatch.setitem(bench.PERIODS, path, 24)
    lines = [line for line in bench.by_variable(path, 8, 12) if not line["mended"]]
    row = {r["method"]: float(r["test_mse"]) for r in bench.rows(path, (8,), 12)}
    assert len({line["variable"] for line in lines}) == len(lines) > 1
    for name in ("least squares", "own matrices"):
        assert abs(np.mean([float(line[name]) for line in lines]) - row[name]) < 1e-5


def test_simple_answers_to_moves_have_their_rows():
    bench, task = load("motion_simple"), Fields()
    for way, size, answers in (("shift", "16", bench.moved_answers),
                               ("align", "16 x 16 in another order", bench.ordered_answers)):
        found, y = answers(motion_data("white", (16, 16), seed=0, move=way).test)
        stored = {r["method"]: r for r in read_rows(results_file("motion_simple.csv"))
                  if (r["data"], r["size"], r["seed"]) == ("white", size, "0")}
        assert found.keys() == stored.keys()
        assert all(same(stored[name], {"test_nmse": task.metrics([task.collect(guess[..., None], y)])["nmse"]}, 2e-3)
                   for name, guess in found.items())


def test_numbers_of_volumes_have_their_rows():
    roc_auc_score = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn").roc_auc_score
    official("vessel", "vesselmnist3d.npz")
    bench, parts = load("volumes"), volume_data("vessel", download=False)
    xs, ys = zip(*(p[torch.arange(len(p))] for p in parts[:3]), strict=True)
    ys, features = [y.numpy() for y in ys], [bench.numbers(x[..., 0]) for x in xs]
    stored = {r["score"]: r for r in read_rows(results_file("volumes_simple.csv")) if r["data"] == "vessel"}
    assert features[0].keys() == stored.keys()
    for key, row in stored.items():
        found, _ = bench.scores(features[0][key].numpy(), ys[0], [f[key].numpy() for f in features])
        assert same(row, {f"{part}_auc": roc_auc_score(y, s)
                          for part, y, s in zip(("train", "val", "test"), ys, found, strict=True)}, 2e-3), key


def test_the_opening_is_run_with_its_own_code():
    bench = load("modes")
    own = bench.chapter()
    assert set(own) == bench.NAMES
    for model in own["kinds"]:
        updates, error = bench.waited(own, model, 4, 0, 0.01, most=20)
        assert updates == 20 and 0.5 < error < 2


def test_growth_has_a_row_for_each_case_and_goes_on_where_it_stopped(tmp_path):
    "What takes too long is left out with all larger grids of that layer; the row says so, and the others go on."
    growth, out, more, cpu = load("growth"), tmp_path / "rows.csv", tmp_path / "more.csv", torch.device("cpu")
    vars(growth).update(CUBES=[(2,) * 3, (3,) * 3], TABLES=[(2, 3)], STREAMS=[(2, 2, 2)], DIM=16,
                        library_commit=lambda: "")          # which asks git twice for each row
    chosen = list(growth.cases())
    assert [growth.run(out, some, 5.0, 1.0, cpu) for some in (chosen[:7], chosen)] == [7, len(chosen) - 7]
    rows = read_rows(out)
    assert len({tuple(r[k] for k in growth.KEY) for r in rows}) == len(rows) == len(chosen)
    for r in rows:
        assert int(r["positions"]) == prod(map(int, r["sizes"].split("x"))) and r["processor"] and r["torch"]
        assert r["note"] or int(r["bytes"]) > 0 < float(r["least"]) <= float(r["seconds"]) <= float(r["most"])
    cubes = [c for c in chosen if c[0] == "cube" and c[2:] == ("product", "forward")]
    assert growth.run(more, cubes, 60.0, 1e-9, cpu) == 2
    assert [r["note"][:8] for r in read_rows(more)] == ["", growth.LEFT_OUT[:8]]


def test_the_bench_of_a_card_runs_without_one_and_goes_on_where_it_stopped(tmp_path, capsys):
    gpu, out = load("gpu"), tmp_path / "g.csv"
    gpu.times_of.__defaults__ = 2, 2, 0.0               # rounds: as few as will do
    gpu.MODELS, gpu.DTYPES = {"series, product": gpu.MODELS["series, product"]}, {"float32": torch.float32}
    gpu.cases = lambda cases=gpu.cases, **small: cases(**small | {"shapes": small["shapes"][:1]})
    few = ["--device", "cpu", "--quick", "--ways", "eager", "graph", "fused", "--out", str(out)]
    gpu.main([*few, "--minutes", "0.005"])
    first = read_rows(out)
    assert first[-1]["note"] == "not run"
    gpu.main(few)
    rows = read_rows(out)
    measured = [r for r in first if r["note"] != "not run"]
    assert rows[:len(measured)] == measured
    assert not any(r["note"].startswith(("not run", "failed", "wrong")) for r in rows)
    assert [r["layer"] for r in rows[:3]] == ["bandwidth", "float32", "launches"]
    assert all(float(r["rate"]) > 0 and r["card"] and r["torch"] for r in rows[:3])
    run = [r for r in rows if r["way"] and not r["note"].startswith("left out")]
    assert all(r["way"] == "eager" and float(r["seconds"]) > 0 and float(r["off"]) < 1e-5 for r in run)
    assert {"product", "sum", "axial", "full", "stream, kernel", "series, product"} <= {r["layer"] for r in run}
    capsys.readouterr()
    gpu.main([*few, "--dry-run"])
    assert "0 to do" in capsys.readouterr().out


def test_parity_notices_kernels_and_memory(monkeypatch):
    "The other library does two operations more, on whole tensors."
    parity = load("parity")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    new, old = parity.pair(parity.linear, parity.other(ROOT), (3, 4), (4, 2))
    assert type(old).__module__ == f"{parity.OTHER}.ndlinear"
    monkeypatch.setattr(old, "forward", lambda x, forward=old.forward: forward(x.exp().log()))
    x = torch.rand(500, 3, 4)
    mine, slow = (parity.steps(layer, x) for layer in (new, old))
    for kind, more in (("forward", 2), ("train", 4)):
        assert parity.launches(slow[kind]) == parity.launches(mine[kind]) + more
        assert parity.peak(slow[kind]) > parity.peak(mine[kind]) == parity.peak(mine[kind]) > x.numel() * 4


@pytest.fixture
def peft_task():
    pytest.importorskip("peft_method", reason='needs PEFT: pip install "peft>=0.21"')
    return load("peft_task")


def test_rows_of_the_peft_study_are_whole_and_adapters_as_large_as_they_say(peft_task):
    rows, base = peft_task.read_rows(results_file("peft.csv")), peft_task.new_base()
    main = [r for r in rows if r["study"] == "main"]
    assert sorted((r["model"], int(r["seed"])) for r in main) == sorted(product(peft_task.MODELS, peft_task.SEEDS))
    assert not any(r["stopped"] == "diverged" for r in main)
    for (_, name), tried in peft_task.searched(rows).items():
        best = min(tried, key=lambda r: (tried[r], r))
        assert min(tried) < best < max(tried) and {float(r["rate"]) for r in main if r["model"] == name} == {best}
    for name in peft_task.MODELS:
        model = peft_task.adapted(name, copy.deepcopy(base))
        size = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert {r["parameters"] for r in rows if r["model"] == name} == {str(size)}, name
    _, y, _ = peft_task.digits()
    parts = peft_task.split(y, 3)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(y)))
    assert [round(len(part) / len(y), 2) for part in parts] == [0.4, 0.2, 0.2, 0.2]


def test_plain_answers_to_the_task_of_adapters_are_those_of_their_script(monkeypatch, peft_task):
    simple = load("peft_simple")
    monkeypatch.setattr(simple, "SEEDS", [0])
    there = [r for r in peft_task.read_rows(simple.OUT) if r["seed"] == "0"]
    assert [{k: str(v) for k, v in row.items()} for row in simple.rows()] == there
    assert len(peft_task.read_rows(simple.OUT)) == len(simple.TRIED) * len(peft_task.SEEDS)


def test_the_parts_of_the_layer_make_the_layer():
    script = load("parts")
    layer, x = script.KroneckerAttention(8, 2, 3), torch.randn(2, 3, 4, 5, 8)
    with torch.no_grad():
        calls, y = script.parts(layer, x)
        torch.testing.assert_close(y, layer(x))
    assert list(calls) == ["maps", "values", "first copy", "mode products", "second copy", "results"]


def test_the_nearest_tasks_are_what_their_names_say():
    bench = load("nearest")
    u, other = torch.randn(2, 3, 16, 16)
    left, right = torch.tensor([0, 5, 15]), torch.tensor([2, 5, 1])
    for i, frames in enumerate(zip(*bench.Halves.frames(u, other, left, right), strict=True)):
        for t, frame in enumerate(frames):
            halves = u[i, :, :8].roll(t * int(left[i]), 0), u[i, :, 8:].roll(t * int(right[i]), 0)
            assert torch.equal(frame, torch.cat(halves, 1))
    for i, (a, b, c, d) in enumerate(zip(*bench.Turned.frames(u, other, left, right), strict=True)):
        way = 1 if int(left[i]) % 2 == 0 else -1
        assert torch.equal(b, a.rot90(way, (0, 1))) and torch.equal(d, c.rot90(way, (0, 1)))
    _, seen, wanted = bench.Texture.frames(u, other, left, right)
    assert torch.equal(wanted[0, 4, 0], seen[0, 3, 0] * seen[0, 4, 15])


def test_a_model_is_tested_at_other_sizes(monkeypatch):
    monkeypatch.setitem(names.ATTENTIONS, "centred", None)      # what the study registers is gone afterwards
    monkeypatch.setitem(sys.modules, "centred", load("centred"))
    bench = load("other_sizes")
    config = SegmenterConfig(in_channels=2, patch=(1, 1), classes=1, positions="none", dim=8, heads=2, depth=1)
    model = make_model(config).eval()
    assert 0.8 < bench.error_at(model, 8, 0, fields=4) < 2 and 0.8 < bench.error_at(model, 16, 0, fields=4) < 2
    assert {name for name, _ in bench.runs(bench.ROOT)} >= {"product", "full", "dilated", "fourier", "unet"}
    assert isinstance(names.make_attention("centred", 8, 2, 2), Centred)


def test_forecasts_without_training_beside_the_marks_see_the_chosen_window(tmp_path, monkeypatch):
    bench, path = load("marks"), str(tmp_path / "waves.csv")
    write_series(path, rows=400)
    monkeypatch.setitem(sys.modules["studies.forecasts.simple_forecasts"].PERIODS, path, 24)
    progress = SimpleNamespace(name="Waves", choice={}, case=bench.SERIES._replace(data=path, each=({"horizon": 8},)))
    assert bench.without_training(progress) == []               # nothing is chosen yet
    progress.choice = {"lookback": 12}
    rows = {row["method"]: row for row in bench.without_training(progress)}
    assert {name: int(row["lookback"]) for name, row in rows.items()} == {
        "last": 12, "mean": 12, "seasonal": 24, "all series": 12,
        **{name + tail: 12 for name in ("least squares", "own matrices") for tail in ("", ", normalized")}}
    assert {row["data"] for row in rows.values()} == {"Waves"}

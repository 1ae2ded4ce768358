"""Commands: settings, runs on small files, folders that belong to one run, and errors that say what to do."""

import argparse
import configparser
import importlib.util
import itertools
import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from chapters import ROOT
from smallfiles import SERIES, TINY, dates, fails, waves, write_lines, write_scene, write_series, write_volumes

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")
pytest.importorskip("sklearn", reason="metrics need scikit-learn: pip install 'hot_nbdev[train]'")

from sklearn.metrics import roc_auc_score

from hot_nbdev.cli import commands, jobs
from hot_nbdev.cli.commands import hot_classify, hot_forecast, hot_motion, hot_predict, hot_reproduce, hot_segment, say
from hot_nbdev.cli.jobs import config_for, job_class
from hot_nbdev.config import read_settings
from hot_nbdev.train import runs
from hot_nbdev.train.paired import read_scores
from hot_nbdev.train.results import append_row, read_rows

COMMANDS = (hot_forecast, hot_classify, hot_segment, hot_motion, hot_predict, hot_reproduce)
TRAINED = ["--data", "waves.csv", *SERIES]
CUBES = ["--data", "own.npz", *TINY]
FIELDS = ["--data", "scene.npy", "--labels", "mask.npy", "--window", "4", *TINY, "--patch", "2"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOT_DATA", raising=False)


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(jobs, "fit", lambda *_, **__: pytest.fail("training began"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as end:
        command(["--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0 and "examples:" in text and command.__name__ in text


def test_the_package_installs_all_of_them():
    config = configparser.ConfigParser()
    config.read(ROOT / "settings.ini", encoding="utf-8")
    entries = dict(line.split("=") for line in config["DEFAULT"]["console_scripts"].split())
    assert {name: EntryPoint(name, place, "").load() for name, place in entries.items()} == {
        c.__name__: c for c in COMMANDS}


def test_settings_come_from_defaults_file_and_command_line(capsys, tmp_path, monkeypatch):
    "Page 68 has a file of JSON."
    (tmp_path / "s.toml").write_text('data = "weather"\nflips = true\nrate = 1\npatch = 8\nepochs = 5\n')
    if importlib.util.find_spec("tomllib"):  # from Python 3.11 on
        hot_classify(["--config", "s.toml", "--epochs", "7", "--no-resume", "--show"])
        found = json.loads(capsys.readouterr().out)
        assert (found["flips"], found["rate"], found["patch"], found["epochs"]) == (True, 1.0, [8], 7)
        assert (found["resume"], found["size"]) == (False, 28)
    monkeypatch.setitem(sys.modules, "tomllib", None)       # as with Python 3.10
    with pytest.raises(ValueError, match="s.toml: Python reads TOML from 3.11 on; write these settings as JSON"):
        read_settings("s.toml")
    hot_forecast(["my.csv", "--horizon", "24", "--show"])
    assert json.loads(capsys.readouterr().out)["data"] == "my.csv"
    assert "name them once" in fails(capsys, hot_forecast, "my.csv", "--data", "other.csv", "--show", status=2)


@pytest.mark.parametrize("text, message", [
    ('{"resume": 1}', "resume is 1; give true or false"), ("[" * 100_000, "is no file of settings"),
    ('{"attention_options": ' + '{"a": ' * 5000 + "1" + "}" * 5000 + "}", "s.json")], ids=["bool", "deep-list", "deep"])
def test_wrong_settings_are_named(capsys, tmp_path, text, message):
    (tmp_path / "s.json").write_text(text)
    assert message in fails(capsys, hot_forecast, "--config", "s.json", *TRAINED[:6])
    assert "none.json is no file of settings: No such file" in fails(capsys, hot_forecast, "--config", "none.json")


@pytest.mark.parametrize("command, words, message", [
    (hot_forecast, "--dropout nan", "dropout is nan"), (hot_segment, "--window -4", "window is -4"),
    (hot_classify, "--size 30", "size is 30"), (hot_forecast, "--epochs x", "epochs is 'x'"),
    (hot_forecast, "--model-option x", "'x' is not NAME=VALUE")])
def test_a_wrong_option_names_itself(capsys, command, words, message):
    said = fails(capsys, command, "--data", "x", *words.split(), status=2)
    assert f"argument {words.split()[0]}: {message}" in said


def test_forecasts_from_file_to_file(capsys):
    write_series()
    words = ["--data", "waves.csv", "--lookback", "8", "--horizon", "4", "--score", "2", "4", *TINY]
    hot_forecast(words)
    said = capsys.readouterr()
    rows = read_rows("results/forecast.csv")
    assert [r["horizon"] for r in rows] == ["2", "4"] and {r["trained_horizon"] for r in rows} == {"4"}
    assert said.out.splitlines()[0].split() == ["horizon", "loss", "mse", "mae", "smape"]  # a table
    assert "reading waves.csv" in said.err and "parameters" in said.err
    assert f"runs/{rows[0]['run']}" in said.err
    assert Path(f"runs/{rows[0]['run']}/losses.png").read_bytes()[1:4] == b"PNG"  # a picture, and what comes next
    assert said.out.splitlines()[-1] == f"next: hot_predict runs/{rows[0]['run']} waves.csv"
    for r in rows:
        found = read_scores(r, "results")
        assert found["square"].mean() == pytest.approx(float(r["test_mse"]), rel=1e-5)
        assert found["absolute"].mean() == pytest.approx(float(r["test_mae"]), rel=1e-5)
    hot_forecast(words)  # finished: nothing is run, no row twice
    assert read_rows("results/forecast.csv") == rows
    hot_predict([f"runs/{rows[0]['run']}", "waves.csv"])
    ahead = read_rows("waves-forecast.csv")
    assert [r["date"] for r in ahead] == [f"2024-01-11 0{h}:00:00" for h in range(4)]
    assert all(abs(float(r[c])) < 5 for r in ahead for c in "ab")


def test_without_out_another_run_has_another_folder(monkeypatch):
    write_series()
    job = job_class("forecast").from_dict(dict(data="waves.csv", lookback=24, horizon=12))
    changes = ({}, {"mend": True}, {"score": (4,)}, {"rate": 1e-3}, {"attention_options": {"pool": "sum"}})
    names = [jobs.run_name(job.replace(**change), job.parts()) for change in changes]
    assert jobs.run_name(job.replace(out="y", cpu=True), job.parts()) == names[0]       # places do not count
    for shift in (1e8, 1e8 + 1):            # float32 knows multiples of 8 there
        write_series(shift=shift)
        names.append(jobs.run_name(job, job.parts()))
    monkeypatch.setattr(type(job), "numbers", lambda self: {"a new default": 1})
    assert len({*names, jobs.run_name(job, job.parts())}) == 8


def test_linear_rivals_train_and_predict(capsys):
    write_series()
    words = ["--data", "waves.csv", "--lookback", "32", "--horizon", "4", "--model", "dlinear", *TINY[8:]]
    hot_forecast([*words, "--model-option", "instance_norm=true"])
    (row,) = read_rows("results/forecast.csv")
    config = json.loads(row["model"])
    assert (row["attention"], config["model"], config["trend"]) == ("dlinear", "linear", 25)
    assert config["instance_norm"] is True and int(row["parameters"]) == 2 * 4 * 33
    hot_predict([f"runs/{row['run']}", "waves.csv"])
    assert len(read_rows("waves-forecast.csv")) == 4
    assert "widht" in fails(capsys, hot_forecast, *words, "--model-option", "widht=1")
    assert config_for(job_class("forecast").from_dict(dict(data="x", model="linear")), (96, 2)).trend is None


def test_scenes_from_file_to_picture(capsys):
    write_scene(dates=2)
    hot_segment([*FIELDS, "--flips", "--class-weights", "balanced", "--epochs", "6", "--batch-size", "8"])
    (row,) = read_rows("results/segment.csv")
    assert float(row["test_accuracy"]) > 0.8 and json.loads(row["test_iou_by_class"]).keys() == {"0", "1"}
    counts = read_scores(row, "results")["counts"].sum(0)
    assert counts.trace() / counts.sum() == pytest.approx(float(row["test_accuracy"]))
    assert capsys.readouterr().out.splitlines()[-1] == f"next: hot_predict runs/{row['run']} scene.npy"
    hot_predict([f"runs/{row['run']}", "scene.npy", "--to", "out/labels.npy"])
    labels = np.load("out/labels.npy")
    assert labels.shape == (24, 24) and set(np.unique(labels)) <= {1, 3}
    assert ((labels == 3) == (np.arange(24) >= 12)).mean() > 0.8
    assert Path("out/labels.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("masks, order, channels", [(True, 3, ()), (False, 2, (4,))])
def test_pictures_and_volumes_from_file_to_probabilities(capsys, masks, order, channels):
    write_volumes(masks=masks, order=order, channels=channels)
    asked = ["--channels", "last"] if channels == (4,) else []
    if asked:
        assert "say by --channels last" in fails(capsys, hot_classify, *CUBES)
    hot_classify([*CUBES, "--flips", "--shifts", "1", "--epochs", "3", "--batch-size", "8", *asked])
    (row,) = read_rows("results/classify.csv")
    run = f"runs/{row['run']}"
    assert capsys.readouterr().out.splitlines()[-1] == f"next: hot_predict {run} own.npz --key test_images"
    scores = read_scores(row, "results")
    assert roc_auc_score(scores["label"], scores["probability"][:, 1]) == float(row["test_auc"]) > 0.9
    assert json.loads(Path(run, "input.json").read_text())["masked"] is masks
    hot_predict([run, "own.npz", "--key", "test_images"])
    assert ("a mask hides" in capsys.readouterr().out) is masks
    assert json.loads(row["model"])["in_channels"] == (channels or (1,))[0]
    found = read_rows("own-classes.csv")
    names = list(found[0])[2:]
    assert len(found) == 8 and all(sum(float(r[n]) for n in names) == pytest.approx(1) for r in found)
    assert all(r["class"] == max(names, key=lambda n, r=r: float(r[n])) for r in found)


def test_a_class_that_a_part_lacks_is_told_before_training(capsys, no_training):
    arrays = write_volumes()
    np.savez("own.npz", **{**arrays, "val_labels": 0 * arrays["val_labels"]})
    assert "the val part of own.npz has no item of the class class 1" in fails(capsys, hot_classify, *CUBES)
    assert not Path("runs").exists()


def test_forecasts_carry_the_layout_and_the_years_of_a_table_on():
    "With decimal commas, and a column of times that has to be named; both together can be read again."
    lines = ["t;a", *(f"{1874 + i};{np.sin(i):.3f}".replace(".", ",") for i in range(144))]
    Path("x.csv").write_text("\r\n".join(lines))
    hot_forecast(["--data", "x.csv", "--lookback", "8", "--horizon", "2", "--time", "t", *TINY])
    (row,) = read_rows("results/forecast.csv")
    hot_predict([f"runs/{row['run']}", "x.csv", "--no-picture"])
    head, *found = Path("x-forecast.csv").read_text().splitlines()
    assert head == lines[0] and [line.split(";")[0] for line in found] == ["2018", "2019"]
    assert all("," in line for line in found)
    Path("y.csv").write_text("\n".join([*lines, *found]))
    hot_predict([f"runs/{row['run']}", "y.csv", "--no-picture"])
    assert len(Path("y-forecast.csv").read_text().splitlines()) == 3


def test_a_table_without_times_says_what_lies_between_its_rows(capsys):
    Path("x.csv").write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in waves()))
    words = [*"--data x.csv --lookback 8 --horizon 2".split(), *TINY]
    assert "say by --step 1h that there is none" in fails(capsys, hot_forecast, *words)
    hot_forecast([*words, "--step", "15min"])
    (row,) = read_rows("results/forecast.csv")
    hot_predict([f"runs/{row['run']}", "x.csv"])
    assert [line.split(",")[0] for line in Path("x-forecast.csv").read_text().splitlines()] == ["date", "1", "2"]


def test_a_series_with_holes_trains_with_a_mask(capsys):
    values = waves().tolist()
    values[50][0] = values[230][1] = "nan"
    write_lines("waves.csv", dates(240), values)
    said = fails(capsys, hot_forecast, *TRAINED)
    assert "--mend" in said and "--masked" in said and "line 52" in said
    hot_forecast([*TRAINED, "--masked", "--horizon", "4"])
    (row,) = read_rows("results/forecast.csv")
    assert json.loads(Path("runs", row["run"], "input.json").read_text())["masked"] is True


def test_a_stopped_command_goes_on_and_a_run_folder_holds_one_run(capsys, monkeypatch):
    "Other data are refused before anything is written, with the ways out; page 68 has other models."
    write_series()
    write_series("b.csv", shift=1.0)
    words = [*TRAINED, "--epochs", "2", "--save-every", "3"]
    hot_forecast([*words, "--out", "whole", "--results", "whole"])
    before = {path: path.read_bytes() for path in Path().rglob("*.*") if path.is_file()}
    for change in ("--data b.csv", "--mend"):
        said = fails(capsys, hot_forecast, *words, "--out", "whole", *change.split())
        assert "whole holds another run: " in said and "--no-resume" in said and "--out" in said, change
        assert {path: path.read_bytes() for path in Path().rglob("*.*") if path.is_file()} == before, change
    saved = runs.Checkpoints.save

    def stop(self, step, tensors, state):
        saved(self, step, tensors, state)
        if step == 6:
            raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(runs.Checkpoints, "save", stop)
        assert "goes on from the last checkpoint" in fails(capsys, hot_forecast, *words, status=130)
    hot_forecast(words)
    want, found = read_rows("whole/forecast.csv")[0], read_rows("results/forecast.csv")[0]
    assert {k for k in want if want[k] != found[k]} <= {"seconds", "peak_mb"}


def test_places_that_cannot_be_written_are_found_before_training(capsys, tmp_path):
    "Nor a table of results that is none."
    write_series()
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "forecast.csv").write_bytes(b"\0\1\2\xff" * 50)
    for words, said in (("--results taken/here", "taken"), ("--out taken/here", "taken"), ("--results .", "no table")):
        assert said in fails(capsys, hot_forecast, *TRAINED, *words.split()) and not Path("runs").exists()


@pytest.mark.parametrize("command, data, home", [
    (hot_forecast, "solar", "github.com"), (hot_classify, "vessel", "medmnist.com")])
def test_absent_data_say_where_to_get_them(capsys, tmp_path, command, data, home):
    said = fails(capsys, command, "--data", data)
    assert "--data-dir" in said and "HOT_DATA" in said and home in said and "folder=" not in said
    said = fails(capsys, command, "--data", data, "--data-dir", str(tmp_path), "--no-download")
    assert home in said and "--data-dir" in said and ("--download fetches it" in said) == (data != "solar")
    assert "no" in fails(capsys, command, "--data", "none-such", "--data-dir", str(tmp_path))


TRAIN = 'which is not installed: pip install "hot_nbdev[train]"'


@pytest.mark.parametrize("command, lost, words, says", [
    (hot_segment, "accelerate", ["--data", "absent.csv"], f"accelerate, {TRAIN}"),
    (hot_classify, "monai", ["--data", "own.npz", "--model", "resnet"], "pip install monai")])
def test_a_missing_extra_is_named_first(capsys, monkeypatch, command, lost, words, says):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == lost else find(name, *rest))
    assert says in fails(capsys, command, *words)


def test_official_volumes_are_asked_for_without_medmnist_and_pictures_name_it(capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "medmnist" else True)
    monkeypatch.setitem(sys.modules, "medmnist.info", None)
    assert "the home of vesselmnist3d is https://medmnist.com" in fails(capsys, hot_classify, "--data", "vessel")
    assert 'pip install "hot_nbdev[medmnist]"' in fails(capsys, hot_classify, "--data", "pathmnist")


@pytest.mark.parametrize("words, message", [
    ("--model dlinear --model-option trend=true", "trend is True"), ("--attention-options poool=sum", "poool"),
    ("--patch 1 2 3", "patch"), ("--causal 7", "causal"), ("--lookback 1000", "lookback")])
def test_what_cannot_run_is_found_before_training(capsys, no_training, words, message):
    write_series()
    said = fails(capsys, hot_forecast, *(TRAINED[:6] if "dlinear" in words else TRAINED), *words.split())
    assert message in said and not Path("runs").exists()


def test_only_the_first_process_speaks(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    say("nothing")
    monkeypatch.setenv("RANK", "0")
    say("something")
    assert capsys.readouterr().err == "something\n"


def row_of(job, data, sizes, **more):
    told = [job.numbers(), job.training().to_dict(), config_for(job, sizes, 1, 2).to_dict()]
    texts = dict(zip(("settings", "training", "model"), map(json.dumps, told), strict=True))
    return dict(data=data, attention=job.label, seed=job.seed, **texts, **more)


def test_tables_run_what_is_missing(capsys, monkeypatch):
    ran = []

    def train(job):
        if job.data == "organ":
            raise FileNotFoundError("organmnist3d.npz is not there")
        ran.append((job.kind, job.data, job.combine, job.seed))
        append_row(f"studies/papers/rows/{job.kind}.csv", row_of(job, f"{job.data}mnist3d", (28, 28, 28)))
    monkeypatch.setattr(commands, "_train", train)
    words = "hot2-table2 --data Vessel Adrenal --seeds 0 3 --row".split() + ["HOT (product)", "HOT (sum)"]
    hot_reproduce([*words, "--dry-run"])
    assert not ran and capsys.readouterr().out.count("to do") == 8
    hot_reproduce(words)
    want = itertools.product(("product", "sum"), ("adrenal", "vessel"), (0, 3))
    assert sorted(ran) == sorted(("classify", data, combine, seed) for combine, data, seed in want)
    hot_reproduce(words)
    assert len(ran) == 8 and capsys.readouterr().out.count(": done") == 8
    hot_reproduce([*words, "--set", "dropout=0.2", "--dry-run"])
    assert capsys.readouterr().out.count(": to do") == 8
    words = ["hot2-table2", "--row", "HOT (sum)", "--data", "Organ", "Vessel", "--seeds", "0"]
    assert "1 runs lack their data: HOT (sum), Organ" in fails(capsys, hot_reproduce, *words)
    assert "has no row 'HOT'; it has" in fails(capsys, hot_reproduce, "hot2-table2", "--row", "HOT")


def test_a_row_is_made_again_beside_its_table_and_compared(capsys, monkeypatch):
    "Nothing is added to the table; a number that differs in its sixth digit is told."
    words = ["forecasting-days", "--row", "none", "--seeds", "0", "--again"]
    given = argparse.Namespace(row=["none"], data=None, seeds=[0], set=[])
    ((_, job),) = commands._jobs(words[0], commands.read_tables()[words[0]], given)
    row = row_of(job, "exchange_rate", (96, 8), horizon=96, run="r", test_mse=0.08650664)
    append_row("studies/ablations/forecast.csv", row)
    found, made = dict(row), []
    monkeypatch.setattr(commands, "run_job", lambda job, say: made.append(job) or argparse.Namespace(rows=[found]))
    monkeypatch.setattr("hot_nbdev.cli.tables.file_hash", lambda path, kind: "")
    for value, said in ((0.08650664, "the same to six digits: test_mse 0.0865066"),
                        (0.08651, "not the same: test_mse 0.08651 (was 0.0865066)")):
        found["test_mse"] = value
        hot_reproduce(words)
        assert said in capsys.readouterr().out
    assert len(read_rows("studies/ablations/forecast.csv")) == 1 and not Path(made[0].out).parent.exists()
    assert made[0].numbers() == job.numbers() and made[0].results == str(Path(made[0].out).parent)


def test_runs_of_a_table_get_folders_of_their_own(monkeypatch, capsys):
    found = []
    monkeypatch.setattr(commands, "_train", lambda job: found.append(job.out))
    hot_reproduce(["forecasting-days", "--row", "sum", "product", "--seeds", "0", "1", "--set", "out=o",
                   "--set", "horizon=96", "--set", "epochs=1"])
    assert len(set(found)) == 4 and all(Path(out).parent == Path("o") for out in found)


@pytest.mark.parametrize("words, said, times", [
    ("motion-32-full --dry-run", ": to do", 3), ("motion-32-full --dry-run --seeds 7", "seed 7: to do", 1),
    ("printed_series.csv", "copied from the papers", 1)])       # those that a script makes are told on page 68
def test_a_table_brings_its_seeds_and_a_file_says_where_its_numbers_come_from(capsys, words, said, times):
    hot_reproduce(words.split())
    assert capsys.readouterr().out.count(said) == times


@pytest.mark.parametrize("words, status, message", [
    ("forecasting-days --set horizon=x", 1, "horizon is 'x'; give a whole"),
    ("marks-adrenal --set horizon=96", 1, "there is no setting 'horizon'"),
    ("ablations --set seed=1", 1, "are chosen by --seeds"), ("", 2, "--dry-run is for the runs of a table; name one"),
    ("kin.csv --seeds 1", 2, "--seeds is for the runs of a table; name one, which kin.csv is not"),
])
def test_what_a_table_or_a_file_cannot_have_is_named(capsys, words, status, message):
    assert message in fails(capsys, hot_reproduce, *words.split(), "--dry-run", status=status)


def test_tables_and_tuples_among_the_settings_of_a_table(capsys):
    given = argparse.Namespace(row=["no feed-forward"], data=None, seeds=[0], set=[
        'attention_options=pool=sum', "attention_options=qk_norm=true", "ff_bias=false", "patch=8,1", "readout=mean"])
    ((_, job),) = commands._jobs("ablations", commands.read_tables()["ablations"], given)
    assert job.attention_options == {"pool": "sum", "qk_norm": True} and job.ff_bias is False
    assert (job.patch, job.readout, job.ff) == ((8, 1), "mean", "none")

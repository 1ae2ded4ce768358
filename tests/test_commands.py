"""Commands: settings, runs on small files, predictions, and errors that say what to do."""
import configparser
import functools
import importlib.util
import itertools
import json

import numpy as np
import pytest
import torch
from chapters import ROOT

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")
pytest.importorskip("sklearn", reason="metrics need scikit-learn: pip install 'hot_nbdev[train]'")

from hot_nbdev import commands, data, training, transformer  # noqa: E402
from hot_nbdev.training import read_rows  # noqa: E402

SMALL = "--dim 8 --depth 1 --heads 2 --epochs 2 --batch-size 8 --rate 0.01".split()
COMMANDS = (commands.hot_forecast, commands.hot_classify, commands.hot_segment, commands.hot_predict,
            commands.hot_reproduce)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOT_DATA", raising=False)


def settings(capsys, command, *words):
    command([*words, "--show"])
    return json.loads(capsys.readouterr().out)


def fails(capsys, command, *words, status=1):
    with pytest.raises(SystemExit) as end:
        command(list(words))
    assert end.value.code == status
    return capsys.readouterr().err


def write_series(path="waves.csv", rows=120):
    hours = np.arange("2024-01-01", "2025-01-01", dtype="datetime64[h]")[:rows].astype("datetime64[s]")
    values = np.sin(np.arange(rows)[:, None] / [3, 5])
    lines = [f"{str(h).replace('T', ' ')},{v[0]:.4f},{v[1]:.4f}" for h, v in zip(hours, values, strict=True)]
    with open(path, "w") as f:
        f.write("\n".join(["date,a,b", *lines]) + "\n")


def write_scene(dates=None):
    "Two fields with different colors; unlabeled pixels at the border."
    chance = np.random.default_rng(0)
    labels = np.ones((24, 24), np.uint8)
    labels[:, 12:] = 3
    scene = chance.normal(size=(24, 24, 3)).astype("float32") + labels[..., None]
    labels[0] = 0
    if dates:
        scene = np.stack([scene + t for t in range(dates)])
    np.save("scene.npy", scene)
    np.save("mask.npy", labels)


def write_volumes(path, monkeypatch):
    "A small file in the layout of MedMNIST; its checksum and counts are not the official ones."
    chance, arrays = np.random.default_rng(0), {}
    for split, n in (("train", 16), ("val", 8), ("test", 8)):
        arrays[f"{split}_labels"] = (np.arange(n) % 2).astype(np.uint8)[:, None]
        bright = 80 * arrays[f"{split}_labels"][:, :, None, None]
        arrays[f"{split}_images"] = (chance.integers(0, 90, (n, 28, 28, 28)) + bright).astype(np.uint8)
    np.savez(path, **arrays)
    monkeypatch.setattr(data, "volume_data", functools.partial(data.volume_data, verify=False))


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
    assert list(entries) == [c.__name__ for c in COMMANDS]
    for name, place in entries.items():
        module, _, function = place.partition(":")
        assert getattr(importlib.import_module(module), function).__name__ == name


def test_settings_come_from_defaults_file_and_command_line(capsys, tmp_path):
    (tmp_path / "s.json").write_text('{"data": "weather", "depth": 3, "epochs": 5, "patch": 8, "clip": null}')
    found = settings(capsys, commands.hot_forecast, "--config", "s.json", "--epochs", "7", "--no-resume")
    assert (found["data"], found["depth"], found["epochs"], found["patch"]) == ("weather", 3, 7, [8])
    assert (found["clip"], found["resume"], found["rate"], found["horizon"]) == (None, False, 2e-4, 96)
    if importlib.util.find_spec("tomllib"):             # from Python 3.11 on
        (tmp_path / "s.toml").write_text('data = "weather"\nflips = true\nrate = 1\n')
        found = settings(capsys, commands.hot_classify, "--config", "s.toml")
        assert found["flips"] is True and found["rate"] == 1.0


@pytest.mark.parametrize("text, message", [
    ('{"epoch": 3}', "no setting 'epoch'; did you mean 'epochs'"),
    ('{"depth": "deep"}', "depth is 'deep'; give a int"),
    ('{"resume": 1}', "resume is 1; give a bool"),
    ('{"attention": "best"}', "attention is 'best'; choose one of"),
    ("[1]", "should hold names and values"), ("{", "is no file of settings"), ('{"rate": -1}', "rate -1.0")])
def test_wrong_settings_are_named(capsys, tmp_path, text, message):
    (tmp_path / "s.json").write_text(text)
    write_series()
    assert message in fails(capsys, commands.hot_forecast, "--config", "s.json", "--data", "waves.csv",
                            "--lookback", "8", "--horizon", "2")


def test_every_choice_of_the_papers_can_be_made():
    "The search spaces of both papers, one choice at a time."
    space = {"depth": [1, 2, 3, 4, 6], "dim": [64, 128, 256], "dropout": [0, 0.1, 0.2, 0.3, 0.4],
             "heads": [1, 2, 4, 8, 16, 32], "weight_decay": [0.01, 0.1, 0.3, 0.5], "stem_kernel": [3, 5, 7],
             "pool": ["mean", "flatten"], "positions": ["none", "learned", "sincos", "rotary"],
             "attention": ["hot1", "hot2", "full", "divided", "spatial", "temporal", "multiscale"]}
    shapes = {"forecast": ((96, 8), [1, 2, 4, 8, 16]), "classify": ((28, 28, 28), [2, 4]),
              "segment": ((16, 16), [2, 4])}
    for kind, (sizes, patches) in shapes.items():
        options = commands._OPTIONS[kind]()
        for name, values in {**space, "patch": patches}.items():
            for value in values if any(o.name == name for o in options) else ():
                if name == "attention" and value == "temporal" and kind != "forecast":
                    continue
                s = commands._complete(options, {name: value}, "test")
                config = commands._model_config(kind, s, sizes, 1, 2)
                training.TrainConfig.from_dict({key: s[key] for key in commands._TRAINING_HELP})
                with torch.device("meta"):
                    transformer.make_model(config, device="meta")


def test_forecasts_from_file_to_file(capsys):
    write_series()
    words = ["--data", "waves.csv", "--lookback", "8", "--horizon", "4", "--score", "2", "4", *SMALL]
    commands.hot_forecast(words)
    rows = read_rows("results/forecast.csv")
    assert [r["horizon"] for r in rows] == ["2", "4"] and {r["trained_horizon"] for r in rows} == {"4"}
    commands.hot_forecast(words)                        # finished: nothing is run, no row twice
    assert read_rows("results/forecast.csv") == rows
    commands.hot_predict([f"runs/{rows[0]['run']}", "waves.csv"])
    ahead = read_rows("waves-forecast.csv")
    assert [r["date"] for r in ahead] == [f"2024-01-06 0{h}:00:00" for h in range(4)]
    assert all(abs(float(r[c])) < 5 for r in ahead for c in "ab")
    write_series("short.csv", 5)
    said = fails(capsys, commands.hot_predict, f"runs/{rows[0]['run']}", "short.csv")
    assert "has 5 rows, but the model sees 8" in said
    assert "no input.json" in fails(capsys, commands.hot_predict, "runs", "waves.csv")


@pytest.mark.parametrize("model", ["linear", "dlinear"])
def test_linear_rivals_train_and_predict(capsys, model):
    write_series()
    words = ["--data", "waves.csv", "--lookback", "32", "--horizon", "4", "--model", model, *SMALL[-6:]]
    commands.hot_forecast([*words, "--model-option", "instance_norm=true"])
    row, = read_rows("results/forecast.csv")
    config = json.loads(row["model"])
    trend = 25 if model == "dlinear" else None
    assert (row["attention"], config["model"], config["trend"]) == (model, "linear", trend)
    assert config["instance_norm"] is True and int(row["parameters"]) == (1 + bool(trend)) * 4 * 33
    commands.hot_predict([f"runs/{row['run']}", "waves.csv"])
    assert len(read_rows("waves-forecast.csv")) == 4
    said = fails(capsys, commands.hot_forecast, *words, "--dim", "8", "--pool", "mean")
    assert "dim, pool: settings of the Transformer, but model is 'lin" in said.replace("'dlin", "'lin")
    said = fails(capsys, commands.hot_forecast, *words, "--model-option", "widht=1")
    assert "unknown settings ['widht']" in said


def test_a_convolutional_rival_trains_and_predicts(monkeypatch):
    pytest.importorskip("monai", reason="the 3D ResNet is MONAI's: pip install monai")
    write_volumes("vesselmnist3d.npz", monkeypatch)
    commands.hot_classify(["--data", "vesselmnist3d", "--data-dir", ".", "--model", "resnet", *SMALL[-6:],
                           "--model-option", "width=0.05", "stem_stride=2", "max_pool=true"])
    row, = read_rows("results/classify.csv")
    assert row["attention"] == "resnet" and row["run"].startswith("classify-vesselmnist3d-resnet-seed0")
    commands.hot_predict([f"runs/{row['run']}", "vesselmnist3d.npz", "--key", "test_images"])
    assert len(read_rows("vesselmnist3d-classes.csv")) == 8


@pytest.mark.parametrize("ff", ["none", "ndlinear"])
def test_feed_forward_networks_by_name(ff):
    write_series()
    commands.hot_forecast(["--data", "waves.csv", "--lookback", "8", "--horizon", "4", "--ff", ff, *SMALL])
    row, = read_rows("results/forecast.csv")
    commands.hot_predict([f"runs/{row['run']}", "waves.csv"])
    assert json.loads(row["model"])["ff"] == ff


@pytest.mark.parametrize("dates", [None, 2])
def test_scenes_from_file_to_picture(dates):
    write_scene(dates)
    commands.hot_segment(["--data", "scene.npy", "--labels", "mask.npy", "--window", "4", "--patch", "2",
                          "--flips", "--class-weights", "balanced", *SMALL, "--epochs", "6"])
    row, = read_rows("results/segment.csv")
    assert float(row["test_accuracy"]) > 0.8 and json.loads(row["test_iou_by_class"]).keys() == {"0", "1"}
    commands.hot_predict([f"runs/{row['run']}", "scene.npy", "--to", "out/labels.npy"])
    labels = np.load("out/labels.npy")
    assert labels.shape == (24, 24) and set(np.unique(labels)) <= {1, 3}
    assert ((labels == 3) == (np.arange(24) >= 12)).mean() > 0.8
    with open("out/labels.png", "rb") as f:
        assert f.read(4) == b"\x89PNG"


def test_volumes_from_file_to_probabilities(capsys, monkeypatch):
    write_volumes("vesselmnist3d.npz", monkeypatch)
    commands.hot_classify(["--data", "vesselmnist3d", "--data-dir", ".", "--patch", "7", "--flips", *SMALL])
    row, = read_rows("results/classify.csv")
    run = f"runs/{row['run']}"
    assert float(row["test_auc"]) > 0.9
    assert "choose one by --key" in fails(capsys, commands.hot_predict, run, "vesselmnist3d.npz")
    assert "should be an array" in fails(capsys, commands.hot_predict, run, "waves.csv")
    commands.hot_predict([run, "vesselmnist3d.npz", "--key", "test_images"])
    found = read_rows("vesselmnist3d-classes.csv")
    names = list(found[0])[2:]
    assert len(found) == 8 and all(sum(float(r[n]) for n in names) == pytest.approx(1) for r in found)
    assert all(r["class"] == max(names, key=lambda n, r=r: float(r[n])) for r in found)


def test_a_stopped_command_goes_on(capsys, monkeypatch):
    write_series()
    words = ["--data", "waves.csv", "--lookback", "8", "--horizon", "2", "--save-every", "3", *SMALL]
    commands.hot_forecast([*words, "--out", "whole", "--results", "whole"])
    saved = training.Checkpoints.save

    def stop(self, step, tensors, state):
        saved(self, step, tensors, state)
        if step == 6:
            raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(training.Checkpoints, "save", stop)
        assert "goes on from the last checkpoint" in fails(capsys, commands.hot_forecast, *words, status=130)
    commands.hot_forecast(words)
    want, found = read_rows("whole/forecast.csv")[0], read_rows("results/forecast.csv")[0]
    assert {k for k in want if want[k] != found[k]} <= {"seconds", "peak_mb"}


def test_places_that_cannot_be_written_are_found_before_training(capsys, tmp_path, monkeypatch):
    write_series()
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(training, "fit", lambda *_, **__: pytest.fail("training began"))
    words = ["--data", "waves.csv", "--lookback", "8", "--horizon", "2", *SMALL]
    for place in ("--results", "--out"):
        assert "cannot write" in fails(capsys, commands.hot_forecast, *words, place, "taken/here")
    assert "no folder is named" in fails(capsys, commands.hot_classify, "--data", "vessel")
    assert "name the data" in fails(capsys, commands.hot_segment)


def test_tables_run_what_is_missing(capsys, monkeypatch):
    ran = []

    def train(kind, s):
        if s["data"] == "organ":
            raise FileNotFoundError("organmnist3d.npz is not there")
        ran.append((kind, s["data"], s["combine"], s["seed"]))
        name = commands._run_name(kind, s, commands._OPTIONS[kind]())
        training.append_row(f"results/{kind}.csv", {"run": name})
    monkeypatch.setattr(commands, "_train", train)
    words = "hot2-table2 --data Vessel Adrenal --seeds 0 3 --row".split() + ["HOT (product)", "HOT (sum)"]
    commands.hot_reproduce([*words, "--dry-run"])
    assert not ran and capsys.readouterr().out.count("to do") == 8
    commands.hot_reproduce(words)
    want = itertools.product(("product", "sum"), ("adrenal", "vessel"), (0, 3))
    assert sorted(ran) == sorted(("classify", data, combine, seed) for combine, data, seed in want)
    commands.hot_reproduce(words)
    assert len(ran) == 8 and capsys.readouterr().out.count(": done") == 8
    words = ["hot2-table2", "--row", "HOT (sum)", "--data", "Organ", "Vessel", "--seeds", "0"]
    assert "1 runs lack their data: HOT (sum), Organ" in fails(capsys, commands.hot_reproduce, *words)
    assert "has no row 'HOT'; it has" in fails(capsys, commands.hot_reproduce, "hot2-table2", "--row", "HOT")


def test_a_table_can_be_cut_down():
    more = {"horizon": 96, "epochs": "3"}
    kind, _, s = commands._runs("hot2-table1", ["HOT (sum)"], ["Weather"], [1], more)[0]
    found = commands._complete(commands._OPTIONS[kind](), s, "table")
    assert (found["data"], found["horizon"], found["epochs"], found["combine"]) == ("weather", 96, 3, "sum")
    assert len(commands._runs("hot2-table1", ["HOT (sum)"], ["Weather"], [1], {"horizon": 96})) == 1
    for table in commands._TABLES:
        for kind, _, s in commands._runs(table):
            s = commands._complete(commands._OPTIONS[kind](), s, table)
            scene = (16, 16) if len(s["patch"]) == 1 else (5, 16, 16)
            sizes = {"forecast": (96, 8), "classify": (28, 28, 28), "segment": scene}[kind]
            commands._model_config(kind, s, sizes, 1, 2)


@pytest.mark.parametrize("words, message", [
    (["--score", "2", "8"], "score is [2, 8], but the model is trained for 4 steps"),
    (["--model", "dlinear", "--model-option", "trend=true"], "LinearConfig: trend is True"),
    (["--model", "linear", "--model-option", "horizons=4"], "LinearConfig: horizons is 4"),
    (["--model-option", "depth=null"], "ForecasterConfig: depth is None"),
    (["--ff", "ndlinear", "--model-option", "ff_hidden=12.5"], "ForecasterConfig: ff_hidden is 12.5")])
def test_what_cannot_run_is_found_before_training(capsys, monkeypatch, words, message):
    write_series()
    monkeypatch.setattr(training, "fit", lambda *_, **__: pytest.fail("training began"))
    words = ["--data", "waves.csv", "--lookback", "32", "--horizon", "4", *words]
    assert message in fails(capsys, commands.hot_forecast, *words)


def test_a_row_keeps_what_makes_it_that_row():
    (_, _, s), = commands._runs("chapter21", ["pool sum"], None, [0], {"model_option": ["ff_hidden=8"]})
    assert s["model_option"] == ['attention_options={"pool": "sum"}', "ff_hidden=8"]


def test_settings_that_a_table_cannot_have_are_named(capsys):
    for table, value, message in [
            ("chapter18-hours", "horizon=96", "chapter18-hours has no horizon 96; it has 720"),
            ("chapter18-days", "horizon=x", "horizon is 'x'; give a int"),
            ("chapter19", "horizon=96", "chapter19: there is no setting 'horizon'"),
            ("chapter21", "seed=1", "are chosen by --seeds")]:
        assert message in fails(capsys, commands.hot_reproduce, table, "--set", value, "--dry-run")
    options = 'model_option=attention_options={"pool": "sum", "qk_norm": true}', "model_option=ff_bias=false"
    commands.hot_reproduce(["chapter21", "--row", "no feed-forward", "--seeds", "0", "--dry-run",
                            "--set", options[0], "--set", options[1]])
    assert ": to do (" in capsys.readouterr().out


def test_a_run_is_done_when_all_its_horizons_are(capsys):
    words = ["chapter18-hours", "--row", "product", "--seeds", "0", "--dry-run"]
    commands.hot_reproduce(words)
    name = capsys.readouterr().out.split("(")[-1].rstrip(")\n")
    for horizon in (96, 192, 336):
        training.append_row("results/forecast.csv", {"run": name, "horizon": horizon})
    commands.hot_reproduce(words)
    assert ": to do (" in capsys.readouterr().out
    training.append_row("results/forecast.csv", {"run": name, "horizon": 720})
    commands.hot_reproduce(words)
    assert ": done (" in capsys.readouterr().out

"""Predictions: a further file is prepared and checked, and nothing is lost."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from smallfiles import dates, fails, waves, write_lines, write_series

from hot_nbdev.cli.commands import hot_predict
from hot_nbdev.data.predict import Inputs, predict, read_inputs
from hot_nbdev.model_config import ClassifierConfig, ForecasterConfig, SegmenterConfig
from hot_nbdev.models import make_model

SMALL = dict(dim=8, depth=1, heads=2)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


def about(**more):
    "What a run of two hourly series remembers."
    given = dict(task="forecast", data="waves", names=("a", "b"), shift=(0.0,) * 2, scale=(1.0,) * 2)
    return Inputs(**{**given, **more})


@pytest.fixture
def series():
    "A run of hourly series, and a file that fits."
    make_model(ForecasterConfig(lookback=8, horizons=(4,), sizes=(8, 2), **SMALL)).save("run")
    about(every="3600 s").save("run/input.json")
    write_series("in.csv", 60)


@pytest.fixture
def volumes():
    make_model(ClassifierConfig(patch=(2, 2, 2), sizes=(4, 4, 4), classes=2, **SMALL)).save("run")
    Inputs(task="classify", data="cubes", scale=(255.0,), classes=("dark", "bright"), sizes=(4, 4, 4), channels=1,
           axis="none", dtype="uint8", low=0.0, high=250.0).save("run/input.json")
    return np.random.default_rng(0).integers(0, 250, (3, 4, 4, 4)).astype(np.uint8)


@pytest.fixture
def scene():
    make_model(SegmenterConfig(in_channels=3, patch=(2, 2), sizes=(4, 4), classes=2, **SMALL)).save("run")
    Inputs(task="segment", data="fields", shift=(0.0,) * 3, scale=(1.0,) * 3, classes=("field", "wood"), codes=(1, 3),
           window=4, dates=0).save("run/input.json")
    return np.random.default_rng(0).normal(size=(6, 9, 3)).astype("float32")


def test_a_prediction_never_replaces_its_input(series, capsys, tmp_path):
    before = (tmp_path / "in.csv").read_bytes()
    (tmp_path / "link.csv").symlink_to("in.csv")
    for to in ("in.csv", "link.csv", "./run/../in.csv"):
        assert "is the file that is read" in fails(capsys, hot_predict, "run", "in.csv", "--to", to, "--overwrite")
    assert "belongs to the run" in fails(capsys, hot_predict, "run", "in.csv", "--to", "run/input.json", "--overwrite")
    assert (tmp_path / "in.csv").read_bytes() == before


def test_a_file_that_is_there_stays_unless_overwrite_is_said(series, capsys, tmp_path):
    (tmp_path / "old.csv").write_text("mine")
    assert "--overwrite replaces it" in fails(capsys, hot_predict, "run", "in.csv", "--to", "old.csv")
    assert (tmp_path / "old.csv").read_text() == "mine"
    hot_predict(["run", "in.csv", "--to", "old.csv", "--overwrite"])
    assert (tmp_path / "old.csv").read_text().startswith("date,a,b")
    assert "is a folder" in fails(capsys, hot_predict, "run", "in.csv", "--to", "run")
    said = fails(capsys, hot_predict, "run", "in.csv", "--to", "out.png")     # the picture would take its place
    assert "leave it out by --no-picture" in said and not (tmp_path / "out.png").exists()
    (tmp_path / "new.png").write_text("mine")
    assert "new.png is there already" in fails(capsys, hot_predict, "run", "in.csv", "--to", "new.csv")   # picture
    assert (tmp_path / "new.png").read_text() == "mine"


def test_only_regular_files_are_written(series, capsys, tmp_path):
    os.mkfifo("new.png")                                        # the picture would go into the pipe
    assert "no regular file" in fails(capsys, hot_predict, "run", "in.csv", "--to", "new.csv", "--overwrite")
    assert (tmp_path / "new.png").is_fifo() and not os.path.exists("new.csv")
    assert "there is no file new.png" in fails(capsys, hot_predict, "run", "new.png")


def test_answers_that_are_not_finite_are_no_answers(series, capsys):
    write_lines("large.csv", dates(60), spoiled(r59="1e29"))
    about(scale=(1e-20,) * 2).save("run/input.json")
    assert "large.csv: the model's answer is not finite" in fails(capsys, hot_predict, "run", "large.csv")


def spoiled(rows=60, **cells):
    values = waves(rows).tolist()
    for place, value in cells.items():
        values[int(place[1:])][0] = value
    return values


def test_what_is_mended_or_unusual_is_told(series, capsys):
    write_lines("bad.csv", dates(60), spoiled(r59="nan"))
    assert "--mend" in fails(capsys, hot_predict, "run", "bad.csv")
    hot_predict(["run", "bad.csv", "--mend"])
    assert "1 of the last 8 values were missing and are filled" in capsys.readouterr().out
    write_lines("minutes.csv", np.datetime64("2024-01-01", "s") + 60 * np.arange(60), spoiled(r58="1000"))
    hot_predict(["run", "minutes.csv"])
    said = capsys.readouterr().out
    assert "60 s apart, but 3600 s in training" in said and "more than 20 deviations" in said


def test_missing_values_are_hidden_where_the_model_was_trained_so(series):
    about(masked=True).save("run/input.json")
    write_lines("hole.csv", dates(60), spoiled(r57="nan"))
    said = predict("run", "hole.csv", "one.csv")
    assert "hidden from the model" in " ".join(said)
    write_lines("other.csv", dates(60), spoiled(r57="nan", r56=waves(60)[56, 0]))
    predict("run", "other.csv", "two.csv")
    with open("one.csv") as one, open("two.csv") as two:
        assert one.read() == two.read()


def test_volumes_get_a_row_each(volumes, capsys):
    np.savez("two.npz", a=volumes, b=volumes)
    assert "choose one by --key" in fails(capsys, hot_predict, "run", "two.npz")
    assert "mend came, which has no meaning" in fails(capsys, hot_predict, "run", "two.npz", "--key", "b", "--mend")
    assert "'c'" in fails(capsys, hot_predict, "run", "two.npz", "--key", "c")
    hot_predict(["run", "two.npz", "--key", "b"])
    assert "3 volumes: " in capsys.readouterr().out


def test_a_mask_beside_the_volumes_is_used(volumes):
    read_inputs("run").replace(masked=True).save("run/input.json")
    masks = np.random.default_rng(0).random(volumes.shape) < 0.5
    np.savez("a.npz", test_images=volumes, test_masks=masks)
    np.savez("b.npz", test_images=np.where(masks, volumes, 7).astype(np.uint8), test_masks=masks)
    assert "a mask hides" in predict("run", "a.npz", "a.csv", key="test_images")[-1]
    predict("run", "b.npz", "b.csv", key="test_images")
    with open("a.csv") as a, open("b.csv") as b:
        assert a.read() == b.read()
    np.savez("one.npz", test_images=volumes[0], test_masks=masks[0])            # one alone answers as in company
    predict("run", "one.npz", "one.csv", key="test_images")
    alone, together = (np.loadtxt(name, delimiter=",", skiprows=1, usecols=(2, 3)) for name in ("one.csv", "a.csv"))
    assert np.allclose(alone, together[0], atol=1e-5)
    for wrong in (masks[:2], masks & (np.arange(3) > 0)[:, None, None, None]):      # of an item nothing is known
        np.savez("c.npz", test_images=volumes, test_masks=wrong)
        with pytest.raises(ValueError, match=r"c.npz: test_masks should be bool of shape \(3, 4, 4, 4\)"):
            predict("run", "c.npz", "c.csv", key="test_images")


def test_the_picture_is_a_choice(scene, capsys, tmp_path):
    np.save("in.npy", scene)
    hot_predict(["run", "in.npy", "--no-picture"])
    assert not (tmp_path / "in-labels.png").exists() and set(np.unique(np.load("in-labels.npy"))) <= {1, 3}
    assert "--overwrite" in fails(capsys, hot_predict, "run", "in.npy")
    hot_predict(["run", "in.npy", "--to", "labels.dat"])  # no ending is added
    assert np.load("labels.dat").shape == (6, 9) and (tmp_path / "labels.png").exists()


def test_damaged_files_of_a_run_are_one_line(series, capsys):
    inputs, weights = Path("run/input.json"), Path("run/model.safetensors")
    kept, whole = json.loads(inputs.read_text()), weights.read_bytes()
    for changed, message in (({"scale": [0, 1]}, "scale is"), ({"task": "paint"}, "task is 'paint'"),
                             ({"shift": [0.0]}, "shift has 1 entries, but scale has 2"),
                             ({"colour": 1}, "no setting 'colour'")):
        inputs.write_text(json.dumps({**kept, **changed}))
        assert message in fails(capsys, hot_predict, "run", "in.csv")
    inputs.write_text(json.dumps(kept))
    assert "no input.json" in fails(capsys, hot_predict, ".", "in.csv")
    weights.write_bytes(whole[:-8])
    assert "model.safetensors" in fails(capsys, hot_predict, "run", "in.csv")
    weights.unlink()
    assert "model.safetensors" in fails(capsys, hot_predict, "run", "in.csv")
    weights.write_bytes(whole)
    inputs.write_bytes(b"\xff\xfe\0")
    assert "input.json" in fails(capsys, hot_predict, "run", "in.csv")
    Path("run/config.json").write_text("[" * 5000)
    fails(capsys, hot_predict, "run", "in.csv")

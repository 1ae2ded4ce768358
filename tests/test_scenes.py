"""The scripts behind chapter 20: pictures of whole scenes fit their runs, simple models have their rows."""
import csv
import importlib.util
import json

import numpy as np
import pytest
import torch
from chapters import ROOT

from hot_nbdev.data import scene_data
from hot_nbdev.training import Segmentation, evaluate
from hot_nbdev.transformer import HOTSegmenter, SegmenterConfig


def load(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path):
    "A model that was not trained, in a folder like that of a run, and the parts it would be tested on."
    parts = scene_data("indian_pines", window=16, seed=0)
    torch.manual_seed(0)
    model = HOTSegmenter(SegmenterConfig(in_channels=200, classes=16, dim=8, depth=1, heads=2)).eval()
    model.save(tmp_path / "run")
    scaler = parts.about["scaler"]
    about = {"task": "segment", "data": "indian_pines", "window": 16, "shift": scaler.mean.tolist(),
             "scale": scaler.std.tolist()}
    (tmp_path / "run" / "input.json").write_text(json.dumps(about))
    return tmp_path / "run", model, parts


def test_the_picture_of_a_run_has_the_accuracy_of_its_test(run, tmp_path):
    folder, model, parts = run
    load("scene_maps").main([str(folder), "--out", str(tmp_path / "maps")])
    [path] = (tmp_path / "maps").iterdir()
    found, y = np.load(path), parts.test.labels
    assert (path.name, found.dtype, found.shape) == ("indian_pines-product.npy", np.uint8, tuple(y.shape))
    tested = (parts.about["region"] == 2) & (y >= 0)
    accuracy = (torch.from_numpy(found).long() == y)[tested].double().mean().item()
    assert accuracy == pytest.approx(evaluate(model, parts.test, Segmentation(16))["accuracy"], abs=2e-3)


def test_one_picture_for_each_scene_and_attention(run, tmp_path):
    maps = load("scene_maps")
    with pytest.raises(ValueError, match="two runs would be named indian_pines-product"):
        maps.main([str(run[0]), str(run[0]), "--out", str(tmp_path / "maps")])
    with pytest.raises(ValueError, match="has no input.json"):
        maps.main([str(tmp_path)])
    assert not (tmp_path / "maps").exists()


def test_a_scene_with_dates_is_segmented_once():
    torch.manual_seed(0)
    config = SegmenterConfig(in_channels=3, classes=4, dim=8, depth=1, heads=2, patch=(1, 2, 2))
    found = load("scene_maps").segment(HOTSegmenter(config).eval(), torch.randn(2, 10, 13, 3), 8)
    assert found.shape == (10, 13)


def test_every_window_counts_where_it_alone_is_whole():
    maps = load("scene_maps")
    seen = np.zeros(145, dtype=int)
    for i in maps.starts(145, 16):
        seen[i:i + 16] = i
    assert (seen[:144] == np.arange(144) // 16 * 16).all() and seen[144] == 129
    assert maps.starts(16, 16) == [0, 0]


def test_simple_models_have_their_rows(tmp_path):
    linear = load("scene_linear")
    found = {r["model"]: r["test_accuracy"] for r in linear.rows("indian_pines")}
    with (ROOT / "results" / "scene_linear.csv").open(newline="") as f:
        rows = [r for r in csv.DictReader(f) if r["data"] == "indian_pines"]
    stored = {r["model"]: float(r["test_accuracy"]) for r in rows}
    assert found.keys() == stored.keys()
    assert all(found[name] == pytest.approx(stored[name], abs=2e-3) for name in found)

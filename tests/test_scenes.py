"""Scenes: masks and their codes, parts, new scenes for a trained model, and the scripts behind chapter 20."""
import json
import sys

import numpy as np
import pytest
import torch
from scripts import load

from hot_nbdev.book import results_file
from hot_nbdev.data import scene_data
from hot_nbdev.data.scenes import _number_classes, check_scene, split_blocks, window_corners
from hot_nbdev.model_config import SegmenterConfig
from hot_nbdev.models import HOTSegmenter
from hot_nbdev.train.loop import evaluate
from hot_nbdev.train.results import read_rows
from hot_nbdev.train.tasks import Segmentation


@pytest.mark.parametrize("H, W, block, gap", [(33, 40, 4, 0), (40, 33, 8, 2)])
def test_windows_of_parts_share_no_pixel(H, W, block, gap):
    labels = torch.randint(-1, 4, (H, W), generator=torch.Generator().manual_seed(0))
    for seed in range(3):
        region = split_blocks(labels, block, gap=gap, seed=seed)
        assert torch.equal(region, split_blocks(labels, block, gap=gap, seed=seed))
        assert (region[H // block * block:] == -1).all() and all((region == i).any() for i in (1, 2))
        seen = torch.zeros(3, H, W)
        for i in range(3):
            for r, c in window_corners(region == i, 4, 1 if i == 0 else 4).tolist():
                seen[i, r:r + 4, c:c + 4] += 1
        assert ((seen > 0).sum(0) <= 1).all() and seen[1:].max() <= 1
        assert window_corners(region[:3] > -2, 4, 1).shape == (0, 2)                    # too flat for any
        apart = torch.cdist((region == 0).nonzero().float(), (region > 0).nonzero().float(), p=torch.inf)
        assert not len(apart) or apart.min() == gap + 1


def ssl4eo(folder, n, save, product="nlcd"):
    rng = np.random.RandomState(0)
    for i in range(n):
        image, mask = rng.randint(0, 256, (8, 8, 7)), rng.choice([0, 11, 95], (8, 8))
        for root, name, array in [("ssl4eo_l_oli_sr_benchmark", "all_bands", image),
                                  (f"ssl4eo_l_oli_{product}", f"{product}_2019", mask)]:
            place = folder / root / f"{i:07d}" / "scene"
            place.mkdir(parents=True)
            save(place / name, array.astype(np.uint8))


def test_ssl4eo_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="ssl4eo_l_oli_sr_benchmark is not in"):
        scene_data("ssl4eo_nlcd", folder=tmp_path)
    ssl4eo(tmp_path, 10, lambda path, array: np.save(path.with_suffix(".npy"), array), "cdl")
    about = scene_data("ssl4eo_cdl", folder=tmp_path, fractions=(0.6, 0.2, 0.2), limit=5, unchecked=True).about
    assert about["counts"] == (3, 1, 1) and about["codes"] == [0, 11, 95]
    (tmp_path / "ssl4eo_l_oli_cdl" / "0000003" / "scene" / "cdl_2019.npy").unlink()
    with pytest.raises(FileNotFoundError, match="0000003.*is missing"):
        scene_data("ssl4eo_cdl", folder=tmp_path, unchecked=True)
    with pytest.raises(FileNotFoundError, match="limit be 3 or more"):
        scene_data("ssl4eo_cdl", folder=tmp_path, limit=2, unchecked=True)
    with pytest.raises(ValueError, match="ssl4eo_nlcd, ssl4eo_cdl"):
        scene_data("ssl4eo_x", folder=tmp_path)


def test_ssl4eo_geotiff(tmp_path, monkeypatch):
    tifffile = pytest.importorskip("tifffile", reason="no reader of TIFF is installed")
    ssl4eo(tmp_path, 4, lambda path, array: tifffile.imwrite(
        path.with_suffix(".tif"), array.transpose(2, 0, 1) if array.ndim == 3 else array,
        planarconfig="separate" if array.ndim == 3 else None, photometric="minisblack"))
    splits = scene_data("ssl4eo_nlcd", folder=tmp_path, unchecked=True)
    stored = np.random.RandomState(0).randint(0, 256, (8, 8, 7)).astype(np.uint8)
    images = torch.cat([p.images for p in splits[:3]])
    assert any(torch.equal(i, torch.from_numpy(stored)) for i in images)
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(ImportError, match="install tifffile|\\.npy"):
        scene_data("ssl4eo_nlcd", folder=tmp_path, unchecked=True)
    monkeypatch.undo()
    for p in tmp_path.glob("**/all_bands.tif"):
        p.write_bytes(p.read_bytes()[:40])
    with pytest.raises(ValueError, match="cannot be read"):
        scene_data("ssl4eo_nlcd", folder=tmp_path, unchecked=True)


CODES, RANDOM = np.random.RandomState(0).choice([0, 2, 5], (24, 24)), np.random.RandomState(1).rand(24, 24, 3)


def stored(folder, codes=CODES, scene=None):
    np.save(folder / "s.npy", RANDOM if scene is None else scene)
    np.save(folder / "m.npy", codes)
    return dict(name=folder / "s.npy", window=4, labels=folder / "m.npy")


def test_a_scene_has_the_same_parts_each_time_and_windows_overlap_in_training_alone(tmp_path):
    given = stored(tmp_path)
    a, b = scene_data(**given), scene_data(**given, block=8, stride=2)
    x, y = a.train[torch.arange(len(a.train))]
    assert x.shape[1:] == (4, 4, 3) and torch.equal(x, scene_data(**given).train[torch.arange(len(a.train))][0])
    assert set(y.unique().tolist()) == {-1, 0, 1} and a.about["codes"] == [2, 5]
    assert sum(c.sum() for c in a.about["class_counts"].values()) == (a.train.labels >= 0).sum()
    times = [torch.zeros(24, 24) for _ in range(3)]
    for seen, part in zip(times, b[:3], strict=True):
        for r, c in part.corners.tolist():
            seen[r:r + 4, c:c + 4] += 1
    assert [bool((seen > 1).any()) for seen in times] == [True, False, False]


def put_code(code):
    codes = CODES.copy()
    codes[7, 9] = code
    return codes


WHOLE = "scene_data: {} is {}; give a whole number"


@pytest.mark.parametrize("given, text", [
    ({"codes": put_code(-1)}, r"m.npy holds -1, the first at \(7, 9\) and 1 pixels.*ignore=\(-1,\)"),
    ({"codes": np.arange(576).reshape(24, 24) - 300}, "holds -300, -299, -298, -297, -296, …"),
    ({"codes": CODES > 0}, "whole numbers"), ({"codes": CODES[:, :23]}, "turn the axes"),
    ({"scene": np.ones((24, 24, 3), complex)}, "real numbers"), ({"scene": RANDOM > 0}, "real numbers"),
    ({"scene": np.ones((24, 24))}, "turn the axes"),
    ({"scene": np.where(np.arange(1728).reshape(24, 24, 3), RANDOM, np.nan)}, "holds 1 values that are not finite"),
    ({"block": 6}, "multiple of window"), ({"limit": 5}, "limit is for"), ({"name": "mars"}, "no use for labels"),
    *(({name: value}, WHOLE.format(name, value)) for name, value in dict(
        window=0, stride=True, block=-4, gap=-1, seed=-1, limit=-1).items())])
def test_what_is_no_scene_is_named(tmp_path, given, text):
    arrays = {name: given[name] for name in ("codes", "scene") if name in given}
    with pytest.raises(ValueError, match=text):
        scene_data(**stored(tmp_path, **arrays) | {name: given[name] for name in given.keys() - arrays})


def test_there_are_1024_classes_at_most_and_as_many_as_are_named():
    with pytest.raises(ValueError, match="holds 5,"):
        _number_classes(put_code(5), {2: "b"})
    with pytest.raises(ValueError, match="1025 classes"):
        _number_classes(np.arange(1026))
    many = np.arange(576, dtype=np.uint64).reshape(24, 24) + 2**63      # as many as pixels, of any size
    assert _number_classes(many)[0].max() < 576


def test_scenes_of_all_kinds_of_numbers_are_the_same(tmp_path):
    scene = np.random.RandomState(0).randint(0, 9999, (24, 24, 3))
    kinds = ("float64", "uint16", ">u2", ">f4", "longdouble")
    first, *others = (scene_data(**stored(tmp_path, scene=scene.astype(t))).train.scene for t in kinds)
    assert all(torch.equal(first, other) for other in others)
    scene[0, 0, 0] = -9999
    assert "1 values of the scene are -9999" in scene_data(**stored(tmp_path, scene=scene)).about["told"][0]


@pytest.mark.parametrize("wrong", [dict(block=2.0), dict(block=4, draws=0), dict(block=25),
                                   dict(block=2, fractions=(0.5, 0.5)), dict(block=2, fractions=(0.9, 0.2, 0.2))])
def test_blocks_that_cannot_be_drawn(wrong):
    with pytest.raises(ValueError, match="split_blocks"):
        split_blocks(torch.zeros(24, 24, dtype=torch.int64), **wrong)


def test_a_new_scene_is_compared_with_the_training(tmp_path):
    about = scene_data(**stored(tmp_path)).about["input"]
    scene = np.load(tmp_path / "s.npy")
    x, told = check_scene(scene, json.loads(json.dumps(about)))
    assert told == [] and x.dtype == torch.float32 and x.shape == scene.shape and about["dates"] == 0
    for wrong, text in [(scene[None], r"\(H, W, 3\).*; turn the axes"), (scene > 0, "real numbers"),
                        (scene * 1e31, "or beyond")]:
        with pytest.raises(ValueError, match=text):
            check_scene(wrong, about)
    assert "20 deviations" in check_scene(scene * 1e4, about)[1][0]
    assert "other units" in check_scene(scene / 1e4, about)[1][0]


def test_parts_of_scenes_have_fingerprints(tmp_path):
    a, b = (scene_data(**stored(tmp_path), seed=s).fingerprint() for s in (0, 0))
    others = [scene_data(**stored(tmp_path), seed=1), scene_data(**{**stored(tmp_path), "window": 6}),
              scene_data(**stored(tmp_path, CODES[::-1])), scene_data(**stored(tmp_path), gap=1)]
    assert a == b and len({a, *(o.fingerprint() for o in others)}) == 5


# the scripts behind chapter 20

def test_the_picture_of_a_run_has_the_accuracy_of_its_test(tmp_path):
    "Of a model that was not trained, in a folder like that of a run."
    parts = scene_data("indian_pines", window=16, seed=0)
    torch.manual_seed(0)
    model = HOTSegmenter(SegmenterConfig(in_channels=200, classes=16, dim=8, depth=1, heads=2)).eval()
    model.save(tmp_path / "run")
    scaler = parts.about["scaler"]
    about = {"task": "segment", "data": "indian_pines", "window": 16, "shift": scaler.mean.tolist(),
             "scale": scaler.std.tolist()}
    (tmp_path / "run" / "input.json").write_text(json.dumps(about))
    load("scene_maps").main([str(tmp_path / "run"), "--out", str(tmp_path / "maps.npz")])
    ((name, found),), y = np.load(tmp_path / "maps.npz").items(), parts.test.labels
    assert (name, found.dtype, found.shape) == ("indian_pines-product", np.uint8, tuple(y.shape))
    tested = (parts.about["region"] == 2) & (y >= 0)
    accuracy = (torch.from_numpy(found).long() == y)[tested].double().mean().item()
    assert accuracy == pytest.approx(evaluate(model, parts.test, Segmentation(16))["accuracy"], abs=2e-3)


def test_simple_models_have_their_rows():
    found = {r["model"]: r["test_accuracy"] for r in load("scene_linear").rows("indian_pines")}
    rows = [r for r in read_rows(results_file("scene_linear.csv")) if r["data"] == "indian_pines"]
    stored = {r["model"]: float(r["test_accuracy"]) for r in rows}
    assert found.keys() == stored.keys()
    assert all(found[name] == pytest.approx(stored[name], abs=2e-3) for name in found)


def test_blocks_are_drawn_so_that_classes_are_shared_out_evenly():
    "The best of 256 draws is more even than any of ten single ones."
    labels = (torch.arange(25) % 5 // 4).reshape(5, 5).repeat_interleave(4, 0).repeat_interleave(4, 1)

    def uneven(**options):
        region = split_blocks(labels, 4, **options)
        held = torch.stack([torch.bincount(labels[region == i], minlength=2) for i in range(3)]).double()
        return (held / held.sum(0) - torch.tensor([[0.6], [0.2], [0.2]])).abs().sum().item()
    assert uneven() <= min(uneven(draws=1, seed=s) for s in range(10)) < max(uneven(draws=1, seed=s) for s in range(10))

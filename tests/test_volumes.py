"""Volumes: official and own files, damaged arrays, new volumes for a trained model, flips."""
import json
import sys

import numpy as np
import pytest
import torch
from layers import CPU_GPU

from hot_nbdev.data import volume_data
from hot_nbdev.data import volumes as volumes_module
from hot_nbdev.data.volumes import PARTS, VOLUMES, check_volumes, load_volumes, random_flips, volume_evaluator


def own(path, dtype=np.uint8, shape=(6, 7, 8), classes=(1, 4), **changed):
    rng, arrays = np.random.RandomState(0), {}
    for split, n in (("train", 5), ("val", 2), ("test", 3)):
        arrays[f"{split}_images"] = (rng.rand(n, *shape) * 255).astype(dtype)
        arrays[f"{split}_labels"] = np.array(classes)[np.arange(n) % 2]
    np.savez(path, **{k: a for k, a in {**arrays, **changed}.items() if a is not None})
    return arrays


def volumes(folder, flag, size=28, **changed):
    path = folder / f"{flag}{'' if size == 28 else '_64'}.npz"
    own(path, shape=(size,) * 3, classes=(0, 1), **changed)
    return path


def test_a_volume_set_without_its_checksum_is_judged_by_medmnist(tmp_path):
    pytest.importorskip("medmnist", reason="counts and md5 are in medmnist")
    volumes(tmp_path, "vesselmnist3d", 64)
    before = "torchvision" in sys.modules           # a rival of another test may have brought it
    splits = volume_data("vessel", 64, folder=tmp_path, verify=False)
    x, y = splits.train[torch.tensor([2, 1])]
    assert x.shape == (2, 64, 64, 64, 1) and 0 <= x.min() and x.max() <= 1 and y.tolist() == [0, 1]
    judge = volume_evaluator("vessel", "test", 64, folder=tmp_path, verify=False)
    assert judge.evaluate(np.tile([0.6, 0.4], (3, 1))).ACC == pytest.approx(2 / 3)
    assert ("torchvision" in sys.modules) == before


def test_an_archive_of_ones_own_is_scaled_channel_by_channel_by_its_training_part(tmp_path):
    arrays, every = own(tmp_path / "mine.npz", np.float64, (6, 7, 8, 2)), torch.arange(5)
    parts = volume_data(tmp_path / "mine.npz")
    x = parts.train[every][0]
    std, mean = torch.std_mean(x, (0, 1, 2, 3), correction=0)
    assert x.shape == (5, 6, 7, 8, 2) and mean.abs().max() < 1e-5 and (std - 1).abs().max() < 1e-4
    far = {k: (a + 1e8).astype(">f8") for k, a in arrays.items() if "images" in k}   # in float32 neighbours are 8 apart
    own(tmp_path / "mine.npz", **far)
    moved = volume_data(tmp_path / "mine.npz")
    torch.testing.assert_close(moved.train[every][0], x, rtol=0, atol=1e-6)
    assert torch.equal(check_volumes(far["train_images"], moved.about["input"])[0], moved.train[every][0])
    assert moved.fingerprint() != parts.fingerprint()


@pytest.mark.parametrize("shape, channels, axis, sizes", [
    ((9, 9, 9), None, "none", [9] * 3), ((2, 9, 9, 9), None, "first", [9] * 3), ((9, 9, 9, 8), None, "last", [9] * 3),
    ((9, 9, 4), "last", "last", [9, 9]), ((9, 9, 4), "none", "none", [9, 9, 4]), ((3, 9, 9), "first", "first", [9, 9])])
def test_axes_are_told_by_the_shape_or_asked_for(tmp_path, shape, channels, axis, sizes):
    arrays = own(tmp_path / "mine.npz", shape=shape)
    parts = volume_data(tmp_path / "mine.npz", channels=channels)
    x, told = check_volumes(arrays["test_images"], json.loads(json.dumps(parts.about["input"])))
    assert torch.equal(x, parts.test[torch.arange(3)][0]) and told == []        # a file of the same layout
    assert parts.about["input"]["sizes"] == sizes and parts.about["input"]["axis"] == axis
    assert ("channels, read from" in "".join(parts.about["told"])) == (axis != "none")
    with pytest.raises(ValueError, match="mine.npz holds items of shape .*say by channels='last', 'first' or"):
        volume_data(tmp_path / "mine.npz", channels="middle")


@pytest.mark.parametrize("labels", [
    lambda y: y.astype(np.uint8)[:, None], lambda y: np.eye(2, dtype=int)[y // 4],
    lambda y: np.array([b"cat", b"dog"])[y // 4], lambda y: y - 2], ids="column integers bytes signs".split())
def test_labels_of_every_usual_kind(tmp_path, labels):
    arrays = own(tmp_path / "mine.npz")
    own(tmp_path / "mine.npz", **{k: labels(a) for k, a in arrays.items() if "labels" in k})
    parts = volume_data(tmp_path / "mine.npz")
    assert parts.train.labels.tolist() == [0, 1, 0, 1, 0] and len(parts.about["classes"]) == 2


def test_official_sets_of_pictures(tmp_path):
    pytest.importorskip("medmnist", reason="counts and md5 are in medmnist")
    for name, color in (("pathmnist", [3]), ("octmnist", [])):
        arrays = {f"{s}_images": np.zeros((4, 64, 64, *color), np.uint8) for s in PARTS}
        labels = {key.replace("images", "labels"): np.arange(4, dtype=np.uint8)[:, None] for key in arrays}
        np.savez(tmp_path / f"{name}_64.npz", **arrays, **labels)
        x, y = volume_data(name, 64, folder=tmp_path, verify=False).test[torch.arange(4)]
        assert x.shape == (4, 64, 64, *(color or [1])) and y.tolist() == [0, 1, 2, 3]
    for name, size in (("chestmnist", 28), ("pathmnist", 32), ("vessel", 128)):
        with pytest.raises(ValueError, match="known are organ, .*pathmnist"):
            volume_data(name, size, folder=tmp_path)


def test_the_table_of_volumes_is_medmnists():
    info = pytest.importorskip("medmnist.info").INFO
    for name in VOLUMES:
        for size in (28, 64):
            flag, classes, source = volumes_module._medmnist(name, size)
            theirs, tag = info[flag], "" if size == 28 else "_64"
            assert classes == list(theirs["label"].values()) and "multi-label" not in theirs["task"]
            assert (source.url, source.md5) == (theirs[f"url{tag}"], theirs[f"MD5{tag}"])
            assert source.license == theirs["license"]


def test_volumes_need_no_medmnist_and_pictures_say_that_they_do(tmp_path, monkeypatch):
    for module in ("medmnist", "medmnist.info"):
        monkeypatch.setitem(sys.modules, module, None)
    volumes(tmp_path, "vesselmnist3d")
    assert load_volumes("vesselmnist3d", folder=tmp_path, verify=False).about["classes"] == ["vessel", "aneurysm"]
    volumes(tmp_path, "vesselmnist3d", test_labels=np.full((3, 1), 7, np.uint8))
    with pytest.raises(ValueError, match=r"test_labels.*\[7\].*\[0, 1\]"):
        load_volumes("vessel", folder=tmp_path, verify=False)
    with pytest.raises(ImportError, match=r"pathmnist is none of the volumes organ, .*hot_nbdev\[medmnist\]"):
        load_volumes("pathmnist", folder=tmp_path)


def test_masks_of_volumes_come_along_and_what_they_hide_does_not_count(tmp_path):
    count = dict(zip(PARTS, (5, 2, 3), strict=True))
    masks = {f"{s}_masks": np.broadcast_to(np.arange(6) < 4, (n, 4, 5, 6)) for s, n in count.items()}
    own(tmp_path / "a.npz", np.float32, (4, 5, 6), **masks)    # masks tell that there are no channels
    parts = volume_data(tmp_path / "a.npz")
    x, mask, y = parts.train[torch.arange(5)]
    assert mask.shape == (5, 4, 5, 6) and mask.dtype == torch.bool and (x[~mask] == 0).all() and y.dtype == torch.int64
    assert abs(x[mask].mean()) < 1e-5                                     # scaled by the known voxels alone
    hidden = np.load(tmp_path / "a.npz")["train_images"].copy()
    hidden[..., 4:] += 1000
    own(tmp_path / "b.npz", np.float32, (4, 5, 6), **masks, train_images=hidden)
    assert torch.equal(volume_data(tmp_path / "b.npz").train[torch.arange(5)][0], x)


ITEM, NOT = (6, 7, 8), dict(val_masks=np.ones(2, bool), test_masks=np.ones(3, bool))


@pytest.mark.parametrize("changed, text", [
    (dict(train_images=np.zeros((0, *ITEM), np.uint8), train_labels=np.zeros(0, int)), "train_images.*n ≥ 1"),
    (dict(test_images=np.array([None])), "test_images.*cannot be read.*[Pp]ickle"),
    (dict(val_labels=np.ones((2, 2), int)), "val_labels.*one label"),
    (dict(val_labels=np.full(2, 0.5)), "val_labels.*whole numbers.*float64"),
    (dict(val_labels=np.array([1, -100])), "val_labels.*-100, by which PyTorch"),
    (dict(train_labels=np.ones(5, int)), "train_labels.*two of them"),
    (dict(train_masks=np.ones((5, *ITEM)), **NOT), "train_masks.*bool.*float64"),
    (dict(train_masks=np.zeros((5, *ITEM), bool), **NOT), "train_masks.*a True in each item"),
])
def test_damaged_archives_of_ones_own_name_the_array(tmp_path, changed, text):
    own(tmp_path / "mine.npz", **changed)
    with pytest.raises(ValueError, match=text):
        volume_data(tmp_path / "mine.npz")


BYTES = np.random.RandomState(0).randint(0, 256, (2, 4, 5, 6)).astype(np.uint8)
ABOUT = dict(sizes=[4, 5, 6], channels=1, axis="last", dtype="uint8", high=255.0, shift=0.0, scale=255.0)


def test_new_volumes_like_those_of_the_training():
    want = torch.from_numpy(BYTES).float()[..., None] / 255
    for array in (BYTES.astype(np.float64), BYTES[..., None]):
        x, told = check_volumes(array, ABOUT)
        assert torch.equal(x, want) and told == []
    floats = {**ABOUT, "dtype": "float32", "shift": 0.5, "scale": 0.1}
    assert check_volumes(BYTES / 255, floats)[1] == []
    assert "20 deviations" in check_volumes(BYTES / 2.5, floats)[1][0]
    shapes = {**ABOUT, "high": 1.0}                                       # training had bytes 0 and 1
    assert check_volumes((BYTES > 99).astype(np.uint8), shapes)[1] == []


@pytest.mark.parametrize("array, text", [
    (BYTES[None], r"size \(4, 5, 6\)"), (BYTES[:0], "size"), (BYTES > 300, "real numbers.*bool"),
    ((BYTES > 99).astype(np.uint8), "multiply by 255"), (BYTES / 2.0, "not whole numbers")])
def test_new_volumes_unlike_those_of_the_training(array, text):
    with pytest.raises(ValueError, match=text):
        check_volumes(array, ABOUT)


@CPU_GPU
def test_flips(device):
    x = torch.randn(6, 3, 4, 5, 2, device=device)
    for generator in (None, torch.Generator().manual_seed(0), torch.Generator(device).manual_seed(0)):
        y, mask = random_flips(x, (1, 2, 3), y=x[..., 0], generator=generator)
        assert torch.equal(y[..., 0], mask) and y.shape == x.shape
    y, mask = random_flips(x.movedim(1, 2), (2,), y=x[..., 0], y_modes=(1,))
    assert torch.equal(y.movedim(2, 1)[..., 0], mask)
    state = torch.get_rng_state()
    random_flips(x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(state, torch.get_rng_state())

"""Data: downloads that fail in every way, damaged files, official files where they are at hand."""
import contextlib
import gzip
import hashlib
import http.server
import os
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from hot_nbdev.data import (
    SCENES,
    SERIES,
    VOLUMES,
    Items,
    Scaler,
    Source,
    Tiles,
    Windows,
    fetch,
    file_md5,
    forecast_data,
    load_series,
    official_file,
    random_flips,
    scene_data,
    split_blocks,
    split_rows,
    volume_data,
    volume_evaluator,
    window_corners,
    window_counts,
)

BODY = bytes(range(256)) * 4000          # about a megabyte: several reads
MD5 = hashlib.md5(BODY).hexdigest()
HELD = threading.Event()
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


class Server(http.server.BaseHTTPRequestHandler):
    "Whole, short, held back, packed, or missing."

    def do_GET(self):
        body = gzip.compress(BODY) if "gz" in self.path and "plain" not in self.path else BODY
        sent = body[:len(body) // 2] if "short" in self.path else body
        self.send_response(404 if "none" in self.path else 200)
        if "unsaid" not in self.path:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if "held" in self.path:
            self.wfile.write(sent[:300000])
            self.wfile.flush()
            HELD.wait(10)
            sent = sent[300000:]
        with contextlib.suppress(OSError):       # the other side may have hung up
            self.wfile.write(sent)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def home():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def files(folder):
    return sorted(p.name for p in folder.iterdir())


def test_download(home, tmp_path, capsys):
    path = fetch(f"{home}/whole", tmp_path / "x.bin", MD5, progress=True)
    assert path.read_bytes() == BODY and files(tmp_path) == ["x.bin"]
    bar = capsys.readouterr().err
    assert "100%" in bar and bar.endswith("\n")
    fetch(f"{home}/unsaid", tmp_path / "y.bin", MD5, progress=True)
    assert "MB" in capsys.readouterr().err
    fetch(f"{home}/whole", tmp_path / "z.bin", progress=False)
    assert capsys.readouterr().err == ""


def test_download_unpacks(home, tmp_path):
    assert fetch(f"{home}/x.txt.gz", tmp_path / "x.txt", MD5).read_bytes() == BODY
    assert gzip.decompress(fetch(f"{home}/x.txt.gz", tmp_path / "x.txt.gz").read_bytes()) == BODY
    with pytest.raises(OSError, match="ended after"):
        fetch(f"{home}/unsaid.short.gz", tmp_path / "y.txt")
    with pytest.raises(OSError, match="failed"):
        fetch(f"{home}/plain?.gz", tmp_path / "y.txt")           # says gz and is not
    assert files(tmp_path) == ["x.txt", "x.txt.gz"]


@pytest.mark.parametrize("path, error, text", [
    ("short", OSError, "ended after"), ("none", OSError, "404"), ("whole", ValueError, "should have md5")])
def test_failed_download_leaves_nothing(home, tmp_path, path, error, text):
    with pytest.raises(error, match=text):
        fetch(f"{home}/{path}", tmp_path / "x.bin", "0" * 32)
    assert files(tmp_path) == []


def test_nobody_answers(tmp_path):
    with pytest.raises(OSError, match="failed.*nothing was kept"):
        fetch("http://127.0.0.1:9/x", tmp_path / "x.bin", timeout=2)
    assert files(tmp_path) == []


def test_existing_file_is_not_overwritten(home, tmp_path):
    (tmp_path / "x.bin").write_text("mine")
    with pytest.raises(FileExistsError, match="stays as it is"):
        fetch(f"{home}/whole", tmp_path / "x.bin", MD5)
    assert (tmp_path / "x.bin").read_text() == "mine"


def test_half_a_file_never_has_its_final_name(home, tmp_path):
    HELD.clear()
    work = threading.Thread(target=fetch, args=(f"{home}/held", tmp_path / "x.bin", MD5), daemon=True)
    work.start()
    for _ in range(500):
        if files(tmp_path):
            break
        time.sleep(0.01)
    assert [n for n in files(tmp_path) if n.endswith(".part")] and not (tmp_path / "x.bin").exists()
    HELD.set()
    work.join(20)
    assert files(tmp_path) == ["x.bin"] and file_md5(tmp_path / "x.bin") == MD5


def test_interrupted_download_leaves_nothing(home, tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt
    monkeypatch.setattr("hot_nbdev.data._bar", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch(f"{home}/whole", tmp_path / "x.bin", MD5, progress=True)
    assert files(tmp_path) == []


def test_official_file_is_found_fetched_or_explained(home, tmp_path):
    source = Source("deep/x.bin", "https://example.org", f"{home}/whole", MD5, (), "", "")
    with pytest.raises(FileNotFoundError, match="https://example.org.*HOT_DATA"):
        official_file("x", source, tmp_path, download=False)
    path = official_file("x", source, tmp_path)
    assert path == tmp_path / "deep" / "x.bin"
    path.rename(tmp_path / "x.bin")
    assert official_file("x", source, tmp_path) == tmp_path / "x.bin"
    (tmp_path / "x.bin").unlink()
    with pytest.raises(FileNotFoundError, match=f"(?s)x.bin is not in.*{MD5}.*404"):
        official_file("x", source._replace(url=f"{home}/none"), tmp_path)
    with pytest.raises(ValueError, match="should have md5"):
        official_file("x", source._replace(md5="0" * 32), tmp_path)
    assert files(tmp_path) == ["deep"] and files(tmp_path / "deep") == []
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        official_file("x", source, tmp_path / "nowhere")


# series

def write(path, rows, header="date,a,b", end="\n", **options):
    path.write_text(end.join([header, *rows] if header else rows), **{"encoding": "utf-8", **options})
    return path


def test_ways_of_writing_a_series(tmp_path):
    rows = ["2020-01-01 00:00:00,1,2", "2020-01-01 01:00:00,3,4"]
    want = torch.tensor([[1., 2.], [3., 4.]]).double()
    for i, options in enumerate([{}, {"end": "\r\n"}, {"encoding": "utf-8-sig"}, {"header": "Date,a,b"}]):
        got = load_series(write(tmp_path / f"{i}.csv", rows, **options))
        assert torch.equal(got.values, want) and got.names == ["a", "b"]
    old = load_series(write(tmp_path / "old.csv", ["1990/1/1 0:00,1,2", "1990/1/2 0:00,3,4"]))
    assert str(old.dates[1]) == "1990-01-02T00:00:00" and old.report["gaps"] == []
    latin = tmp_path / "latin.csv"
    latin.write_bytes("date,W/m²\n2020-01-01 00:00:00,1\n".encode("latin-1"))
    assert load_series(latin).report["broken names"] == ["W/m\ufffd"]
    one = load_series(write(tmp_path / "one.csv", rows[:1]))
    assert one.values.shape == (1, 2) and one.report["gaps"] == []


@pytest.mark.parametrize("rows, header, text", [
    ([], "date,a,b", "holds no rows"),
    (["2020-01-01 00:00:00"], "date", "header that begins"),
    (["2020-01-01 00:00:00,1,2", ""], "a,b,c", "line 1.*'date,'"),
    (["2020-01-01 00:00:00,1,2", "", "2020-01-01 00:00:00,1,2"], "date,a,b", "line 3.*3 entries, but has 1"),
    (["2020-01-01 00:00:00,1,2", "2020-01-01 00:00:00,1,2,3"], "date,a,b", "line 3.*3 entries, but has 4"),
    (["2020-01-01 00:00:00,1,"], "date,a,b", "line 2.*'b'.*''"),
    (["2020-01-01 00:00:00,1,2", "2020-13-01 00:00:00,1,2"], "date,a,b", "line 3.*date"),
    (["2020-01-01 00:00:00,1,inf"], "date,a,b", "line 2.*'b'.*inf.*mend=True"),
])
def test_damaged_series_name_the_line(tmp_path, rows, header, text):
    path = write(tmp_path / "x.csv", rows, header)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=text):
        load_series(path)
    assert path.read_bytes() == before


def test_damaged_series_without_dates(tmp_path):
    with pytest.raises(ValueError, match="line 2.*2 entries, but has 1"):
        load_series(write(tmp_path / "x.txt", ["1,2", "3"], None))
    with pytest.raises(ValueError, match="line 2.*column '1'.*'y'"):
        load_series(write(tmp_path / "x.txt", ["1,2", "3,y"], None))
    (tmp_path / "none.txt").write_bytes(b"")
    with pytest.raises(ValueError, match="holds no rows"):
        load_series(tmp_path / "none.txt")
    (tmp_path / "noise.csv").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match="line 1"):
        load_series(tmp_path / "noise.csv")


def test_mending(tmp_path):
    path = write(tmp_path / "x.txt", ["-9999,1", "2,nan", "-9999,-9999", "3,4"], None)
    mended = load_series(path, mend=True)
    assert mended.values.tolist() == [[2, 1], [2, 1], [2, 1], [3, 4]]
    assert mended.report["missing"] == {"1": 1} and mended.report["sentinels"] == {"0": 2, "1": 1}
    with pytest.raises(ValueError, match="no value at all"):
        load_series(write(tmp_path / "y.txt", ["-9999,1", "nan,2"], None), mend=True)


def test_wrong_official_series(tmp_path):
    rows = ["2020-01-01 00:00:00,1,2"]
    write(tmp_path / "weather.csv", rows), write(tmp_path / "traffic.csv", rows)
    with pytest.raises(ValueError, match="should have md5 2e79e5e4"):
        load_series("weather", tmp_path)
    with pytest.raises(ValueError, match=r"\(17544, 862\).*\(1, 2\)"):
        load_series("traffic", tmp_path)
    assert load_series("weather", tmp_path, verify=False).values.shape == (1, 2)
    with pytest.raises(FileNotFoundError, match="known are ETTh1"):
        load_series("wether", tmp_path)


@pytest.mark.parametrize("name, n", [("ETTh1", 14400), ("ETTm2", 57600), ("solar", 700), ("x", 700)])
def test_published_splits(tmp_path, name, n):
    values = np.random.RandomState(0).rand(n, 2).round(4)
    if name == "solar":
        path = tmp_path / "solar_AL.txt"
        np.savetxt(path, values, "%.4f", ",")
    else:
        path = tmp_path / f"{name}.csv"
        step = np.datetime64("2016-07-01T00:00:00") + np.arange(n) * np.timedelta64(15, "m")
        write(path, [f"{str(d).replace('T', ' ')},{a},{b}" for d, (a, b) in zip(step, values, strict=True)])
    train, val, test, about = forecast_data(path, 24, 12)
    month = {"ETTh1": 720, "ETTm2": 2880}.get(name)
    sizes = (12 * month, 4 * month, 4 * month) if month else (490, 70, 140)
    assert about["rows"] == sizes and about["counts"] == window_counts(n, 24, 12, sizes)
    want = torch.from_numpy(values)
    assert_close(about["scaler"].mean, want[:sizes[0]].mean(0))
    assert_close(about["scaler"].std, want[:sizes[0]].std(0, correction=0))
    x, y = val[torch.tensor([0])]
    assert x.dtype == torch.float32
    assert_close(about["scaler"].inverse(y[0].double()), want[sizes[0]:sizes[0] + 12], atol=1e-5, rtol=0)
    assert_close(about["scaler"].inverse(x[0].double()), want[sizes[0] - 24:sizes[0]], atol=1e-5, rtol=0)


def test_splits_too_short(tmp_path):
    path = write(tmp_path / "ETTh1.csv", [f"2020-01-{d:02d} 00:00:00,{d},{d}" for d in range(1, 31)])
    with pytest.raises(ValueError, match="needs 14400 rows"):
        forecast_data(path, 2, 1)
    assert forecast_data(path, 2, 1, split=(20, 5, 5)).about["counts"] == (18, 5, 5)
    for options, text in [(dict(lookback=21, horizon=1), "longer than the training part"),
                          (dict(lookback=2, horizon=6), "Windows: a series")]:
        with pytest.raises(ValueError, match=text):
            forecast_data(path, **options, split=(20, 5, 5))
    for split in [(1, 2), (0, 1, 1), (10, 10, 20)]:
        with pytest.raises(ValueError, match="split_rows"):
            split_rows(30, split)


@pytest.mark.parametrize("device", DEVICES)
def test_parts_on_a_device(device):
    series = Windows(torch.randn(20, 3), 4, 2)
    items = Items(torch.randint(0, 256, (5, 4, 4, 4, 1), dtype=torch.uint8), torch.arange(5),
                  torch.zeros(1), torch.tensor(255.))
    tiles = Tiles(torch.randn(9, 9, 2, 3), torch.randint(0, 3, (9, 9)), torch.tensor([[0, 0], [4, 5]]), 4)
    for part in (series, items, tiles):
        moved = part.to(device)
        for i in (torch.tensor([1, 0, 1]), torch.tensor([], dtype=torch.int64)):
            for a, b in zip(part[i], moved[i.to(device)], strict=True):
                assert b.device.type == device and torch.equal(a, b.cpu()) and len(a) == len(i)
        with pytest.raises(IndexError):
            part[torch.tensor([len(part)])]
        for wrong in (0, [0], torch.tensor(0), torch.tensor([0.]), slice(2)):
            with pytest.raises(TypeError, match=r"part\[torch.tensor\(\[i\]\)\]"):
                part[wrong]
    assert tiles[torch.tensor([0])][0].shape == (1, 2, 4, 4, 3)


def test_items_need_a_label_each():
    with pytest.raises(ValueError, match="3 images came with 2 labels"):
        Items(torch.zeros(3, 1), torch.zeros(2))


def test_scaler():
    x = torch.randn(7, 5, 3).double() * torch.tensor([1., 10., 0.]) + 4
    scaler = Scaler.fit(x)
    z = scaler.apply(x)
    assert_close(z.mean((0, 1)), torch.zeros(3).double())
    assert_close(z.flatten(0, 1).std(0, correction=0), torch.tensor([1., 1., 0.]).double())
    assert_close(scaler.inverse(z), x)
    assert scaler.apply(x.float()).dtype == torch.float32


# volumes

def volumes(folder, flag, size=28, n=(3, 2, 2), **changed):
    rng, arrays = np.random.RandomState(0), {}
    for split, count in zip(("train", "val", "test"), n, strict=True):
        arrays[f"{split}_images"] = rng.randint(0, 256, (count, size, size, size)).astype(np.uint8)
        arrays[f"{split}_labels"] = (np.arange(count) % 2).astype(np.uint8)[:, None]
    arrays.update(changed)
    path = folder / f"{flag}{'' if size == 28 else '_64'}.npz"
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return path


@pytest.mark.parametrize("name", VOLUMES)
@pytest.mark.parametrize("size", [28, 64])
def test_every_volume_set(tmp_path, name, size):
    pytest.importorskip("medmnist", reason="counts and md5 are in medmnist")
    volumes(tmp_path, name + "mnist3d", size)
    splits = volume_data(name, size, tmp_path, verify=False)
    x, y = splits.train[torch.tensor([2, 1])]
    assert x.shape == (2, size, size, size, 1) and 0 <= x.min() and x.max() <= 1 and y.tolist() == [0, 1]
    assert splits.about["counts"] == (3, 2, 2) and len(splits.about["md5"]) == 32
    with pytest.raises(ValueError, match="should have md5"):
        volume_data(name, size, tmp_path)
    scores = np.tile([0.6, 0.4] if len(splits.about["classes"]) == 2
                     else np.arange(len(splits.about["classes"])), (2, 1))
    if len(splits.about["classes"]) == 2:
        assert volume_evaluator(name, "test", size, tmp_path, verify=False).evaluate(scores).ACC == 0.5
    assert "torchvision" not in sys.modules


@pytest.mark.parametrize("changed, text", [
    (dict(val_labels=None), "should hold the array 'val_labels'"),
    (dict(val_labels=np.zeros((2, 1))), "val_labels.*float64"),
    (dict(val_labels=np.zeros(2, np.uint8)), r"val_labels.*\(2, 1\)"),
    (dict(test_labels=np.full((2, 1), 7, np.uint8)), "test_labels.*below 2.*7"),
    (dict(train_images=np.zeros((3, 28, 28), np.uint8)), "train_images.*uint8 of shape"),
    (dict(train_labels=np.zeros((2, 1), np.uint8)), "train_labels"),
    (dict(train_images=np.array([None])), "train_images.*cannot be read.*[Pp]ickle"),
])
def test_damaged_volumes_name_the_array(tmp_path, changed, text):
    pytest.importorskip("medmnist", reason="counts and md5 are in medmnist")
    path = volumes(tmp_path, "vesselmnist3d", **changed)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=text):
        volume_data("vessel", folder=tmp_path, verify=False)
    assert path.read_bytes() == before


def test_cut_and_flipped_volume_files(tmp_path):
    pytest.importorskip("medmnist", reason="counts and md5 are in medmnist")
    path = volumes(tmp_path, "vesselmnist3d")
    whole = path.read_bytes()
    for content in (whole[:5000], b"", b"html", whole[:9000] + b"\0" * 9 + whole[9009:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read"):
            volume_data("vessel", folder=tmp_path, verify=False)


def test_volumes_without_medmnist(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "medmnist", None)
    monkeypatch.setitem(sys.modules, "medmnist.info", None)
    with pytest.raises(ImportError, match=r"hot_nbdev\[train\]"):
        volume_data("vessel", folder=tmp_path)


# scenes

@pytest.mark.parametrize("H, W, block, gap", [
    (33, 40, 4, 0), (40, 33, 8, 2), (12, 12, 4, 1), (64, 64, 16, 5)])
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
        apart = torch.cdist((region == 0).nonzero().float(), (region > 0).nonzero().float(), p=torch.inf)
        assert not len(apart) or apart.min() == gap + 1


def test_a_split_without_labels_or_with_too_few_blocks():
    assert set(split_blocks(torch.full((8, 8), -1), 2).unique().tolist()) == {0, 1, 2}
    for options in [dict(block=4), dict(block=9), dict(block=2, fractions=(0.5, 0.5)),
                    dict(block=2, fractions=(0.9, 0.2, 0.2))]:
        with pytest.raises(ValueError, match="split_blocks"):
            split_blocks(torch.zeros(8, 4, dtype=torch.int64), **options)


def test_scene_files(tmp_path):
    rng = np.random.RandomState(0)
    np.save(tmp_path / "s.npy", rng.rand(24, 24, 3))
    np.save(tmp_path / "m.npy", rng.randint(0, 3, (24, 24)))
    a = scene_data(tmp_path / "s.npy", 4, labels=tmp_path / "m.npy")
    b = scene_data(tmp_path / "s.npy", 4, labels=tmp_path / "m.npy")
    x, y = a.train[torch.arange(len(a.train))]
    assert x.shape[1:] == (4, 4, 3) and torch.equal(x, b.train[torch.arange(len(b.train))][0])
    assert set(y.unique().tolist()) == {-1, 0, 1} and a.about["codes"] == [1, 2]
    assert sum(c.sum() for c in a.about["class_counts"].values()) == (a.train.labels >= 0).sum()
    with pytest.raises(ValueError, match="multiple of window"):
        scene_data(tmp_path / "s.npy", 4, labels=tmp_path / "m.npy", block=6)
    broken = rng.rand(24, 24, 3)
    broken[0, 0, 0] = np.nan
    np.save(tmp_path / "s.npy", broken)
    with pytest.raises(ValueError, match="1 values that are not finite"):
        scene_data(tmp_path / "s.npy", 4, labels=tmp_path / "m.npy")
    np.save(tmp_path / "m.npy", rng.rand(24, 24))
    with pytest.raises(ValueError, match="whole numbers"):
        scene_data(tmp_path / "s.npy", 4, labels=tmp_path / "m.npy")
    np.save(tmp_path / "m.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read.*pickle"):
        scene_data(tmp_path / "s.npy", 4, labels=tmp_path / "m.npy")


def ssl4eo(folder, n, save, product="nlcd"):
    rng = np.random.RandomState(0)
    for i in range(n):
        image, mask = rng.randint(0, 256, (8, 8, 7)), rng.choice([0, 11, 95], (8, 8))
        for root, name, array in [("ssl4eo_l_oli_sr_benchmark", "all_bands", image),
                                  (f"ssl4eo_l_oli_{product}", f"{product}_2019", mask)]:
            place = folder / root / f"{i:07d}" / "scene"
            place.mkdir(parents=True)
            save(place / name, array.astype(np.uint8))


def test_ssl4eo_folders(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="ssl4eo_l_oli_sr_benchmark is not in"):
        scene_data("ssl4eo_nlcd", folder=tmp_path)
    ssl4eo(tmp_path, 10, lambda path, array: np.save(path.with_suffix(".npy"), array), "cdl")
    splits = scene_data("ssl4eo_cdl", folder=tmp_path, fractions=(0.6, 0.2, 0.2), limit=5)
    assert splits.about["counts"] == (3, 1, 1) and splits.about["codes"] == [0, 11, 95]
    x, y = splits.train[torch.tensor([0])]
    assert x.shape == (1, 8, 8, 7) and y.shape == (1, 8, 8)
    (tmp_path / "ssl4eo_l_oli_cdl" / "0000003" / "scene" / "cdl_2019.npy").unlink()
    with pytest.raises(FileNotFoundError, match="0000003.*is missing"):
        scene_data("ssl4eo_cdl", folder=tmp_path)
    with pytest.raises(ValueError, match="ssl4eo_nlcd and ssl4eo_cdl"):
        scene_data("ssl4eo_x", folder=tmp_path)


def test_ssl4eo_geotiff(tmp_path, monkeypatch):
    tifffile = pytest.importorskip("tifffile", reason="no reader of TIFF is installed")
    ssl4eo(tmp_path, 4, lambda path, array: tifffile.imwrite(
        path.with_suffix(".tif"), array.transpose(2, 0, 1) if array.ndim == 3 else array,
        planarconfig="separate" if array.ndim == 3 else None, photometric="minisblack"))
    splits = scene_data("ssl4eo_nlcd", folder=tmp_path)
    stored = np.random.RandomState(0).randint(0, 256, (8, 8, 7)).astype(np.uint8)
    images = torch.cat([p.images for p in splits[:3]])
    assert any(torch.equal(i, torch.from_numpy(stored)) for i in images)
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(ImportError, match="install tifffile|\\.npy"):
        scene_data("ssl4eo_nlcd", folder=tmp_path)
    monkeypatch.undo()
    for p in tmp_path.glob("**/all_bands.tif"):
        p.write_bytes(p.read_bytes()[:40])
    with pytest.raises(ValueError, match="cannot be read"):
        scene_data("ssl4eo_nlcd", folder=tmp_path)


@pytest.mark.parametrize("device", DEVICES)
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


# official files

def official(name, file):
    folder = os.environ.get("HOT_DATA")
    if not folder:
        pytest.skip("HOT_DATA is not set: it names the folder with the official files")
    if not any(p.exists() for p in [Path(folder) / file, *Path(folder).glob(f"*/{Path(file).name}")]):
        pytest.skip(f"{file} is not in HOT_DATA")


@pytest.mark.parametrize("name", SERIES)
def test_official_series(name):
    official(name, SERIES[name].file)
    splits = forecast_data(name, 96, 96, download=False)
    n = SERIES[name].shape[0]
    split = name[:4] if name.startswith("ETT") else "7:1:2"
    assert splits.about["counts"] == window_counts(n, 96, 96, split)
    x, y = splits.train[torch.arange(0, len(splits.train), 997)]
    assert x.isfinite().all() and y.shape[1:] == (96, SERIES[name].shape[1])
    rows = splits.train.values.double()
    assert rows.mean(0).abs().max() < 1e-3 and (rows.std(0) - 1).abs().max() < 1e-2
    if name == "exchange_rate":
        assert splits.about["counts"] == (5120, 665, 1422)              # the papers' table
    if name == "weather":
        report = splits.about["report"]
        assert sum(report["sentinels"].values()) == 81 and report["dates twice"] == ["2020-05-12T06:00:00"]
        mended = load_series("weather", mend=True, download=False)
        assert mended.values.min() > -100 and len(mended.values) == n - 1
        assert not re.search("\ufffd", "".join(mended.names))


@pytest.mark.parametrize("name", VOLUMES)
@pytest.mark.parametrize("size", [28, 64])
def test_official_volumes(name, size):
    pytest.importorskip("medmnist", reason="counts and md5 are in medmnist")
    official(name, f"{name}mnist3d{'' if size == 28 else '_64'}.npz")
    splits = volume_data(name, size, download=False)
    x, y = splits.test[torch.arange(4)]
    assert x.shape == (4, size, size, size, 1) and 0 <= x.min() and x.max() <= 1
    classes = len(splits.about["classes"])
    perfect = torch.nn.functional.one_hot(splits.test.labels, classes).numpy()
    assert tuple(volume_evaluator(name, "test", size, download=False).evaluate(perfect)) == (1, 1)


def test_official_sentinel2():
    official("sentinel2", SCENES["sentinel2"].file)
    splits = scene_data("sentinel2", download=False)
    x, y = splits.train[torch.arange(4)]
    assert x.shape == (4, 5, 16, 16, 13) and y.max() < 5
    assert len(splits.about["classes"]) == 5 and splits.train.labels.shape == (101, 100)

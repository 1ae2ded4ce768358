"""Data: parts, splits, scaling, masks and fingerprints."""
import numpy as np
import pytest
import torch
from layers import CPU_GPU
from smallfiles import write_rows
from torch.testing import assert_close

from hot_nbdev.data import Items, Scaler, Splits, Tiles, Windows, forecast_data, split_rows, window_counts


@pytest.mark.parametrize("name, sizes", [("ETTh1.csv", (8640, 2880, 2880)), ("solar_AL.txt", (490, 70, 140))])
def test_published_splits(tmp_path, name, sizes):
    n, path = sum(sizes), tmp_path / name
    values = np.random.RandomState(0).rand(n, 2).round(4)
    if name == "solar_AL.txt":
        np.savetxt(path, values, "%.4f", ",")
    else:
        write_rows(path, [f"{t},{a},{b}" for t, (a, b) in zip(1467331200 + 900 * np.arange(n), values, strict=True)])
    about = forecast_data(path, 24, 12).about
    assert about["rows"] == sizes and about["counts"] == window_counts(n, 24, 12, sizes)
    assert_close(about["scaler"].std, torch.from_numpy(values)[:sizes[0]].std(0, correction=0))


def test_splits_too_short(tmp_path):
    rows = [f"2020-01-{d:02d} 00:00:00,{d},{d}" for d in range(1, 31)]
    for name, needed in (("ETTm2", 57600), ("ETTh1", 14400)):
        path = write_rows(tmp_path / f"{name}.csv", rows)
        with pytest.raises(ValueError, match=f"needs {needed} rows"):
            forecast_data(path, 2, 1)
    assert forecast_data(path, 2, 1, split=(20, 5, 5)).about["counts"] == (18, 5, 5)
    for option, value in (("lookback", 0), ("horizon", -1), ("lookback", 2.0)):
        with pytest.raises(ValueError, match=f"forecast_data: {option} is {value}; give a whole number"):
            forecast_data(path, **{"lookback": 2, "horizon": 1, option: value})
    for split in [(1, 2), (0, 1, 1), (10, 10, 20), "6:2:2", (0.7, 0.1, 0.2), (20.5, 5, 4)]:
        with pytest.raises(ValueError, match="split_rows"):
            split_rows(30, split)


@CPU_GPU
def test_parts_on_a_device(device):
    series = Windows(torch.randn(20, 3), 4, 2)
    items = Items(torch.randint(0, 256, (5, 4, 4, 4, 1), dtype=torch.uint8), torch.arange(5),
                  torch.zeros(1), torch.tensor(255.))
    holed = Windows(torch.randn(20, 3), 4, 2, torch.rand(20, 3) < 0.9)
    masked = Items(torch.randn(5, 4, 6), torch.arange(5), masks=torch.rand(5, 4) < 0.5)
    tiles = Tiles(torch.randn(9, 9, 2, 3), torch.randint(0, 3, (9, 9)), torch.tensor([[0, 0], [4, 5]]), 4)
    for part in (series, items, tiles, holed, masked):
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


@pytest.mark.parametrize("lookback, horizon", [(3, 2), (4, 0)])
def test_windows_with_a_mask_have_known_targets(lookback, horizon):
    values, mask = torch.randn(30, 2), torch.rand(30, 2, generator=torch.Generator().manual_seed(0)) < 0.9
    part = Windows(values, lookback, horizon, mask)
    x, known, y = part[torch.arange(len(part))]
    rows = [i for i in range(30 - lookback - horizon + 1) if mask[i + lookback:i + lookback + horizon].all()]
    assert len(part) == len(rows) and 0 < len(rows)
    for i, at in enumerate(rows):                                          # the slow way
        assert torch.equal(x[i], values[at:at + lookback]) and torch.equal(known[i], mask[at:at + lookback])
        assert torch.equal(y[i], values[at + lookback:at + lookback + horizon])


def test_a_series_with_a_mask(tmp_path):
    rows = [f"{i % 7},{(3 * i) % 11}" for i in range(100)]
    path = write_rows(tmp_path / "x.txt", rows, None)
    whole = forecast_data(path, 5, 2)
    all_known = forecast_data(path, 5, 2, masked=True)
    assert all_known.about["counts"] == whole.about["counts"] and all_known.train.mask.all()
    assert torch.equal(all_known.train[torch.arange(60)][2], whole.train[torch.arange(60)][1])
    rows[20] = "-9999,3"
    write_rows(path, rows, None)
    masked, filled = forecast_data(path, 5, 2, masked=True), forecast_data(path, 5, 2, mend=True)
    known = [i % 7 for i in range(70) if i != 20]  # the mean is that of the known ones
    assert masked.about["scaler"].mean[0].item() == pytest.approx(sum(known) / 69, abs=1e-9)
    assert masked.about["scaler"].std[0].item() == pytest.approx(np.std(known), abs=1e-9)
    assert masked.about["counts"] == (filled.about["counts"][0] - 2, *filled.about["counts"][1:])
    assert masked.train.values[20, 0] == 0 and not masked.train.mask[20, 0] and masked.train.mask.sum() == 139
    path.write_text("\n".join([*["-9999,1"] * 70, *rows[70:]]))
    with pytest.raises(ValueError, match="column '0' of .*x.txt has no value in the training part"):
        forecast_data(path, 5, 2, masked=True)


def test_fingerprints_tell_data_apart():
    values, labels = torch.randn(20, 3), torch.arange(20)
    corners = torch.tensor([[0, 0], [2, 2]])
    parts = [
        Windows(values, 4, 2), Windows(values, 3, 3), Windows(values + 1e-4, 4, 2), Windows(values[:19], 4, 2),
        Windows(values, 4, 2, values < 9), Items(values, labels), Items(values, labels + 1),
        Items(values, labels, 1.0), Items(values, labels, 0.0, 2.0), Items(values, labels, masks=values < 9),
        Items(values, labels, torch.zeros(3), torch.ones(3)), Tiles(values, labels, corners, 2),
        Tiles(values, labels, corners + 1, 2), Tiles(values, labels, corners, 3),
    ]
    found = [p.fingerprint() for p in parts]
    assert len(set(found)) == len(parts) and all(len(f) == 16 for f in found)
    assert [p.to("cpu").fingerprint() for p in parts] == found
    assert {Windows(v, 4, 2).fingerprint() for v in (values.double(), values.to_sparse())} == {found[0]}
    abouts = [{}, {"names": ["a"]}, {"names": ["b"]}, {"classes": ["a"]},
              *({"scaler": Scaler(torch.zeros(3), s * torch.ones(3))} for s in (1, 2))]
    assert len({Splits(*parts[:3], about).fingerprint() for about in abouts}) == 6
    assert Splits(*parts[:3], {}).fingerprint() != Splits(*parts[:2], parts[3], {}).fingerprint()

"""What is in the official data files that are at hand.

    HOT_DATA=folder python -m studies.data.data

Reads the files in the folder HOT_DATA that have a known md5, and writes what chapter 16 shows of them:
studies/data/data_series.csv, data_scaler.csv, data_volumes.csv and data_scenes.csv. Rows of files that are not
there stay as they are. Nothing is downloaded.
"""
from pathlib import Path

import torch

from hot_nbdev.data import forecast_data, scene_data, volume_data
from hot_nbdev.data.series import SERIES, load_series
from hot_nbdev.data.volumes import VOLUMES
from studies.rows import put

HERE = Path(__file__).parent


def series():
    rows, scales = [], []
    for name in SERIES:
        try:
            s = load_series(name, download=False)
        except FileNotFoundError:
            continue
        about = forecast_data(name, 96, 96, download=False).about
        rows.append({"name": name, "rows": len(s.values), "columns": len(s.names),
                     "first": str(s.dates[0])[:16] if s.dates is not None else "",
                     "last": str(s.dates[-1])[:16] if s.dates is not None else "",
                     "sentinels": sum(s.report["sentinels"].values()), "twice": len(s.report["dates twice"]),
                     "gaps": "; ".join(f"{d[:16]} {n:g} s" for d, n in s.report["gaps"]),
                     "windows_96_96": "/".join(map(str, about["counts"]))})
        mended = forecast_data(name, 96, 96, mend=True, download=False).about
        both = zip(mended["names"], about["scaler"].std, mended["scaler"].std, strict=True)
        marked = (s.values[:about["rows"][0]] == -9999).sum(0).tolist()
        scales += [{"name": name, "column": c, "std_published": f"{a:.5g}", "std_mended": f"{b:.5g}",
                    "sentinels_in_training": n}
                   for (c, a, b), n in zip(both, marked, strict=True) if abs(a / b - 1) > 0.01]
    put(HERE / "data_series.csv", rows, "name")
    put(HERE / "data_scaler.csv", scales, "name")


def volumes():
    rows = []
    for name in VOLUMES:
        for size in (28, 64):
            try:
                splits = volume_data(name, size, download=False)
            except FileNotFoundError:
                continue
            values = sorted(set().union(*(p.images.unique().tolist() for p in splits[:3])))
            rows.append({"name": name, "size": size, "train": len(splits.train), "val": len(splits.val),
                         "test": len(splits.test),
                         "voxel_values": "/".join(map(str, values)) if len(values) < 5 else len(values),
                         "test_classes": "/".join(map(str, splits.about["class_counts"]["test"].tolist()))})
    put(HERE / "data_volumes.csv", rows, "name", "size")


def scenes():
    try:
        splits = scene_data("sentinel2", download=False)
    except FileNotFoundError:
        return
    y, about = splits.train.labels, splits.about
    shares = torch.bincount(y[y >= 0], minlength=len(about["classes"]))
    put(HERE / "data_scenes.csv", [{"name": "sentinel2", "windows_16": "/".join(map(str, about["counts"])),
                                    **{c: int(n) for c, n in zip(about["classes"], shares, strict=True)}}], "name")


if __name__ == "__main__":
    series()
    volumes()
    scenes()

"""Segmentations of whole scenes by runs of hot_segment, as small arrays for chapter 20.

    HOT_DATA=folder python -m studies.scenes.scene_maps RUN [RUN …] [--out FILE.npz]

Each RUN is the folder of a run (`--out` of hot_segment). Its model labels the scene in windows side by side,
and the numbers of the classes, counted from 0, go to scene_maps.npz as DATA-ATTENTION, uint8, (H, W). Where
the side of the scene is no multiple of the window, the last windows overlap others; there the others count,
so that each window of the test part is labeled as it was when the run was tested. The scene is read as
hot_segment reads it, and nothing is downloaded. Arrays of other runs that are in the file stay.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import torch

from hot_nbdev.data.scenes import load_scene
from hot_nbdev.models import load_model
from hot_nbdev.train.tasks import mean_scores

OUT = Path(__file__).with_name("scene_maps.npz")


def starts(n, size):
    "First pixels of windows that cover n pixels; the one that overlaps comes first, and is written over."
    return [n - size, *range(0, n - size + 1, size)]


@torch.no_grad()
def segment(model, x, size):
    "Classes of all pixels, uint8 (H, W), of a scene (…, H, W, bands) that is scaled."
    H, W = x.shape[-3:-1]
    labels = torch.zeros(H, W, dtype=torch.int64)
    for i in starts(H, size):
        for j in starts(W, size):
            y = model(x[None, ..., i:i + size, j:j + size, :])
            labels[i:i + size, j:j + size] = mean_scores(y, labels[None])[0].argmax(-1)
    return labels.numpy().astype(np.uint8)


def run_map(folder):
    "Name of the file and classes, for the folder of one run."
    folder = Path(folder)
    if not (folder / "input.json").is_file():
        raise ValueError(f"scene_maps: {folder} is not the folder of a run: it has no input.json")
    about, model = json.loads((folder / "input.json").read_text()), load_model(folder)
    if about["task"] != "segment":
        raise ValueError(f"scene_maps: {folder} is a run of {about['task']}; give a run of hot_segment")
    scene = load_scene(about["data"], download=False).values              # (H, W, …, bands)
    x = ((scene.double() - torch.tensor(about["shift"])) / torch.tensor(about["scale"])).float()
    x = x if x.ndim == 3 else x.permute(2, 0, 1, 3)                       # dates first
    return f"{about['data']}-{model.config.attention}", segment(model, x, about["window"])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs of hot_segment")
    parser.add_argument("--out", type=Path, default=OUT, help="file of the arrays")
    a = parser.parse_args(argv)
    found = {}
    for folder in a.runs:
        name, labels = run_map(folder)
        if name in found:
            raise ValueError(f"scene_maps: two runs would be named {name}; give one for each scene and "
                             "attention")
        found[name] = labels
    kept = dict(np.load(a.out)) if a.out.exists() else {}
    np.savez_compressed(a.out, **dict(sorted((kept | found).items())))
    for name, labels in found.items():
        print(f"{name}: {labels.shape[0]} × {labels.shape[1]} pixels, {len(np.unique(labels))} classes")


if __name__ == "__main__":
    main()

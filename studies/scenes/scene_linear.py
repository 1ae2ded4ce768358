"""What has to be beaten on scenes: the largest class, a linear classifier of single pixels, position alone.

    HOT_DATA=folder python -m studies.scenes.scene_linear

Writes studies/scenes/scene_linear.csv, with a row for each scene and each model, scored on the test part of the split
that hot_segment uses; rows of a scene that is not at hand stay. A pixel's spectrum is that of all dates, one after the
other. Takes seconds; nothing is downloaded.
"""
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hot_nbdev.data import scene_data
from hot_nbdev.train.tasks import Segmentation
from studies.rows import put

OUT = Path(__file__).with_name("scene_linear.csv")


def models(x, labels, trained):
    "Segmentations (H, W) by name, from spectra (H, W, bands), labels and the mask of the training pixels."
    yield "largest class", torch.full_like(labels, torch.bincount(labels[trained]).argmax())
    fitted = LinearDiscriminantAnalysis().fit(x[trained].numpy(), labels[trained].numpy())
    yield "linear, pixel", torch.from_numpy(fitted.predict(x.flatten(0, 1).numpy())).reshape(labels.shape)
    every, position = torch.ones_like(trained).nonzero().float(), trained.nonzero().float()
    yield "position alone", labels[trained][torch.cdist(every, position).argmin(1)].reshape(labels.shape)


def rows(name):
    "Scores of the simple models on one scene."
    train, _, _, about = scene_data(name, seed=0, download=False)
    x, labels, classes = train.scene.flatten(2), train.labels, len(about["classes"])
    tested, task = (about["region"] == 2) & (labels >= 0), Segmentation(classes)
    for model, guess in models(x, labels, (about["region"] == 0) & (labels >= 0)):
        found = task.metrics([task.collect(F.one_hot(guess[tested], classes).float(), labels[tested])])
        yield {"data": name, "md5": about["md5"] or "", "model": model, "test_pixels": int(tested.sum()),
               **{f"test_{k}": round(found[k], 6) for k in ("accuracy", "miou", "f1")}}


def main(out=OUT):
    found = []
    for name in ("indian_pines", "sentinel2"):
        try:
            found += rows(name)
        except FileNotFoundError:
            print(f"{name}: not at hand, left out")
    put(out, found, "data")
    print(f"{len(found)} rows")


if __name__ == "__main__":
    main()

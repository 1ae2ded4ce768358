"""How far a few hand-made numbers of a volume go on the official sets.

    HOT_DATA=folder python -m studies.volumes.volumes

Reads those of adrenal and vessel (MedMNIST 3D, 28 voxels a side) that lie in the folder HOT_DATA, and writes what
chapter 19 shows of them: studies/volumes/volumes_simple.csv and studies/volumes/volumes_paired.csv; other rows stay. A
single number is turned the way that is right on the training part; logistic regressions are scikit-learn's with its
defaults, fitted on the training part. Nothing is chosen by the test part, and nothing is downloaded. A minute on a CPU.
"""
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hot_nbdev.data import volume_data
from studies.rows import put

HERE = Path(__file__).parent
DRAWS = 2000


def numbers(x):
    "Of shapes x (n, s, s, s) of zeros and ones: voxels, faces, voxels per face, log axes, sums over slices."
    size, count = x.shape[-1], x.sum((1, 2, 3))
    faces = sum(torch.nn.functional.pad(x, (1, 1) * 3).diff(dim=m).abs().sum((1, 2, 3)) for m in (1, 2, 3))
    at = torch.cartesian_prod(*[torch.arange(float(size))] * 3)
    weight = x.flatten(1) / count[:, None]
    mean = weight @ at
    spread = torch.einsum("bn,ni,nj->bij", weight, at, at) - mean[:, :, None] * mean[:, None]
    five = torch.cat([count[:, None], faces[:, None], torch.linalg.eigvalsh(spread).clamp(min=1e-6).log()], 1)
    slices = torch.cat([x.sum(m) for m in ((2, 3), (1, 3), (1, 2))], 1)
    return {"voxels": count[:, None], "faces": faces[:, None], "voxels per face": (count / faces)[:, None],
            "logistic, 5 numbers of the shape": five, "logistic, 84 sums over slices": slices}


def scores(train, labels, parts):
    "Scores of the parts, from features of the training part, and how many numbers were fitted."
    if train.shape[1] == 1:
        sign = 1 if roc_auc_score(labels, train[:, 0]) > 0.5 else -1
        return [sign * p[:, 0] for p in parts], 0
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)).fit(train, labels)
    return [model.predict_proba(p)[:, 1] for p in parts], train.shape[1] + 1


def bootstrap(y, columns, seed=0):
    "AUC of each column of scores in DRAWS test parts drawn with replacement, positives and negatives apart."
    g, found = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        i = np.concatenate([g.choice(np.flatnonzero(y == c), (y == c).sum()) for c in (0, 1)])
        found.append([roc_auc_score(y[i], c[i]) for c in columns])
    return np.array(found)


def main():
    simple, paired = [], []
    for name in ("adrenal", "vessel"):
        try:
            parts = volume_data(name, download=False)
        except FileNotFoundError:
            continue
        xs, ys = zip(*(p[torch.arange(len(p))] for p in parts[:3]), strict=True)
        ys, features = [y.numpy() for y in ys], [numbers(x[..., 0]) for x in xs]
        rows, tests = [], []
        for key in features[0]:
            found, fitted = scores(features[0][key].numpy(), ys[0], [f[key].numpy() for f in features])
            aucs = [roc_auc_score(y, s) for y, s in zip(ys, found, strict=True)]
            acc = f"{((found[2] > 0.5) == ys[2]).mean():.4f}" if fitted else ""
            split = dict(zip(("train", "val", "test"), zip(aucs, ys, strict=True), strict=True))
            rows.append({"data": name, "score": key, "fitted": fitted,
                         **{f"{p}_auc": f"{a:.4f}" for p, (a, _) in split.items()}, "test_acc": acc,
                         **{f"{p}_counts": "/".join(map(str, np.bincount(y)))
                            for p, (_, y) in split.items()}})
            tests.append(found[2])
        draws = bootstrap(ys[2], tests)
        for r, d in zip(rows, draws.T, strict=True):
            r["bootstrap_sd"] = f"{d.std(ddof=1):.4f}"
        simple += rows
        r = np.corrcoef(draws.T)
        paired += [{"data": name, "one": rows[i]["score"], "other": rows[j]["score"],
                    "correlation": f"{r[i, j]:.3f}"} for i in range(len(rows)) for j in range(i)]
    put(HERE / "volumes_simple.csv", simple, "data")
    put(HERE / "volumes_paired.csv", paired, "data")


if __name__ == "__main__":
    main()

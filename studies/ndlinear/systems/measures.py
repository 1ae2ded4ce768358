"""Errors and metrics of the systems, each a float."""
import torch
import torch.nn.functional as F


def accuracy(scores, y):
    return (scores.argmax(-1) == y).float().mean().item()


def balanced(scores, y):
    right = (scores.argmax(-1) == y).float()
    return torch.stack([right[y == c].mean() for c in y.unique()]).mean().item()


def macro_f1(scores, y):
    "Mean over the classes that occur of 2 TP / (2 TP + FP + FN)."
    said, found = scores.argmax(-1), []
    for c in y.unique():
        hit = ((said == c) & (y == c)).sum()
        found.append((2 * hit / ((said == c).sum() + (y == c).sum())).item())
    return sum(found) / len(found)


def auc(scores, y):
    "Area under the curve of the second of two classes; ties count half."
    s = (scores[:, 1] - scores[:, 0]).double()
    a, b = s[y == 1], s[y == 0]
    wins = (a[:, None] > b).double() + 0.5 * (a[:, None] == b).double()
    return wins.mean().item()


def in_parts(model, *inputs, batch=512):
    "Outputs of a model on many samples, a batch at a time."
    return torch.cat([model(*part) for part in zip(*(t.split(batch) for t in inputs), strict=True)])


def entropy(model, *batch):
    *x, y = batch
    return F.cross_entropy(model(*x), y)


def entropy_of_all(model, *part):
    *x, y = part
    return F.cross_entropy(in_parts(model, *x), y).item()


def frechet(a, b):
    "Fréchet distance of the normal distributions with the means and covariances of two sets of vectors."
    a, b = a.double(), b.double()
    ca, cb = a.T.cov(), b.T.cov()
    cross = torch.linalg.eigvals(ca @ cb).real.clip(0).sqrt().sum()
    return ((a.mean(0) - b.mean(0)).square().sum() + ca.trace() + cb.trace() - 2 * cross).item()

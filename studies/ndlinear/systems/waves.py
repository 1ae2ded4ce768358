"""Series that are classified by a Transformer, ragged ones with a mask."""
import torch
from torch import nn

from . import sources
from .blocks import blocks, masked_mean
from .layers import RIVALS, dense, models, size, thin
from .measures import accuracy, entropy, entropy_of_all, in_parts, macro_f1
from .system import System
from .training import Task


class Classifier(nn.Module):
    def __init__(self, linear, hidden, channels, length, classes, dim=32, depth=2):
        super().__init__()
        self.enter, self.place = nn.Linear(channels, dim), nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks, self.norm = blocks(linear, dim, hidden, depth, dropout=0.1), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x, mask):
        x = self.enter(x) + self.place
        for block in self.blocks:
            x = block(x, mask)
        return self.head(masked_mean(self.norm(x), mask))


_BUILDERS = {}


def builder(*sizes):
    "Two functions for each set of sizes, kept so that what is planned for them is planned once."
    return _BUILDERS.setdefault(sizes, (lambda linear, width: Classifier(linear, width, *sizes),
                                        lambda dim, hidden: Classifier(dense, hidden, *sizes, dim)))


def task(data, seed):
    "The published test part; the training part is split in 80 and 20 percent, of each class alike."
    found, classes, sha = sources.waves(data)
    x, mask, y = found["TRAIN"]
    a, b, _ = sources.split(y, seed, (0.8, 1.0))
    parts = (x[a], mask[a], y[a]), (x[b], mask[b], y[b]), found["TEST"]

    def report(model, x, mask, y):
        scores = in_parts(model, x, mask)
        return macro_f1(scores, y), accuracy(scores, y)
    build, thinner = builder(x.shape[2], x.shape[1], classes)
    make = models(build, 128)
    make["dense-thin"] = thin(thinner, size(make["nd"]))
    return Task(make, parts, entropy, entropy_of_all, report, sha)


SYSTEMS = [System("waves", ("JapaneseVowels", "BasicMotions"), task, "macro F1", "accuracy", True, cap=120, batch=32,
                  models=(*RIVALS, "dense-thin"))]

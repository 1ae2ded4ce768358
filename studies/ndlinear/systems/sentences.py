"""From which module of the standard library is this line? A convolution reads it, a head decides."""
import torch
from torch import nn

from . import sources
from .layers import models
from .measures import accuracy, entropy, entropy_of_all, in_parts, macro_f1
from .system import System
from .training import Task

LENGTH, DIM, CHANNELS, PLACES, HIDDEN = 64, 16, 32, 16, 256


class Reader(nn.Module):
    "Characters, two convolutions that halve the places, and a hidden layer over (channel, place)."
    def __init__(self, linear, width, modes):
        super().__init__()
        self.embed = nn.Embedding(sources.SYMBOLS, DIM)
        self.body = nn.Sequential(nn.Conv1d(DIM, CHANNELS, 5, 2, 2), nn.GELU(),
                                  nn.Conv1d(CHANNELS, CHANNELS, 5, 2, 2), nn.GELU())
        self.hidden = linear(CHANNELS * PLACES, width, *modes)
        self.head = nn.Sequential(nn.GELU(), nn.Dropout(0.1), nn.Linear(width, len(sources.ORIGINS)))

    def forward(self, x):
        return self.head(self.hidden(self.body(self.embed(x).mT).flatten(1)))


def build(linear, width):
    return Reader(linear, width, ((CHANNELS, PLACES), (16, 16)) if width == HIDDEN else (None, None))


def numbers(lines):
    "(n, LENGTH): the first characters of each line; spaces behind its end."
    rows = [sources.characters(line[:LENGTH].ljust(LENGTH)) for line in lines]
    return torch.stack(rows)


def task(data, seed):
    lines, y, sha = sources.lines()
    g, most = torch.Generator().manual_seed(seed), 700            # lines of each module
    keep = torch.cat([w[torch.randperm(len(w), generator=g)[:most]]
                      for w in ((y == c).nonzero().flatten() for c in range(len(sources.ORIGINS)))])
    x, y = numbers([lines[k] for k in keep.tolist()]), y[keep]

    def report(model, x, y):
        scores = in_parts(model, x)
        return accuracy(scores, y), macro_f1(scores, y)
    parts = tuple((x[p], y[p]) for p in sources.split(y, seed))
    return Task(models(build, HIDDEN), parts, entropy, entropy_of_all, report, sha)


SYSTEMS = [System("sentence", ("lines of modules",), task, "accuracy", "macro F1", True, cap=60)]

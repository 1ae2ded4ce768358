"""Two hidden layers on tables: classification and regression on the sets that scikit-learn ships."""
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hot_nbdev.replacing import nearest_square

from . import sources
from .layers import models
from .measures import accuracy, balanced, entropy, entropy_of_all
from .system import System
from .training import Task

HIDDEN = 256


def padded(columns):
    "The least number of columns that is a product of two factors at most 2 apart in ratio."
    n = columns
    while nearest_square(n)[1] > 2 * nearest_square(n)[0]:
        n += 1
    return n


@cache
def network(columns, outputs):
    def build(linear, width):
        return nn.Sequential(linear(columns, width), nn.GELU(), nn.Dropout(0.1),
                             linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, outputs))
    return build


def task(data, seed):
    x, y, classes, sha = sources.table(data)
    a, b, c = sources.split(y, seed)
    spread = x[a].std(0)        # a column of which the training part has one value is 0
    x = torch.where(spread > 1e-6, (x - x[a].mean(0)) / spread, 0.0)
    x = F.pad(x, (0, padded(x.shape[1]) - x.shape[1]))
    make = models(network(x.shape[1], classes or 1), HIDDEN)
    if classes:
        def report(model, x, y):
            return accuracy(model(x), y), balanced(model(x), y)
        parts = tuple((x[p], y[p]) for p in (a, b, c))
        return Task(make, parts, entropy, entropy_of_all, report, sha)
    y = (y - y[a].mean()) / y[a].std()

    def error(model, x, y):
        return F.mse_loss(model(x).squeeze(1), y)

    def report(model, x, y):
        return error(model, x, y).item(), F.l1_loss(model(x).squeeze(1), y).item()
    return Task(make, tuple((x[p], y[p]) for p in (a, b, c)), error, error, report, sha)


SYSTEMS = [System("table", ("breast cancer", "wine", "digits"), task, "accuracy", "balanced accuracy", True,
                  cap=300, batch=32),
           System("table-number", ("diabetes",), task, "MSE over variance", "MAE over deviation", False,
                  cap=300, batch=32)]

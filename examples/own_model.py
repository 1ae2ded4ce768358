"""A model and a loss of one's own in `fit`: stopped by a callback, and trained by SGD."""
import tempfile

import torch
from torch import nn
from torch.utils.data import TensorDataset

from hot_nbdev import FullAttention, TrainConfig, fit
from hot_nbdev.train.tasks import Task


class Largest(Task):
    "Which position holds the largest number?"
    name, criterion, best = "largest", "hits", "max"

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target, reduction="sum")

    def weight(self, target):
        return torch.tensor(float(len(target)))

    def collect(self, output, target):
        return (output.argmax(-1) == target).float()

    def metrics(self, found):
        return {"hits": torch.cat(found).mean().item()}


torch.manual_seed(0)
model = nn.Sequential(nn.Unflatten(-1, (6, 1)), nn.Linear(1, 16), FullAttention(16, 2, order=1), nn.Linear(16, 1),
                      nn.Flatten(-2))
x = torch.randn(320, 6)
data = TensorDataset(x, x.argmax(-1))
train, val = TensorDataset(*data[:256]), TensorDataset(*data[256:])
with tempfile.TemporaryDirectory() as folder:
    result = fit(model, train, val, Largest(), TrainConfig(epochs=8, rate=0.1), folder,
                 optimizer=lambda groups, config: torch.optim.SGD(groups, config.rate, momentum=0.9),
                 callbacks=[lambda epoch: epoch["hits"] > 0.9])     # true stops the run
print(f"{result.best['hits']:.0%} after {result.epochs} epochs, {result.stopped}")
assert result.best["hits"] > 0.5

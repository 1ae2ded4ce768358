"""Series of different lengths in one batch: the mask says what is there, and `fit` trains with it."""
import tempfile

import torch
from torch.utils.data import TensorDataset

from hot_nbdev import ClassifierConfig, HOTClassifier, TrainConfig, evaluate, fit
from hot_nbdev.train.tasks import Classification


def ragged(count, steps=12, channels=3):
    "Does the last step that is there have a positive mean? Behind it stands noise that must not count."
    x, length = torch.randn(count, steps, channels, 1), torch.randint(4, steps + 1, (count,))
    mask = (torch.arange(steps) < length[:, None])[..., None].expand(-1, -1, channels)
    y = (x[torch.arange(count), length - 1].mean((1, 2)) > 0).long()
    x[torch.arange(count), length - 1] += 2 * y[:, None, None].float() - 1     # makes it easier
    return TensorDataset(x.masked_fill(~mask[..., None], 100.0), mask.contiguous(), y)


torch.manual_seed(0)
train, val = ragged(256), ragged(64)
model = HOTClassifier(ClassifierConfig(patch=(1, 1), dim=16, depth=1, heads=2, classes=2))
with tempfile.TemporaryDirectory() as folder:
    result = fit(model, train, val, Classification(2), TrainConfig(epochs=4, rate=3e-3, batch_size=32), folder)
print(f"AUC {result.best['auc']:.3f} in epoch {result.best['epoch']} of {result.epochs}")
x, mask, _ = val[:8]
noise = torch.where(mask[..., None], x, torch.randn_like(x))
assert torch.equal(model.eval()(x, mask), model(noise, mask)), "what is masked must not count"
assert evaluate(model, val, Classification(2))["auc"] == result.best["auc"]

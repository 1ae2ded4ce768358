"""Tasks: losses that survive being cut in pieces, heads that all learn, MedMNIST's metrics."""
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")

from hot_nbdev.train.devices import make_accelerator  # noqa: E402
from hot_nbdev.train.loop import evaluate, train_step  # noqa: E402
from hot_nbdev.train.parts import Tensors  # noqa: E402
from hot_nbdev.train.tasks import Classification, Forecasting, auc_acc  # noqa: E402


class Heads(nn.Module):
    "A forecaster with a head for each horizon, and the contract of such models."
    def __init__(self, horizons=(2, 6)):
        super().__init__()
        self.config = SimpleNamespace(separate_heads=True, horizons=horizons)
        self.body = nn.Linear(4, 5)
        self.heads = nn.ModuleList(nn.Linear(5, h) for h in horizons)

    def forward(self, x, mask=None, horizon=None):
        x = self.body(x if mask is None else x * mask)
        every = {h: head(x) for h, head in zip(self.config.horizons, self.heads, strict=True)}
        return every if horizon == "all" else every[horizon or max(self.config.horizons)]


def heads():
    torch.manual_seed(0)
    return Heads()


def test_the_loss_of_separate_heads_is_the_mean_of_their_errors():
    model, x, y = heads(), torch.randn(3, 4), torch.randn(3, 6)
    task, mask = Forecasting(), torch.rand(3, 4) > 0.5
    for inputs in ([x], [x, mask]):
        each = model(*inputs, horizon="all")
        want = sum((each[h] - y[:, :h]).square().mean() for h in (2, 6)) / 2
        torch.testing.assert_close(task.loss(task.train_output(model, inputs), y) / task.weight(y), want)
    y = y[:, :4]                        # a target that is shorter than the longest horizon cuts its forecast
    want = ((each[2] - y[:, :2]).square().mean() + (each[6][:, :4] - y).square().mean()) / 2
    torch.testing.assert_close(task.loss(each, y) / task.weight(y), want)


def test_pieces_of_separate_heads_are_the_batch():
    task, x, y = Forecasting(), torch.randn(5, 4), torch.randn(5, 6)
    grads = []
    for sizes in ([5], [2, 3]):
        model, accelerator = heads(), make_accelerator(cpu=True)
        pieces = [(a, b, True) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
        optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), 1.0))
        train_step(model, optimizer, task, pieces, accelerator)
        grads.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*grads)


def test_a_short_target_is_judged_by_the_next_longer_head():
    model, x, y = heads(), torch.randn(3, 4), torch.randn(3, 6)
    for steps, head in ((1, 2), (3, 6)):
        found = evaluate(model, Tensors(x, y[:, :steps]), Forecasting())
        want = (model(x, horizon=head)[:, :steps] - y[:, :steps]).square().mean()
        assert found["mse"] == pytest.approx(want.item(), rel=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_auc_and_accuracy_are_those_of_medmnist(classes):
    evaluator = pytest.importorskip("medmnist.evaluator", reason='needs MedMNIST: pip install "hot_nbdev[medmnist]"',
                                    exc_type=(ImportError, OSError, RuntimeError, AttributeError))
    y = (torch.arange(50) % classes).numpy()
    p = torch.rand(50, classes, generator=torch.Generator().manual_seed(0)).double().softmax(-1).numpy()
    kind = "binary-class" if classes == 2 else "multi-class"
    assert auc_acc(y, p) == (evaluator.getAUC(y, p, kind), evaluator.getACC(y, p, kind))
    task, y, p = Classification(classes), torch.as_tensor(y), torch.as_tensor(p)
    some = y.where(torch.arange(50) < 40, -1)
    assert task.metrics([task.collect(p, some)]) == task.metrics([task.collect(p[:40], y[:40])])

"""24 steps of seven series in, 12 steps out: a recurrent network with a linear head, and a Transformer."""
import torch
import torch.nn.functional as F
from torch import nn

from . import sources
from .blocks import blocks
from .layers import RIVALS, dense, low_rank, models, nearest, plan, size, thin
from .measures import in_parts
from .system import System
from .training import Task

PAST, AHEAD, CHANNELS = 24, 12, 7
ENDS = (12 * 30 * 24, 16 * 30 * 24, 20 * 30 * 24)       # hours of training, validation and test
STEPS = {"ETTm1": 4}                                    # of an hour; else one


class Recurrent(nn.Module):
    "A recurrent network, and a head on its last states."
    def __init__(self, head, width, states):
        super().__init__()
        self.rnn, self.states, self.head = nn.RNN(CHANNELS, width, batch_first=True), states, head

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -self.states:].flatten(1)).unflatten(1, (AHEAD, CHANNELS))


def recurrent(linear, width, states=PAST):
    modes = ((PAST, width), (AHEAD, CHANNELS)) if states == PAST else (None, None)
    return Recurrent(linear(states * width, AHEAD * CHANNELS, *modes), width, states)


def recurrent_models(width=32):
    "The head is replaced. `last` is the dense head on the last state alone, which a recurrent network has anyway."
    make = {kind: plan(recurrent, kind, width) for kind in ("dense", "nd")}
    target = size(make["nd"])
    return make | {
        "last": lambda: recurrent(dense, width, 1),
        "dense-equal": nearest([lambda w=w: recurrent(dense, w, 1) for w in range(1, 65)], target),
        "low-rank": nearest([lambda w=w: recurrent(low_rank(max(1, w // 8)), w) for w in range(4, width + 1)], target),
        "kron": nearest([lambda: recurrent(_kron_head(1, 8), 8)], target,
                        [[lambda w=w, r=r: recurrent(_kron_head(r, w), w) for w in range(8, width + 1, 2)]
                         for r in (2, 3, 4)])}


def _kron_head(terms, width):
    "Three modes: the day in quarters, the hours within, the features."
    from .layers import KronSum
    return lambda D, H, d=None, h=None: KronSum((4, PAST // 4, width), (4, AHEAD // 4, CHANNELS), terms)


class Attending(nn.Module):
    "A Transformer over hours; the features of all hours give all forecasts."
    def __init__(self, linear, hidden, dim=32, depth=2):
        super().__init__()
        self.enter, self.place = nn.Linear(CHANNELS, dim), nn.Parameter(0.02 * torch.randn(PAST, dim))
        self.blocks, self.norm = blocks(linear, dim, hidden, depth), nn.LayerNorm(dim)
        self.head = nn.Linear(PAST * dim, AHEAD * CHANNELS)

    def forward(self, x):
        x = self.enter(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(1)).unflatten(1, (AHEAD, CHANNELS))


def attending(linear, width):
    return Attending(linear, width)


def thinner(dim, hidden):
    return Attending(dense, hidden, dim)


class Plain(nn.Module):
    "What needs no hidden layer: the last values again, the values of yesterday, or one linear map of hours for all."
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.map = nn.Linear(PAST, AHEAD) if how == "linear" else None

    def forward(self, x):
        if self.how == "linear":
            last = x[:, -1:]
            return self.map((x - last).mT).mT + last
        return x[:, -1:].expand(-1, AHEAD, -1) if self.how == "repeat" else x[:, -PAST:-PAST + AHEAD]


def windows(x, first, last):
    at = torch.arange(first, last - PAST - AHEAD + 1)[:, None]
    return x[at + torch.arange(PAST)], x[at + torch.arange(PAST, PAST + AHEAD)]


def error(model, x, y):
    return F.mse_loss(model(x), y)


def error_of_all(model, x, y):
    return F.mse_loss(in_parts(model, x), y).item()


def report(model, x, y):
    found = in_parts(model, x)
    return F.mse_loss(found, y).item(), F.l1_loss(found, y).item()


def _task(make, data):
    x, sha = sources.series(data)
    a, b, c = (min(end * STEPS.get(data, 1), len(x)) for end in ENDS)
    x = (x - x[:a].mean(0)) / x[:a].std(0)
    parts = windows(x, 0, a), windows(x, a - PAST, b), windows(x, b - PAST, c)
    return Task(make, parts, error, error_of_all, report, sha)


def rnn_task(data, seed):
    return _task(recurrent_models() | {how: (lambda how=how: Plain(how)) for how in PLAIN}, data)


def transformer_task(data, seed):
    make = models(attending, 128)
    return _task(make | {"dense-thin": thin(thinner, size(make["nd"]))}, data)


PLAIN = ("repeat", "yesterday", "linear")
SYSTEMS = [System("rnn", ("ETTh1",), rnn_task, "MSE", "MAE", False, cap=120,
                  models=(*RIVALS, "last", *PLAIN), untrained=("repeat", "yesterday")),
           System("transformer", ("ETTh1",), transformer_task, "MSE", "MAE", False, cap=60,
                  models=(*RIVALS, "dense-thin"))]

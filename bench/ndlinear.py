"""NdLinear timed against the published layer, its other rivals and its limit.

    python bench/ndlinear.py             seven shapes with all rivals, two hundred random ones; half an hour
    python bench/ndlinear.py --quick     a fifth of the rounds; some minutes

How times are taken: bench/timing.py. All times are divided by that of the published layer, the package
`ndlinear`, in the same round; it carries the same weights, and results are compared before anything is
timed. NdLinear is the layer as it comes. It chooses between two ways, which are timed as well: plain keeps
to the given sequence, at once takes the cheapest and adds all biases at the end. Besides the median of the
ratios stands the ratio of the least times, which other work disturbs least. einsum, TensorLy and, where it
is installed, FastKron carry one full bias in place of one for each mode. The dense layer is timed where its
weight has at most 2^24 entries. The limit is the time that the multiply-adds of the cheapest order would
take at the rate of a product of two 1024 x 1024 matrices: it cannot be reached. A backward pass is taken to
cost two forward passes. Random shapes have two to four modes (for one mode all rivals are nn.Linear), and no
tensor on the way has fewer than 500 or more than 1.5 million entries. Needs the published layer:
pip install "hot_nbdev[peers]"."""
import importlib.util
import random
import sys
from itertools import permutations
from math import exp, log, prod
from pathlib import Path
from statistics import geometric_mean, median

import tensorly
import torch
from tensorly.tenalg import multi_mode_dot
from timing import decimals, in_turns, options, over, passes, progress, spread, write
from torch import nn
from torch.testing import assert_close

from hot_nbdev.ndlinear import NdLinear, flops
from hot_nbdev.tensor import contraction_sequence

SHAPES = [  # batch, sizes before, sizes after
    (16, (28, 28, 28), (28, 28, 28)), (16, (32, 32, 32), (32, 32, 32)), (128, (96, 64), (96, 64)),
    (64, (64, 32, 3), (64, 32, 6)), (32, (32, 32, 64), (16, 16, 32)), (32, (7, 321), (24, 64)),
    (4, (16, 16, 16, 16), (16, 16, 16, 16)),
]
COUNT, FEWEST, MOST = 200, 500, 1_500_000
BARS = {"forward": 0.42, "train": 0.55}
WORST = 1.05
HEAD = ["shapes", "batch", "sizes", "out", "pass", "what", "over_published", "least", "most", "of_least",
        "over_limit"]


def published():
    "The published layer, or None. This file has its package's name: its folder must not be searched."
    path, here = sys.path, Path(__file__).resolve().parent
    sys.path = [p for p in path if Path(p).resolve() != here]
    try:
        from ndlinear import NdLinear as Published
    except ImportError:
        return None
    finally:
        sys.path = path
    return Published


def random_shapes(count, seed=0):
    "Shapes whose tensors, between the modes too, have FEWEST to MOST entries."
    rng, found = random.Random(seed), []

    def size(most):
        return round(exp(rng.uniform(0, log(most))))
    while len(found) < count:
        modes = rng.randint(2, 4)
        batch, sizes, out = size(128), *(tuple(1 + size(127) for _ in range(modes)) for _ in range(2))
        way = [batch * prod(out[:k] + sizes[k:]) for k in range(modes + 1)]
        if FEWEST <= min(way) and max(way) <= MOST:
            found.append((batch, sizes, out))
    return found


class Other(nn.Module):
    "Another way to multiply all modes by the weights of `layer`, and a full bias."
    def __init__(self, layer, multiply):
        super().__init__()
        self.weights = nn.ParameterList(W.detach().clone() for W in layer.weights)
        self.bias = nn.Parameter(layer(torch.zeros(layer.in_features)).detach())
        self.multiply = multiply

    def forward(self, x):
        return self.multiply(x, list(self.weights)) + self.bias


def einsum(x, weights):
    "Letters a, b, … are the modes before; A, B, … those after; z is the batch."
    before, after = "abcdefgh"[:len(weights)], "ABCDEFGH"[:len(weights)]
    pairs = ",".join(f"{h}{d}" for d, h in zip(before, after, strict=True))
    return torch.einsum(f"z{before},{pairs}->z{after}", x, *weights)


def through_tensorly(x, weights):
    return multi_mode_dot(x, weights, range(1, x.ndim))


def through_fastkron(x, weights):
    from pyfastkron import fastkrontorch
    y = fastkrontorch.gemkm(x.flatten(1), [W.mT.contiguous() for W in weights])
    return y.reshape(len(x), *(len(W) for W in weights))


def rivals(Published, sizes, out, all_of_them):
    "What is timed, by name; the published layer first."
    theirs, ours = Published(input_dims=sizes, hidden_size=out), NdLinear(sizes, out)
    plain, at_once = NdLinear(sizes, out), NdLinear(sizes, out)
    plain.way = plain.sequence, True
    at_once.way = tuple(contraction_sequence(sizes, out)), False
    with torch.no_grad():
        for layer, W, b in zip(theirs.align_layers, ours.weights, ours.biases, strict=True):
            nn.init.uniform_(b)
            layer.weight.copy_(W)
            layer.bias.copy_(b)
    plain.load_state_dict(ours.state_dict())
    at_once.load_state_dict(ours.state_dict())
    found = {"published": theirs, "NdLinear": ours, "plain": plain, "at once": at_once}
    if importlib.util.find_spec("pyfastkron"):
        found["FastKron"] = Other(ours, through_fastkron)
    if all_of_them:
        found |= {"einsum": Other(ours, einsum), "TensorLy": Other(ours, through_tensorly)}
        if prod(sizes) * prod(out) <= 2 ** 24:
            found["dense"] = nn.Sequential(nn.Flatten(), ours.to_linear(), nn.Unflatten(1, out))
    return found


def measure(Published, batch, sizes, out, training, all_of_them, args):
    "For each rival: ratios to the published layer, median, least and most; of the least times; to the limit."
    x = torch.randn(batch, *sizes, device=args.device)
    found = {name: f.to(args.device) for name, f in rivals(Published, sizes, out, all_of_them).items()}
    with torch.no_grad():
        for f in found.values():
            assert_close(f(x), found["published"](x), rtol=1e-3, atol=1e-4)
    times = in_turns({name: passes(f, x, training) for name, f in found.items()}, args)
    fewest = min(flops(sizes, out, order, batch) for order in permutations(range(len(sizes)))) / 2
    fewest *= 3 if training else 1                                          # a backward pass counts twice
    return {name: [*spread(over(times[name], times["published"])), min(times[name]) / min(times["published"]),
                   median(over(times[name], times["second"], fewest))] for name in found}


def report(kind, name, numbers):
    "The bars, over all random shapes."
    for what, ratios in zip(("medians", "of least times"), zip(*numbers, strict=True), strict=True):
        mean, worst, bar = geometric_mean(ratios), max(ratios), BARS[kind]
        print(f"{name:>8} {kind:>8} {what:>14}: geometric mean {mean:.3f} (bar {bar}), worst {worst:.2f} "
              f"(bar {WORST}), {sum(r > WORST for r in ratios)} of {len(ratios)} above: "
              f"{'met' if mean <= bar and worst <= WORST else 'MISSED'}")


def rows(Published, ours, args):
    "Those of all shapes; the ratios of random ones are kept in `ours`."
    todo = [("named", *s) for s in SHAPES] + [("random", *s) for s in random_shapes(args.random)]
    for i, (group, batch, sizes, out) in enumerate(todo):
        before, after = ("x".join(map(str, s)) for s in (sizes, out))
        for kind in BARS:
            progress(f"{i + 1} of {len(todo)}")
            found = measure(Published, batch, sizes, out, kind == "train", group == "named", args)
            for name, numbers in found.items():
                yield [group, batch, before, after, kind, name, *decimals(numbers)]
                if group == "random" and (kind, name) in ours:
                    ours[kind, name].append((numbers[0], numbers[3]))


def main():
    args = options(__doc__, "ndlinear", rounds=100, least=0.002, random=(COUNT, "how many random shapes"))
    Published = published()
    if Published is None:
        print("the published layer is not installed, so there is nothing to compare with: "
              "pip install \"hot_nbdev[peers]\"")
        return
    ours = {(kind, name): [] for kind in BARS for name in ("NdLinear", "FastKron")}
    write(args, HEAD, rows(Published, ours, args))
    for (kind, name), numbers in ours.items():
        if numbers:
            report(kind, name, numbers)


if __name__ == "__main__":
    with tensorly.backend_context("pytorch"):
        main()

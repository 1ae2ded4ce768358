"""Attention layers timed against their floor, their limit and their rivals.

    python bench/attention.py            all shapes; some minutes on two cores
    python bench/attention.py --quick    few rounds, for a first look

How times are taken: bench/timing.py. The floor of a layer is its two D x D projections, values and results;
times are divided by that of the floor in the same round. The limit is the time that the layer's
multiply-adds would take at the rate of a product of two 1024 x 1024 matrices, timed in every round as well:
it cannot be reached. A backward pass is taken to cost two forward passes. Peak is over the bytes of the
input. No layer has a norm on queries and keys; what it costs the product, bench/parts.py tells.

The peer `axial-attention` is timed where it is installed: pip install "hot_nbdev[peers]".
"""
from math import prod
from statistics import median

import torch
from timing import decimals, in_turns, options, over, passes, progress, spread, wait, write
from torch import nn

from hot_nbdev.attention import FullAttention
from hot_nbdev.axial import AxialAttention
from hot_nbdev.cost import cost, count
from hot_nbdev.kronecker_attention import KroneckerAttention, mean

SHAPES = [  # batch, sizes, dim
    (8, (7, 7, 7), 128), (2, (14, 14, 14), 128), (1, (28, 28, 28), 64),
    (4, (321, 24), 128), (16, (21, 24), 128), (2, (66, 66), 128),
]
HEADS = 8
HEAD = ["batch", "sizes", "dim", "pass", "what", "over_floor", "least", "most", "over_limit", "counted",
        "peak"]


def peers(dim, order):
    "Layers of other packages, by name."
    try:
        from axial_attention import AxialAttention as Peer
    except ImportError:
        return {}
    return {"axial-attention": Peer(dim, num_dimensions=order, heads=HEADS, dim_index=-1)}


def rivals(sizes, dim):
    "What is timed: name, module, multiply-adds for one sample (None where no formula is at hand)."
    k, n = len(sizes), prod(sizes)
    layers = {
        "product": KroneckerAttention(dim, HEADS, k, norm=nn.Identity),
        "sum": KroneckerAttention(dim, HEADS, k, combine=mean, norm=nn.Identity),
        "full": FullAttention(dim, HEADS, k), "axial": AxialAttention(dim, HEADS, k),
    }
    floor = nn.Sequential(nn.Linear(dim, dim), nn.Linear(dim, dim))
    found = [("floor", floor, 2 * n * dim ** 2)]
    found += [(name, layer, cost(layer, sizes).multiply_adds) for name, layer in layers.items()]
    return found + [(name, layer, None) for name, layer in peers(dim, k).items()]


def peak(call, x, device):
    "Most bytes alive during a call, over the bytes of its input."
    if device.type != "cuda":
        most = count(call).peak
    else:
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        wait(device)
        most = torch.cuda.max_memory_allocated(device) - before
    return most / (x.numel() * x.element_size())


def measure(batch, sizes, dim, training, args):
    "Rows for one shape and one kind of pass."
    x = torch.randn(batch, *sizes, dim, device=args.device)
    found = rivals(sizes, dim)
    run = {name: passes(module.to(args.device), x, training) for name, module, _ in found}
    times = in_turns(run, args)
    (_, _, base), *_ = found
    runs = 3 if training else 1                                            # a backward pass counts twice
    for name, _, counted in found:
        limit = median(over(times[name], times["second"], runs * batch * counted)) if counted else None
        yield [batch, "x".join(map(str, sizes)), dim, "train" if training else "forward", name,
               *decimals([*spread(over(times[name], times["floor"])), limit, counted and counted / base,
                          peak(run[name], x, args.device)])]


def rows(args):
    for batch, sizes, dim in SHAPES:
        for training in (False, True):
            progress(f"{batch} x {sizes}")
            yield from measure(batch, sizes, dim, training, args)


def main():
    args = options(__doc__, "attention", rounds=25, least=0.01)
    if not peers(16, 1):
        print("axial-attention is not installed: left out (pip install \"hot_nbdev[peers]\")")
    write(args, HEAD, rows(args))


if __name__ == "__main__":
    main()

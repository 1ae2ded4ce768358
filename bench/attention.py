"""Attention layers timed against their floor, their limit and their rivals.

    python bench/attention.py            all shapes; some minutes on two cores
    python bench/attention.py --quick    few rounds, for a first look

Everything is timed in turns within one process: in every round each rival runs once (several calls where
one is short; in five rounds only where one takes long), and its time is divided by that of the floor in the
same round. Reported are the median of these ratios and their spread. The floor of a layer is its two D x D
projections, values and results. The limit is the time that the layer's multiply-adds would take at the rate
of a product of two 1024 x 1024 matrices, timed in every round as well: it cannot be reached. A backward pass
is taken to cost two forward passes. Peak is over the bytes of the input. Ratios carry over from machine to
machine better than times, but not all the way.

The peer `axial-attention` is timed where it is installed: pip install "hot_nbdev[peers]".
"""
import argparse
import csv
import os
import sys
import time
from math import prod
from pathlib import Path
from statistics import median

import torch
from torch import nn

from hot_nbdev.attention import AxialAttention, FullAttention, KroneckerAttention
from hot_nbdev.cost import attention_cost, peak_memory

SHAPES = [  # batch, sizes, dim
    (8, (7, 7, 7), 128), (2, (14, 14, 14), 128), (1, (28, 28, 28), 64),
    (4, (321, 24), 128), (16, (21, 24), 128), (2, (66, 66), 128),
]
HEADS = 8
HEAD = ["batch", "sizes", "dim", "pass", "what", "over_floor", "least", "most", "over_limit", "counted",
        "peak", "rounds", "hardware", "torch"]


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
        "product": KroneckerAttention(dim, HEADS, k), "sum": KroneckerAttention(dim, HEADS, k, combine="sum"),
        "full": FullAttention(dim, HEADS, k), "axial": AxialAttention(dim, HEADS, k),
    }
    floor = nn.Sequential(nn.Linear(dim, dim), nn.Linear(dim, dim))
    found = [("floor", floor, 2 * n * dim ** 2)]
    found += [(name, layer, attention_cost(layer, sizes).multiply_adds) for name, layer in layers.items()]
    return found + [(name, layer, None) for name, layer in peers(dim, k).items()]


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(call, times, device):
    "Seconds of one call, as the mean over `times` calls in a row."
    wait(device)
    start = time.perf_counter()
    for _ in range(times):
        call()
    wait(device)
    return (time.perf_counter() - start) / times


def calls(module, x, training):
    "A function without arguments that runs the module once, forward or forward and backward."
    module.requires_grad_(training)
    if not training:
        @torch.inference_mode()
        def forward():
            return module(x)
        return forward
    x, g = x.clone().requires_grad_(), torch.randn_like(x)

    def train():
        module.zero_grad(set_to_none=True)
        x.grad = None
        module(x).backward(g)
    return train


def peak(call, x, device):
    "Most bytes alive during a call, over the bytes of its input."
    if device.type != "cuda":
        most = peak_memory(call).peak
    else:
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        wait(device)
        most = torch.cuda.max_memory_allocated(device) - before
    return most / (x.numel() * x.element_size())


def measure(batch, sizes, dim, training, rounds, least, device):
    "Rows for one shape and one kind of pass."
    x, a = torch.randn(batch, *sizes, dim, device=device), torch.randn(1024, 1024, device=device)
    slow, lanes = {}, [("matrix", lambda: a @ a, 1024 ** 3 / batch, 1)]
    lanes[0][1]()
    for name, module, counted in rivals(sizes, dim):
        call = calls(module.to(device), x, training)
        call()                                                              # warm up
        once = timed(call, 1, device)
        lanes.append((name, call, counted, max(1, int(least / once))))
        slow[name] = once > 0.2
    times = {name: [] for name, *_ in lanes}
    for turn in range(rounds):
        for name, call, _, repeat in lanes:
            if turn < 5 or not slow.get(name):
                times[name].append(timed(call, repeat, device))
    (_, _, square, _), (_, _, base, _), *_ = lanes
    factor = 3 if training else 1                                           # a backward pass counts twice
    for name, call, counted, _ in lanes[1:]:
        turns = list(zip(times[name], times["floor"], times["matrix"], strict=False))
        ratios = [t / f for t, f, _ in turns]
        limit = [t / m * square / (factor * counted) for t, _, m in turns] if counted else None
        yield [batch, "x".join(map(str, sizes)), dim, "train" if training else "forward", name,
               f"{median(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
               f"{median(limit):.2f}" if limit else "", f"{counted / base:.2f}" if counted else "",
               f"{peak(call, x, device):.2f}"]


def hardware(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {torch.backends.cpu.get_cpu_capability()} {torch.get_num_threads()} threads"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default=Path(__file__).parents[1] / "results" / "bench_attention.csv",
                        type=Path)
    parser.add_argument("--threads", type=int, help="threads of the CPU; default: PyTorch's choice")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    device, rounds, least = torch.device(args.device), 5 if args.quick else 25, 0.002 if args.quick else 0.01
    torch.manual_seed(0)
    if not peers(16, 1):
        print("axial-attention is not installed: left out (pip install \"hot_nbdev[peers]\")")
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 1:
        print(f"this machine has other work to do (load {os.getloadavg()[0]:.1f}): expect a wide spread")
    print(f"{'shape':>18} {'pass':>8} {'what':>16} {'x floor':>8} {'least':>6} {'most':>6} {'x limit':>8} "
          f"{'counted':>8} {'peak':>6}")
    rows, about = [], [rounds, hardware(device), torch.__version__.split("+")[0]]
    for batch, sizes, dim in SHAPES:
        for training in (False, True):
            print(f"\r{batch} x {sizes} …", end="\r", file=sys.stderr, flush=True)
            for row in measure(batch, sizes, dim, training, rounds, least, device):
                rows.append([*row, *about])
                shape, (_, _, _, kind, what, *numbers) = f"{batch}x({row[1]})x{dim}", row
                print(f"{shape:>18} {kind:>8} {what:>16} " + " ".join(
                    f"{v:>{w}}" for v, w in zip(numbers, (8, 6, 6, 8, 8, 6), strict=True)), flush=True)
    args.out.parent.mkdir(exist_ok=True)
    with args.out.open("w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([HEAD, *rows])
    print(f"written: {args.out.name}")


if __name__ == "__main__":
    main()

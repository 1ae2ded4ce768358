"""What the benchmarks share: timing in turns, the rate of a matrix product, the command line, the rows.

Everything is timed in turns within one process: in every round each rival runs once, several calls where
one is short, in an order that is drawn anew; after five rounds those that have had a second drop out.
Ratios are taken within a round, so that what else the machine does falls on both sides; reported are their
median and their spread. On one thread of the CPU the seconds are those of the processor, so that time taken
away by other work does not count. Ratios carry over from machine to machine better than times, but not all
the way.
"""
import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from hot_nbdev.train.results import check_results, library_commit, processor, write_csv

RESULTS = Path(__file__).with_name("rows")
SQUARE = 1024


def seconds(
    call: Callable,             # is called without arguments
    times: int,                 # calls in a row
    device: torch.device,       # on which it computes
) -> float:                     # mean over the calls
    "Seconds of one call."
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    wait(device)
    start = clock()
    for _ in range(times):
        call()
    wait(device)
    return (clock() - start) / times


def passes(
    f: Callable,        # a module, or a function of x
    x: Tensor,          # input
    train: bool,        # forward and backward, or forward alone?
) -> Callable:          # without arguments
    "A function that runs one pass."
    weights = list(f.parameters()) if isinstance(f, nn.Module) else []
    if not train:
        @torch.inference_mode()
        def forward():
            return f(x)
        return forward
    x = x.clone().requires_grad_()
    g = torch.ones_like(f(x))

    def step():
        for t in (x, *weights):
            t.grad = None
        f(x).backward(g)
    return step


def wait(device):
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def in_turns(rivals, args):
    """Seconds of each rival in each round, by name; besides "second": those of one multiply-add, as the
    product of two square matrices has them, which is the limit of what can be reached.
    """
    a = torch.randn(SQUARE, SQUARE, device=args.device, dtype=getattr(args, "dtype", None))
    rivals = {"second": lambda: a @ a, **rivals}
    repeat, times = {}, {name: [] for name in rivals}
    for name, call in rivals.items():
        call()                                                              # warm up
        repeat[name] = max(1, int(args.least / seconds(call, 1, args.device)))
    names, order = list(rivals), random.Random(0)
    for turn in range(args.rounds):
        order.shuffle(names)                    # what ran before leaves its traces in memory
        for name in names:
            if turn < 5 or sum(times[name]) * repeat[name] < 1:
                times[name].append(seconds(rivals[name], repeat[name], args.device))
    times["second"] = [t / SQUARE ** 3 for t in times["second"]]
    return times


def over(times, base, scale=1):
    "Ratios of the times of two rivals, round by round."
    return [t / (b * scale) for t, b in zip(times, base, strict=False)]


def spread(ratios):
    "Median, least and most."
    return [median(ratios), min(ratios), max(ratios)]


def options(doc, name, rounds, least, **more):
    """The command line: args with device, rounds, least, out and about (for each row); `more` are further numbers.

    A turn takes about `least` seconds where calls are shorter. Many short turns are steadier than few long
    ones where other work interrupts: most turns then pass without.
    """
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds; nothing is written but into a file of --out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=torch.device)
    parser.add_argument("--out", type=Path, help=f"file of the rows; default: bench/rows/bench_{name}.csv")
    parser.add_argument("--threads", type=int, help="threads of the CPU; default: PyTorch's choice")
    for flag, (default, what) in more.items():
        parser.add_argument(f"--{flag}", type=int, default=default, help=f"{what} (default: %(default)s)")
    args = parser.parse_args()
    args.out = args.out or (None if args.quick else RESULTS / f"bench_{name}.csv")
    if args.out:
        check_results(args.out)
    if args.threads:
        torch.set_num_threads(args.threads)
    args.rounds, args.least = max(5, rounds // 5) if args.quick else rounds, least
    args.about = [args.rounds, hardware(args.device), torch.__version__.split("+")[0], processor(),
                  torch.get_num_threads(), library_commit()]
    torch.manual_seed(0)
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 1:
        print(f"this machine has other work to do (load {os.getloadavg()[0]:.1f}): expect a wide spread")
    return args


ABOUT = ["rounds", "hardware", "torch", "processor", "threads", "commit"]     # the columns of args.about


def hardware(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {torch.backends.cpu.get_cpu_capability()} {torch.get_num_threads()} threads"


def decimals(numbers):
    "To be written: two places, nothing for None."
    return ["" if v is None else f"{v:.2f}" for v in numbers]


def progress(text):
    print(f"\r{text} …\033[K", end="\r", file=sys.stderr, flush=True)


def write(args, head, rows):
    "Print each row when it is there; in the end write all of them, with what is the same in all, if there is a file."
    kept = []
    print(*head, sep="  ")
    for row in rows:
        print(*(f"{v:>{len(name)}}" for name, v in zip(head, row, strict=True)), sep="  ", flush=True)
        kept.append(dict(zip([*head, *ABOUT], [*row, *args.about], strict=True)))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_csv(args.out, [*head, *ABOUT], kept)
        print(f"written: {args.out.name}")

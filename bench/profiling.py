"""Kronecker attention timed on a shape and a machine of your own, beside its floor, its limit and its rivals.

    python bench/profiling.py --sizes 14 14 14 --batch 2                     forward pass, all rivals
    python bench/profiling.py --sizes 321 24 --batch 4 --train --threads 1
    python bench/profiling.py --sizes 28 28 28 --dim 64 --compile --out mine.csv

The floor is two D x D projections, which every attention contains; the limit is the time that the multiply-adds
would take at the rate of a product of two square matrices. All are timed in turns, in an order that is drawn anew
in each round; ratios are taken within a round. The layer has its norm, as where nothing is said. Its ways to apply
the maps ("plans") stand beside one another. Rows of --out are added to a file that is there, so several shapes, or
several machines, can stand in one table.
"""
import argparse
import copy
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from timing import SQUARE, passes, seconds
from torch import Tensor, nn

from hot_nbdev.attention import FullAttention, softmax_map, split
from hot_nbdev.axial import AxialAttention
from hot_nbdev.cost import cost
from hot_nbdev.kronecker_attention import KroneckerAttention, along, mean, product
from hot_nbdev.train.results import Table, append_row, processor


class Absent(Exception):
    "Why a rival cannot run here."


def einsum(maps: Sequence, v: Tensor, causal: Sequence[int] = (), multiply: Callable = along) -> Tensor:
    "A `combine` for Kronecker attention without causal modes: one `torch.einsum` for each mode."
    modes = "abcdefgijklm"[:len(maps)]
    for S, n in zip(maps, modes, strict=True):
        v = torch.einsum(f"zhX{n},zh{modes}f->zh{modes.replace(n, 'X')}f", S, v)
    return v


def in_place(maps: Sequence, v: Tensor, causal: Sequence[int] = (), multiply: Callable = along) -> Tensor:
    "A `combine` for Kronecker attention without causal modes: the modes are multiplied where they stand."
    for m, S in enumerate(maps):
        v = multiply(S, v, m, ())
    return v


def planned(layer: nn.Module, combine: Callable) -> nn.Module:
    "The same layer, weights included, with its maps applied in another way."
    other = copy.copy(layer)
    other.combine = combine
    return other


def is_plain(layer: nn.Module) -> bool:
    "Has it a softmax map for each mode, of which the layer takes the product?"
    return not layer.causal and layer.combine is product and layer.weigh is softmax_map


def plan_taken(layer: nn.Module, train: bool) -> str:
    "By which of its two ways a KroneckerAttention applies its maps: 'turned' or 'in place'."
    plain = layer.combine is product and layer.weigh is softmax_map and len(layer.causal) < 2
    return "turned" if plain and not train else "in place"


def _heads(f: Callable, heads: int, flat: bool) -> Callable:
    "A kernel of (q, k, v) as a function of x, which is all three: (B, heads, n, d), or (B, n1, …, nk, heads, d)."
    def run(x):
        t = split(x, heads).flatten(2, -2) if flat else x.unflatten(-1, (heads, -1))
        return f(t, t, t)
    return run


def _flex(train: bool, device: torch.device, compiled: bool) -> Callable:
    from torch.nn.attention.flex_attention import flex_attention
    if train and device.type == "cpu":
        raise Absent("no backward pass on a CPU")
    if not compiled:
        raise Absent("needs --compile: eager it would form all scores")
    return torch.compile(flex_attention)


def _peer(name: str, sizes: Sequence[int], dim: int, heads: int) -> Callable:
    "A layer or kernel of another package."
    k = len(sizes)
    try:
        if name == "axial-attention":
            from axial_attention import AxialAttention as Peer
            return Peer(dim, num_dimensions=k, heads=heads, dim_index=-1)
        if name == "NATTEN":
            import natten
            if k > 3:
                raise Absent("has one to three modes")
            window = tuple(min(7, n - 1 + n % 2) for n in sizes)
            attend = getattr(natten, f"na{k}d")
            return _heads(lambda q, k, v: attend(q, k, v, kernel_size=window), heads, flat=False)
        from pyfastkron import fastkrontorch
        maps = [torch.rand(n, n).softmax(0) for n in sizes]
        return lambda x: fastkrontorch.gemkm(x.flatten(1, -2).mT.flatten(0, 1), [S.to(x) for S in maps])
    except ImportError:
        raise Absent("not installed") from None


def rivals(
    layer: nn.Module,       # a KroneckerAttention
    sizes: Sequence[int],   # (n1, …, nk)
    train: bool = False,    # with a backward pass?
    compiled: bool = False, # compiled ones too?
    device: torch.device | str = "cpu",
) -> dict:                  # name -> (function that makes it, or raises `Absent`; multiply-adds of a sample or None)
    "What is timed beside the layer, made when its turn comes."
    device, dim, heads, k, n = torch.device(device), layer.dim, layer.heads, len(sizes), prod(sizes)
    own = cost(layer, sizes).multiply_adds
    found = {"floor": (lambda: nn.Sequential(nn.Linear(dim, dim), nn.Linear(dim, dim)), 2 * n * dim ** 2),
             "Kronecker attention": (lambda: layer, own)}
    if compiled:
        found["Kronecker attention, compiled"] = (lambda: torch.compile(layer), own)
    if is_plain(layer):
        if not train:
            found |= {"plan: turned": (lambda: layer, own), "plan: in place": (lambda: planned(layer, in_place), own)}
        found["plan: einsum"] = (lambda: planned(layer, einsum), own)
    others = {"sum": KroneckerAttention(dim, heads, k, combine=mean), "full": FullAttention(dim, heads, k),
              "axial": AxialAttention(dim, heads, k)}
    for name, other in others.items():
        found[name] = ((lambda other=other: other), cost(other, sizes).multiply_adds)
    kernel = 2 * n * n * dim
    found["SDPA, flattened"] = (lambda: _heads(F.scaled_dot_product_attention, heads, flat=True), kernel)
    found["FlexAttention"] = (lambda: _heads(_flex(train, device, compiled), heads, flat=True), kernel)
    for name in ("axial-attention", "NATTEN", "FastKron"):
        found[name] = ((lambda name=name: _peer(name, sizes, dim, heads)), None)
    return found


@dataclass
class Profile:
    "What was measured: times of each round by name, and why others have none."
    times: dict                                     # name -> seconds of a call, a number for each round
    work: dict                                      # name -> multiply-adds of a call, where they are known
    absent: dict = field(default_factory=dict)      # name -> why it was not timed
    about: dict = field(default_factory=dict)       # columns that are the same in all rows
    taken: str = ""                                 # the plan that the layer takes
    stopped: bool = False                           # was it interrupted?

    def rows(self) -> list:
        "A dict for each rival: seconds, ratio to the floor with spread, share of the limit, multiply-adds, a note."
        found, base = [], self.times.get("floor", [])
        for name, times in self.times.items():
            ratios = [t / b for t, b in zip(times, base, strict=False)] or [0.0]
            pairs = zip(self.times["square"], times, strict=False) if name in self.work else []
            bound = [s * self.work[name] / t for s, t in pairs]
            found.append({"what": name, "seconds": median(times) if times else None, "over_floor": median(ratios),
                          "least": min(ratios), "most": max(ratios), "share_of_limit": median(bound) if bound else None,
                          "multiply_adds": self.work.get(name), "rounds": len(times),
                          "note": "what the layer does" if name == f"plan: {self.taken}" else "", **self.about})
        empty = dict.fromkeys(found[0], None) if found else {}
        found = [row for row in found if row["what"] != "square" and row["rounds"]]
        absent = [{"what": name, "rounds": 0, "note": why} for name, why in self.absent.items()]
        return found + [{**empty, **row, **self.about} for row in absent]

    def table(self) -> Table:
        "The same to be read."
        return Table([{"what": r["what"], "ms": r["seconds"] and 1e3 * r["seconds"], "x floor": r["over_floor"],
                       "least": r["least"], "most": r["most"],
                       "% of limit": r.get("share_of_limit") and 100 * r["share_of_limit"],
                       "": r["note"]} for r in self.rows()], 2)


def _ready(name: str, make: Callable, x: Tensor, train: bool) -> Callable:
    "A rival on the device, warmed up; or `Absent` with the reason."
    try:
        made = make()
        made = made.to(x.device, x.dtype) if isinstance(made, nn.Module) else made
        call = passes(made, x, train)
        call()
        return call
    except Absent:
        raise
    except Exception as e:      # whatever a package raises: the others go on
        text = str(e).strip().splitlines() or [""]
        raise Absent(f"failed: {type(e).__name__}: {text[0][:80]}") from None


def _prepare(found: dict, x: Tensor, train: bool, most: float, tell: Callable) -> tuple:
    "Calls by name, their multiply-adds, and why others are absent."
    a = torch.randn(SQUARE, SQUARE, device=x.device, dtype=x.dtype)
    with torch.inference_mode():
        a @ a
        second = seconds(lambda: a @ a, 1, x.device) / SQUARE ** 3
    calls, work, absent = {"square": lambda: a @ a}, {}, {}
    for name, (make, count) in found.items():
        tell(f"{name}: warms up")
        total = None if count is None else count * len(x) * (3 if train else 1)
        try:
            if total is not None and total * second > most:
                raise Absent(f"left out: a call takes {total * second:.0f} s or more")
            calls[name] = _ready(name, make, x, train)
        except Absent as e:
            absent[name] = str(e)
            continue
        if total is not None:
            work[name] = total
    return calls, work, absent


def _in_turns(names: list, rounds: int) -> Iterator:
    "Rounds and names. Each round but the first has an order of its own: what ran before leaves its traces in memory."
    for turn in range(rounds):
        order = random.Random(turn).sample(names, len(names)) if turn else names
        yield from ((turn, name) for name in order)


def profile(
    sizes: Sequence[int],                   # (n1, …, nk)
    dim: int = 128,                         # size of the feature mode
    heads: int = 8,                         # number of heads; divides dim
    batch: int = 1,                         # samples
    *,
    layer: nn.Module | None = None,         # a KroneckerAttention; default: one with its defaults
    train: bool = False,                    # time a training step in place of a forward pass?
    compile: bool = False,                  # compiled ones too? the first call takes seconds
    repeats: int = 15,                      # rounds
    least: float = 0.01,                    # seconds of a turn, at least
    most: float = 2.0,                      # seconds of a call, at most
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    tell: Callable = lambda text: None,     # is told what is going on
) -> Profile:
    "Time Kronecker attention on one shape beside its floor, its limit and its rivals."
    device, sizes = torch.device(device), tuple(sizes)
    if len(sizes) < 1 or min(*sizes, batch, repeats, 1) < 1:
        raise ValueError(f"profile: sizes {sizes}, batch {batch} and repeats {repeats} must be whole numbers of at "
                         "least 1")
    layer = KroneckerAttention(dim, heads, len(sizes)) if layer is None else layer
    layer, x = layer.to(device, dtype), torch.randn(batch, *sizes, layer.dim, device=device, dtype=dtype)
    found = Profile({}, {}, taken=plan_taken(layer, train))
    found.about = {"sizes": "x".join(map(str, sizes)), "dim": layer.dim, "heads": layer.heads, "batch": batch,
                   "pass": "train" if train else "forward", "dtype": str(dtype).removeprefix("torch."),
                   "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
                   "threads": torch.get_num_threads(), "torch": torch.__version__}
    try:
        calls, work, found.absent = _prepare(rivals(layer, sizes, train, compile, device), x, train, most, tell)
        repeat = {name: max(1, int(least / max(seconds(call, 1, device), 1e-7))) for name, call in calls.items()}
        found.times, found.work = {name: [] for name in calls}, {"square": SQUARE ** 3, **work}
        for turn, name in _in_turns(list(calls), repeats):
            tell(f"round {turn + 1} of {repeats}: {name}")
            found.times[name].append(seconds(calls[name], repeat[name], device))
    except KeyboardInterrupt:
        found.stopped = True
    found.times["square"] = [t / SQUARE ** 3 for t in found.times.get("square", [])]
    return found


def _options(argv: Sequence[str] | None) -> tuple:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--sizes", type=int, nargs="+", required=True, metavar="N", help="size of each mode")
    for name, default, what in (("dim", 128, "features"), ("heads", 8, "heads; divides dim"), ("batch", 1, "samples"),
                                ("repeats", 15, "rounds")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of the CPU; default: PyTorch's choice")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16", "float16"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="default: %(default)s")
    parser.add_argument("--train", action="store_true", help="time forward and backward")
    parser.add_argument("--compile", action="store_true", help="compiled ones too; needs a C++ compiler")
    parser.add_argument("--most", type=float, default=2.0, metavar="SECONDS", help="leave out what takes longer a call")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add the rows to a CSV file")
    return parser, vars(parser.parse_args(argv))


def main(argv: Sequence[str] | None = None) -> None:
    parser, given = _options(argv)
    threads, out, before = given.pop("threads"), given.pop("out"), torch.get_num_threads()

    def tell(text):
        print(f"\r{text} …\033[K", end="\r", file=sys.stderr, flush=True)
    try:
        if threads is not None:
            if threads < 1:
                raise ValueError(f"threads is {threads}; give 1 or more")
            torch.set_num_threads(threads)
        given["dtype"] = getattr(torch, given["dtype"])
        found = profile(**given, tell=tell)
        about = found.about
        print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(f"{about['processor']}, {about['threads']} threads, torch {about['torch']}, {about['dtype']}: "
              f"{about['batch']} x ({about['sizes']}) x {about['dim']}, {about['heads']} heads, {about['pass']}\n")
        print(repr(found.table()) if found.rows() else "nothing was measured")
        print(f"\nthe layer applies its maps {found.taken}" if "turned" in found.taken else
              "\nthe layer multiplies its modes in place")
        if out is not None and found.rows():
            for row in found.rows():
                append_row(out, row)
            print(f"rows in {out}")
    except (ValueError, OSError, RuntimeError) as e:
        parser.exit(1, f"\nprofiling: {str(e).removeprefix('profile: ')}\n")
    finally:
        torch.set_num_threads(before)
    if found.stopped:
        parser.exit(130, "profiling: stopped; the table holds what was measured until then\n")


if __name__ == "__main__":
    main()

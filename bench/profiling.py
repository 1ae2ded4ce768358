"""Kronecker attention timed on a shape and a machine of your own, beside its floor, its limit and its rivals.

    python bench/profiling.py --sizes 14 14 14 --batch 2                     forward pass, all rivals
    python bench/profiling.py --sizes 321 24 --batch 4 --train --threads 1
    python bench/profiling.py --sizes 28 28 28 --dim 64 --compile --out mine.csv

The floor is two D x D projections, which every attention contains; the limit is the time that the multiply-adds
would take at the rate of a product of two square matrices. All are timed in turns, in an order that is drawn anew
in each round (bench/timing.py); ratios are taken within a round. The layer has its norm, as where nothing is said. Its
ways to apply the maps ("plans") stand beside one another. Rows of --out are added to a file that is there, so several
shapes, or several machines, can stand in one table.
"""
import argparse
import copy
import sys
from argparse import Namespace
from functools import partial
from math import prod
from pathlib import Path
from statistics import median

import timing
import torch
import torch.nn.functional as F
from torch import nn

from hot_nbdev.attention import FullAttention, softmax_map, split
from hot_nbdev.axial import AxialAttention
from hot_nbdev.cost import cost
from hot_nbdev.kronecker_attention import KroneckerAttention, along, mean, product
from hot_nbdev.train.results import Table, append_row, processor


class Absent(Exception):
    "Why a rival cannot run here."


def einsum(maps, v, causal=(), multiply=along):
    "A `combine` for Kronecker attention without causal modes: one `torch.einsum` for each mode."
    modes = "abcdefgijklm"[:len(maps)]
    for S, n in zip(maps, modes, strict=True):
        v = torch.einsum(f"zhX{n},zh{modes}f->zh{modes.replace(n, 'X')}f", S, v)
    return v


def in_place(maps, v, causal=(), multiply=along):
    "A `combine` for Kronecker attention without causal modes: the modes are multiplied where they stand."
    for m, S in enumerate(maps):
        v = multiply(S, v, m, ())
    return v


def planned(layer, combine):
    "The same layer, weights included, with its maps applied in another way."
    other = copy.copy(layer)
    other.combine = combine
    return other


def plan_taken(layer, train):
    "By which of its two ways a KroneckerAttention applies its maps: 'turned' or 'in place'."
    plain = layer.combine is product and layer.weigh is softmax_map and len(layer.causal) < 2
    return "turned" if plain and not train else "in place"


def same(f, heads, flat=True):
    "A kernel of (q, k, v) as a function of x, which is all three: (B, heads, n, d), or (B, n1, …, nk, heads, d)."
    def run(x):
        t = split(x, heads).flatten(2, -2) if flat else x.unflatten(-1, (heads, -1))
        return f(t, t, t)
    return run


def flex(heads, train, compiled, device):
    from torch.nn.attention.flex_attention import flex_attention
    if train and torch.device(device).type == "cpu":
        raise Absent("no backward pass on a CPU")
    if not compiled:
        raise Absent("needs --compile: eager it would form all scores")
    return same(torch.compile(flex_attention), heads)


def peer(name, sizes, dim, heads):
    "A layer or kernel of another package."
    if name == "axial-attention":
        from axial_attention import AxialAttention as Peer
        return Peer(dim, num_dimensions=len(sizes), heads=heads, dim_index=-1)
    if name == "NATTEN":
        import natten
        if len(sizes) > 3:
            raise Absent("has one to three modes")
        attend = partial(getattr(natten, f"na{len(sizes)}d"), kernel_size=tuple(min(7, n - 1 + n % 2) for n in sizes))
        return same(attend, heads, flat=False)
    from pyfastkron import fastkrontorch
    maps = [torch.rand(n, n).softmax(0) for n in sizes]
    return lambda x: fastkrontorch.gemkm(x.flatten(1, -2).mT.flatten(0, 1), [S.to(x) for S in maps])


def rivals(layer, sizes, train=False, compiled=False, device="cpu"):
    "name -> (function that makes it, or raises `Absent`; multiply-adds of a sample or None), the layer among them."
    dim, heads, k, n = layer.dim, layer.heads, len(sizes), prod(sizes)
    plans = {}
    if layer.combine is product and layer.weigh is softmax_map and not layer.causal:
        plans = {} if train else {"plan: turned": layer, "plan: in place": planned(layer, in_place)}
        plans["plan: einsum"] = planned(layer, einsum)
    layers = {"Kronecker attention": layer, **plans, "sum": KroneckerAttention(dim, heads, k, combine=mean),
              "full": FullAttention(dim, heads, k), "axial": AxialAttention(dim, heads, k)}
    floor, kernel = nn.Sequential(nn.Linear(dim, dim), nn.Linear(dim, dim)), 2 * n * n * dim
    found = {"floor": (lambda: floor, 2 * n * dim ** 2)}
    for name, own in layers.items():
        work = cost(layer if name.startswith("plan") else own, sizes).multiply_adds
        found[name] = (lambda own=own: own), work
        if compiled and own is layer and name == "Kronecker attention":
            found[f"{name}, compiled"] = (lambda: torch.compile(layer)), work
    found["SDPA, flattened"] = (lambda: same(F.scaled_dot_product_attention, heads)), kernel
    found["FlexAttention"] = partial(flex, heads, train, compiled, device), kernel
    others = "axial-attention", "NATTEN", "FastKron"
    return found | {name: (partial(peer, name, sizes, dim, heads), None) for name in others}


def ready(make, x, train):
    "A rival on the device, warmed up; or `Absent` with the reason."
    try:
        made = make()
        call = timing.passes(made.to(x.device, x.dtype) if isinstance(made, nn.Module) else made, x, train)
        call()
        return call
    except Absent:
        raise
    except ImportError:
        raise Absent("not installed") from None
    except Exception as e:      # whatever a package raises: the others go on
        text = str(e).strip().splitlines() or [""]
        raise Absent(f"failed: {type(e).__name__}: {text[0][:80]}") from None


def profile(sizes, dim=128, heads=8, batch=1, *, layer=None, train=False, compile=False, repeats=15, least=0.01,
            most=2.0, dtype=torch.float32, device="cpu"):
    """A dict for each rival: seconds, ratio to the floor with spread, share of the limit, multiply-adds, a note.

    `layer` is a KroneckerAttention of one's own. There are `repeats` rounds, a turn takes `least` seconds where calls
    are shorter, and what is expected to take more than `most` seconds a call is left out.
    """
    device, sizes = torch.device(device), tuple(sizes)
    if min(*sizes, batch, repeats, 1) < 1:
        raise ValueError(f"sizes {sizes}, batch {batch} and repeats {repeats} must be whole numbers of at least 1")
    layer = KroneckerAttention(dim, heads, len(sizes)) if layer is None else layer
    x = torch.randn(batch, *sizes, layer.dim, device=device, dtype=dtype)
    args, calls, work, absent = Namespace(device=device, dtype=dtype, rounds=repeats, least=least), {}, {}, {}
    second = median(timing.in_turns({}, Namespace(device=device, dtype=dtype, rounds=1, least=0))["second"])
    for name, (make, count) in rivals(layer.to(device, dtype), sizes, train, compile, device).items():
        timing.progress(f"{name}: warms up")
        work[name] = count and count * batch * (3 if train else 1)      # a backward pass counts twice
        try:
            if count and work[name] * second > most:
                raise Absent(f"left out: a call takes {work[name] * second:.0f} s or more")
            calls[name] = ready(make, x, train)
        except Absent as e:
            absent[name] = str(e)
    timing.progress(f"{repeats} rounds")
    times, rows = timing.in_turns(calls, args), []
    for name in [*calls, *absent]:
        row = dict.fromkeys(("what", "seconds", "over_floor", "least", "most", "share_of_limit", "multiply_adds"))
        row |= {"what": name, "rounds": 0, "note": absent.get(name, "")}
        if name in calls:
            middle, low, high = timing.spread(timing.over(times[name], times["floor"]))
            share = work[name] and 1 / median(timing.over(times[name], times["second"], work[name]))
            row |= {"seconds": median(times[name]), "over_floor": middle, "least": low, "most": high,
                    "share_of_limit": share, "multiply_adds": work[name], "rounds": len(times[name]),
                    "note": "what the layer does" if name == f"plan: {plan_taken(layer, train)}" else ""}
        rows.append({**row, "sizes": "x".join(map(str, sizes)), "dim": layer.dim, "heads": layer.heads, "batch": batch,
                     "pass": "train" if train else "forward", "dtype": str(dtype).removeprefix("torch."),
                     "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
                     "threads": torch.get_num_threads(), "torch": torch.__version__})
    return rows


def table(rows):
    "The same to be read."
    return Table([{"what": r["what"], "ms": r["seconds"] and 1e3 * r["seconds"], "x floor": r["over_floor"],
                   "least": r["least"], "most": r["most"],
                   "% of limit": r["share_of_limit"] and 100 * r["share_of_limit"], "": r["note"]}
                  for r in rows], 2)


def main(argv=None):
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
    given = vars(parser.parse_args(argv))
    threads, out, before = given.pop("threads"), given.pop("out"), torch.get_num_threads()
    try:
        if threads is not None:
            if threads < 1:
                raise ValueError(f"threads is {threads}; give 1 or more")
            torch.set_num_threads(threads)
        rows = profile(**{**given, "dtype": getattr(torch, given["dtype"])})
        print("\r\033[K", end="", file=sys.stderr, flush=True)
        a = rows[0]
        print(f"{a['processor']}, {a['threads']} threads, torch {a['torch']}, {a['dtype']}: "
              f"{a['batch']} x ({a['sizes']}) x {a['dim']}, {a['heads']} heads, {a['pass']}\n\n{table(rows)!r}\n")
        print("the layer applies its maps", "in place" if given["train"] else "turned")
        if out is not None:
            for row in rows:
                append_row(out, row)
            print(f"rows in {out}")
    except (ValueError, OSError, RuntimeError) as e:
        parser.exit(1, f"\nprofiling: {e}\n")
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    main()

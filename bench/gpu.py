"""What a GPU does with the layers, and what it could do: bandwidth, matrix rate and launch floor first, then the table.

    python bench/gpu.py                         on a card; stops after nine minutes, and goes on when called again
    python bench/gpu.py --dry-run               which cases there are, and which of them are done
    python bench/gpu.py --device cpu --quick    tiny sizes on a CPU, to see that it runs; such times say nothing

A case is one shape, batch, dtype, layer, pass and way to run it: eager, compiled, as a recorded graph, with the kernels
of hot_nbdev.fused, and those in a graph. What decides most comes first: short and long cubes, then two models of the
papers (samples a second are the batch over the seconds) beside full attention and a 3D ResNet-18, one step of a stream
beside the forward pass over its 64 frames, the contracts of the layers on the card, then everything else, the squares
of 256 to 16,384 positions that MonarchAttention is measured on among it. A row is added to bench/rows/bench_gpu.csv
when its case is done; a case that has a row of this card, torch and triton is not done again; one that fails, or finds
no memory, has a row that says so, and what time was too short for has a row "not run" until the next call.
Before a case is timed its result is compared with that of the plain layer. A recorded graph is timed by replays alone.
What the shares mean: least time of a layer as in chapter 27, from the rates of the first rows, over the median.
"""
import argparse
import copy
import itertools
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from statistics import median

import torch
from timing import RESULTS, passes, progress, wait

from hot_nbdev.attention import FullAttention
from hot_nbdev.axial import AxialAttention
from hot_nbdev.cost import cost
from hot_nbdev.fused import fuse, record, record_steps, unfit, unfit_maps
from hot_nbdev.kernels import KernelMap, elu_features
from hot_nbdev.kronecker_attention import KroneckerAttention, along, mean
from hot_nbdev.model_config import ClassifierConfig, ForecasterConfig
from hot_nbdev.models import make_model
from hot_nbdev.rivals.convolution import ResNetConfig
from hot_nbdev.streams import step, steps
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows, write_csv

DIM, HEADS = 64, 8
FIRST = [(14, 14, 14), (28, 28, 28), (7, 7, 7), (40, 40, 40)]
SHAPES = [*FIRST, (21, 24), (16, 28, 28), (66, 66), (321, 96), *((n, n) for n in (16, 32, 64, 128))]
WAYS = ["eager", "graph", "fused", "fused graph", "compiled"]       # the cheapest to prepare first
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KEY = ["sizes", "batch", "dtype", "layer", "pass", "way", "card", "torch", "triton"]
TOLERANCE = {"float32": 2e-3, "bfloat16": 5e-2}         # relative to the largest result
LONGEST = 0.5                                           # seconds: a case whose least time is longer is left out


class Flex(FullAttention):
    "Full attention by FlexAttention, to be compiled."
    def mix(self, values, x, mask, c, taking):
        from torch.nn.attention.flex_attention import flex_attention
        q, k = self.vectors(x, self.to_q, self.norm_q), self.vectors(c, self.to_k, self.norm_k)
        return flex_attention(*(t.flatten(2, -2) for t in (q, k, values()))).unflatten(2, x.shape[1:-1])


def published_axial(dim, heads, order):
    "The package axial-attention."
    from axial_attention import AxialAttention as Peer
    return Peer(dim, num_dimensions=order, heads=heads, dim_index=-1)


LAYERS = {"product": KroneckerAttention, "full": FullAttention, "axial": AxialAttention,
          "sum": partial(KroneckerAttention, combine=mean), "axial-attention": published_axial, "FlexAttention": Flex}
CAUSAL = partial(KroneckerAttention, causal=(0,))
STREAMS = {"stream, kernel": partial(CAUSAL, weigh=KernelMap(elu_features)), "stream, product": CAUSAL,
           "stream, full": partial(FullAttention, causal=(0,))}
SETTINGS = dict(dim=DIM, heads=HEADS, depth=2)
VOLUMES = partial(ClassifierConfig, patch=(2, 2, 2), classes=2, **SETTINGS)
SERIES = partial(ForecasterConfig, lookback=96, horizons=(96,), **SETTINGS)
MODELS = {"volumes, product": VOLUMES, "volumes, full": partial(VOLUMES, attention="full"),
          "volumes, ResNet-18": ResNetConfig,
          "series, product": SERIES, "series, full": partial(SERIES, attention="full")}


def suits(batch, layer, way):
    "Is this asked: of this layer, and, beside the first batch, of what is compared most?"
    if batch != 8 and (layer not in ("product", "full", "axial") or way == "compiled"):
        return False
    return way == "compiled" if layer == "FlexAttention" else "fused" not in way or layer in ("product", "sum")


def cases(shapes=SHAPES, batches=(8, 1, 32), volumes=(28, 28, 28), series=(96, 321), frames=(64, 8, 8)):
    "(sizes, batch, dtype, layer, pass, way), what is asked most often first."
    kinds = "forward", "train"
    grid = itertools.product(shapes, batches, DTYPES, LAYERS, kinds, WAYS)
    every = [c for c in grid if suits(c[1], c[3], c[5])]
    every.sort(key=lambda c: (batches.index(c[1]), kinds.index(c[4])))
    first = [c for c in every if c[0] in FIRST and c[1:3] == (8, "float32") and c[3] in ("product", "full")]
    ways = {name: ("eager", "graph", "fused graph")[:3 if "product" in name else 2] for name in MODELS}
    models = [(volumes if "volumes" in name else series, 4 * batches[0], dtype, name, kind, way)
              for kind, dtype, name in itertools.product(kinds, DTYPES, MODELS) for way in ways[name]]
    streams = [(frames, 1, "float32", name, kind, way) for name in STREAMS for kind in ("step", "64 frames")
               for way in ("eager", "graph")[:2 if "kernel" in name else 1]]
    first = [c for c in first if c[-1] != "compiled"]
    return list(dict.fromkeys([*first, *models, *streams, ((), "", "", "contracts", "", ""), *every]))


def clock(device):
    "Clocks of the card in MHz, of processors and of memory, as its driver tells them; empty where there is none."
    if device.type != "cuda":
        return ""
    try:
        ask = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem", "--format=csv,noheader,nounits"]
        ask.append(f"--id={device.index or 0}")
        return subprocess.run(ask, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def times_of(call, device, least=5, most=100, cap=0.4):
    "Seconds of single calls; on a card between two events."
    found, begin = [], time.perf_counter()
    while len(found) < least or (len(found) < most and time.perf_counter() - begin < cap):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1e3)
        else:
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return sorted(found)


def anchors(device, quick):
    "(name, worth of a second): bytes of a copy, operations of a product of matrices of each dtype, tiny launches."
    n, side = (2 ** 20, 256) if quick else (2 ** 28, 8192)
    a, b = torch.empty(n, device=device), torch.empty(n, device=device)
    b.copy_(a)
    yield "bandwidth", 8 * n / median(times_of(lambda: b.copy_(a), device))
    for name, dtype in DTYPES.items():
        m = torch.randn(side, side, device=device, dtype=dtype)
        m @ m
        yield name, 2 * side ** 3 / median(times_of(lambda m=m: m @ m, device))
    one = torch.zeros(1, device=device)
    def many():
        for _ in range(100):
            one.add_(1)
    many()
    yield "launches", 100 / median(times_of(many, device))


def least_time(case, rates):
    "Of a layer, in seconds; zero where nobody counts it."
    sizes, batch, dtype, name, kind, _ = case
    if name not in LAYERS or name == "axial-attention":
        return 0.0
    counted = FullAttention if name == "FlexAttention" else LAYERS[name]
    work = 2 * cost(counted(DIM, HEADS, len(sizes)), sizes, batch).multiply_adds
    size = 4 * batch * prod(sizes) * DIM * DTYPES[dtype].itemsize
    return (3 if kind == "train" else 1) * max(work / rates[dtype], size / rates["bandwidth"])


def made(case, device):
    "Module and input of a case."
    sizes, batch, dtype, name, *_ = case
    torch.manual_seed(0)
    if name in MODELS:
        module, shape = make_model(MODELS[name]()), (batch, *sizes, 1) if "volumes" in name else (batch, *sizes)
    else:
        module, shape = {**LAYERS, **STREAMS}[name](DIM, HEADS, len(sizes)), (batch, *sizes, DIM)
    return module.to(device, DTYPES[dtype]), torch.randn(shape, device=device, dtype=DTYPES[dtype])


def why_not(case, module, x):
    "Why this case says nothing here, if so."
    sizes, _, dtype, name, _, way = case
    if way.endswith("graph") and not x.is_cuda:
        return "left out: graphs are recorded on a card"
    if way.startswith("fused") and name in LAYERS:
        v = torch.empty(1, 1, *sizes, 1, device=x.device, dtype=x.dtype)
        reasons = unfit_maps(module, x, None, x), unfit([torch.empty(n, n) for n in sizes], v, (), along)
        return f"left out: {reasons[0]}" if all(reasons) else ""
    return "left out: fused is for a card" if way.startswith("fused") and not x.is_cuda else ""


def prepared(case, module, x):
    "(timed call, a call whose result is compared, the right result)"
    name, kind, way = case[3:]
    train = kind == "train"
    if name in STREAMS:
        with torch.no_grad():
            want, (_, state) = module.eval()(x), steps(module, x[:, :-1])
        if kind == "step":
            one = torch.no_grad()(lambda frame: step(module, frame, state)[0])
            call = partial(record_steps(module, x[:, -1], state) if way == "graph" else one, x[:, -1])
            return call, call, want[:, -1]          # a recorded stream goes on: its first result is compared
        call = passes(module, x, False)
        return record(call) if way == "graph" else call, call, want
    plain, f = copy.deepcopy(module), fuse(module, way.startswith("fused"))
    f = torch.compile(f) if way == "compiled" else f
    call = passes(f, x, train)
    if isinstance(plain, Flex):
        plain.__class__ = FullAttention             # the same weights behind PyTorch's own function
    return record(call) if way.endswith("graph") else call, passes(f, x, False), passes(plain, x, False)()


def measure(case, device, rates):
    "The columns of a row."
    if case[3] == "contracts":
        return contracts(device)
    least, begin = least_time(case, rates), time.perf_counter()
    if least > LONGEST:
        return {"note": f"left out: {least:.2g} s at least"}
    module, x = made(case, device)
    if note := why_not(case, module, x):
        return {"note": note}
    call, compared, want = prepared(case, module, x)
    y, want = compared().float(), want.float()
    off = float((y - want).abs().max() / want.abs().max())
    if not off <= TOLERANCE[case[2]]:
        return {"note": f"wrong: off by {off:.2g} of the largest number"}
    call()
    wait(device)
    ready, peak = time.perf_counter() - begin, ""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    found = times_of(call, device)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    p95 = found[int(0.95 * (len(found) - 1))]
    return {"seconds": f"{median(found):.4g}", "least": f"{found[0]:.4g}", "p95": f"{p95:.4g}", "rounds": len(found),
            "share": f"{least / median(found):.4f}" if least else "", "peak": peak, "off": f"{off:.1e}",
            "prepared": f"{ready:.2f}"}


def contracts(device):
    "What every layer promises, and the kernels, tested on the card."
    if device.type != "cuda":
        return {"note": "left out: they are tested on a card"}
    ask = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "cuda or on_a_card"]
    tests = [f"tests/test_{name}.py" for name in ("fused", "contracts")]
    try:
        done = subprocess.run([*ask, *tests], cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=90)
        return {"note": (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]}
    except subprocess.TimeoutExpired:
        return {"note": "failed: not done after 90 seconds"}


def about(device):
    "Card, torch and triton, as the rows have them."
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {"card": card, "torch": torch.__version__.split("+")[0], "triton": triton}


def run(out, chosen, device, minutes, quick, dry):
    "Do what is missing; (added, left to do)."
    own, begin, rows = about(device), time.perf_counter(), read_rows(out)
    done = {tuple(r[k] for k in KEY) for r in rows if r["note"] != "not run"}
    def name(case):
        return {**dict(zip(KEY, ["x".join(map(str, case[0])), *map(str, case[1:])], strict=False)), **own}
    todo = [(case, row) for case in chosen if tuple((row := name(case)).values()) not in done]
    if dry:
        for _, row in todo:
            print(*row.values())
        return 0, len(todo)
    if todo and rows:           # they get better rows
        write_csv(out, list(rows[0]), [r for r in rows if r["note"] != "not run"])
    columns = "seconds", "least", "p95", "rounds", "share", "peak", "off", "prepared", "note", "rate"
    rates, empty, made_by = {}, dict.fromkeys(columns, ""), {"commit": library_commit()}
    for what, rate in anchors(device, quick):
        rates[what] = rate
        row = {**dict.fromkeys(KEY, ""), **own, "layer": what, **empty, "rate": f"{rate:.4g}", "clocks": clock(device)}
        append_row(out, {**row, **made_by})
    added = 0
    for case, row in todo:
        if time.perf_counter() - begin > 60 * minutes:
            break
        progress(" ".join(row.values()))
        try:
            found = measure(case, device, rates)
        except ImportError as problem:
            found = {"note": f"left out: {problem}"}
        except Exception as problem:            # no memory, or what a compiler says: the next case goes on
            found = {"note": f"failed: {type(problem).__name__}: {str(problem).splitlines()[:1]}"[:150]}
        append_row(out, {**row, **empty, **found, "clocks": clock(device), **made_by})
        torch._dynamo.reset()
        added += 1
    left = [{**row, **empty, "note": "not run", "clocks": "", **made_by} for _, row in todo[added:]]
    rows = read_rows(out)
    write_csv(out, list(rows[0]), [*rows, *left])
    return added, len(left)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=torch.device)
    parser.add_argument("--minutes", type=float, default=7, help="begin no case after these (default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="only these")
    parser.add_argument("--quick", action="store_true", help="two small shapes, small models")
    parser.add_argument("--dry-run", action="store_true", help="list what is missing")
    parser.add_argument("--out", default=RESULTS / "bench_gpu.csv", type=Path)
    args = parser.parse_args(argv)
    if args.device.type == "cpu" and not args.quick and not args.dry_run:
        raise SystemExit("bench/gpu.py measures a card, and there is none; try it by --device cpu --quick --out FILE")
    small = dict(shapes=[(3, 4, 5), (4, 6)], batches=(8,), volumes=(6, 6, 6), series=(96, 3), frames=(4, 2, 2))
    chosen = [c for c in cases(**(small if args.quick else {})) if c[-1] in ("", *args.ways)]
    added, left = run(args.out, chosen, args.device, args.minutes, args.quick, args.dry_run)
    print(f"{added} cases added to {args.out.name}, {left} to do")


if __name__ == "__main__":
    main()

"""What a GPU does with the layers, and what it could do: bandwidth, matrix rate and launch floor first, then the table.

    python bench/gpu.py                         on a card; stops after nine minutes, and goes on when called again
    python bench/gpu.py --dry-run               which cases there are, and which of them are done
    python bench/gpu.py --device cpu --quick    tiny sizes on a CPU, to see that it runs; such times say nothing

A case is one shape, batch, dtype, layer, pass and way to run it: eager, compiled, as a recorded graph, with the kernel
of hot_nbdev.fused, and that in a graph. Its row is added to bench/rows/bench_gpu.csv when it is done, and a case that
has a row of this card, torch and triton is not done again; one that fails, or finds no memory, has a row that says so.
Before a case is timed its result is compared with that of the plain layer. A recorded graph is timed by replays alone.
What the shares mean: least time of a layer as in chapter 27, from the rates of the first rows, over the median.
"""
import argparse
import copy
import itertools
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from statistics import median

import torch
from timing import RESULTS, passes, progress, wait

from hot_nbdev.attention import FullAttention
from hot_nbdev.axial import AxialAttention
from hot_nbdev.cost import cost
from hot_nbdev.fused import fuse, unfit
from hot_nbdev.kronecker_attention import KroneckerAttention, along, mean
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows

DIM, HEADS = 64, 8
SHAPES = [(14, 14, 14), (28, 28, 28), (7, 7, 7), (21, 24), (16, 28, 28), (66, 66), (40, 40, 40), (321, 96)]
LAYERS = {"product": KroneckerAttention, "full": FullAttention, "axial": AxialAttention,
          "sum": lambda *given: KroneckerAttention(*given, combine=mean)}
WAYS = ["eager", "graph", "fused", "fused graph", "compiled"]       # the cheapest to prepare first
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KEY = ["sizes", "batch", "dtype", "layer", "pass", "way", "card", "torch", "triton"]
TOLERANCE = {"float32": 2e-3, "bfloat16": 5e-2}         # relative to the largest result


def cases(shapes=None, batches=(8, 1, 32)):
    "(sizes, batch, dtype, layer, pass, way), what is asked most often first."
    parts = batches, ("forward", "train"), shapes or SHAPES, DTYPES, LAYERS, WAYS
    for batch, kind, sizes, dtype, layer, way in itertools.product(*parts):
        if layer == "product" or not way.startswith("fused"):
            yield sizes, batch, dtype, layer, kind, way


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


def recorded(call, device):
    "A function that replays the call; the tensors of the call stay where they are."
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay():
        graph.replay()
        return kept
    return replay


def prepared(case, device):
    "The call of a case and that of the plain layer, or the reason why there is none."
    sizes, batch, dtype, name, kind, way = case
    torch.manual_seed(0)
    plain = LAYERS[name](DIM, HEADS, len(sizes)).to(device, DTYPES[dtype])
    layer, x = copy.deepcopy(plain), torch.randn(batch, *sizes, DIM, device=device, dtype=DTYPES[dtype])
    if way.startswith("fused"):
        v = torch.empty(1, 1, *sizes, 1, device=device, dtype=DTYPES[dtype])
        if why := unfit([torch.empty(n, n) for n in sizes], v, (), along):
            return f"left out: {why}"
    if way.endswith("graph") and device.type != "cuda":
        return "left out: graphs are recorded on a card"
    f = torch.compile(layer) if way == "compiled" else fuse(layer, way.startswith("fused"))
    call = passes(f, x, kind == "train")
    return (recorded(call, device) if way.endswith("graph") else call), passes(plain, x, False), f, x


def measure(case, device, rates):
    "The columns of a row."
    sizes, batch, dtype, name, kind, way = case
    begin, given = time.perf_counter(), prepared(case, device)
    if isinstance(given, str):
        return {"note": given}
    call, plain, f, x = given
    call()
    wait(device)
    with torch.inference_mode():
        y, want = f(x).float(), plain().float()
    off = float((y - want).abs().max() / want.abs().max())
    if not off <= TOLERANCE[dtype]:
        return {"note": f"wrong: off by {off:.2g} of the largest number"}
    ready, peak = time.perf_counter() - begin, ""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    found = times_of(call, device)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    work = 2 * cost(LAYERS[name](DIM, HEADS, len(sizes)), sizes, batch).multiply_adds
    size = 4 * batch * prod(sizes) * DIM * DTYPES[dtype].itemsize
    least = (3 if kind == "train" else 1) * max(work / rates[dtype], size / rates["bandwidth"])
    p95 = found[int(0.95 * (len(found) - 1))]
    return {"seconds": f"{median(found):.4g}", "least": f"{found[0]:.4g}", "p95": f"{p95:.4g}", "rounds": len(found),
            "share": f"{least / median(found):.4f}", "peak": peak, "off": f"{off:.1e}", "prepared": f"{ready:.2f}",
            "note": ""}


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
    own, begin = about(device), time.perf_counter()
    done = {tuple(r[k] for k in KEY) for r in read_rows(out)}
    def name(case):
        return {**dict(zip(KEY, ["x".join(map(str, case[0])), *map(str, case[1:])], strict=False)), **own}
    todo = [(case, row) for case in chosen if tuple((row := name(case)).values()) not in done]
    if dry:
        for _, row in todo:
            print(*row.values())
        return 0, len(todo)
    columns = "seconds", "least", "p95", "rounds", "share", "peak", "off", "prepared", "note"
    rates, empty = {}, dict.fromkeys(columns, "")
    for what, rate in anchors(device, quick):
        rates[what] = rate
        row = {**dict.fromkeys(KEY, ""), **own, "layer": what, **empty, "rate": f"{rate:.4g}", "clocks": clock(device)}
        append_row(out, {**row, "commit": library_commit()})
    added = 0
    for case, row in todo:
        if time.perf_counter() - begin > 60 * minutes:
            break
        progress(" ".join(row.values()))
        try:
            found = measure(case, device, rates)
        except (RuntimeError, ValueError) as problem:       # no memory, or what a compiler says: the next case goes on
            found = {"note": f"failed: {type(problem).__name__}: {str(problem).splitlines()[0][:120]}"}
        append_row(out, {**row, **empty, **found, "rate": "", "clocks": clock(device), "commit": library_commit()})
        torch._dynamo.reset()
        added += 1
    return added, len(todo) - added


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=torch.device)
    parser.add_argument("--minutes", type=float, default=8, help="begin no case after these (default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="only these")
    parser.add_argument("--quick", action="store_true", help="two small shapes, a batch of one")
    parser.add_argument("--dry-run", action="store_true", help="list what is missing")
    parser.add_argument("--out", default=RESULTS / "bench_gpu.csv", type=Path)
    args = parser.parse_args(argv)
    if args.device.type == "cpu" and not args.quick and not args.dry_run:
        raise SystemExit("bench/gpu.py measures a card, and there is none; try it by --device cpu --quick --out FILE")
    chosen = [c for c in (cases([(3, 4, 5), (4, 6)], (1,)) if args.quick else cases()) if c[-1] in args.ways]
    added, left = run(args.out, chosen, args.device, args.minutes, args.quick, args.dry_run)
    print(f"{added} cases added to {args.out.name}, {left} to do")


if __name__ == "__main__":
    main()

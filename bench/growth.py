"""How time and memory grow with the number of positions.

    python bench/growth.py               grids of 7^3 to 64^3 and of (21..862) x (24..96), and streams
    python bench/growth.py --dry-run     which cases there are, and which of them are done
    python bench/growth.py --threads 2   once more with another number of threads: rows are kept side by side

A case is one grid, one layer and one kind of pass. Its row is added to bench/rows/bench_growth.csv when it is
done, and a case that has a row from this processor, number of threads and version of torch is not done again.
A case ends after `--cap` seconds at the latest: it is timed until half of them are spent, in three calls or
more, and left out, with a row that says so, where one call is expected to take longer than the cap or to
need more than `--memory` GiB. What is expected comes from the same layer on the grid before.

The bytes are those alive at the worst moment beyond the input, as `count` finds them. A stream has
frames of 8 x 8 positions: `step` is the time of one frame after n positions, `recompute` that of a forward
pass over all of them.
"""
import argparse
import itertools
import time
from functools import partial
from math import prod
from pathlib import Path
from statistics import median

import torch
from timing import RESULTS, passes, progress, seconds, wait
from torch import nn

from hot_nbdev.attention import FullAttention
from hot_nbdev.axial import AxialAttention
from hot_nbdev.cost import cost, count
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.streams import step, steps
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows

DIM, HEADS, FRAME = 64, 8, (8, 8)
CUBES = [(n,) * 3 for n in (7, 10, 14, 20, 28, 40, 64)]
TABLES = sorted(itertools.product((21, 56, 150, 321, 862), (24, 48, 96)), key=prod)
STREAMS = [(t, *FRAME) for t in (4, 8, 16, 32, 64, 128, 256)]
LAYERS = {"product": partial(KroneckerAttention, norm=nn.Identity), "full": FullAttention, "axial": AxialAttention}
KEY = ["grid", "sizes", "layer", "pass", "dim", "heads", "dtype", "processor", "threads", "torch"]
LEFT_OUT = "left out"


def cases(compiled=False):
    "(grid, sizes, layer, pass), each layer's from small to large."
    kinds, grids = [*LAYERS, *(["product, compiled"] if compiled else [])], {"cube": CUBES, "table": TABLES}
    for (grid, shapes), layer, kind in itertools.product(grids.items(), kinds, ("forward", "train")):
        yield from ((grid, sizes, layer, kind) for sizes in shapes)
    for layer, kind in itertools.product(("product", "full"), ("step", "recompute")):
        yield from (("stream", sizes, layer, kind) for sizes in STREAMS)


def work_of(case):
    "Multiply-adds of a forward pass, by which times are expected to grow; those of a step stay the same."
    _, sizes, layer, kind = case
    if kind == "step":
        return 1
    return cost(LAYERS[layer.partition(",")[0]](DIM, HEADS, len(sizes)), sizes).multiply_adds


def stream_call(module, x, kind):
    "One frame behind all others, or all of them."
    module.eval()
    if kind == "recompute":
        return passes(module, x, False)
    with torch.no_grad():
        _, state = steps(module, x[:, :-1])

    @torch.no_grad()
    def one():
        return step(module, x[:, -1], state)
    return one


def make(grid, sizes, layer, kind, device):
    "What is called, and the layer behind it."
    options = {"causal": (0,)} if grid == "stream" else {}
    module = LAYERS[layer.partition(",")[0]](DIM, HEADS, len(sizes), **options).to(device)
    f = torch.compile(module) if layer.endswith("compiled") else module
    x = torch.randn(1, *sizes, DIM, device=device)
    return (stream_call(f, x, kind) if grid == "stream" else passes(f, x, kind == "train")), module


def times_within(call, cap, device, least=3, most=25):
    "Seconds of single calls until half the cap is spent, at least `least` and at most `most` of them."
    found, begin = [], time.perf_counter()
    while len(found) < least or (len(found) < most and time.perf_counter() - begin < cap / 2):
        found.append(seconds(call, 1, device))
        if time.perf_counter() - begin > cap:
            break
    return found


def expected(before, n, work):
    "Seconds and bytes of a call, from the grid before: as the multiply-adds grow, and as the positions do."
    if "median" not in (before or {}):
        return 0.0, 0.0
    return before["median"] * work / before["work"], before["bytes"] * n / before["n"]


def measure(case, cap, memory, device, before):
    "(row, what the next larger grid expects of this one)"
    grid, sizes, layer, kind = case
    n, work = prod(sizes), work_of(case)
    seconds, size = expected(before, n, work)
    if seconds > cap or size > memory * 2 ** 30 or (before or {}).get("stop"):
        why = f"{LEFT_OUT}: about {seconds:.2g} s and {size / 2 ** 30:.2g} GiB a call are expected" if seconds else (
            f"{LEFT_OUT}, as smaller grids were")
        return {"note": why}, {**(before or {}), "stop": True}
    begin = time.perf_counter()
    call, module = make(grid, sizes, layer, kind, device)
    call()                                                      # warm up
    wait(device)
    found = times_within(call, cap, device)
    alive = 0 if layer.endswith("compiled") else count(call).peak
    row = {"seconds": f"{median(found):.6g}", "least": f"{min(found):.6g}", "most": f"{max(found):.6g}",
           "rounds": len(found), "bytes": alive or "",
           "multiply_adds": work if kind in ("forward", "recompute") else "",
           "spent": f"{time.perf_counter() - begin:.1f}", "note": ""}
    return row, {"median": median(found), "work": work, "n": n, "bytes": alive}


def about(case, device):
    "The columns that say what a row is of."
    grid, sizes, layer, kind = case
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    values = [grid, "x".join(map(str, sizes)), layer, kind, DIM, HEADS, "float32", name,
              torch.get_num_threads(), torch.__version__.split("+")[0]]
    return dict(zip(KEY, map(str, values), strict=True))


def before_from(row, work):
    "What a row that was there before says for the next one."
    if row["note"]:
        return {"stop": True}
    return {"median": float(row["seconds"]), "work": work, "n": int(row["positions"]),
            "bytes": float(row["bytes"] or 0)}


def run(out, chosen, cap, memory, device, dry=False):
    "Do what is missing; the number of rows that were added."
    done = {tuple(r[k] for k in KEY): r for r in read_rows(out)}
    before, added = {}, 0
    for case in chosen:
        grid, sizes, layer, kind = case
        mine, place = about(case, device), (grid, layer, kind)
        if (old := done.get(tuple(mine.values()))) is not None:
            before[place] = before_from(old, work_of(case))
            continue
        if dry:
            print(*mine.values())
            added += 1
            continue
        progress(f"{grid} {mine['sizes']}: {layer}, {kind}")
        row, before[place] = measure(case, cap, memory, device, before.get(place))
        empty = dict.fromkeys(("seconds", "least", "most", "rounds", "bytes", "multiply_adds", "spent"), "")
        append_row(out, {**mine, "positions": prod(sizes), **empty, **row, "commit": library_commit()})
        added += 1
    return added


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=torch.device)
    parser.add_argument("--threads", type=int, help="threads of the CPU; default: PyTorch's choice")
    parser.add_argument("--cap", type=float, default=2.0, help="seconds for one case (default: %(default)s)")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB for one case (default: %(default)s)")
    parser.add_argument("--grid", nargs="+", choices=["cube", "table", "stream"], help="only these")
    parser.add_argument("--compile", action="store_true", help="the compiled product as well")
    parser.add_argument("--dry-run", action="store_true", help="list what is missing")
    parser.add_argument("--out", default=RESULTS / "bench_growth.csv", type=Path)
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    chosen = [c for c in cases(args.compile) if not args.grid or c[0] in args.grid]
    added = run(args.out, chosen, args.cap, args.memory, args.device, args.dry_run)
    print(f"{added} of {len(chosen)} cases {'to do' if args.dry_run else 'added to ' + args.out.name}")


if __name__ == "__main__":
    main()

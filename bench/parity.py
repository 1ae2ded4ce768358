"""This library's layers beside those of another commit: time, memory and kernels, in one process.

    git worktree add ../base ae5e945                    a checkout to compare with, any commit
    python bench/parity.py --base ../base               all shapes; about half an hour on two cores
    python bench/parity.py --base ../base --shapes 4x321x24 --no-compile --threads 1

Product attention with its norm on the shapes of bench/attention.py, and NdLinear on those of bench/ndlinear.py,
forward and as a training step, eager and compiled, with one thread and two. The other library is imported under
another name, so both live in one process; the layers get the same weights, and their results are compared before
anything is timed. In every round each runs once, several calls where one is short, in an order that is drawn anew;
reported are the median of the ratios and an interval that holds the true median with 95 %. These are ratios of
processor time, so that other work on the machine does not count. That of the clock stands beside it (clock), since
two threads may be busy and no faster: it says something on a machine that does nothing else. The peak is that of the
bytes alive, as torch.profiler lists what is allocated and freed; kernels are operations of PyTorch other than views,
counted in eager mode only. Rows are added to bench/rows/bench_parity.csv. A
--base of this very commit tells how far ratios of the same code are from 1 on this machine; more --rounds bring them
nearer.
"""
import argparse
import importlib
import random
import re
import runpy
import sys
import time
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median

import torch
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import hot_nbdev
from hot_nbdev.train.results import append_row, library_commit, processor

HERE = Path(__file__).resolve().parent
OWN, OTHER = "hot_nbdev", "other_hot_nbdev"
DIM, HEADS, LEAST = 128, 8, 0.005           # LEAST: seconds of a turn, where a call is shorter
VIEW = set("""view _unsafe_view t transpose permute expand unsqueeze squeeze slice select split unbind detach alias
    reshape as_strided split_with_sizes unfold promote_types result_type narrow empty new_empty""".split())


class Renamed(SourceFileLoader):
    "Reads a module of the other library with its name changed, in imports too."
    def get_code(self, fullname):
        text = Path(self.path).read_text(encoding="utf-8").replace(OWN, OTHER)
        return compile(text, self.path, "exec", dont_inherit=True)


class Finder:
    "Finds `other_hot_nbdev` in a checkout."
    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != OTHER:
            return None
        home = self.folder.joinpath(OWN, *name.split(".")[1:])
        file, inside = (home / "__init__.py", [str(home)]) if home.is_dir() else (home.with_suffix(".py"), None)
        if not file.is_file():
            return None
        return spec_from_file_location(name, file, loader=Renamed(name, str(file)), submodule_search_locations=inside)


def other(folder):
    "The library of a checkout, beside this one; one of an earlier call is forgotten."
    if not (Path(folder) / OWN / "__init__.py").is_file():
        raise SystemExit(f"{folder} holds no folder {OWN}; make a checkout with: git worktree add {folder} ae5e945")
    sys.meta_path[:] = [Finder(Path(folder).resolve()), *(f for f in sys.meta_path if not isinstance(f, Finder))]
    for name in [name for name in sys.modules if name.partition(".")[0] == OTHER]:
        del sys.modules[name]
    return importlib.import_module(OTHER)


# The only lines that know how a layer is made; what a constructor is called may change with the library.

def attention(library, sizes, out):
    return library.KroneckerAttention(DIM, HEADS, len(sizes))


def linear(library, sizes, out):
    return library.NdLinear(sizes, out)


def cases():
    "(layer, maker, shape of the input, sizes before, after, name of the shape)."
    named = {name: runpy.run_path(str(HERE / f"{name}.py"))["SHAPES"] for name in ("attention", "ndlinear")}
    for batch, sizes, _ in named["attention"]:
        yield "KroneckerAttention", attention, (batch, *sizes, DIM), sizes, None, "x".join(map(str, (batch, *sizes)))
    for batch, sizes, out in named["ndlinear"]:
        shape = (batch, *sizes)
        name = "-".join("x".join(map(str, s)) for s in ([shape] if sizes == out else [shape, out]))
        yield "NdLinear", linear, shape, sizes, out, name


def pair(make, theirs, sizes, out):
    "The layer of this library and that of the other, with the same weights."
    torch.manual_seed(0)
    new, old = make(hot_nbdev, sizes, out), make(theirs, sizes, out)
    with torch.no_grad():
        for p in old.parameters():
            p.add_(torch.randn_like(p), alpha=0.02)         # biases too
    known = {"weights.": "weight", "biases.": "bias"}        # as NdLinear had them in lists
    new.load_state_dict({re.sub(r"^(weights|biases)\.(?=\d)", lambda m: known[m[0]], name): t
                         for name, t in old.state_dict().items()})
    return new, old


def steps(layer, x):
    "A forward pass and a training step, as functions without arguments that return what they made."
    @torch.no_grad()
    def forward():
        return [layer(x)]

    leaves = [x.clone().requires_grad_(), *layer.parameters()]

    def train():
        y = layer(leaves[0])
        y.square().mean().backward()
        made = [y.detach(), *(t.grad for t in leaves)]
        for t in leaves:
            t.grad = None
        return made
    return {"forward": forward, "train": train}


class Launches(TorchDispatchMode):
    "Counts operations that are no views."
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def launches(call):
    with Launches() as found:
        call()
    return sum(n for name, n in found.seen.items() if name not in VIEW)


def peak(call):
    "Most bytes alive during a call, beyond those before it."
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = call()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = most = 0
    for e in sorted(events, key=lambda e: e.start_ns()):
        live += e.nbytes()
        most = max(most, live)
    del kept
    return most


def seconds(call, times):
    "Of the processor and of the clock, for one call."
    start = time.process_time(), time.perf_counter()
    for _ in range(times):
        call()
    return [(now - then) / times for now, then in zip((time.process_time(), time.perf_counter()), start, strict=True)]


def ratios(new, old, rounds):
    "Times of `new` over those of `old` for each round, of the processor and of the clock, and the seconds of `old`."
    found, order = {new: [], old: []}, random.Random(0)
    for call in found:
        call()
    times = max(1, int(LEAST / seconds(old, 1)[1]))
    for _ in range(rounds):
        for call in order.sample([new, old], 2):
            found[call].append(seconds(call, times))
    both = [(a / b, c / d) for (a, c), (b, d) in zip(found[new], found[old], strict=True)]
    return *zip(*both, strict=True), median(cpu for cpu, _ in found[old])


def between(values):
    "Median, and the values between which the true median lies with 95 %, by their ranks."
    values, n = sorted(values), len(values)
    i = max(0, int(n / 2 - 0.98 * sqrt(n)))
    return median(values), values[i], values[n - 1 - i]


def measure(make, theirs, shape, sizes, out, compiled, rounds):
    "Columns of a forward pass and of a training step, with the threads that are set."
    x, layers = torch.randn(shape), pair(make, theirs, sizes, out)
    plain = [steps(layer, x) for layer in layers]
    torch._dynamo.reset()
    calls = [steps(torch.compile(layer), x) for layer in layers] if compiled else plain
    for kind in ("forward", "train"):
        new, old = (own[kind] for own in calls)
        for a, b in zip(new(), old(), strict=True):
            assert_close(a, b, rtol=1e-3, atol=1e-4)
        found, by_clock, base = ratios(new, old, rounds)
        ratio, low, high = between(found)
        counted = ["", ""] if compiled else [launches(own[kind]) for own in plain]
        yield {"pass": kind, "ratio": f"{ratio:.3f}", "low": f"{low:.3f}", "high": f"{high:.3f}",
               "clock": f"{median(by_clock):.3f}", "base_ms": f"{1e3 * base:.3f}",
               "peak_ratio": f"{peak(new) / peak(old):.3f}", "launches": counted[0], "base_launches": counted[1]}


def summary(rows):
    "For each layer and way to run it: geometric mean and worst of times, worst of memory, and who launches more."
    groups = {}
    for r in rows:
        key = r["layer"], r["pass"], "compiled" if r["compiled"] else "eager", f"threads {r['threads']}"
        groups.setdefault(key, []).append(r)
    for key, found in groups.items():
        times = [float(r["ratio"]) for r in found]
        more = [r["shape"] for r in found if r["launches"] != "" and r["launches"] > r["base_launches"]]
        yield (f"{', '.join(key)}: geometric mean {exp(fmean(map(log, times))):.3f}, worst {max(times):.3f}, "
               f"peak at most {max(float(r['peak_ratio']) for r in found):.3f}, "
               f"more kernels on {', '.join(more) or 'no shape'}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", type=Path, required=True, help="folder of a checkout to compare with")
    parser.add_argument("--shapes", nargs="+", help="some of the shapes, as the rows name them, such as 4x321x24")
    parser.add_argument("--layers", nargs="+", help="KroneckerAttention or NdLinear; default: both")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-compile", action="store_true", help="eager only")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path, default=HERE / "rows" / "bench_parity.csv")
    args = parser.parse_args(argv)
    theirs, all_cases = other(args.base), list(cases())
    todo = [c for c in all_cases if c[-1] in (args.shapes or [c[-1]]) and c[0] in (args.layers or [c[0]])]
    if {*(args.shapes or ()), *(args.layers or ())} - {name for c in todo for name in (c[0], c[-1])}:
        names = ", ".join(f"{c[0]} {c[-1]}" for c in all_cases)
        parser.error(f"there is no such shape of such a layer; there are {names}")
    about = {"rounds": args.rounds, "torch": torch.__version__.split("+")[0], "processor": processor(),
             "commit": library_commit(), "base": library_commit(args.base.resolve() / OWN)}
    before, rows = torch.get_num_threads(), []
    for layer, make, shape, sizes, out, name in todo:
        for compiled in (False,) if args.no_compile else (False, True):
            for threads in args.threads:
                torch.set_num_threads(threads)
                for found in measure(make, theirs, shape, sizes, out, compiled, args.rounds):
                    row = {"layer": layer, "shape": name, "threads": threads, "compiled": int(compiled), **found}
                    print(*(f"{key} {v}" for key, v in row.items() if v != ""), flush=True)
                    append_row(args.out, row | about)
                    rows.append(row)
    torch.set_num_threads(before)
    print(*summary(rows), sep="\n")


if __name__ == "__main__":
    main()

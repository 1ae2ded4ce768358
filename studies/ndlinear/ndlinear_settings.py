"""Does NdLinear need tuning, and what does a wider layer bring? A grid of settings, for it and the dense layer.

    python -m studies.ndlinear.ndlinear_settings               720 runs of some seconds; resumes where it ended
    python -m studies.ndlinear.ndlinear_settings --summary     what the rows say

The network, the data and the training are those of the systems `cnn` and `cnn-slices`; README.md has question and rule.
"""
import argparse
import sys
from itertools import product
from pathlib import Path

import torch

from hot_nbdev.train.paired import holm
from hot_nbdev.train.results import append_row, read_rows
from studies.ndlinear.ndlinear_systems import SEEDS, SYSTEMS, about, system_report
from studies.ndlinear.systems.images import CNN
from studies.ndlinear.systems.layers import count, dense, nd
from studies.ndlinear.systems.sources import Absent
from studies.ndlinear.systems.training import until_it_turns
from studies.paired import paired

OUT = Path(__file__).resolve().parent / "ndlinear_settings.csv"
DATA = {"digits": ("cnn", 1, 8, 10), "vessel": ("cnn-slices", 3, 28, 2)}    # system; planes, side and classes
MODELS, WIDTHS, BATCHES, RATES = ("dense", "nd"), (128, 256, 512), (32, 64, 128), (0.0003, 0.001, 0.003, 0.01)
PRINTED = (0.001, 0.01)     # the paper's rates, which the spread is taken over
KEY = ("data", "data_sha", "model", "width", "batch", "rate", "seed")


def network(model, data, width):
    "The CNN whose hidden layer has `width` units, for NdLinear (32, n, n) to (width / 16, 4, 4)."
    _, planes, side, classes = DATA[data]
    n = -(-side // 4)

    def linear(D, H, *_):
        return dense(D, H) if model == "dense" else nd(D, H, (32, n, n), (width // 16, 4, 4))
    return CNN(linear, width, 32, planes, side, classes)


def run(out, seeds=SEEDS, datasets=tuple(DATA), settings=(WIDTHS, BATCHES, RATES), cap=None):
    "All runs that have no row yet, a seed at a time."
    where, done = about(), {tuple(r[k] for k in KEY) for r in read_rows(out)}
    for seed, data in product(seeds, datasets):
        system = SYSTEMS[DATA[data][0]]
        try:
            task = system.task(data, seed)
        except Absent as e:
            print(f"{data} is left out: {e}", file=sys.stderr)
            continue
        for width, batch, rate, model in product(*settings, MODELS):
            key = dict(zip(KEY, map(str, (data, task.data_sha, model, width, batch, rate, seed)), strict=True))
            if tuple(key.values()) in done:
                continue
            torch.manual_seed(seed)
            found = until_it_turns(task, network(model, data, width), rate, seed, cap or system.cap, batch)
            with torch.no_grad():
                test, also = system_report(task, found)
            row = key | dict(parameters=count(found.model), metric=system.metric, validation=f"{found.best:.6g}",
                             test=test, also=system.also, also_test=also, epochs=found.epochs, stopped=found.stopped,
                             cpu_seconds=f"{found.cpu_seconds:.1f}") | where
            append_row(out, {k: str(v) for k, v in row.items()})
            print(*key.values(), test, file=sys.stderr, flush=True)


def scores(rows, data, model, of="test"):
    "(width, batch, rate) -> seed -> score; the test score of a run that diverged is that of guessing."
    found = {}
    for r in rows:
        if (r["data"], r["model"]) == (data, model):
            at = found.setdefault((int(r["width"]), int(r["batch"]), float(r["rate"])), {})
            at[int(r["seed"])] = float(r[of] or 1 / DATA[data][3])
    return found


def spreads(rows, data, model):
    "seed -> how far the best and the worst setting lie apart."
    found = {s: each for s, each in scores(rows, data, model).items() if s[2] in PRINTED}
    seeds = set.intersection(*(set(each) for each in found.values()))
    return {s: max(each[s] for each in found.values()) - min(each[s] for each in found.values()) for s in sorted(seeds)}


def chosen(rows, data, model, width):
    "seed -> test score at the batch and rate whose validation error is least in the mean over the seeds."
    errors, tests = scores(rows, data, model, "validation"), scores(rows, data, model)
    best = min((s for s in errors if s[0] == width), key=lambda s: (sum(errors[s].values()) / len(errors[s]), s))
    return tests[best]


def comparisons(rows):
    "Differences paired by seed, corrected over all: spreads of nd and dense, and each width against the half of it."
    found = []
    for data in sorted({r["data"] for r in rows}):
        pairs = [("spread, nd - dense", spreads(rows, data, "nd"), spreads(rows, data, "dense"))]
        pairs += [(f"{model}, width {w} - {w // 2}", chosen(rows, data, model, w), chosen(rows, data, model, w // 2))
                  for model, w in product(MODELS, WIDTHS[1:])]
        for what, a, b in pairs:
            seeds = sorted(a.keys() & b.keys())
            m, t, p = paired([a[s] for s in seeds], [b[s] for s in seeds])
            found.append(dict(data=data, what=what, seeds=len(seeds), difference=m, t=t, p=p))
    for row, p in zip(found, holm([row["p"] for row in found]), strict=True):
        row["corrected"] = p
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--summary", action="store_true", help="what the rows say; nothing is run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.summary:
        run(OUT)
    for c in comparisons(read_rows(OUT)):
        print(f"{c['data']}: {c['what']} = {c['difference']:+.4f} over {c['seeds']} seeds, p = {c['p']:.3g}, "
              f"corrected {c['corrected']:.3g}")


if __name__ == "__main__":
    main()

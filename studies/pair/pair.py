"""One Kronecker layer in place of an alternating pair: the tables pair-… of the library, and what their rows say.

    python -m studies.pair.pair --pace     measure seconds and multiply-adds of an update; five minutes on one core
    python -m studies.pair.pair --write    the tables, from that pace and the rates that won on seed 99
    python -m studies.pair.pair --plan     commands whose rows are missing; studies/todo.py does them
    python -m studies.pair.pair            what counts of the rows in studies/pair/rows, into studies/pair/pair.csv, and
                                           the comparisons of studies/pair/README.md, into
                                           studies/pair/pair_compared.csv

Runs are made by hot_reproduce pair-…-rates, then pair-…-time and pair-…-work.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from hot_nbdev.cli.jobs import job_class
from hot_nbdev.cli.tables import merged, read_tables
from hot_nbdev.train.paired import holm, paired_t
from hot_nbdev.train.results import processor, read_rows, write_csv
from studies.defaults.defaults import scored
from studies.motion.motion_pace import best_of, updater
from studies.motion.motion_tables import chosen, written
from studies.rows import put, put_text

ROOT, HERE, ROWS = Path(__file__).parents[2], Path(__file__).parent, "studies/pair/rows"
PACE = HERE / "pair_pace.csv"
GRID, SEARCHED, SEEDS, SECONDS, BUDGETS = (3e-4, 1e-3, 3e-3), 99, 5, 40, ("time", "work")
NORM = {"qk_norm": True}
POOLED = {**NORM, "pool": "rsqrt", "qk_gain": 4.0}  # named, whatever the defaults will be
KINDS = {
    "alternating": {"attention": "temporal+spatial", "attention_options": NORM},
    "both in each block": {"attention": "divided", "attention_options": NORM},
    "product": {"attention": "product", "attention_options": POOLED},
    "sum": {"attention": "sum", "attention_options": POOLED},
}
COMPARED = (("product", "alternating"), ("product", "both in each block"), ("sum", "alternating"))


class Case(NamedTuple):
    "One data set."

    command: str
    data: str  # as the command calls it
    score: str  # column of the test score
    sign: int  # 1 where more is better
    settings: dict  # beside those of all


SERIES = dict(horizon=96, patch=[16], position_modes=[0, 1], draws=6400)
MOVED = dict(size=[16, 16], draws=1600)
CASES = {
    "ETTm1": Case("forecast", "ETTm1", "test_mse", -1, SERIES),
    "Weather": Case("forecast", "weather", "test_mse", -1, SERIES),
    "A1B": Case("motion", "motion_fields/a1b.npy", "test_nmse", -1, dict(MOVED, reach=[8, 8])),
    "white": Case("motion", "white", "test_nmse", -1, MOVED),
    "Vessel": Case(
        "classify",
        "vesselmnist3d",
        "test_auc",
        1,
        dict(stem="conv", stem_width=5, dropout=0.0, flips=True, batch_size=16, draws=800),
    ),
    "Indian Pines": Case(
        "segment", "indian_pines", "test_accuracy", 1, dict(dim=64, dropout=0.2, flips=True, batch_size=8, draws=400)
    ),
    "Sentinel-2": Case(
        "segment", "sentinel2", "test_miou", 1, dict(patch=[1, 2, 2], flips=True, criterion="miou", draws=1600)
    ),
}


def settings(case):
    "What all rows of a data set share."
    return {"dim": 32, "depth": 2, "heads": 4, **case.settings, "results": ROWS}


def pace(name, rounds=3, updates=6):
    "A row for each kind: processor seconds and multiply-adds of an update, and the epochs that follow."
    case, work = CASES[name], {}
    jobs = {kind: job_class(case.command).from_dict({**settings(case), **own, "data": case.data})
            for kind, own in KINDS.items()}
    for kind, job in jobs.items():
        update, _, each = updater(job)
        with FlopCounterMode(display=False) as counter:
            update()
        work[kind] = counter.get_total_flops() // 2
    best = {kind: seconds for kind, (seconds, _) in best_of(jobs, 0, rounds, updates).items()}
    fits = {kind: max(2, round(SECONDS / seconds / each)) for kind, seconds in best.items()}
    total = fits["alternating"] * work["alternating"]
    return [
        {
            "data": name,
            "kind": kind,
            "seconds_per_update": f"{best[kind]:.5f}",
            "multiply_adds": work[kind],
            "updates": each,
            "epochs_time": fits[kind],
            "epochs_work": max(2, round(total / work[kind])),
            "hardware": processor(),
            "threads": 1,
            "torch": torch.__version__.split("+")[0],
        }
        for kind in KINDS
    ]


def slug(name):
    return name.lower().replace(" ", "-")


def table(name, rows, title, **more):
    "One table of the library."
    case = CASES[name]
    return {
        "title": f"{name}: {title}",
        "command": case.command,
        "data": {name: case.data},
        "settings": settings(case),
        **more,
        "rows": rows,
    }


def told(case, own):
    "All settings of a run but rate and seed, as text."
    numbers = job_class(case.command).from_dict({**own, "data": own.get("data", case.data)}).numbers()
    return json.dumps({k: v for k, v in numbers.items() if k not in ("rate", "seed")}, sort_keys=True)


def found_rows(name, budget, epochs, folder):
    "kind -> rows with the settings of that kind at that budget, as (settings, row)."
    case, found = CASES[name], defaultdict(list)
    known = {
        told(case, merged(settings(case), KINDS[kind], {"epochs": epochs[name, kind, budget]})): kind for kind in KINDS
    }
    for line in read_rows(Path(folder) / f"{case.command}.csv"):
        own = json.loads(line["settings"])
        if (kind := known.get(told(case, own))) is not None:
            found[kind].append((own, line))
    return found


def tables_of(name, epochs, folder):
    "The tables of a data set as far as its rates are known, and kind -> rates still to be tried."
    column, sign = scored(CASES[name].command, CASES[name].settings)
    tried = {
        kind: {own["rate"]: -sign * float(line[column]) for own, line in rows if own["seed"] == SEARCHED}
        for kind, rows in found_rows(name, "time", epochs, folder).items()
    }
    picks = {kind: chosen(tried.get(kind, {}), GRID) for kind in KINDS}
    todo = {kind: more for kind, (_, more) in picks.items() if more}
    rates = sorted({*GRID, *(r for more in todo.values() for r in more), *(r for v in tried.values() for r in v)})

    def rows(budget, rate):
        return {kind: {**own, "epochs": epochs[name, kind, budget], **rate(kind)} for kind, own in KINDS.items()}

    made = {
        f"pair-{slug(name)}-rates": table(
            name,
            rows("time", lambda kind: {}),
            f"which learning rate (seed {SEARCHED})",
            seeds=[SEARCHED],
            each=[{"rate": r} for r in rates],
        )
    }
    if not todo:
        for budget, title in (("time", "equal processor time"), ("work", "equal multiply-adds")):
            own = rows(budget, lambda kind: {"rate": picks[kind][0]})
            made[f"pair-{slug(name)}-{budget}"] = table(name, own, f"one layer or a pair, {title}")
    return made, todo


def kept(name, budget, epochs, folder):
    "A line for each run that counts at this budget; and a command for each kind that lacks some of its seeds."
    case, lines, todo = CASES[name], [], []
    work = {r["kind"]: int(r["multiply_adds"]) * int(r["updates"]) for r in read_rows(PACE) if r["data"] == name}
    rates = {kind: own["rate"] for kind, own in
             read_tables()[f"pair-{slug(name)}-{budget}"].rows.items()}
    for kind, rows in ((kind, found_rows(name, budget, epochs, folder)[kind]) for kind in KINDS):
        there = {own["seed"]: line for own, line in rows if own["seed"] < SEEDS and own["rate"] == rates[kind]}
        if missing := [str(s) for s in range(SEEDS) if s not in there]:
            todo.append(f"hot_reproduce pair-{slug(name)}-{budget} --row '{kind}' --seeds {' '.join(missing)}")
        lines += [{"budget": budget, "data": name, "kind": kind, "seed": s, "rate": rates[kind],
                   "epochs": epochs[name, kind, budget], "multiply_adds": epochs[name, kind, budget] * work[kind],
                   "seconds": line["seconds"], "metric": case.score, "sign": case.sign, "score": line[case.score],
                   "commit": line.get("commit", "")}
                  for s, line in sorted(there.items())]
    return lines, todo


def compared(scores, budget):
    "A line for each data set and comparison. `scores`: data -> kind -> seed -> score, more is better."
    lines = []
    for name, kinds in scores.items():
        spread = np.sqrt(np.mean([np.var(list(by_seed.values()), ddof=1) for by_seed in kinds.values()]))
        for ours, theirs in COMPARED:
            seeds = sorted(kinds[ours].keys() & kinds[theirs].keys())
            gap = paired_t([kinds[ours][s] for s in seeds], [kinds[theirs][s] for s in seeds])
            lines.append(
                {
                    "budget": budget,
                    "data": name,
                    "ours": ours,
                    "theirs": theirs,
                    "seeds": len(seeds),
                    "difference": gap.difference,
                    "low": gap.low,
                    "high": gap.high,
                    "in deviations": gap.difference / spread,
                    "p": gap.p,
                }
            )
    for line, p in zip(lines, holm([line["p"] for line in lines]) if lines else (), strict=True):
        line["p (Holm)"] = p
    return lines


def scores_of(lines, budget):
    "data -> kind -> seed -> score, more is better, of the lines of `kept`."
    scores = {}
    for line in lines:
        if line["budget"] == budget:
            kinds = scores.setdefault(line["data"], {})
            kinds.setdefault(line["kind"], {})[int(line["seed"])] = int(line["sign"]) * float(line["score"])
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pace", action="store_true", help="measure; needs the official files and motion_fields/")
    parser.add_argument("--plan", action="store_true", help="commands whose rows are missing")
    parser.add_argument("--write", action="store_true", help="the tables, into tables.json")
    parser.add_argument("--data", nargs="+", default=list(CASES), choices=list(CASES), help="default: all")
    parser.add_argument("--rows", type=Path, default=ROOT / ROWS, help="folder of the rows")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.pace:
        for name in args.data:
            print(name, file=sys.stderr, flush=True)
            put(PACE, pace(name), "data")
        return
    epochs = {
        (r["data"], r["kind"], budget): int(r[f"epochs_{budget}"])
        for r in read_rows(PACE)
        for budget in BUDGETS
    }
    path, lines, plan = HERE / "tables.json", [], []
    after = json.loads(path.read_text(encoding="utf-8"))
    for name in args.data:
        made, todo = tables_of(name, epochs, args.rows)
        after.update(made)
        plan += [
            f"hot_reproduce pair-{slug(name)}-rates --row '{kind}' --seeds {SEARCHED} --set rate={rate}"
            for kind, more in todo.items()
            for rate in more
        ]
        for budget in () if todo else BUDGETS:
            found, missing = kept(name, budget, epochs, args.rows)
            lines, plan = lines + found, plan + missing
    if args.write:
        put_text(path, written(after))
    elif args.plan:
        print(*plan, sep="\n")
    elif len(args.data) < len(CASES):
        parser.error("comparisons are corrected over all data sets: leave out --data")
    elif plan:
        sys.exit(f"{len(plan)} commands are still to run: see --plan")
    else:
        write_csv(HERE / "pair.csv", list(lines[0]), lines)
        found = [line for budget in BUDGETS for line in compared(scores_of(lines, budget), budget)]
        write_csv(HERE / "pair_compared.csv", list(found[0]), found)


if __name__ == "__main__":
    main()

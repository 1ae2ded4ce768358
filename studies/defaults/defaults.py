"""Which settings Kronecker attention should have where nothing is said: what is still to run, and the decision.

    python -m studies.defaults.defaults --plan > todo.sh    commands whose rows are missing; run them, and ask again
    python -m studies.defaults.defaults                     the decision table, and what studies/defaults/README.md
                                                            adopts by it
    python -m studies.defaults.defaults --write             the rates that were found, into the tables: they name whole
                                                            runs then
    python -m studies.defaults.defaults --simulate 100      how often the rule is right on invented scores

Reads the tables `defaults-*` and their rows in studies/defaults/rows. Only scores of the validation part are read.
First every setting gets a rate for each task, on a seed of its own: a ladder of rates is climbed from the middle
until the best is not the last one tried. Then come five seeds at that rate. Writes studies/defaults/defaults.csv, a
line for each run that counts, studies/defaults/defaults_decision.csv, a line for each setting, and
studies/defaults/defaults_without.csv, what is left of the adopted setting's difference without each family of tasks.

A run whose loss is no finite number stops its command and leaves no row. Such a run gets a line in
studies/defaults/rows/lost.csv (task,setting,rate,seed; the task as the table of tasks prints it), counts as the worst
of its task, and the command is called again for the others.
"""
import argparse
import json
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from hot_nbdev.cli.jobs import JOBS, job_class
from hot_nbdev.cli.tables import merged, read_tables
from hot_nbdev.train.paired import holm
from hot_nbdev.train.results import Table, read_rows, write_csv
from studies.motion.motion_tables import written
from studies.rows import put_text

HERE, LACKING = Path(__file__).parent, "needs a command that this version does not have"
LADDER, START = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2), (2, 3, 4)      # rates, and those tried first
RATE_SEED, SEEDS, DRAWS, LEVEL, HARM = 100, (0, 1, 2, 3, 4), 10_000, 0.05, -1.0


class Task(NamedTuple):
    table: str      # name of the table
    data: str       # as the table calls them
    step: tuple     # what `each` adds, as pairs
    family: str     # tasks with the same data are one family
    column: str     # of the rows: a score on the validation part
    sign: int       # 1 where more is better, -1 where less is

    def __str__(self):
        return ", ".join([self.table.removeprefix("defaults-"), self.data, *(str(v) for _, v in self.step)])


def scored(command, settings):
    "The score of a task on its validation part, and its sign."
    return {"forecast": ("val_mse", -1), "classify": ("val_auc", 1), "motion": ("val_loss", -1),
            "segment": (f"val_{settings.get('criterion', 'accuracy')}", 1)}[command]


def cells(tables):
    "Task, row and settings, for all that the tables ask for."
    for name, table in tables.items():
        if name.startswith("defaults-"):
            for shown, data in table.data.items():
                for step in table.each:
                    task = Task(name, shown, tuple(step.items()), data, *scored(table.command, table.settings))
                    yield from ((task, row, merged(table.settings, own, step, {"data": data}))
                                for row, own in table.rows.items())


def told(kind, settings):
    "All settings of a run but its rate and its seed, as text."
    numbers = job_class(kind).from_dict(settings).numbers()
    return json.dumps({k: v for k, v in numbers.items() if k not in ("rate", "seed")}, sort_keys=True)


def made(tables, folder):
    "Task, row, (rate, seed) and line of results, for all runs that the tables ask for and that are there."
    known = {(kind, told(kind, settings)): (task, row) for task, row, settings in cells(tables)
             if (kind := tables[task.table].command) in JOBS}
    for kind in {kind for kind, _ in known}:
        for line in read_rows(folder / f"{kind}.csv"):
            settings = json.loads(line["settings"])
            if (place := known.get((kind, told(kind, settings)))) is not None:
                yield *place, (settings["rate"], settings["seed"]), line


def read(tables, folder):
    "task -> row -> (rate, seed) -> score, more being better; and the tables whose command does not exist."
    found, absent = {}, []
    for task, row, _ in cells(tables):
        if tables[task.table].command in JOBS:
            found.setdefault(task, {})[row] = {}
        else:
            absent.append(task.table)
    for task, row, place, line in made(tables, folder):
        found[task][row][place] = task.sign * float(line[task.column] or "nan")
    by_name = {str(task): rows for task, rows in found.items()}
    for line in read_rows(folder / "lost.csv"):
        by_name[line["task"]][line["setting"]][float(line["rate"]), int(line["seed"])] = float("nan")
    return found, sorted(set(absent))


def chosen(scores):
    "The best rate on the seed for rates, the rates to try before that can be said, and whether it is the ladder's end."
    tried = {rate: v if np.isfinite(v) else -np.inf for (rate, seed), v in scores.items()
             if seed == RATE_SEED and rate in LADDER}
    missing = [LADDER[i] for i in START if LADDER[i] not in tried]
    if missing:
        return None, missing, False
    best = max(sorted(tried), key=tried.get)
    at, ends = LADDER.index(best), (best == min(tried), best == max(tried))
    further = at - 1 if ends[0] else at + 1 if ends[1] else None
    if further is None or not 0 <= further < len(LADDER):
        return best, [], further is not None
    return None, [LADDER[further]], False


def plan(found):
    "Commands for the runs that are missing, those for the rates first."
    wanted = {}
    for task, rows in found.items():
        for row, scores in rows.items():
            rate, missing, _ = chosen(scores)
            seeds = (RATE_SEED,) if rate is None else tuple(s for s in SEEDS if (rate, s) not in scores)
            for r in missing or ([rate] if seeds else []):
                wanted.setdefault((task, r, seeds), []).append(row)
    for (task, rate, seeds), rows in sorted(wanted.items(), key=lambda w: (w[0][2] != (RATE_SEED,), w[0][0])):
        sets = [f"{k}={v}" for k, v in (*task.step, ("rate", rate))]
        yield shlex.join(["hot_reproduce", task.table, "--data", task.data, "--row", *rows, "--seeds", *map(str, seeds),
                          *(word for s in sets for word in ("--set", s))])


def with_rates(tables, found):
    "Tables as JSON has them, with the rate of each run that has one, by its title."
    for task, rows in found.items():
        own = tables[task.table].setdefault("rates", {})
        for row, scores in rows.items():
            if (rate := chosen(scores)[0]) is not None:
                own[", ".join([row, task.data, *(f"{k} {v}" for k, v in task.step)])] = rate
    return tables


def standardized(found):
    "Scores (tasks, settings, seeds) at the chosen rates, mean 0 and deviation 1 in a task; a lost run is the worst."
    blocks = []
    for rows in found.values():
        y = np.array([[scores[chosen(scores)[0], seed] for seed in SEEDS] for scores in rows.values()])
        y = np.where(np.isfinite(y), y, np.min(y[np.isfinite(y)]))
        blocks.append((y - y.mean()) / (y.std() or 1.0))
    return np.array(blocks)


def weights(families):
    "Each family of tasks counts the same, and its tasks share that."
    count = np.array([families.count(f) for f in families])
    return 1 / count / len(set(families))


def flip_test(gaps, w, draws=DRAWS, seed=0):
    "Two-sided p of the weighted mean of gaps (tasks, seeds), if the sign of every one of them were a toss of a coin."
    g = np.random.default_rng(seed)
    share = w[:, None] * gaps / gaps.shape[1]
    drawn = np.abs((g.choice([-1, 1], (draws, *gaps.shape)) * share).sum((1, 2)))
    return (1 + (drawn >= abs(share.sum()) * (1 - 1e-12)).sum()) / (1 + draws)


def interval(gaps, families, draws=DRAWS, seed=0):
    "95 % of the weighted mean: families drawn again, and within each task its seeds."
    g, names = np.random.default_rng(seed), sorted(set(families))
    of = np.array([[f == name for name in names] for f in families], dtype=float)      # (tasks, families)
    seeds = g.integers(gaps.shape[1], size=(draws, *gaps.shape))
    by_family = np.take_along_axis(gaps[None], seeds, 2).mean(2) @ (of / of.sum(0))
    means = np.take_along_axis(by_family, g.integers(len(names), size=by_family.shape), 1).mean(1)
    return np.percentile(means, [2.5, 97.5])


def judged(z, names, families, draws=DRAWS):
    "The decision table: every setting against the first one."
    w, gaps = weights(families), z[:, 1:] - z[:, :1]
    adjusted = holm(np.array([flip_test(gaps[:, a], w, draws) for a in range(len(names) - 1)]))
    ranks = w @ np.array([rankdata(-block) for block in z.mean(2)])
    lines = [{"setting": names[0], "mean rank": ranks[0]}]
    for a, name in enumerate(names[1:]):
        low, high = interval(gaps[:, a], families, draws)
        by_task = gaps[:, a].mean(1)
        lines.append({"setting": name, "mean rank": ranks[a + 1], "difference": w @ by_task, "low": low, "high": high,
                      "p (Holm)": adjusted[a], "worst task": by_task.min(), "better on": int((by_task > 0).sum()),
                      "passes": bool(adjusted[a] < LEVEL and low > 0 and by_task.min() > HARM)})
    return lines


def adopted(z, names, families, lines, draws=DRAWS):
    "The simplest setting that passes and is not worse than the best that does; names stand in order of simplicity."
    passing = [names.index(line["setting"]) for line in lines[1:] if line["passes"]]
    if not passing:
        return names[0]
    w = weights(families)
    best = max(passing, key=lambda a: w @ z[:, a].mean(1))
    others = [a for a in passing if a != best]
    p = dict(zip(others, holm(np.array([flip_test(z[:, best] - z[:, a], w, draws) for a in others])), strict=True))
    return names[next(a for a in passing if a == best or p[a] >= LEVEL)]


def behind(z, names, families, name, draws=DRAWS):
    "How far each other setting is behind this one, and the p of that by the same test, adjusted over all of them."
    w, at = weights(families), names.index(name)
    others = [a for a in range(len(names)) if a != at]
    adjusted = holm(np.array([flip_test(z[:, at] - z[:, a], w, draws) for a in others]))
    return {names[a]: (w @ (z[:, at] - z[:, a]).mean(1), p) for a, p in zip(others, adjusted, strict=True)}


def without(z, names, families, name, draws=DRAWS):
    "What the difference of a setting from the first one is when a family of tasks is left out."
    for family in dict.fromkeys(families):
        kept = [i for i, f in enumerate(families) if f != family]
        left, z_left = [families[i] for i in kept], z[kept]
        lines = judged(z_left, names, left, draws)
        own = next(line for line in lines if line["setting"] == name)
        yield {"without": family, "tasks": len(kept), "setting": name,
               **{key: own[key] for key in ("difference", "low", "high", "p (Holm)", "worst task", "passes")},
               "would be adopted": adopted(z_left, names, left, lines, draws)}


def simulated(gap, share, studies, names, families, draws=600, seed=1):
    "What is adopted in studies of noise, where the fifth setting is better, by `gap` deviations, on some tasks."
    g = np.random.default_rng(seed)
    for _ in range(studies):
        y, tasks = g.normal(size=(len(families), len(names), len(SEEDS))), g.random(len(families)) < share
        y[:, 4] += gap * tasks[:, None]
        z = np.array([(block - block.mean()) / block.std() for block in y])
        yield adopted(z, names, families, judged(z, names, families, draws), draws)


def runs_that_count(found, lines):
    "A line for each of the runs that the decision is made from; `lines`: (task, row, place) -> line of results."
    for task, rows in found.items():
        for row, scores in rows.items():
            rate, _, end = chosen(scores)
            for seed in SEEDS:
                line = lines.get((task, row, (rate, seed)), {})
                yield {"task": str(task), "family": task.family, "setting": row, "rate": rate, "end_of_ladder": end,
                       "seed": seed, "score": task.sign * scores[rate, seed], "sign": task.sign,
                       "commit": line.get("commit", "")}


def write(tables, folder, lines, name, gaps, path, left=()):
    "The runs that count, and beside them the decision, and `left`, what it would be without each family."
    by_place = {(task, row, place): line for task, row, place, line in made(tables, folder)}
    runs = list(runs_that_count(read(tables, folder)[0], by_place))
    write_csv(path, list(runs[0]), runs)
    decision = [{**line, "adopted": line["setting"] == name,
                 **dict(zip(("behind adopted", "p behind (Holm)"), gaps.get(line["setting"], ("", "")), strict=True))}
                for line in lines]
    write_csv(path.with_stem(f"{path.stem}_decision"), list(decision[-1]), decision)
    path.with_stem(f"{path.stem}_without").unlink(missing_ok=True)       # that of another decision
    if left:
        write_csv(path.with_stem(f"{path.stem}_without"), list(left[0]), left)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=HERE / "rows", help="folder of the rows")
    parser.add_argument("--out", type=Path, default=HERE / "defaults.csv", help="file to write")
    parser.add_argument("--plan", action="store_true", help="print the commands that are missing, and nothing else")
    parser.add_argument("--write", action="store_true", help="the rates, into tables.json, and nothing else")
    parser.add_argument("--simulate", type=int, metavar="N", help="only: what N invented studies adopt")
    given = parser.parse_args(argv)
    if given.simulate:
        asked = {task: None for task, _, _ in cells(read_tables())}
        names = list(read_tables()["defaults-volumes"].rows)
        for gap, share in ((0, 1), (1, 1), (1.5, 1), (2, 0.6)):
            found = list(simulated(gap, share, given.simulate, names, [task.family for task in asked]))
            print(f"gap {gap} on {share:.0%} of tasks:", {name: found.count(name) for name in names if name in found})
        return
    found, absent = read(read_tables(), given.rows)
    todo = list(plan(found))
    if given.plan:
        return print(*(f"# {name}: {LACKING}" for name in absent), *todo, sep="\n")
    if given.write:
        path = HERE / "tables.json"
        after = with_rates(json.loads(path.read_text(encoding="utf-8")), found)
        return put_text(path, written(after))
    if absent or todo:
        raise SystemExit("; ".join([f"No decision yet: {len(todo)} commands to run, which --plan prints",
                                    *(f"{name}: {LACKING}" for name in absent)]))
    tasks, names = list(found), list(next(iter(found.values())))
    z, families = standardized(found), [task.family for task in tasks]
    lines = judged(z, names, families)
    print(Table(lines))
    print(Table([{"task": str(task), **dict(zip(names, np.round(block.mean(1), 2), strict=True))}
                 for task, block in zip(tasks, z, strict=True)]))
    name = adopted(z, names, families, lines)
    print("adopted:", name)
    left = list(without(z, names, families, name)) if name != names[0] else ()
    write(read_tables(), given.rows, lines, name, behind(z, names, families, name), given.out, left)


if __name__ == "__main__":
    main()

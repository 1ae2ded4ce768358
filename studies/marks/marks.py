"""Marks on official data: what studies/marks/README.md still asks for, its tables, and what their rows say.

    python -m studies.marks.marks --pace      updates on one and two threads, plain and compiled; some minutes, alone
    python -m studies.marks.marks --cost      seconds of an update of each kind, and how many an epoch has, into
                                              marks_cost.csv; some minutes, alone; lines of other data stay
    python -m studies.marks.marks --plan      commands whose rows are missing; studies/todo.py does them
    python -m studies.marks.marks --write     the tables marks-…, as far as sizes and rates are chosen
    python -m studies.marks.marks --simple    forecasts without training at the chosen lookback, into marks_simple.csv
    python -m studies.marks.marks             what counts of the rows in studies/marks/rows, into
                                              studies/marks/marks.csv, of data sets that are complete; their
                                              comparisons, into marks_compared.csv; for volumes, how often each tenth of
                                              the probabilities is right, into marks_calibration.csv; what was tried
                                              with seed 99, of all that has been begun, into marks_choices.csv

For each data set sizes and epochs are chosen first, with product attention and seed 99, then a rate for each kind,
then come the seeds.
"""
import argparse
import itertools
import json
import shlex
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hot_nbdev.cli.jobs import job_class
from hot_nbdev.cli.tables import merged
from hot_nbdev.train.paired import delong, holm, paired_t, read_scores
from hot_nbdev.train.results import processor, read_rows, write_csv
from studies.defaults.defaults import scored, told
from studies.forecasts.simple_forecasts import from_all
from studies.forecasts.simple_forecasts import rows as simple_rows
from studies.motion.motion_pace import updater
from studies.motion.motion_tables import chosen, written
from studies.rows import put, put_text

ROOT, HERE, FOLDER = Path(__file__).parents[2], Path(__file__).parent, "studies/marks/rows"
GRID, FIRST_RATE, SEARCHED, SEEDS = (3e-4, 1e-3, 3e-3), 1e-3, 99, (0, 1, 2, 3, 4)
LEAST = dict.fromkeys(("epochs", "dim", "lookback"), 0.005)     # gain in score for which one that costs more is taken


class Case(NamedTuple):
    "One data set."
    command: str
    data: str           # as the command calls it
    test: str           # column of the score on the test part
    settings: dict      # of all kinds
    model: dict         # of the Transformers among them
    choices: dict       # setting -> values, the first one where nothing is better; in this order
    kinds: dict         # name -> own settings
    each: tuple = ({},)  # the first one is searched
    search: dict = {}   # settings of the search of rates in place of what is chosen
    fewer: dict = {}    # kind -> its seeds, if it has not all of them


NORM, DEFAULT = {"qk_norm": True}, {"qk_norm": True, "qk_gain": 4.0}     # as adopted, whatever the default will be
ATTENTIONS = {**{name: {"attention": name, "attention_options": DEFAULT} for name in ("product", "sum")},
              **{name: {"attention": name, "attention_options": NORM} for name in ("full", "axial", "temporal")},
              "none": {"attention": "none"}}
RESNET = {"model": "resnet", "model_option": {"stem_stride": 2, "max_pool": True, "width": 0.25}}
WHOLE = merged(RESNET, {"model_option": {"width": 1.0}})
VOLUME = Case("classify", "", "test_auc", dict(flips=True, shifts=0, class_weights="none", epochs=30, batch_size=16),
              dict(dim=32, depth=2, heads=4, stem="conv", stem_width=5, dropout=0.0),
              {"dim": (32, 64), "shifts": (0, 1, 2), "class_weights": ("none", "balanced"), "epochs": (30, 60)},
              {**{k: v for k, v in ATTENTIONS.items() if k != "temporal"}, "ResNet-18, a quarter": RESNET,
               "ResNet-18": WHOLE}, search={"epochs": 30})
SERIES = Case("forecast", "", "test_mse", dict(lookback=96, epochs=10, patience=3),
              dict(dim=32, depth=2, heads=4, patch=[16], position_modes=[0], dropout=0.1),
              {"lookback": (96, 192, 336), "dim": (32, 16, 64), "position_modes": ([0], [0, 1])},
              {**{k: v for k, v in ATTENTIONS.items() if k != "axial"}, "DLinear": {"model": "dlinear"}},
              ({"horizon": 96}, {"horizon": 336}))
SCENE = Case("segment", "", "test_accuracy", dict(flips=True, class_weights="none", criterion="accuracy", epochs=20,
                                                  batch_size=8),
             dict(dim=32, depth=2, heads=4, dropout=0.1),
             {"dim": (32, 64), "class_weights": ("none", "balanced"), "epochs": (20, 60)},
             {k: v for k, v in ATTENTIONS.items() if k != "temporal"})
CASES = {
    "Vessel": VOLUME._replace(data="vesselmnist3d", fewer={"ResNet-18": (0,)}),
    "Adrenal": VOLUME._replace(data="adrenalmnist3d"),
    "Exchange": SERIES._replace(data="exchange_rate"), "ETTh1": SERIES._replace(data="ETTh1"),
    "Weather": SERIES._replace(data="weather", settings={**SERIES.settings, "draws": 12_800}),
    "Indian Pines": SCENE._replace(data="indian_pines"),
    "Sentinel-2": SCENE._replace(data="sentinel2", test="test_miou", settings={**SCENE.settings, "criterion": "miou"},
                                 model={**SCENE.model, "patch": [1, 2, 2]}),
}


def slug(name):
    return f"marks-{name.lower().replace(' ', '-')}"


def settings(case, kind, choice, step):
    "Of a run, without rate and seed; a choice that a kind has no use for is left out."
    own = case.kinds[kind]
    whole = merged(case.settings, {} if "model" in own else case.model, own)
    known = {k: v for k, v in choice.items() if k in whole}
    return merged(whole, known, step, {"data": case.data, "results": FOLDER})


def rows_by_settings(case, folder):
    "Settings as text -> (rate, seed) -> row."
    found = {}
    for row in read_rows(Path(folder) / f"{case.command}.csv"):
        own = json.loads(row["settings"])
        found.setdefault(told(case.command, own), {})[own["rate"], own["seed"]] = row
    return found


class Progress:
    "How far a data set has come: what is chosen, what is to run, what was found."
    def __init__(self, name, folder):
        self.name, self.case, self.folder, self.todo = name, CASES[name], Path(folder), []
        self.column, self.sign = scored(self.case.command, self.case.settings)
        self.rows = rows_by_settings(self.case, folder)
        self.choice = self.choose()
        self.rates = {} if self.todo else {kind: self.rate(kind) for kind in self.case.kinds}
        self.scores = {} if self.todo else self.seeds()

    def of(self, kind, choice, step):
        return self.rows.get(told(self.case.command, settings(self.case, kind, choice, step)), {})

    def validation(self, rows, rate):
        row = rows.get((rate, SEARCHED))
        return None if row is None else self.sign * float(row[self.column])

    def ask(self, kind, choice, rate, seeds, step):
        sets = {k: v for k, v in choice.items() if k in settings(self.case, kind, choice, step)} | step | {"rate": rate}
        words = ["hot_reproduce", f"{slug(self.name)}-rates", "--row", kind, "--seeds", *map(str, seeds)]
        for key, value in sets.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        self.todo.append(shlex.join(words))

    def choose(self):
        "One setting after the other, with product attention; what is missing is asked for."
        choice, step = {}, self.case.each[0]
        for key, values in self.case.choices.items():
            tried = [self.validation(self.of("product", {**choice, key: v}, step), FIRST_RATE) for v in values]
            for v in (v for v, t in zip(values, tried, strict=True) if t is None):
                self.ask("product", {**choice, key: v}, FIRST_RATE, [SEARCHED], step)
            if self.todo:
                break
            scores = list(zip(values, tried, strict=True))
            best, *others = sorted(scores) if key in LEAST else scores      # what costs less comes first
            for one in others:
                best = one if one[1] > best[1] + LEAST.get(key, 0) else best
            choice[key] = best[0]
        return choice

    def searched(self):
        "A line for each run with seed 99: what was tried, and its validation score."
        case, chosen = self.case, {}
        for key, values in case.choices.items():
            for v in values if key in self.choice else ():
                score = self.validation(self.of("product", {**chosen, key: v}, case.each[0]), FIRST_RATE)
                yield self.line(key, "product", json.dumps(v), score, v == self.choice[key])
            chosen = {k: v for k, v in self.choice.items() if k in chosen or k == key}
        for kind, best in self.rates.items():
            rows = self.of(kind, {**self.choice, **case.search}, case.each[0])
            for rate in sorted(rate for rate, seed in rows if seed == SEARCHED and best):
                yield self.line("rate", kind, f"{rate:g}", self.validation(rows, rate), rate == best)

    def line(self, setting, kind, value, score, taken):
        return {"data": self.name, "setting": setting, "kind": kind, "value": value, "score": self.column,
                "validation": self.sign * score, "taken": int(taken)}

    def rate(self, kind):
        "The rate of a kind, None while the search goes on."
        choice = {**self.choice, **self.case.search}
        rows = self.of(kind, choice, self.case.each[0])
        tried = {rate: -self.validation(rows, rate) for rate, seed in rows if seed == SEARCHED}
        best, more = chosen(tried, GRID)
        for rate in more:
            self.ask(kind, choice, rate, [SEARCHED], self.case.each[0])
        return best

    def seeds(self):
        "(kind, step) -> seed -> row, of all that is there."
        found = {}
        for kind, step in itertools.product(self.case.kinds, self.case.each):
            rate, seeds = self.rates[kind], self.case.fewer.get(kind, SEEDS)
            if rate is None:
                continue
            rows = self.of(kind, self.choice, step)
            if missing := [s for s in seeds if (rate, s) not in rows]:
                self.ask(kind, self.choice, rate, missing, step)
            found[kind, tuple(step.items())] = {s: rows[rate, s] for s in seeds if (rate, s) in rows}
        return found

    def table(self, rates):
        "A table of the library: that of the searches, which begins before any choice, or the one that a chapter shows."
        case, choice = self.case, self.choice if rates else {}
        shared = merged(case.settings, {k: v for k, v in choice.items() if k in case.settings}, {"results": FOLDER})
        rows = {kind: merged({k: v for k, v in settings(case, kind, choice, {}).items()
                              if k != "data" and shared.get(k) != v}, {"rate": self.rates[kind]} if rates else {})
                for kind in case.kinds if not rates or kind not in case.fewer}
        return {"title": f"Marks: {self.name}" + ("" if rates else ", sizes and rates"), "command": case.command,
                "data": {self.name: case.data}, **({} if rates else {"seeds": [SEARCHED]}), "settings": shared,
                "each": list(case.each), "rows": rows}


def compared(progress):
    "A line for each rival of the product at each step; p over seeds, adjusted within data set and step."
    lines, case, sign = [], progress.case, -1 if progress.case.test == "test_mse" else 1
    for step in case.each:
        key, group = tuple(step.items()), []
        ours = progress.scores.get(("product", key), {})
        for kind in case.kinds:
            theirs = progress.scores.get((kind, key), {})
            seeds = sorted(ours.keys() & theirs.keys())
            if kind == "product" or len(seeds) < 2:
                continue
            gap = paired_t(*([sign * float(rows[s][case.test]) for s in seeds] for rows in (ours, theirs)))
            group.append({"data": progress.name, "horizon": step.get("horizon", ""), "against": kind,
                          "seeds": len(seeds), "product": gap.one, "other": gap.other, "difference": gap.difference,
                          "low": gap.low, "high": gap.high, "p": gap.p, **over_samples(progress, ours, theirs, seeds)})
        for line, p in zip(group, holm([line["p"] for line in group]), strict=True):
            lines.append({**line, "p (Holm)": p})
    return lines


def over_samples(progress, ours, theirs, seeds):
    """For two classes: how far the difference is due to the choice of test samples. DeLong's for runs of one seed, in
    the mean over seeds, and for the means of all runs."""
    names, wanted = ("over samples", "of means"), ("low", "high", "correlation")
    if progress.case.command != "classify":
        return {f"{of} {name}": "" for name in names for of in wanted}
    kept = [[read_scores(rows[s], progress.folder) for s in seeds] for rows in (ours, theirs)]
    label = kept[0][0]["label"]
    one, other = (np.stack([scores["probability"][:, 1] for scores in runs]) for runs in kept)
    both = [delong(label, *pair) for pair in zip(one, other, strict=True)], [delong(label, one, other)]
    return {f"{of} {name}": float(np.mean([getattr(c, of) for c in found]))
            for name, found in zip(names, both, strict=True) for of in wanted}


TOLD = ("parameters", "multiply_adds", "epochs", "best_epoch", "seconds", "hardware", "processor", "threads", "torch",
        "commit")      # columns of a row that are kept as they are
SECOND = {"auc": "acc", "mse": "mae", "accuracy": "miou", "miou": "accuracy"}       # is shown, and decides nothing


def kept(progress):
    "A line for each run that counts: the scores of both parts, recall of each class where there are classes."
    metric = progress.case.test.removeprefix("test_")
    lines, names = [], (metric, SECOND[metric])
    for (kind, step), by_seed in progress.scores.items():
        for seed, row in by_seed.items():
            own = json.loads(row["settings"])
            recalls = recalls_of(read_scores(row, progress.folder)) if progress.case.command == "classify" else ("", "")
            lines.append({
                "data": progress.name, "horizon": dict(step).get("horizon", ""), "kind": kind, "seed": seed,
                "rate": own["rate"], **dict(zip(("metric", "second"), names, strict=True)),
                **{f"{part} {at}": row[f"{part}_{name}"] for part in ("val", "test")
                   for at, name in zip(("metric", "second"), names, strict=True)},
                **dict(zip(("recall 0", "recall 1"), recalls, strict=True)),
                "iou by class": row.get("test_iou_by_class", ""),
                "choice": json.dumps(progress.choice),
                **{key: row.get(key, "") for key in TOLD}})
    return lines


def recalls_of(found):
    "Share of each of two classes that is named rightly, at probability one half."
    named = found["probability"].argmax(1)
    return [float((named[found["label"] == c] == c).mean()) for c in (0, 1)]


def calibration(progress, bins=10):
    "For each kind a line for each bin of equal counts, seeds together: mean probability, and how often it is right."
    lines = []
    for (kind, _), by_seed in progress.scores.items() if progress.case.command == "classify" else ():
        found = [read_scores(row, progress.folder) for row in by_seed.values()]
        p = np.concatenate([f["probability"][:, 1] for f in found])
        label = np.concatenate([f["label"] for f in found]).reshape(-1)
        order = np.argsort(p, kind="stable")
        lines += [{"data": progress.name, "kind": kind, "seeds": len(found), "bin": b, "count": len(part),
                   "probability": round(float(p[part].mean()), 6), "share": round(float(label[part].mean()), 6)}
                  for b, part in enumerate(np.array_split(order, bins))]
    return lines


def timed(job, threads=1, compiled=False, updates=5):
    "Seconds of an update, the least of six rounds, and how many an epoch has."
    (update, _, each), best = updater(job, torch.compile) if compiled else updater(job), float("inf")
    torch.set_num_threads(threads)
    for turn in range(7):
        begin = time.perf_counter()
        for _ in range(updates):
            update()
        best = min(best, (time.perf_counter() - begin) / updates) if turn else best     # the first one warms up
    return best, each


ABOUT = {"hardware": processor(), "torch": torch.__version__.split("+")[0]}


def pace(name, threads, compiled):
    "Of the product, before anything is chosen."
    case = CASES[name]
    best, _ = timed(job_class(case.command).from_dict(settings(case, "product", {}, case.each[0])), threads, compiled)
    return {"data": name, "threads": threads, "compiled": compiled, "seconds_per_update": f"{best:.5f}", **ABOUT}


def costs(progress):
    "What an epoch of each kind takes, at the sizes that were chosen."
    case = progress.case
    for kind in case.kinds if len(progress.choice) == len(case.choices) else ():
        job = job_class(case.command).from_dict(settings(case, kind, progress.choice, case.each[0]))
        best, updates = timed(job)
        yield {"data": progress.name, "kind": kind, "seconds_per_update": f"{best:.5f}", "updates": updates,
               "batch_size": job.batch_size, "threads": 1, **ABOUT}


def without_training(progress):
    "Of a series whose lookback is chosen: the simple forecasts and the best linear ones, from the same window."
    if "lookback" not in progress.choice:
        return []
    horizons, lookback = [step["horizon"] for step in progress.case.each], progress.choice["lookback"]
    rows = [{**row, "ridge": ""} for row in simple_rows(progress.case.data, horizons, lookback)]
    rows += [from_all(progress.case.data, lookback, h) for h in horizons]
    return [{**row, "data": progress.name} for row in rows]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--pace", "--cost", "--plan", "--write", "--simple"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--data", nargs="+", default=list(CASES), choices=list(CASES),
                        help="default: all; the lines of others stay")
    parser.add_argument("--rows", type=Path, default=ROOT / FOLDER, help="folder of the rows")
    given = parser.parse_args(argv)
    if given.pace:
        rows = [pace(*one) for one in itertools.product(("Vessel", "Exchange"), (1, 2), (False, True))]
        return write_csv(HERE / "marks_pace.csv", list(rows[0]), rows)
    found = [Progress(name, given.rows) for name in CASES if name in given.data]
    if given.plan:
        return print(*(command for progress in found for command in progress.todo), sep="\n")
    for name, wanted, of in (("simple", given.simple, without_training), ("cost", given.cost, costs)):
        if new := [row for progress in found for row in of(progress)] if wanted else []:
            put(HERE / f"marks_{name}.csv", new, "data")
    if given.simple or given.cost:
        return
    if given.write:
        path = HERE / "tables.json"
        tables = json.loads(path.read_text(encoding="utf-8"))
        for p in found:
            known = bool(p.rates) and all(p.rates.values())
            tables |= {f"{slug(p.name)}-rates": p.table(False)} | ({slug(p.name): p.table(True)} if known else {})
        put_text(path, written(tables))
    complete = [progress for progress in found if not progress.todo]
    for name, of, shown in (("marks", kept, complete), ("marks_choices", Progress.searched, found),
                            ("marks_compared", compared, complete), ("marks_calibration", calibration, complete)):
        if lines := [line for progress in shown for line in of(progress)]:
            put(HERE / f"{name}.csv", lines, "data")


if __name__ == "__main__":
    main()

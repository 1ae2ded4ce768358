"""Pooled vectors less their mean, beside pooled vectors as they are: studies/centred/README.md.

    python -m studies.centred.centred --run            all that is missing, one run after the other; Ctrl-C ends it,
                                                       rows stand
    python -m studies.centred.centred --run white64    of one task
    python -m studies.centred.centred                  what counts of the rows in studies/centred/rows, into
                                                       studies/centred/centred.csv

The rate of the centred kind is searched with seed 99, then come the seeds.
"""
import argparse
import itertools
from functools import partial
from pathlib import Path

import torch

from hot_nbdev.cli.fields import MotionJob
from hot_nbdev.cli.jobs import run_job
from hot_nbdev.cli.tables import merged, read_tables
from hot_nbdev.names import ATTENTIONS, kronecker
from hot_nbdev.train.results import write_csv
from studies.motion.motion_tables import SEARCHED, chosen
from studies.nearest.nearest import rows_like

ROOT, FOLDER, GRID = Path(__file__).parents[2], "studies/centred/rows", (0.003, 0.01, 0.03)
TASKS = {"white32": "motion-growth-32", "white64": "motion-growth-64", "tables": "motion-align", "air": "motion-a1b",
         "photographs": "motion-pictures", "reactions": "motion-kinetic", "head": "motion-mri",
         "antibodies": "motion-covid", "sea": "motion-ostia"}
MASKED = ("antibodies", "sea")          # which the trial form cannot do, and the layer's setting can
KINDS = ("product", "centred")
SEEDS = {"white64": (0, 1, 2)}          # else five
BORROWED = {"white64": "white32"}       # whose rate it takes


ATTENTIONS["centred"] = partial(kronecker, qk_center=True)     # the trial form gave the same


def settings(task, kind, **more):
    "Of a run, without rate and seed."
    table = read_tables()[TASKS[task]]
    row = {k: v for k, v in table.rows["product"].items() if k != "rate"}
    how = {"attention": kind}
    if task in MASKED:
        how = {"attention": "product", "attention_options": {"qk_center": True} if kind == "centred" else {}}
    return merged(table.settings, row, how, {"data": next(iter(table.data.values())), "results": FOLDER,
                                             "progress": False}, more)


def rows_of(task, kind, folder):
    "(rate, seed) -> row."
    return rows_like(MotionJob.from_dict(settings(task, kind)), folder)


def missing(task, kind, folder):
    "The rate, if it is known, and the runs that are still to be done as (rate, seed)."
    rows, more = rows_of(task, kind, folder), []
    if kind == "product":
        best = read_tables()[TASKS[task]].rows["product"]["rate"]
    elif task in BORROWED:
        best = missing(BORROWED[task], kind, folder)[0]
    else:
        tried = {rate: float(r["val_loss"]) for (rate, seed), r in rows.items() if seed == SEARCHED}
        best, more = chosen(tried, GRID)
    if best is None or more:
        return None, [(rate, SEARCHED) for rate in more]
    return best, [(best, seed) for seed in SEEDS.get(task, range(5)) if (best, seed) not in rows]


def run_all(folder, tasks):
    "Do what is missing; a search may ask for more."
    for task, kind in itertools.product(tasks, KINDS):
        while todo := missing(task, kind, folder)[1]:
            for rate, seed in todo:
                print(task, kind, f"rate {rate:g}", f"seed {seed}", flush=True)
                run_job(MotionJob.from_dict(settings(task, kind, rate=rate, seed=seed)), say=lambda line: None)


TOLD = ("parameters", "multiply_adds", "epochs", "seconds", "processor", "threads", "torch", "commit", "run")


def kept(folder):
    "A line for each run that counts, and for each that was tried."
    for task, kind in itertools.product(TASKS, KINDS):
        rows, (best, _) = rows_of(task, kind, folder), missing(task, kind, folder)
        for (rate, seed), row in sorted(rows.items()):
            if best is not None and (seed == SEARCHED or rate == best):
                yield {"task": task, "kind": kind, "seed": seed, "rate": rate, "val_nmse": row["val_nmse"],
                       "test_nmse": row["test_nmse"], **{key: row.get(key, "") for key in TOLD}}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="*", metavar="TASK", choices=[*TASKS, []])
    given = parser.parse_args(argv)
    if given.run is not None:
        torch.set_num_threads(1)
        return run_all(ROOT / FOLDER, given.run or TASKS)
    rows = list(kept(ROOT / FOLDER))
    write_csv(Path(__file__).with_name("centred.csv"), list(rows[0]), rows)


if __name__ == "__main__":
    main()

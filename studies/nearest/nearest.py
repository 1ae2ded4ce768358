"""The nearest tasks on which product attention should fail: studies/nearest/README.md.

    python -m studies.nearest.nearest --run    all that is missing, one run after the other; Ctrl-C ends it, rows stand
    python -m studies.nearest.nearest          what counts of the rows in studies/nearest/rows, into
                                               studies/nearest/nearest.csv

Rates are searched with seed 99, then come the seeds.
"""
import argparse
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from hot_nbdev.cli.fields import MotionJob
from hot_nbdev.cli.jobs import run_job
from hot_nbdev.cli.tables import merged, read_tables
from hot_nbdev.data import Splits, digest
from hot_nbdev.data.moved import FIELDS, Drawn, white_fields
from hot_nbdev.train.results import read_rows, write_csv
from studies.motion.motion_tables import GRID, SEARCHED, chosen

ROOT, FOLDER, SIZE, SEEDS = Path(__file__).parents[2], "studies/nearest/rows", 16, (0, 1, 2, 3, 4)
KINDS = ("product", "axial", "full", "none", "dilated")


class Nearest(Drawn):
    "Samples of what is read and what is wanted; `frames` makes all from two fields (B, n, n) and two whole numbers."
    def __init__(self, fields, samples, seed):
        self.fields, self.seed = fields, seed
        self.draws = self.draw(samples, torch.Generator().manual_seed(seed))

    def draw(self, samples, generator=None):        # (samples, 4): two fields, two numbers
        most = torch.tensor([len(self.fields), len(self.fields) - 1, SIZE, SIZE])
        draws = (torch.rand(samples, 4, generator=generator, dtype=torch.float64) * most).long()
        draws[:, 1] = (draws[:, 0] + 1 + draws[:, 1]) % len(self.fields)      # another field
        return draws

    def batch(self, draws):
        *x, y = self.frames(self.fields[draws[:, 0]], self.fields[draws[:, 1]], *draws[:, 2:].T)
        return torch.stack(x, -1), y[..., None]

    def fingerprint(self):
        return digest(type(self).__name__, self.fields, self.draws)


class Halves(Nearest):
    @staticmethod
    def frames(u, _, left, right):
        "Each half of the columns has a vertical shift of its own."
        n = u.shape[-1]
        v = torch.where(torch.arange(n, device=u.device) < n // 2, left[:, None], right[:, None])       # (B, n)
        rows = torch.arange(n, device=u.device)[:, None]
        return [u.gather(1, (rows - t * v[:, None]) % n) for t in range(3)]


class Turned(Nearest):
    @staticmethod
    def frames(u, other, side, _):
        "A field, the same turned by a quarter, another field, and that one turned in the same way."
        left = (side % 2 == 0)[:, None, None]
        turned, wanted = (torch.where(left, f.rot90(1, (1, 2)), f.rot90(-1, (1, 2))) for f in (u, other))
        return [u, turned, other, wanted]


class Texture(Nearest):
    @staticmethod
    def frames(u, other, _, __):
        "The product of the neighbors above and to the left in frame 1."
        return [u, other, other.roll(1, 1) * other.roll(1, 2)]


TASKS = {"halves": Halves, "turned": Turned, "texture": Texture}


@dataclass(frozen=True)
class NearestJob(MotionJob):
    "A run of one of the tasks, which `data` names."
    def padding(self):
        return "circular"

    def parts(self):
        chance, parts = torch.Generator().manual_seed(self.seed), []
        for i, (count, samples) in enumerate(zip(FIELDS.values(), (self.samples, 256, 512), strict=True)):
            parts.append(TASKS[self.data](white_fields(count, self.size, chance), samples, 1000 * self.seed + i))
        about = {"name": self.data, "told": [], "md5": None,
                 "input": {"own": True, "data": self.data, "sizes": list(self.size)}}
        return Splits(*parts, about)


def settings(task, kind, **more):
    "Of a run: those of the table of white fields of this size, with positions where the task has a center."
    own = read_tables()["motion-16"].rows[kind]
    places = {"positions": "learned"} if task == "turned" and "model" not in own else {}
    return merged({k: v for k, v in own.items() if k != "rate"}, places,
                  {"data": task, "size": [SIZE, SIZE], "results": FOLDER, "progress": False, **more})


def rows_like(job, folder):
    "(rate, seed) -> row with the other settings of a job."
    def others(numbers):
        return {k: v for k, v in numbers.items() if k not in ("rate", "seed")}
    want, rows = others(job.numbers()), read_rows(Path(folder) / "motion.csv")
    return {(own["rate"], own["seed"]): row for row in rows if others(own := json.loads(row["settings"])) == want}


def rows_of(task, kind, folder):
    return rows_like(NearestJob.from_dict(settings(task, kind)), folder)


def missing(task, kind, folder):
    "The rate that validation chose, if it has, and the runs that are still to be done as (rate, seed)."
    rows = rows_of(task, kind, folder)
    best, more = chosen({rate: float(r["val_loss"]) for (rate, seed), r in rows.items() if seed == SEARCHED}, GRID)
    if more or best is None:
        return None, [(rate, SEARCHED) for rate in more]
    return best, [(best, seed) for seed in SEEDS if (best, seed) not in rows]


def run_all(folder):
    "Do what is missing; a search may ask for more."
    for task, kind in itertools.product(TASKS, KINDS):
        while todo := missing(task, kind, folder)[1]:
            for rate, seed in todo:
                print(task, kind, f"rate {rate:g}", f"seed {seed}", flush=True)
                run_job(NearestJob.from_dict(settings(task, kind, rate=rate, seed=seed)), say=lambda line: None)


TOLD = ("parameters", "multiply_adds", "epochs", "seconds", "processor", "threads", "torch", "commit")


def kept(folder):
    "A line for each run that counts."
    for task, kind in itertools.product(TASKS, KINDS):
        rows, (best, _) = rows_of(task, kind, folder), missing(task, kind, folder)
        for seed in SEEDS if best else ():
            if row := rows.get((best, seed)):
                yield {"task": task, "kind": kind, "seed": seed, "rate": best, "val_nmse": row["val_nmse"],
                       "test_nmse": row["test_nmse"], **{key: row.get(key, "") for key in TOLD}}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args(argv)
    if given.run:
        torch.set_num_threads(1)
        return run_all(ROOT / FOLDER)
    rows = list(kept(ROOT / FOLDER))
    write_csv(Path(__file__).with_name("nearest.csv"), list(rows[0]), rows)


if __name__ == "__main__":
    main()

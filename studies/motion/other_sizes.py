"""Models that were trained on white fields of 32 x 32, on fields of other sizes, as README.md says.

    hot_reproduce motion-growth-32          the models, in runs/; and `motion-32 --row "axial + token"`, and python -m
                                            studies.centred.centred --run white32
    python -m studies.motion.other_sizes    their errors on other sizes, into studies/motion/other_sizes.csv; minutes

The rows of the runs stay where they are; what is needed besides is the folder of each run, in runs/.
"""
import argparse
import sys
from pathlib import Path

import torch

from hot_nbdev.cli.fields import MotionJob
from hot_nbdev.cli.tables import made_by, planned, read_tables
from hot_nbdev.data.moved import motion_data
from hot_nbdev.models import load_model
from hot_nbdev.train.results import processor, read_rows, write_csv
from hot_nbdev.train.tasks import Fields
from studies.centred import centred

ROOT, SIZES, FIELDS, BATCH = Path(__file__).parents[2], (16, 32, 64, 128), 256, 16
TABLE, ALSO = "motion-growth-32", {"motion-32": ["axial + token"]}      # whose run is planned there
FITS = {"unet": (32, 64, 128), "full": (16, 32, 64)}     # a U-Net halves four times; full attention at 128 takes hours


def runs(root, more=None):
    "Model and row of each run whose model is asked for; the newest of several, if its folder is there."
    tables, files = read_tables(), [root / "studies/motion/motion.csv", *([more / "motion.csv"] if more else [])]
    table, lines = tables[TABLE], [row for path in files for row in read_rows(path)]
    lines.sort(key=lambda row: (root / "runs" / row["run"]).is_dir())
    for name, models in {TABLE: list(table.rows), **ALSO}.items():
        for model in models:
            for plan in planned(name, tables[name], [model], seeds=table.seeds):
                job = MotionJob.from_dict(plan.settings)
                if (row := next((r for r in lines[::-1] if made_by(job, r)), None)) is None:
                    sys.exit(f"there is no row of {plan.title}; hot_reproduce {name} makes it")
                yield model, row
    rate, _ = centred.missing("white32", "centred", root / centred.FOLDER)
    own = centred.rows_of("white32", "centred", root / centred.FOLDER)
    yield from (("centred", own[key]) for key in sorted(own) if key[0] == rate and key[1] in table.seeds)


@torch.no_grad()
def error_at(model, n, seed, fields=FIELDS):
    "Error over variance on test fields of n x n."
    part, task = motion_data("white", (n, n), samples=1, seed=seed).test, Fields()
    batches = (part[torch.arange(i, min(i + BATCH, fields))] for i in range(0, fields, BATCH))
    return task.metrics([task.collect(model(x), y) for x, y in batches])["nmse"]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="where runs/ and studies/ are")
    parser.add_argument("--more", type=Path, help="a folder of further rows (--set results=…)")
    given, lines = parser.parse_args(argv), []
    torch.set_num_threads(1)
    for name, row in runs(given.root, given.more):
        folder = given.root / "runs" / row["run"]
        if not folder.is_dir():
            sys.exit(f"{folder} is not there; hot_reproduce makes it where there is no row of it")
        model = load_model(folder).eval()
        for n in FITS.get(name, SIZES):
            error = error_at(model, n, int(row["seed"]))
            print(name, "seed", row["seed"], f"{n} x {n}", f"{error:.4f}", flush=True)
            lines.append({"model": name, "seed": row["seed"], "trained": 32, "size": n, "test_nmse": f"{error:.6f}",
                          "run": row["run"], "processor": processor(), "threads": 1,
                          "torch": torch.__version__.split("+")[0]})
    write_csv(Path(__file__).with_name("other_sizes.csv"), list(lines[0]), lines)


if __name__ == "__main__":
    main()

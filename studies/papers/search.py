"""The papers' search spaces (first paper, table 9; second, table 6): settings drawn from them, judged on validation.

    python -m studies.papers.search series1 --data exchange_rate --horizon 96 --draws 16
    python -m studies.papers.search volumes2 --data vessel --draws 16 --device cuda

The papers do not say how they searched; here as many points as asked are drawn without replacement, and the same
seed draws the same ones. Runs that have a row in rows/ are not made again, and one that was interrupted goes on from
its last epoch, so that a search can be ended and widened.
"""
import argparse
from functools import partial
from math import prod
from pathlib import Path

from sklearn.model_selection import ParameterGrid, ParameterSampler

from hot_nbdev.cli.tables import RunTable
from studies.tied.tied import run

HERE = Path(__file__).parent
FIRST = {"attention": "hot1", "kernel": "smreg", "weight_decay": 0.0}
BLOCKS = {"depth": (1, 2, 3, 4), "dim": (64, 128, 256), "dropout": (0.0, 0.1, 0.2, 0.3, 0.4), "heads": (1, 4, 8),
          "readout": ("mean", "flatten")}
SECOND = {"dropout": (0.0, 0.1, 0.2, 0.3), "weight_decay": (0.01, 0.1, 0.3, 0.5), "heads": (1, 2, 4, 8, 16, 32),
          "patch": ([2], [4])}
SPACES = {      # name: command, what stands fast, what is searched
    "series1": ("forecast", FIRST, BLOCKS | {"patch": ([1], [4], [8], [16])}),
    "volumes1": ("classify", FIRST | {"stem": "conv"}, BLOCKS | {"stem_width": (3, 5, 7)}),
    "series2": ("forecast", {"attention": "hot2", "depth": 2, "readout": "mean"}, SECOND),
    "volumes2": ("classify", {"attention": "hot2", "depth": 6, "readout": "mean"}, SECOND),
}


def points(space, draws, seed=0):
    "Settings drawn from a space, without replacement; all of them if it has no more."
    _, fast, searched = SPACES[space]
    size = prod(map(len, searched.values()))
    drawn = ParameterGrid(searched) if draws >= size else ParameterSampler(searched, draws, random_state=seed)
    return [fast | point for point in drawn]


def search(space, draws, seed=0, device="cpu", **settings):
    "(validation score, the better the lower; its settings) of each point, the best first."
    command = SPACES[space][0]
    column, sign = ("val_mae", 1) if command == "forecast" else ("val_auc", -1)     # what the papers choose by
    one = partial(run, RunTable(command=command, data={"": ""}, rows={"": {}}), home=HERE, device=device)
    found = [(sign * float(one({"seed": seed, **settings, **p})[column]), p) for p in points(space, draws, seed)]
    return sorted(found, key=lambda pair: pair[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", choices=SPACES)
    parser.add_argument("--data", required=True)
    parser.add_argument("--horizon", type=int)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = vars(parser.parse_args())
    if given["horizon"] is None:
        del given["horizon"]
    for score, point in search(**given):
        print(f"{abs(score):.4f}", point)


if __name__ == "__main__":
    main()

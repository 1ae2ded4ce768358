"""How long two models wait before they learn to follow a moving field, for chapter 0.

Data, models and training loop are read from nbs/00_modes.ipynb, so what runs here is what the text shows. A run
trains one model, with one seed and one learning rate, until the mean error of ten batches in a row is below one
half, or for 600 updates, and adds one row to studies/modes/modes.csv. First comes the search of the rate, on a seed
that is used for nothing else: the rate with the fewest updates is taken for each model. Then come the seeds.
Runs whose rows are there are skipped.
"""
import ast
import json
import sys
from pathlib import Path

import torch

from hot_nbdev.train.results import append_row, library_commit, read_rows

ROOT = Path(__file__).parents[2]
OUT = Path(__file__).with_name("modes.csv")
RATES, SIZES, SEEDS, MOST = (0.003, 0.01, 0.03), (8, 12, 16, 20), range(3), 600
KEY = ("part", "model", "size", "seed", "rate")
NAMES = {"frames", "Follower", "kinds", "start", "train"}


def names_of(node):
    "What a definition or an assignment names."
    return {getattr(node, "name", None), *(getattr(t, "id", None) for t in getattr(node, "targets", []))}


def chapter(path=ROOT / "nbs" / "00_modes.ipynb"):
    "The definitions of the chapter that are used here, by name."
    code = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    nodes = [n for source in code for n in ast.parse(source).body
             if isinstance(n, (ast.Import, ast.ImportFrom)) or NAMES & names_of(n)]
    space = {}
    exec(compile(ast.Module(nodes, []), path.name, "exec"), space)
    return {name: space[name] for name in NAMES}


def waited(own, model, n, seed, rate, most=MOST):
    "Updates until the error of ten batches is below one half, and that error."
    run, error, updates = own["start"](model, seed, rate), 1.0, 0
    while error >= 0.5 and updates < most:
        error, updates = sum(own["train"](*run, 10, n)) / 10, updates + 10
    return updates, error


def main():
    torch.set_num_threads(1)
    own = chapter()
    rows = read_rows(OUT) if OUT.exists() else []
    done = {tuple(r[k] for k in KEY): r for r in rows}

    def row(part, model, n, seed, rate):
        key = (part, model, str(n), str(seed), str(rate))
        if key not in done:
            updates, error = waited(own, model, n, seed, rate)
            line = dict(zip(KEY, key, strict=True))
            line |= {"updates": updates, "error": round(error, 4), "torch": torch.__version__,
                     "commit": library_commit()}
            append_row(OUT, line)
            done[key] = {k: str(v) for k, v in line.items()}
            print(line, file=sys.stderr, flush=True)
        return int(done[key]["updates"])

    for model in own["kinds"]:
        rate = min(RATES, key=lambda r: row("rates", model, 12, 99, r))
        for n in SIZES:
            for seed in SEEDS:
                row("seeds", model, n, seed, rate)


if __name__ == "__main__":
    main()

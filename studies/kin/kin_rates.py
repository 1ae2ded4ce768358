"""Do the comparisons of studies/kin/kin.py depend on the rates that its search found?

    python -m studies.kin.kin_rates              twenty more runs of each layer of the large family
    python -m studies.kin.kin_rates --summary    the comparisons again; nothing is run

studies/kin/README.md, under "Changes", says why. Each layer is run on the ten deals with the next rate below and above
its own too (study `near` in studies/kin/kin.csv), and of the three runs of a deal the one counts that is best on the
validation part of that deal, of equal ones that with the smaller rate. A run that has its row is not made again.
"""
import argparse
import sys

import torch

from hot_nbdev.train.results import append_row, read_rows
from studies.kin.kin import HEAD, HERE, KEY, SEEDS, about, deal, families, forms, networks, run, summary
from studies.rates import rate, step


def todo(rows, layers):
    "Keys of the runs, for each layer (name, setting, budget)."
    used = {(r["layer"], r["setting"], r["budget"]): r["rate"] for r in rows if r["study"] == "main"}
    return [("near", *layer, seed, rate(step(float(used[layer])) + by))
            for layer in layers for seed in SEEDS for by in (-1, 1)]


def best_of_deal(rows):
    "Rows of the study `main` in which each layer has the rate that is best on the validation part of its deal."
    found = {}
    for r in rows:
        if r["study"] != "rate":
            found.setdefault((r["layer"], r["setting"], r["budget"], r["seed"]), []).append(r)
    return [max(tried, key=lambda r: (float(r["val"]), -float(r["rate"] or 0))) | {"study": "main"}
            for tried in found.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--summary", action="store_true", help="print comparisons from the rows; nothing is run")
    args = parser.parse_args()
    out = HERE / "kin.csv"
    rows = read_rows(out)
    if args.summary:
        print("\n".join(line for line in summary(best_of_deal(rows)) if line.startswith("large")))
        return
    torch.set_num_threads(1)
    own, others, _ = families(rows)["large"]
    makes, where = {tuple(key): make for *key, make in networks(forms(), deal(0)[1])}, about()
    there = {tuple(r[k] for k in KEY) for r in rows}
    for key in todo(rows, [own, *others]):
        if tuple(map(str, key)) not in there:
            found = run(("main", *key[1:]), makes[key[1:4]])
            row = dict(zip(KEY, key, strict=True)) | found | where
            append_row(out, {column: row.get(column, "") for column in HEAD})
            print(*key, found["val"], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

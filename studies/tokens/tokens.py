"""Finer patches at equal time: what README.md asks for, run by run; begins where it ended.

    python -m studies.tokens.tokens --pace           seconds of an epoch, into pace.csv, on a quiet machine
    python -m studies.tokens.tokens --patch 4 2      what has no row yet
    python -m studies.tokens.tokens --patch 1 --device cuda

Rates and epochs are written into tables.json. Data are found where HOT_DATA says.
"""
import argparse
import json
import tempfile
from pathlib import Path

from hot_nbdev.cli.jobs import job_class, run_job
from hot_nbdev.cli.tables import merged, planned, read_tables
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows
from studies.rates import choose
from studies.rows import put_text
from studies.tied.tied import run

HERE = Path(__file__).parent
TABLES, PACE, SEEDS, START = HERE / "tables.json", HERE / "pace.csv", (0, 1, 2), (-7, -6, -5)
SECONDS = {"cpu": 900, "cuda": 300}


def pace(name, row, device):
    "Seconds of an epoch, measured once on this kind of processor."
    where = {"table": name, "row": row, "device": device, "processor": processor()}
    known = [r for r in read_rows(PACE) if all(r[k] == v for k, v in where.items())]
    if known:
        return float(known[0]["seconds"])
    table = read_tables(TABLES)[name]
    _, settings = planned(name, table, rows=[row])[0]
    took = []
    with tempfile.TemporaryDirectory() as folder:
        for epochs in (1, 3):           # two epochs more, without what a start takes
            results, out = f"{folder}/{epochs}", f"{folder}/run{epochs}"
            changed = {"epochs": epochs, "rate": 1e-3, "results": results, "out": out, "progress": False}
            run_job(job_class(table.command).from_dict(settings | changed).replace(cpu=device == "cpu"))
            took.append(float(read_rows(f"{results}/classify.csv")[0]["seconds"]))
    append_row(PACE, where | {"seconds": max(0.01, round((took[1] - took[0]) / 2, 2)), "commit": library_commit()})
    return pace(name, row, device)


def work(name, row, device):
    "Epochs, rate and seeds of one line of a table."
    text, fit = json.loads(TABLES.read_text()), SECONDS[device] / pace(name, row, device)
    if fit < 1:
        return print(f"{name}, {row}: not run, an epoch takes longer than {SECONDS[device]} s")
    text[name]["rows"][row].setdefault("epochs", round(fit))
    put_text(TABLES, json.dumps(text, indent=1) + "\n")
    table, tried, todo = read_tables(TABLES)[name], {}, choose({}, START)
    title, settings = planned(name, table, rows=[row], seeds=[99])[0]
    if (key := title.rsplit(", seed", 1)[0]) not in table.rates:
        while todo[0] == "try":
            for rate in todo[1]:
                search = merged(settings, {"rate": rate, "epochs": max(1, round(fit / 3))})
                tried[rate] = [-float(run(table, search, HERE, device)["val_auc"])]
            todo = choose(tried, START)
        text = json.loads(TABLES.read_text())           # as it is now
        text[name].setdefault("rates", {})[key] = todo[1]
        put_text(TABLES, json.dumps(text, indent=1) + "\n")
    for _, settings in planned(name, read_tables(TABLES)[name], rows=[row], seeds=SEEDS):
        run(table, settings, HERE, device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pace", action="store_true")
    parser.add_argument("--patch", type=int, nargs="+", default=[4, 2], choices=(4, 2, 1))
    parser.add_argument("--device", choices=tuple(SECONDS), default="cpu")
    given = parser.parse_args()
    for name in (f"tokens-{p}" for p in given.patch):
        for row in read_tables(TABLES)[name].rows:
            (pace if given.pace else work)(name, row, given.device)


if __name__ == "__main__":
    main()

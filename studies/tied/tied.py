"""Tied and mixed scores on the files of the study of marks: what README.md asks for, run by run; begins where it ended.

    python -m studies.tied.tied                        what has no row yet, data set by data set
    python -m studies.tied.tied --data Exchange        one of them
    python -m studies.tied.tied --write                the comparisons with `product`, into tied.csv

Rates are searched first, on the validation part, and written into tables.json. Runs go on from the checkpoints in
_build/tied. Data are found where HOT_DATA says.
"""
import argparse
import json
from pathlib import Path

from hot_nbdev.cli.jobs import job_class, run_job
from hot_nbdev.cli.tables import is_done, merged, planned, read_tables
from hot_nbdev.train.paired import holm, paired_t
from hot_nbdev.train.results import read_rows, write_csv
from hot_nbdev.train.runs import content
from studies.defaults.defaults import scored
from studies.rates import choose
from studies.rows import put_text

HERE = Path(__file__).parent
TABLES, MARKS, RUNS = HERE / "tables.json", HERE.parent / "marks", HERE.parents[1] / "_build"
HEAD = "place kind score kind_mean product_mean difference low high p p_corrected".split()
START, SEARCHED, SEEDS = (-7, -6, -5), 99, (0, 1, 2, 3, 4)      # 3e-4, 1e-3, 3e-3


def rows(folder, kind):
    file = folder / "rows" / f"{kind}.csv"
    return read_rows(file) if file.exists() else []


def run(table, settings, home=HERE, device="cpu"):
    "One run of a study, unless its row is there; the row."
    job = job_class(table.command).from_dict({**settings, "results": str(home / "rows"), "progress": False})
    if not is_done(job, rows(home, job.kind)):
        folder = RUNS / home.name / f"{Path(job.data).stem} {job.attention} {job.seed} {content(job.numbers())[:8]}"
        run_job(job.replace(out=str(folder), cpu=device == "cpu"))
    return next(r for r in rows(home, job.kind) if is_done(job, [r]))


def rate(name, table, row):
    "The rate that the validation part chooses, searched for the first step of a table."
    column, sign = scored(table.command, table.settings)
    search = {"epochs": 30} if table.command == "classify" else {}
    _, settings = planned(name, table, rows=[row], seeds=[SEARCHED])[0]
    tried, todo = {}, choose({}, START)
    while todo[0] == "try":
        for r in todo[1]:
            found = run(table, merged(settings, {"rate": r}, search))
            tried[r] = [-sign * float(found[column])]
        todo = choose(tried, START)
    return todo[1]


def work(name):
    "Rates and seeds of one table."
    for row in read_tables(TABLES)[name].rows:
        table = read_tables(TABLES)[name]
        titles = [title.rsplit(", seed", 1)[0] for title, _ in planned(name, table, rows=[row])]
        if titles[0] not in table.rates:
            best = rate(name, table, row)
            text = json.loads(TABLES.read_text())       # as it is now: others may have written during the search
            text[name].setdefault("rates", {}).update(dict.fromkeys(titles, best))
            put_text(TABLES, json.dumps(text, indent=1) + "\n")
        for _, settings in planned(name, read_tables(TABLES)[name], rows=[row], seeds=SEEDS):
            run(table, settings)


def scores(folder, name, table, row, column):
    "(data, step) -> seed -> test score of the rows that a table asks for."
    found = {}
    for title, settings in planned(name, table, rows=[row], seeds=SEEDS):
        job = job_class(table.command).from_dict(settings)
        line = [r for r in rows(folder, job.kind) if is_done(job, [r])]
        if line:
            found.setdefault(title.partition(", ")[2].rsplit(", seed", 1)[0], {})[job.seed] = float(line[0][column])
    return found


def compared():
    "A line for each data set, step and kind of which all seeds have run."
    ours, theirs, lines = read_tables(TABLES), read_tables(MARKS / "tables.json"), []
    for name, table in ours.items():
        pooled = theirs[name.replace("tied", "marks")]
        column = "test_auc" if table.command == "classify" else "test_mse"
        means = scores(MARKS, name, pooled, "product", column)
        for row in table.rows:
            for place, own in scores(HERE, name, table, row, column).items():
                if len(own) == len(SEEDS) == len(means.get(place, {})):
                    found = paired_t([own[s] for s in SEEDS], [means[place][s] for s in SEEDS])
                    numbers = (found.one, found.other, found.difference, found.low, found.high, found.p)
                    lines.append(dict(zip(HEAD, (place, row, column, *numbers), strict=False)))
    for line, p in zip(lines, holm([line["p"] for line in lines]), strict=True):
        line["p_corrected"] = p
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {next(iter(table.data)): name for name, table in read_tables(TABLES).items()}
    parser.add_argument("--data", nargs="+", choices=names, default=list(names), help="default: all")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.write:
        return write_csv(HERE / "tied.csv", HEAD, compared())
    for name in given.data:
        work(names[name])


if __name__ == "__main__":
    main()

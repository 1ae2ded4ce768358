"""The ledger of promises, nbs/promises.csv, and the tests that it names.

    python tools/promises.py            say what is wrong with it
    python tools/promises.py --write    write how many cases each promise is tried on, as pytest counts them

A row has a topic, a promise, within what limits it holds, its tests as file::name, the parts of tests/stress.py that
try it at length, and the number of cases of its tests.
"""
import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
LEDGER = ROOT / "nbs" / "promises.csv"

from hot_nbdev.results import read_rows, write_csv  # noqa: E402


def collected(names):
    "How many cases pytest finds of each file::name, in one collection of all files."
    files = sorted({f"tests/{name.split('::')[0]}" for name in names})
    done = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *files],
                          cwd=ROOT, capture_output=True, text=True)
    found = (line.split("[")[0].removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line)
    return Counter(found)


def counted(rows):
    "The rows with the number of cases of their tests."
    cases = collected([t for row in rows for t in row["tests"].split()])
    return [{**row, "cases": str(sum(cases[t] for t in row["tests"].split()))} for row in rows]


def problems(rows, parts, cases):
    "What is wrong with the rows: `parts` are those of the long tests, `cases` what pytest found."
    for number, row in enumerate(rows, 2):
        empty = [key for key in ("topic", "promise", "within", "tests", "cases") if not row[key]]
        yield from (f"line {number}: {key} is empty" for key in empty)
        yield from (f"line {number}: there is no test {t}" for t in row["tests"].split() if not cases[t])
        yield from (f"line {number}: there is no part {p} of tests/stress.py"
                    for p in row["stress"].split() if p not in parts)
        now = sum(cases[t] for t in row["tests"].split())
        if row["cases"] != str(now):
            yield f"line {number}: its tests have {now} cases, not {row['cases']}: run tools/promises.py --write"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    rows = read_rows(LEDGER)
    if parser.parse_args().write:
        rows = counted(rows)
        write_csv(LEDGER, list(rows[0]), rows)
    sys.path.insert(0, str(ROOT / "tests"))
    from stress import PARTS
    found = list(problems(rows, PARTS, collected([t for row in rows for t in row["tests"].split()])))
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

"""The two recipes of the project, step by step, with the time that each step took.

    python tools/steps.py book    export, execute every chapter, render the site into _docs
    python tools/steps.py test    everything that decides whether the project is sound

With --record the times are also written to bench/rows/recipes.csv, with versions and cores.

Each step is a command that can be typed by hand; it is printed before it runs. The first step that
fails ends the run with its exit status.
"""
import csv
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

BOOK = [
    ("export the library", "nbdev_export"),
    ("execute the chapters", "python tools/execute.py"),
    ("render the site", "python tools/book.py --nbs _build/nbs"),
]
TEST = [
    ("export and clean leave no difference", "python tools/unchanged.py nbdev_export nbdev_clean"),
    ("lint", "ruff check nbs tools tests studies bench examples setup.py"),
    # the rules of taste are for the notebooks; in the exported modules a name that nobody defines is looked for
    ("names of the modules", "ruff check --isolated --select F821,F822,F823 hot_nbdev"),
    ("the house", "python tools/house.py --check"),
    ("test the chapters", "nbdev_test --n_workers 2"),
    ("render the site", "python tools/book.py"),
    ("test the library, the tools and the site", "python -m pytest tests -q -n 2 --dist loadgroup"),
]
# From Python 3.12 on the interpreter itself tells which lines ran. Before, each call asks a tracer, and the tests take
# half as long again; coverage is then left to those versions, all of which the workflow runs.
if sys.version_info >= (3, 12):
    TEST[-1] = (TEST[-1][0], f"{TEST[-1][1]} --cov=hot_nbdev --cov-report=term --cov-fail-under=95")


def record(recipe, times):
    "Replace the rows of `recipe` in bench/rows/recipes.csv."
    path = ROOT / "bench" / "rows" / "recipes.csv"
    head = ["recipe", "step", "seconds", "cores", "python", "torch"]
    where = [os.cpu_count(), platform.python_version(), version("torch").split("+")[0]]
    rows = list(csv.reader(path.open()))[1:] if path.exists() else []
    rows = [r for r in rows if r[0] != recipe] + [[recipe, t, f"{s:.0f}", *where] for t, s in times]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([head, *sorted(rows, key=lambda r: r[0])])


def run(steps, recipe=None):
    "Run the steps in turn; return the exit status of the first that fails, or 0."
    # tools of .venv first; one thread each, since the steps run two chapters at a time on small matrices
    env = {"OMP_NUM_THREADS": "1", "COVERAGE_CORE": "sysmon", **os.environ,
           "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    times = []
    for title, command in steps:
        print(f"\n== {title}: {command}", flush=True)
        start = time.perf_counter()
        status = subprocess.run(command.split(), cwd=ROOT, env=env).returncode
        times.append((title, time.perf_counter() - start))
        if status:
            print(f"\nFAILED after {times[-1][1]:.1f} s: {title}\n  {command}", file=sys.stderr)
            return status
    print()
    times.append(("all", sum(s for _, s in times)))
    for title, seconds in times:
        print(f"{seconds:7.1f} s  {title}")
    if recipe:
        record(recipe, times)
    return 0


def main():
    recipes = {"book": BOOK, "test": TEST}
    recipe, options = sys.argv[1:2], sys.argv[2:]
    if not recipe or recipe[0] not in recipes or options not in ([], ["--record"]):
        sys.exit(__doc__)
    status = run(recipes[recipe[0]], recipe[0] if options else None)
    if status == 0 and recipe[0] == "book":
        print("\nThe book is in _docs. Read it with `make serve`, "
              "or `python -m http.server --directory _docs`.")
    sys.exit(status)


if __name__ == "__main__":
    main()

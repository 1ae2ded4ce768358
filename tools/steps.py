"""The two recipes of the project, step by step, with the time that each step took.

    python tools/steps.py book    export, execute every chapter, render the site into _docs
    python tools/steps.py test    everything that decides whether the project is sound

With --record the times are also written to bench/rows/recipes.csv, with versions and cores.

Each step is a command that can be typed by hand; it is printed before it runs. The first step that fails ends the run
with its exit status. `python tools/steps.py same COMMANDS` fails if the commands change any file; new files count.
"""
import csv
import os
import platform
import subprocess
import sys
import tempfile
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
    ("export and clean leave no difference", "python tools/steps.py same nbdev_export nbdev_clean"),
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


def changed_by(commands: list[str], root: Path = ROOT) -> list[str]:
    "The files that commands make, change or remove, of those that git tracks or would add; edits of yours count not."
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"GIT_INDEX_FILE": f"{folder}/index"}        # not that of the checkout

        def git(*words):
            done = subprocess.run(["git", *words], cwd=root, env=env, check=True, capture_output=True, text=True)
            return done.stdout.strip()

        git("add", "--all")
        before = git("write-tree")
        for command in commands:
            subprocess.run(command.split(), cwd=root, check=True)
        git("add", "--all")
        return git("diff", "--name-only", before, git("write-tree")).splitlines()


def record(recipe: str, times: list) -> None:
    "Replace the rows of `recipe` in bench/rows/recipes.csv."
    path = ROOT / "bench" / "rows" / "recipes.csv"
    head = ["recipe", "step", "seconds", "cores", "python", "torch"]
    where = [os.cpu_count(), platform.python_version(), version("torch").split("+")[0]]
    rows = list(csv.reader(path.open()))[1:] if path.exists() else []
    rows = [r for r in rows if r[0] != recipe] + [[recipe, t, f"{s:.0f}", *where] for t, s in times]
    with path.open("w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([head, *sorted(rows, key=lambda r: r[0])])


def run(steps: list) -> tuple[int, list]:
    "Run the steps in turn; the exit status of the first that fails, or 0, and how long each took."
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
            return status, times
    times.append(("all", sum(s for _, s in times)))
    print("", *(f"{seconds:7.1f} s  {title}" for title, seconds in times), sep="\n")
    return 0, times


def main() -> None:
    recipes, (recipe, *options) = {"book": BOOK, "test": TEST}, sys.argv[1:] or [""]
    if recipe == "same":
        if changed := changed_by(options):
            sys.exit("notebooks and library were not in step; now changed, look at them and commit:\n  "
                     + "\n  ".join(changed))
    elif recipe not in recipes or options not in ([], ["--record"]):
        sys.exit(__doc__)
    else:
        status, times = run(recipes[recipe])
        if not status and options:
            record(recipe, times)
        if not status and recipe == "book":
            print("\nThe book is in _docs. Read it with `make serve`, or `python -m http.server --directory _docs`.")
        sys.exit(status)


if __name__ == "__main__":
    main()

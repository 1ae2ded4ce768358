"""Run the notebooks that readers download as readers run them: in an empty folder, with the package from its wheel.

    python tools/outside.py                             every page, with the other packages of this environment
    python tools/outside.py 05_attention book           these pages
    python tools/outside.py --python ENV/bin/python     in an environment where `pip install "WHEEL[book]"` was run
    python tools/outside.py --answers                   the version with the answers to the exercises

A cell that fails, or opens a file of the checkout, is told with its notebook; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [path for path in (str(HERE),) if path not in sys.path]

import lab  # noqa: E402
from book import Book  # noqa: E402

SOURCES = ["settings.ini", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "hot_nbdev", "studies",
           "bench", "nbs/book.mplstyle", "nbs/verdicts.csv", "nbs/promises.csv"]  # all that the package is built from
# Before the first cell: the package is not that of the checkout, and no file of the checkout is opened.
WATCH = """import os as _os, sys as _sys
import hot_nbdev as _package
_root = {root!r} + _os.sep
def _watch(event, args):
    if event == "open" and isinstance(args[0], str):
        path = _os.path.abspath(args[0])
        if path.startswith(_root) and not path.startswith(_root + ".venv" + _os.sep):
            raise PermissionError(f"a file of the checkout is opened: {{path}}")
if _os.path.realpath(_package.__file__).startswith(_root):
    raise ImportError(f"hot_nbdev is that of the checkout: {{_package.__file__}}")
_sys.addaudithook(_watch)
"""
RUN = """import nbformat, sys
from nbclient import NotebookClient
nb = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(nb, timeout=600, kernel_name="python3", extra_arguments=["--IPKernelApp.log_level=40"]).execute()
"""


def build_wheel(folder: Path) -> Path:
    "The wheel, made from the source distribution in a copy, so that nothing is written here and nothing fetched."
    with tempfile.TemporaryDirectory() as copied:
        for name in SOURCES:
            target = Path(copied, name)
            target.parent.mkdir(exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", ".*.lock"))
            else:
                shutil.copy2(ROOT / name, target)
        done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copied],
                              env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"No wheel was made:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return next(Path(folder).glob("*.whl"))


def unpack(wheel: Path, folder: Path) -> Path:
    "The folder with the files of a wheel, to be put on the path. This is what installing it without its needs does."
    shutil.unpack_archive(wheel, folder, "zip")
    return folder


def run(name: str, python: str = sys.executable, package: Path | None = None,
        answers: bool = False) -> tuple[float, str]:
    "Seconds that a page took in a new kernel, and what went wrong; `package` is a folder to find the library in."
    nb = lab.for_readers(Book(ROOT), f"{name}.ipynb", {}, answers)          # of its text nothing runs
    watch = {"cell_type": "code", "id": "watch", "metadata": {}, "execution_count": None, "outputs": [],
             "source": WATCH.format(root=str(ROOT))}
    nb["cells"].insert(0, watch)
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MPLBACKEND")}
    env |= {"OMP_NUM_THREADS": "1"} | ({"PYTHONPATH": str(package)} if package else {})
    with tempfile.TemporaryDirectory() as empty:
        path = Path(empty, f"{name}.ipynb")
        path.write_text(json.dumps(nb), encoding="utf-8")
        start, command = time.perf_counter(), [python, "-W", "ignore", "-c", RUN, path]
        done = subprocess.run(command, cwd=empty, env=env, capture_output=True, text=True)
        return time.perf_counter() - start, done.stderr[-3000:] if done.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="pages, such as 05_attention (default: all)")
    parser.add_argument("--python", default="", help="of an environment that has the wheel")
    parser.add_argument("--answers", action="store_true", help="the notebooks with the answers")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="pages at a time")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.workers) as pool:
        package = None if args.python else unpack(build_wheel(Path(folder, "dist")), Path(folder, "package"))
        names = args.names or sorted(path.stem for path in (ROOT / "nbs").glob("[!._]*.ipynb"))
        jobs = [pool.submit(run, name, args.python or sys.executable, package, args.answers) for name in names]
        failed = 0
        for name, job in zip(names, jobs, strict=True):
            seconds, error = job.result()
            print(f"{'FAILED' if error else 'ran':6} {name:32} {seconds:6.1f} s", *[error] * bool(error), flush=True)
            failed += bool(error)
    print(f"{len(names) - failed} of {len(names)} notebooks ran outside the repository")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

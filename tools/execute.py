"""Execute the chapters, each in a fresh process, with one line of progress per chapter.

    python tools/execute.py                    every chapter, into the copy _build/nbs
    python tools/execute.py --write            every chapter, outputs stored in nbs/ and cleaned
    python tools/execute.py nbs/01_tensor.ipynb --write

A cell that fails or writes to stderr (a warning, a progress bar) stops the run with chapter, cell and
traceback. The copy is what the site is built from, so building it leaves the checkout unchanged. Where
the text that a cell prints is not what the notebook has stored, a note says so.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import nbformat
from execnb.shell import CaptureShell

ROOT = Path(__file__).resolve().parent.parent
NBS, COPY = ROOT / "nbs", ROOT / "_build" / "nbs"
FORKS = get_context("forkserver")       # its processes are copies of one that has imported these
FORKS.set_forkserver_preload(["torch._dynamo", "matplotlib.pyplot", "execnb.shell", "nbformat", "pandas",
                              "sklearn.metrics", "tensorly"])


class ChapterError(Exception):
    "A chapter that cannot be shown: which one, which cell, and what Python said."


def execute(path):
    "Run the notebook at `path` in its own folder, and return it with its outputs."
    nb = nbformat.read(path, as_version=4)
    os.chdir(path.parent)
    shell = CaptureShell(path, mpl_format="png", timeout=600)
    for i, cell in enumerate(nb.cells):
        if cell.cell_type != "code" or re.search(r"^#\|\s*eval:\s*false", cell.source, re.M):
            continue        # shown, not run
        cell.outputs = [nbformat.from_dict(o) for o in shell.run(cell.source)]
        for out in cell.outputs:
            if out.output_type == "error":
                raise ChapterError(f"{path.name}, cell {i} ({cell.id})\n{''.join(out.traceback)}")
            if out.get("name") == "stderr":
                raise ChapterError(f"{path.name}, cell {i} ({cell.id}) wrote to stderr:\n{''.join(out.text)}")
    return nb


def execute_to(path, target):
    "Execute `path`, write the result to `target`, return the seconds it took."
    start = time.perf_counter()
    nb = execute(path)
    part = target.with_suffix(".part")
    nbformat.write(nb, part)
    part.replace(target)
    return time.perf_counter() - start


def execute_apart(*paths):
    "The same in a new process, which knows the imports that take long, and nothing else."
    with ProcessPoolExecutor(1, mp_context=FORKS) as one:
        return one.submit(execute_to, *paths).result()


def outdated(stored, fresh):
    "Numbers of the cells whose stored text differs from that of a fresh run."
    def printed(cell):
        return ["".join(o.get("text") or o.get("data", {}).get("text/plain", "")) for o in cell.get("outputs", [])]
    pairs = zip(*(nbformat.read(p, as_version=4).cells for p in (stored, fresh)), strict=True)
    return [i for i, (old, new) in enumerate(pairs) if new.cell_type == "code" and printed(old) != printed(new)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="chapters to run (default: all)")
    parser.add_argument("--write", action="store_true", help="store the outputs in nbs/ and clean them")
    args = parser.parse_args()
    sources = [p.resolve() for p in args.notebooks] or sorted(NBS.glob("[!._]*.ipynb"))
    targets = sources if args.write else [COPY / p.name for p in sources]
    if not args.write:
        shutil.rmtree(COPY, ignore_errors=True)
        shutil.copytree(NBS, COPY, ignore=shutil.ignore_patterns("_proc", ".ipynb_checkpoints", "nbdev.yml"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")       # so that two chapters do not fight over the cores
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(execute_apart, source if args.write else target, target)
                for source, target in zip(sources, targets, strict=True)]
        for number, (source, target, job) in enumerate(zip(sources, targets, jobs, strict=True), 1):
            try:
                print(f"[{number}/{len(jobs)}] {source.name:32} {job.result():6.1f} s", flush=True)
            except ChapterError as e:
                pool.shutdown(cancel_futures=True)
                sys.exit(f"[{number}/{len(jobs)}] {e}")
            if cells := outdated(source, target):
                print(f"      stored outputs of cells {cells} differ from this run; --write stores these")
    for source in sources if args.write else ():
        subprocess.run([Path(sys.executable).parent / "nbdev_clean", "--fname", source], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()

"""Execute the chapters from a clean kernel each, with one line of progress per chapter.

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
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
NBS, COPY = ROOT / "nbs", ROOT / "_build" / "nbs"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class ChapterError(Exception):
    "A chapter that cannot be shown: which one, which cell, and what Python said."


def execute(path):
    "Run the notebook at `path` in a new kernel, in its own folder, and return it with its outputs."
    nb = nbformat.read(path, as_version=4)
    client = NotebookClient(nb, timeout=600, kernel_name="python3", record_timing=False,
                            extra_arguments=["--IPKernelApp.log_level=40"],
                            resources={"metadata": {"path": str(path.parent)}})
    with client.setup_kernel():
        for i, cell in enumerate(nb.cells):
            if cell.cell_type != "code" or re.search(r"^#\|\s*eval:\s*false", cell.source, re.M):
                continue        # shown, not run
            try:
                client.execute_cell(cell, i)
            except CellExecutionError as e:
                raise ChapterError(f"{path.name}, cell {i} ({cell.id})\n{ANSI.sub('', str(e))}") from None
            for out in cell.outputs:
                if out.get("name") == "stderr":
                    raise ChapterError(f"{path.name}, cell {i} ({cell.id}) wrote to stderr:\n{out.text}")
    return nb


def execute_to(path, target):
    "Execute `path`, write the result to `target`, return the seconds it took."
    start = time.perf_counter()
    nb = execute(path)
    part = target.with_suffix(".part")
    nbformat.write(nb, part)
    part.replace(target)
    return time.perf_counter() - start


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
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="chapters that run at a time")
    args = parser.parse_args()
    sources = [p.resolve() for p in args.notebooks] or sorted(NBS.glob("[!._]*.ipynb"))
    targets = sources if args.write else [COPY / p.name for p in sources]
    if not args.write:
        shutil.rmtree(COPY, ignore_errors=True)
        shutil.copytree(NBS, COPY, ignore=shutil.ignore_patterns("_proc", ".ipynb_checkpoints", "nbdev.yml"))
    # each kernel gets its share of the cores, so that two chapters do not fight over them
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // args.workers)))
    start = time.perf_counter()
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = [pool.submit(execute_to, source if args.write else target, target)
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
    print(f"executed {len(jobs)} chapters in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()

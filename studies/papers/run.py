"""Runs the papers' tables in the sequence of README.md, those without a row alone; can be ended and started again.

    python studies/papers/run.py --list                               what there is, and what is done
    python studies/papers/run.py --part papers-exchange               on the processor, one run at a time
    python studies/papers/run.py --minutes 9 --device cuda --jobs 4   as far as it comes in that time

A run is a process of its own, which writes a checkpoint after each epoch into _build/papers and goes on from it the
next time. Rows are added to rows/forecast.csv and rows/classify.csv. Data are found where HOT_DATA says.
"""
import argparse
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from hot_nbdev.cli.jobs import job_class, run_job
from hot_nbdev.cli.tables import is_done, planned, read_tables
from hot_nbdev.train.results import read_rows

HERE = Path(__file__).resolve().parent
PARTS = [name for name in read_tables(HERE / "tables.json") if name.startswith("papers-")]
RUNS = HERE.parent.parent / "_build" / "papers"


def wanted(parts):
    "title -> job, in the sequence of the plan; what an earlier table asks for too has its title, whatever is wanted."
    found, known = {}, {}
    for name, table in read_tables(HERE / "tables.json").items():
        for title, settings in planned(name, table, seeds=table.seeds) if name in PARTS else ():
            folder = RUNS / re.sub(r"[^\w.()-]+", "-", f"{name} {title}")
            where = {"results": str(HERE / "rows"), "out": str(folder), "progress": False}
            job = job_class(table.command).from_dict({**settings, **where})
            first = known.setdefault(json.dumps(job.numbers(), sort_keys=True), (f"{name}: {title}", job))
            if name in (parts or PARTS):
                found |= [first]
    return found


def done(job):
    table = HERE / "rows" / f"{job.kind}.csv"
    return table.exists() and is_done(job, read_rows(table))


def start(title, device):
    "A process that makes one run."
    return subprocess.Popen([sys.executable, __file__, "--one", title, "--device", device])


def work(todo, device, jobs, minutes):
    "Runs beside each other, until all are done or the time is over; then those that run are interrupted."
    end, running, failed = time.monotonic() + 60 * (minutes or 1e9), [], []
    try:
        while todo or running:
            while todo and len(running) < jobs:
                running.append((todo[0], start(todo.pop(0), device)))
            time.sleep(1)
            for title, process in [r for r in running if r[1].poll() is not None]:
                running.remove((title, process))
                failed += [title] if process.returncode else []
            if time.monotonic() > end:
                break
    finally:
        for _, process in running:
            process.send_signal(signal.SIGINT)
        for _, process in running:
            process.wait()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, metavar="PART", help="tables of tables.json; default: all")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    jobs = wanted(given.part)
    if given.one:
        job = jobs[given.one]
        return None if done(job) else run_job(job.replace(cpu=given.device == "cpu"))
    if given.list:
        return print(*(f"{'done ' if done(job) else 'to do'} {title}" for title, job in jobs.items()), sep="\n")
    failed = work([title for title, job in jobs.items() if not done(job)], given.device, given.jobs, given.minutes)
    sys.exit(f"failed: {'; '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

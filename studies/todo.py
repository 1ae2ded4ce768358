"""Do what studies still ask for, one run at a time in each of several processes.

    python -m studies.todo --jobs 2 "python -m studies.defaults.defaults --plan"

Each argument is a command that prints lines `hot_reproduce TABLE …`; other lines are passed over. They are taken apart
into single runs, in the order of the arguments, and done by processes that import the library once. When all that was
asked for is done, the commands are asked again, since a search of rates goes on from what it found, until they ask for
nothing that has not been tried. A run that fails is told and not tried again. Ctrl-C ends it: rows stand, and a run
that was under way goes on from its last epoch next time.
"""
import argparse
import contextlib
import io
import multiprocessing
import shlex
import subprocess
import sys
from itertools import product


def reproduce_parser():
    "What matters here of the command line of hot_reproduce."
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    for flag in ("--row", "--data", "--seeds"):
        parser.add_argument(flag, nargs="+")
    parser.add_argument("--set", action="append", default=[])
    return parser


def single_runs(line):
    "Arguments of hot_reproduce for each row and seed that a line asks for."
    from hot_nbdev.cli.tables import read_tables
    words = shlex.split(line, comments=True)
    if words[:1] != ["hot_reproduce"]:
        return []
    given = reproduce_parser().parse_args(words[1:])
    table, sets = read_tables()[given.table], [word for pair in given.set for word in ("--set", pair)]
    seeds, data, rows = given.seeds or map(str, table.seeds), given.data or table.data, given.row or table.rows
    return [(given.table, "--row", r, "--data", d, "--seeds", s, *sets) for s, d, r in product(seeds, data, rows)]


def asked(commands, known):
    "Single runs that the commands ask for now, without those that are known."
    found = []
    for command in commands:
        said = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True).stdout
        found += [run for line in said.splitlines() for run in single_runs(line)]
    return [run for run in dict.fromkeys(found) if run not in known]


def begin():
    "In each process: what all runs need."
    import torch

    import hot_nbdev.cli.commands  # noqa: F401
    torch.set_num_threads(1)


def done(run):
    "Do one; what it said where it failed."
    from hot_nbdev.cli.commands import hot_reproduce
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            hot_reproduce(list(run))
    except SystemExit as end:
        if end.code:
            return run, said.getvalue().strip().rpartition("\n")[2] or str(end)
    except Exception as error:      # one run that fails must not end the others
        return run, f"{type(error).__name__}: {error}"
    return run, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commands", nargs="+", help="each prints lines of hot_reproduce")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each (default: 1)")
    args = parser.parse_args()
    tried, lost = set(), 0
    with multiprocessing.get_context("spawn").Pool(args.jobs, begin) as pool:
        while more := asked(args.commands, tried):
            tried.update(more)
            for count, (run, error) in enumerate(pool.imap_unordered(done, more), 1):
                lost += error is not None
                print(f"{count}/{len(more)}", shlex.join(run), *([f"FAILED: {error}"] if error else []), flush=True)
    print(f"{len(tried)} runs were asked for; {lost} failed")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()

"""Work in a process of its own that begins where this one is: torch is imported once, not by each of them."""
import os
import sys
from multiprocessing import get_context

FORK = get_context("fork")


def spoken(path, work, *args):
    "Do some work, and write what it says into a file."
    with open(path, "w", buffering=1) as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        work(*args)


def start(work, *args):
    process = FORK.Process(target=work, args=args)
    process.start()
    return process


def run(path, work, *args):
    "The exit status of work in a process of its own, and what it said, which goes into a file."
    process = start(spoken, path, work, *args)
    process.join(300)
    return process.exitcode, path.read_text()

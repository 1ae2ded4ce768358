"""Change the library in one place at a time, and see whether a unit test notices.

    python tools/mutants.py                 every mutant; about ten minutes on two cores
    python tools/mutants.py pooling masks   those of some groups, or whose name holds a word
    python tools/mutants.py --list          what there is

A mutant is one piece of text of a module and another in its place, with the tests that should fail; the list is
mutant_list.py. Hypothesis draws from a fixed seed, so that a run says the same again.
Chapters are not run: a mutant that only they kill counts as a survivor. A survivor is either a test that is
missing, or a change that changes nothing; then EQUIVALENT says why. The run fails if a mutant survives that
is not explained, or if its text is not found exactly once (the code has moved on: mend the mutant).
"""
import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from mutant_list import EQUIVALENT, MUTANTS

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 120       # seconds; a mutant that never ends is noticed too


class Outcome(NamedTuple):
    mutant: tuple
    state: str      # 'killed', 'survived', 'lost' (text not found once) or 'broken' (the tests fail without it)
    by: str         # the first test that failed


def name(mutant):
    group, module, old, new, _ = mutant
    return f"{group}: {module}: {' '.join(old.split())[:60]} -> {' '.join(new.split())[:60]}"


def workshop(folder):
    "A copy of what the tests need, with the package apart so that it can be changed."
    for part in ("hot_nbdev", "tests", "tools"):
        shutil.copytree(ROOT / part, folder / part)         # with what Python has compiled, which saves seconds
    for part in ("nbs", "settings.ini", "setup.py", "_quarto.yml", "studies", "bench", "examples"):
        if (ROOT / part).exists():
            os.symlink(ROOT / part, folder / part)
    return folder


def load_libraries():
    "What the tests import besides the package, once, so that each mutant need not; its process is a fork of this one."
    for library in ("torch", "pytest", "hypothesis", "accelerate", "safetensors.torch", "sklearn.metrics", "tensorly",
                    "torch._dynamo", "torch.export", "torch.distributed.checkpoint.state_dict",
                    "torch.utils.flop_counter"):
        with suppress(ImportError):
            import_module(library)
    from hypothesis import Phase, settings
    settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])   # any failure will do
    settings.load_profile("mutants")


def run_tests(folder, tests, report, longest):
    "In a process of its own: pytest in a folder; its exit code is that of the process."
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    with open(report, "w") as f:
        os.dup2(f.fileno(), 1), os.dup2(f.fileno(), 2)
    signal.alarm(longest)
    import pytest
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", "-rfE", "--hypothesis-seed=0",
                        *(f"tests/{t}" for t in shlex.split(tests))])
    sys.stdout.flush()
    os._exit(code)


def first_failure(folder, tests, longest=LONGEST):
    "Name of the first test that fails, or None."
    report = folder / "report.txt"
    process = get_context("fork").Process(target=run_tests, args=(folder, tests, report, longest))
    process.start()
    process.join()
    if process.exitcode == 0:
        return None
    if process.exitcode == -signal.SIGALRM:
        return f"no end after {longest} s"
    failed = [line for line in report.read_text().splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].split("::")[-1] if failed else f"pytest exit {process.exitcode}"


def try_one(mutant):
    "Apply one mutant in a workshop of its own and run its tests."
    _, module, old, new, tests = mutant
    text = (ROOT / "hot_nbdev" / f"{module}.py").read_text()
    if text.count(old) != 1:
        return Outcome(mutant, "lost", f"found {text.count(old)} times")
    with tempfile.TemporaryDirectory() as folder:
        path = workshop(Path(folder)) / "hot_nbdev" / f"{module}.py"
        path.write_text(text.replace(old, new))
        by = first_failure(Path(folder), tests)
    return Outcome(mutant, "survived" if by is None else "killed", by or "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants whose name holds one of these")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    chosen = [m for m in MUTANTS if not args.words or any(w in name(m) for w in args.words)]
    if args.list:
        print("\n".join(map(name, chosen)), f"\n{len(chosen)} mutants")
        return
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    load_libraries()
    with tempfile.TemporaryDirectory() as folder:       # tests that fail anyway kill nothing
        tests = dict.fromkeys(t for m in chosen for t in shlex.split(m[4]))
        if broken := first_failure(workshop(Path(folder)), shlex.join(tests), 10 * LONGEST):
            sys.exit(f"without any mutant {broken} fails; mend that first")
    found = []
    with ProcessPoolExecutor(args.workers, get_context("fork")) as pool:
        for outcome in pool.map(try_one, chosen):
            found.append(outcome)
            why = EQUIVALENT.get(outcome.mutant[2:4], "") if outcome.state == "survived" else outcome.by
            print(f"{outcome.state:9} {name(outcome.mutant)}  {why}", flush=True)
    states = [o.state for o in found]
    same = sum(o.state == "survived" and o.mutant[2:4] in EQUIVALENT for o in found)
    print(f"\n{len(found)} mutants: {states.count('killed')} killed, {states.count('survived')} survived "
          f"({same} of them change nothing, for the reason given), {states.count('lost')} lost")
    sys.exit(states.count("survived") > same or states.count("lost") > 0)


if __name__ == "__main__":
    main()

"""Change the library in one place at a time, and see whether a unit test notices.

    python tools/mutants.py                            100 changes of the core, drawn with seed 0
    python tools/mutants.py --modules streams --count 30 --seed 1
    python tools/mutants.py --list                     what would be tried

A mutant is one comparison, operator, number, condition or keyword argument of an exported module, exchanged for its
neighbour: `<` for `<=`, `+` for `-`, n for n + 1, `and` for `or`, a condition for its opposite, an argument left out.
Before the first of them all tests run once, and coverage.py notes which test runs which line (kept in _build until
the package or a test changes). A mutant is tried by the tests that run its line, quickest first, for at most SECONDS.
Messages of errors are left alone. Chapters are not run: a mutant that only they notice counts as a survivor. A
survivor is either a test that is missing, or changes nothing that can be observed; SAME says why. The run fails if
fewer than 95 of 100 are noticed, those of SAME set aside.
"""
import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
NOTES = ROOT / "_build" / "tests_by_line.json"
SECONDS = 60            # of the tests that a mutant is tried by; twice as long in all, since a mutant may never end
SWAPS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
         ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
         ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or", ast.Or: "and"}
SAME: dict = {}         # (module, line before, line after) -> why nothing that can be observed changes


WORDS = ast.Constant | ast.JoinedStr


class Mutant(NamedTuple):
    module: str         # such as 'streams' or 'data.series'
    line: int
    start: int          # of the text that is exchanged, in the file
    end: int
    new: str

    def lines(self) -> tuple:
        "The lines that change, before and after."
        text = path_of(self.module).read_text(encoding="utf-8")
        left, right = text.rfind("\n", 0, self.start) + 1, (text + "\n").find("\n", self.end)
        return text[left:right].strip(), (text[left:self.start] + self.new + text[self.end:right]).strip()


def path_of(module: str) -> Path:
    return ROOT / "hot_nbdev" / f"{module.replace('.', '/')}.py"


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "hot_nbdev").with_suffix("").parts)


def places(module: str) -> list:
    "All mutants of a module."
    text = path_of(module).read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line.decode()))
    rows = text.encode().splitlines()

    def span(node):     # ast counts bytes
        ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        return tuple(starts[row - 1] + len(rows[row - 1][:column].decode()) for row, column in ends)

    found, tree = [], ast.parse(text)
    silent = {id(part) for node in ast.walk(tree) for part in ast.walk(node)
              if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.arg | ast.Import | ast.ImportFrom)}
    silent |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
               for note in [*node.decorator_list, *([node.returns] if getattr(node, "returns", None) else [])]
               for part in ast.walk(note)}

    def add(node, start, end, new):
        found.append(Mutant(module, node.lineno, start, end, new))

    def between(node, left, right, op):
        a, b = span(left)[1], span(right)[0]
        bare = re.search(r"[^\s()\\]+(?:\s+(?:not|in))?(?=[\s()\\]|$)|[-+*/%&|]+", text[a:b])
        if bare:
            add(node, a + bare.start(), a + bare.end(), SWAPS[type(op)])

    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            between(node, node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not isinstance(node.left, WORDS):
            between(node, node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            between(node, node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
            add(node, span(node)[0], span(node.operand)[0], "")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            add(node, *span(node), str(not node.value if isinstance(node.value, bool) else node.value + 1))
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp):
            a, b = span(node.test)
            add(node, a, b, f"(not ({text[a:b]}))")
        elif isinstance(node, ast.Call) and node.keywords and node.keywords[-1].arg and node.args + node.keywords[:-1]:
            before = [*node.args, *(k.value for k in node.keywords[:-1])]
            add(node, max(span(n)[1] for n in before), span(node.keywords[-1])[1], "")
    return [m for m in found if compiles(m, text)]


def compiles(m: Mutant, text: str) -> bool:
    with suppress(SyntaxError):
        return bool(ast.parse(text[:m.start] + m.new + text[m.end:])) and text[m.start:m.end] != m.new
    return False


def core() -> list:
    "Modules that chapters of the book export: those whose notebook has a number below 40."
    own = [p for p in sorted((ROOT / "hot_nbdev").rglob("*.py")) if not p.name.startswith("_")]
    numbers = {p: re.search(r"File to edit: \S*/(\d+)", p.read_text(encoding="utf-8")) for p in own}
    return [name_of(p) for p, n in numbers.items() if n and int(n[1]) < 40]


def tests_by_line() -> dict:
    "module -> line -> tests that run it, quickest first, with their seconds."
    files = [*(ROOT / "hot_nbdev").rglob("*.py"), *(ROOT / "tests").glob("*.py")]
    if NOTES.exists() and NOTES.stat().st_mtime > max(p.stat().st_mtime for p in files):
        return json.loads(NOTES.read_text())
    from coverage import CoverageData
    print("all tests once, to know which of them runs which line", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "COVERAGE_FILE": f"{folder}/data", "COVERAGE_CORE": "ctrace", "PYTHONPATH": str(ROOT)}
        notes = ["--cov=hot_nbdev", "--cov-context=test", "--cov-report=", f"--junitxml={folder}/times.xml"]
        others = [f"--ignore=tests/{name}.py" for name in ("test_chapters", "test_site", "test_examples", "test_bench")]
        command = [sys.executable, "-m", "pytest", "tests", "-q", "-n", "2", "--dist", "loadgroup"]
        subprocess.run([*command, *notes, *others], cwd=ROOT, env=env)
        cases = ElementTree.parse(f"{folder}/times.xml").iter("testcase")
        took = {f"{c.get('classname').replace('.', '/')}.py::{c.get('name')}": float(c.get("time")) for c in cases}
        data, found = CoverageData(f"{folder}/data"), {}
        data.read()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = {c.partition("|")[0] for c in contexts} & set(took)
                quick = sorted((took[t], t) for t in tests)[:200]
                found.setdefault(name_of(Path(file)), {})[str(line)] = [[t, s] for s, t in quick]
    NOTES.parent.mkdir(exist_ok=True)
    NOTES.write_text(json.dumps(found))
    return found


def workshop(folder: Path) -> Path:
    "A copy of what the tests need, with the package apart so that it can be changed."
    for part in ("hot_nbdev", "tests", "tools"):
        shutil.copytree(ROOT / part, folder / part)         # with what Python has compiled, which saves seconds
    for part in ROOT.iterdir():
        if part.name not in ("hot_nbdev", "tests", "tools", ".git", "_build"):
            os.symlink(part, folder / part.name)
    return folder


def load_libraries() -> None:
    "What the tests import besides the package, once, so that each mutant need not; its process is a fork of this one."
    for library in ("torch", "pytest", "hypothesis", "accelerate", "safetensors.torch", "sklearn.metrics", "tensorly",
                    "torch._dynamo", "torch.export", "torch.distributed.checkpoint.state_dict"):
        with suppress(ImportError):
            import_module(library)
    from hypothesis import Phase, settings
    settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])   # any failure will do
    settings.load_profile("mutants")


def run_tests(folder: Path, tests: list) -> None:
    "In a process of its own: pytest in a folder; its exit code is that of the process."
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    with open(folder / "report.txt", "w") as f:
        os.dup2(f.fileno(), 1), os.dup2(f.fileno(), 2)
    signal.alarm(2 * SECONDS)
    import pytest
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "--no-header", "-rfE",
                        "--hypothesis-seed=0", *tests])
    sys.stdout.flush()
    os._exit(code)


def noticed(mutant: Mutant, tests: list) -> str:
    "Which test fails with the mutant in place, or nothing."
    with tempfile.TemporaryDirectory() as folder:
        path = workshop(Path(folder)) / path_of(mutant.module).relative_to(ROOT)
        text = path.read_text(encoding="utf-8")
        path.write_text(text[:mutant.start] + mutant.new + text[mutant.end:], encoding="utf-8")
        process = get_context("fork").Process(target=run_tests, args=(Path(folder), tests))
        process.start()
        process.join()
        if process.exitcode == 0:
            return ""
        failed = re.findall(r"^(?:FAILED|ERROR) \S+?::(\S+)", (Path(folder) / "report.txt").read_text(), re.M)
        return failed[0] if failed else f"exit {process.exitcode}"      # below zero: it did not end in time


def try_one(mutant: Mutant, tests: list) -> tuple:
    "The mutant, and which test noticed it."
    chosen, seconds = [], 0.0
    for test, took in tests:
        seconds += took
        if chosen and seconds > SECONDS:
            break
        chosen.append(test)
    return mutant, noticed(mutant, chosen) if chosen else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", nargs="+", help="default: those that chapters export")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    every = [m for module in args.modules or core() for m in places(module)]
    drawn = random.Random(args.seed).sample(every, min(args.count, len(every)))
    if args.list:
        print(*(f"{m.module}:{m.line}  {'  ->  '.join(m.lines())}" for m in drawn), sep="\n")
        print(f"{len(drawn)} of {len(every)}")
        return
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    known = tests_by_line()
    load_libraries()
    counts = {"noticed": 0, "same": 0, "survived": 0}
    with ProcessPoolExecutor(args.workers, get_context("fork")) as pool:
        for m, by in pool.map(try_one, drawn, [known.get(m.module, {}).get(str(m.line), []) for m in drawn]):
            why = SAME.get((m.module, *m.lines()), "")
            state = "noticed" if by else "same" if why else "survived"
            counts[state] += 1
            print(f"{state:9} {m.module}:{m.line}  {'  ->  '.join(m.lines())}  [{by or why}]", flush=True)
    share = counts["noticed"] / max(1, counts["noticed"] + counts["survived"])
    print(f"\n{len(drawn)} mutants: {counts['noticed']} noticed, {counts['same']} change nothing for the reason given, "
          f"{counts['survived']} survived")
    sys.exit(share < 0.95)


if __name__ == "__main__":
    main()

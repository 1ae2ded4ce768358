"""Change the library in one place at a time, and see whether a test or its chapter notices.

    python tools/mutants.py                            100 changes of what chapters export, drawn with seed 0
    python tools/mutants.py --modules streams --count 30 --seed 1

One comparison, operator, number, condition or keyword argument is exchanged for its neighbour: `<` for `<=`, `+` for
`-`, n for n + 1, `and` for `or`, a condition for its opposite, an argument left out; messages and annotations are left
alone. First all tests run once, to know which runs which line. A change is tried by the tests that run its line, a case
of each before further ones, quickest first, for SECONDS, then by the chapter that exports it; a line that runs on
import or in a process of its own by the test of defaults and the module's own tests. What notices a change has to pass
without one. The run fails if fewer than 95 of 100 are noticed: what survives lacks a test, or a card, or shows nowhere.
"""
import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import house
import nbformat

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn),
         (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or)]
SWAPS = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
SWAPS |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
SILENT = ast.Raise | ast.JoinedStr | ast.arg | ast.Import | ast.ImportFrom


def changes(tree: ast.Module):
    "All small changes of a module: a node, the name of a part of it, and what that becomes."
    silent = set()
    for node in ast.walk(tree):
        notes = [*getattr(node, "decorator_list", ()), *(getattr(node, at, None) for at in ("returns", "annotation"))]
        for note in [node] if isinstance(node, SILENT) else filter(None, notes):
            silent |= {id(part) for part in ast.walk(note)}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield node, "ops", [SWAPS[type(node.ops[0])]()]
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
            if not isinstance(getattr(node, "left", None), ast.Constant | ast.JoinedStr):
                yield node, "op", SWAPS[type(node.op)]()
        elif isinstance(node, ast.UnaryOp):                 # twice is not at all
            yield node, "operand", ast.UnaryOp(node.op, node.operand)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            yield node, "value", not node.value if isinstance(node.value, bool) else node.value + 1
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp):
            yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.Call) and node.keywords and node.keywords[-1].arg and node.args + node.keywords[:-1]:
            yield node, "keywords", node.keywords[:-1]


def mutated(module: str, number: int) -> tuple[int, str, str, str]:
    "The line of a change, what stands there before and after it, and the whole module after it."
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    node, part, new = list(changes(tree))[number]
    before = ast.unparse(node).partition("\n")[0]
    setattr(node, part, new)
    ast.fix_missing_locations(tree)
    return node.lineno, before, ast.unparse(node).partition("\n")[0], ast.unparse(tree)


def tests_by_line() -> dict:
    "module -> line -> tests that run it, quickest first, with their seconds."
    from coverage import CoverageData
    print("all tests once, to know which of them runs which line", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"COVERAGE_FILE": f"{folder}/data", "COVERAGE_CORE": "ctrace", "PYTHONPATH": str(ROOT)}
        others = [f"--ignore=tests/test_{name}.py" for name in ("chapters", "site", "examples", "bench")]
        subprocess.run([sys.executable, "-m", "pytest", "tests", "-q", "-n", "2", "--dist", "loadgroup",
                        "--cov=hot_nbdev", "--cov-context=test", "--cov-report=", f"--junitxml={folder}/times.xml",
                        *others], cwd=ROOT, env=env)
        took = {f"{c.get('classname').replace('.', '/')}.py::{c.get('name')}": float(c.get("time"))
                for c in ElementTree.parse(f"{folder}/times.xml").iter("testcase")
                if c.find("failure") is None and c.find("error") is None}
        data, found = CoverageData(f"{folder}/data"), {}
        data.read()
        for file in data.measured_files():
            lines = found[str(Path(file).relative_to(ROOT))] = {}
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = {c.partition("|")[0] for c in contexts} & set(took)
                lines[str(line)] = in_turn([took[test], test] for test in tests)
    return found


def in_turn(tests) -> list:
    "The quickest case of each test, then the next of each, at most 200: cases of one test often see the same."
    found, cases = [], Counter()
    for took, test in sorted(tests):
        function = test.partition("[")[0]
        found.append((cases[function], took, test))
        cases[function] += 1
    return [[took, test] for _, took, test in sorted(found)[:200]]


def noticed(module: str, text: str, tests: list) -> str:
    "Which test or chapter fails with this text in place of a module, or nothing. What never ends has noticed it, too."
    chosen = [test for n, (_, test) in enumerate(tests) if not n or sum(took for took, _ in tests[:n + 1]) < SECONDS]
    with tempfile.TemporaryDirectory() as folder:
        for part in ROOT.iterdir():
            if part.name in ("hot_nbdev", "tests", "tools"):
                shutil.copytree(part, Path(folder, part.name))
            elif part.name not in (".git", "_build"):
                Path(folder, part.name).symlink_to(part)
        Path(folder, module).write_text(text, encoding="utf-8")
        pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE", *chosen]
        for command in [pytest] * bool(chosen) + lesson(module, Path(folder)):
            env = os.environ | {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
            try:
                done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True,
                                      timeout=3 * SECONDS)
            except subprocess.TimeoutExpired:
                return "time"
            if done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) \S+?::(\S+)", done.stdout, re.MULTILINE)
                return failed[1] if failed else "exit" if command is pytest else command[-1]
    return ""


def lesson(module: str, folder: Path) -> list:
    "The command that runs the chapter of a module, if it has one, on what the module has in place of what it exports."
    name = module.removeprefix("hot_nbdev/").removesuffix(".py").replace("/", ".")
    if (notebook := house.writers().get(name, "-")[0]) == "-" or not (ROOT / "nbs").exists():
        return []
    book = nbformat.read(ROOT / "nbs" / notebook, as_version=4)
    for cell in book.cells:
        if re.search(r"^#\| export", cell.source, re.MULTILINE):
            cell.source = (f"import hot_nbdev.{name} as changed\n"
                           "globals().update(n for n in vars(changed).items() if n[0][:2] != '__')")
    nbformat.write(book, folder / notebook)
    run = "import pathlib, sys; from nbdev.test import test_nb; sys.exit(not test_nb(pathlib.Path(sys.argv[1]))[0])"
    return [["-c", run, notebook]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", nargs="+", help="default: those that chapters export")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chapters = sorted(module for module, (notebook, *_) in house.writers().items() if notebook < "40")
    modules = [f"hot_nbdev/{name.replace('.', '/')}.py" for name in args.modules or chapters]
    every = [(module, n) for module in modules for n, _ in enumerate(changes(ast.parse((ROOT / module).read_text())))]
    drawn = random.Random(args.seed).sample(every, min(args.count, len(every)))
    known, sound, survived = tests_by_line(), {"", "time"}, 0

    def tried(mutant: tuple) -> tuple:
        line, before, after, text = mutated(*mutant)
        own = ["tests/test_defaults.py", f"tests/test_{Path(mutant[0]).stem}.py"]
        tests = known.get(mutant[0], {}).get(str(line)) or [[0, test] for test in own if (ROOT / test).exists()]
        by = noticed(mutant[0], text, tests)
        mine = [t for t in tests if by == "exit" or by in t[1]]          # none: it is the chapter
        if by not in sound and noticed(mutant[0], (ROOT / mutant[0]).read_text(encoding="utf-8"), mine):
            sys.exit(f"{by} fails without any change of {mutant[0]}, so it notices nothing")
        sound.add(by)
        return by, f"{mutant[0]}:{line}  {before}  ->  {after}"

    with ThreadPoolExecutor(2) as pool:
        for by, what in pool.map(tried, drawn):
            survived += not by
            print(f"noticed   {what}  [{by}]" if by else f"survived  {what}", flush=True)
    print(f"\n{len(drawn)} of {len(every)} mutants: {len(drawn) - survived} noticed, {survived} survived")
    sys.exit(survived > 0.05 * len(drawn))


if __name__ == "__main__":
    main()

"What `make mutants` changes, and how it tells a change that is noticed from one that is not."
import ast
import re
import subprocess
import sys

import mutants
import pytest


@pytest.mark.parametrize("module", mutants.core())
def test_every_module_of_the_core_can_be_changed_in_many_places(module):
    found, text = mutants.places(module), mutants.path_of(module).read_text(encoding="utf-8")
    assert len(found) >= 5 and len(set(found)) == len(found)
    for m in found[::7]:
        before, after = m.lines()
        assert before != after and before.split("\n")[0] in text


def test_messages_and_annotations_are_left_alone(tmp_path, monkeypatch):
    text = ("def f(x: int | None = 3, *, y=1) -> int | None:\n    if x == y:\n"
            "        raise ValueError(f'{x + 1}' + 'a')\n    return g(x, k=not y) @ -x\n")
    (tmp_path / "m.py").write_text(text)
    monkeypatch.setattr(mutants, "path_of", lambda module: tmp_path / f"{module}.py")
    found = [text[:m.start] + m.new + text[m.end:] for m in mutants.places("m")]
    assert all(ast.parse(t) for t in found) and len(found) == 6
    for part in ("x: int | None = 4", "y=2", "x != y", "g(x)", "k=y", "@ x"):
        assert sum(part in t for t in found) == 1, part


def test_a_change_is_noticed_by_a_test_that_fails():
    code = """import mutants
m = next(m for m in mutants.places("stochastic") if m.lines()[1].startswith("return torch.xlogy"))
print(mutants.try_one(m, [["tests/test_stochastic.py", 1.0]])[1] or "nobody", mutants.try_one(m, [])[1] or "nobody")"""
    done = subprocess.run([sys.executable, "-c", code], cwd=mutants.ROOT / "tools", capture_output=True, text=True)
    assert re.fullmatch(r"test_\S+ nobody", done.stdout.strip()), done.stdout + done.stderr

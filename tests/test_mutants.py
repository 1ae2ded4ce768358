"""The list of mutants fits the library and the tests as they are; whether each is killed, `make mutants` says."""
import shlex

import mutants
import pytest
from chapters import ROOT
from mutant_list import EQUIVALENT, MUTANTS

NEEDED = {"pooling", "masks", "causal", "attend", "kernels", "sequence", "biases", "modes", "patches", "positions",
          "scaler", "splits", "checks", "resume", "storage", "tasks", "schedule", "costs", "config", "rows",
          "streams", "near"}


def test_there_are_mutants_of_everything_that_matters():
    assert len(MUTANTS) >= 60 and {m[0] for m in MUTANTS} == NEEDED
    assert len(set(MUTANTS)) == len(MUTANTS) == len({m[1:4] for m in MUTANTS})


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutants.name)
def test_a_mutant_stands_once_in_its_module_and_names_tests(mutant):
    _, module, old, new, tests = mutant
    text = (ROOT / "hot_nbdev" / f"{module}.py").read_text(encoding="utf-8")
    assert text.count(old) == 1 and old != new
    compile(text.replace(old, new), module, "exec")
    assert tests
    for test in shlex.split(tests):
        file, _, function = test.partition("::")
        there = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {function.partition('[')[0]}(" in there or not function
        assert file != "test_chapters.py"


def test_what_is_called_equivalent_is_a_mutant():
    assert set(EQUIVALENT) <= {m[2:4] for m in MUTANTS} and all(EQUIVALENT.values())


def test_a_killed_a_lost_and_a_surviving_mutant_are_told_apart(monkeypatch):
    monkeypatch.setattr(mutants, "first_failure", lambda folder, tests: "seen" if "x + 1" in written(folder) else None)
    monkeypatch.setattr(mutants, "workshop", lambda folder: (folder / "hot_nbdev").mkdir() or folder)

    def written(folder):
        return (folder / "hot_nbdev" / "kernels.py").read_text()
    old = "F.elu(t) + 1"
    found = [mutants.try_one(("g", "kernels", *change, "test_kernels.py"))
             for change in ((old, "x + 1"), (old, "x - 1"), ("no such text", ""))]
    assert [f.state for f in found] == ["killed", "survived", "lost"]

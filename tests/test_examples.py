"""The small programs of examples/ run as they stand, and stay small."""
import runpy
from functools import partial

import forks
import pytest
import torch
import torch.multiprocessing as processes
from chapters import ROOT

NEEDS = {"hub": "huggingface_hub", "peft_method": "peft_method"}
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_the_example_runs(program, tmp_path, monkeypatch):
    if program.stem in NEEDS:
        pytest.importorskip(NEEDS[program.stem])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))             # for processes that an example starts itself
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    # processes begin where this one is, and compiled code is not translated: the contracts do that
    monkeypatch.setattr("torch.multiprocessing.spawn", partial(processes.start_processes, start_method="fork"))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    status, said = forks.run(tmp_path / "said.txt", runpy.run_path, str(program), {}, "__main__")
    assert status == 0, said
    assert said.strip(), "an example says what it found"


METHODS = {"peft_method": 180, "hub": 70}       # what another library is taught, to be copied: tests of their own


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_the_example_is_small(program):
    assert len(program.read_text().splitlines()) <= METHODS.get(program.stem, 40)

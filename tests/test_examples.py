"""The small programs of examples/ run as they stand, and stay small."""
import os
import subprocess
import sys

import pytest
from chapters import ROOT

NEEDS = {"hub": "huggingface_hub", "peft_method": "peft_method"}
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_the_example_runs(program, tmp_path):
    if program.stem in NEEDS:
        pytest.importorskip(NEEDS[program.stem])
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, str(program)], cwd=tmp_path, env=env, capture_output=True, text=True,
                         timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip(), "an example says what it found"


METHODS = {"peft_method": 180, "hub": 70}       # what another library is taught, to be copied: tests of their own


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_the_example_is_small(program):
    assert len(program.read_text().splitlines()) <= METHODS.get(program.stem, 40)

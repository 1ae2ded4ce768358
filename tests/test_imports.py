"""Importing the library loads torch and changes nothing for its user."""
import subprocess
import sys

import pytest
from chapters import all_pages

MODULES = ["hot_nbdev"] + [f"hot_nbdev.{c.module}" for c in all_pages() if c.module]
HEAVY = ["tensorly", "scipy", "matplotlib", "sklearn", "medmnist", "accelerate", "pandas", "IPython", "nbdev"]


@pytest.mark.parametrize("module", MODULES)
def test_import_is_light(module):
    "Nothing heavier than torch; what torch itself loads does not count."
    code = f"import sys, torch; had = set(sys.modules); import {module}; " \
           f"print(*[m for m in {HEAVY} if m in sys.modules and m not in had])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_import_and_use_leave_global_settings_alone():
    code = """
import tensorly as tl, torch
state = lambda: (tl.get_backend(), torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed())
before = state()
from hot_nbdev.factorization import cp
from hot_nbdev.tensor import outer
cp(outer(torch.ones(2), torch.ones(3), torch.ones(2)), rank=1)
assert state() == before, (before, state())
"""
    subprocess.run([sys.executable, "-c", code], check=True)

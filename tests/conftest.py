"""Set-up shared by all tests."""
import sys
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tools")]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    "Tensors of tests are tiny: a second thread would only wait for the first."
    torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    "Tests of a file share a worker and what is built there; each chapter goes to whoever is free."
    for item in items:
        chapter = item.path.name == "test_chapters.py"
        item.add_marker(pytest.mark.xdist_group(item.name if chapter else item.path.name))

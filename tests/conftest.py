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


SLOWEST = ["test_site.py", "test_contracts.py", "test_models.py", "test_examples.py"]


def pytest_collection_modifyitems(items):
    "What takes longest begins first, so that no worker waits at the end; the tests of a file share a worker."
    place = {name: i for i, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))

"""Set-up shared by all tests."""
import gc
import sys
from pathlib import Path

import pytest
import torch

sys.modules.setdefault("rfc3987_syntax", None)      # jsonschema takes a second to import a grammar of addresses
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools"), str(ROOT / "examples")]

from order import pytest_collection_modifyitems, pytest_xdist_make_scheduler  # noqa: E402, F401


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    "Tensors of tests are tiny: a second thread would only wait for the first."
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def seldom_garbage():
    "Traced graphs make many objects that stay; looking through them for garbage took a tenth of the time."
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def no_broken_torchvision():
    """One for another torch raises when it is imported. MONAI goes on without it, and leaves transformers half there:
    PEFT, asked for later in the same process, then seems not to be there, and its tests are skipped."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError, AttributeError, OSError):
        sys.modules["torchvision"] = None

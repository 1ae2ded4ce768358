"""Tests of a file share a worker: what a module builds once is built once."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
import os
import pytest
from pathlib import Path

@pytest.mark.parametrize("i", range(8))
def test_where(i):
    with open(Path(__file__).with_suffix(".log"), "a") as f:
        print(os.environ["PYTEST_XDIST_WORKER"], file=f)
"""


def test_with_two_workers_every_file_stays_with_one(tmp_path):
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from order import pytest_collection_modifyitems, pytest_xdist_make_scheduler\n")
    names = ["test_aa", "test_bb", "test_cc", "test_site"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(FILE)
    words = "-m pytest -q -p xdist.plugin -n 2 --dist loadgroup -p no:cacheprovider".split()
    done = subprocess.run([sys.executable, *words, tmp_path], cwd=tmp_path, capture_output=True, text=True,
                          env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert done.returncode == 0 and "32 passed" in done.stdout, done.stdout
    workers = {name: (tmp_path / f"{name}.log").read_text().split() for name in names}
    assert all(len(found) == 8 and len(set(found)) == 1 for found in workers.values()), workers
    assert len({found[0] for found in workers.values()}) == 2                # and both have work

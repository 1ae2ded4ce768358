"""Tests of a file share a worker: what a module builds is built once."""
import os
import re
import shutil
import subprocess
import sys

import order
import pytest

FILE = 'import pytest\n\n@pytest.mark.parametrize("i", range(8))\ndef test_it(i):\n    pass\n'


def test_with_two_workers_every_file_stays_with_one(tmp_path):
    "A mark of pytest-xdist that says so was once no longer read, and every worker built each site, without a word."
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    shutil.copy(order.__file__, tmp_path / "conftest.py")
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(FILE)
    words = "-m pytest -v -p xdist.plugin -n 2 --dist loadgroup -p no:cacheprovider".split()
    done = subprocess.run([sys.executable, *words, tmp_path], cwd=tmp_path, capture_output=True, text=True,
                          env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    found = re.findall(r"\[(gw\d)\].* PASSED (test_\w)\.py", done.stdout)
    assert len(found) == 16, done.stdout
    assert len({worker for worker, _ in found}) == len({*found}) == 2, found         # and both have work

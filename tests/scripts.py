"""Scripts of bench/ and studies/ as modules."""
import importlib.util

import pytest
from chapters import ROOT


def load(name):
    "A script by its name, read anew; bench/ is searched only while it is read."
    path, = [*ROOT.glob(f"bench/{name}.py"), *ROOT.glob(f"studies/{name}.py"), *ROOT.glob(f"studies/*/{name}.py")]
    spec = importlib.util.spec_from_file_location(f"script_{name}", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        spec.loader.exec_module(module)
    return module


def once(work, key=str):
    "The same function, which remembers what it gave for arguments of the same key."
    known = {}

    def recall(*given):
        if (told := key(given)) not in known:
            known[told] = work(*given)
        return known[told]
    return recall

"""Importing the library loads torch and changes nothing for its user."""
import json
import os

import pytest
from chapters import ROOT
from forks import fresh

from hot_nbdev.model_config import MODELS, ClassifierConfig
from hot_nbdev.models import make_model
from hot_nbdev.names import found

PACKAGE = ROOT / "hot_nbdev"
FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent != PACKAGE or not p.stem.startswith("_")]
MODULES = ["hot_nbdev", *(".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in FILES)]
HEAVY = ["tensorly", "scipy", "matplotlib", "sklearn", "medmnist", "accelerate", "pandas", "pooch", "IPython", "nbdev",
         "monai"]
LAYERS = ["KroneckerAttention", "FullAttention", "AxialAttention", "DividedAttention", "MultiscaleAttention",
          "NoAttention", "PositiveRandomFeatures", "Rotary", "PatchEmbed", "Block", "NdLinear"]
OTHERS = ["models", "model_config", "names", "transformer", "train", "data", "commands", "adapters", "plot"]
PARTS = sorted({module.rpartition(".")[0] for module in MODULES} - {""})
CASES = {f"all of {part}": "\n".join(f"import {m}" for m in MODULES if m.rpartition(".")[0] == part)
         for part in PARTS} | {
    f"{names[0]} from the top": f"from hot_nbdev import {', '.join(names)}"
    for names in (LAYERS, ["HOTClassifier", "HOTConfig", "make_model", "load_model"], ["fit", "TrainConfig"])}
CASES |= {f"{kind} by load_model": f"""
from hot_nbdev import load_model
assert type(load_model("{kind}")).__name__ == "{name}"
""" for kind, name in [("linear", "LinearForecaster"), ("ndlinear", "HOTClassifier")]}    # nobody imports them
CASES["a layer alone"] = f"""
from hot_nbdev import KroneckerAttention
found += {{f"hot_nbdev.{{name}}" for name in {OTHERS}}} & set(sys.modules)
"""
USED = """
import tensorly as tl
state = lambda: [tl.get_backend(), torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed()]
before = state()
from hot_nbdev import KroneckerAttention
from hot_nbdev.factorization import cp
from hot_nbdev.tensor import outer
cp(outer(torch.ones(2), torch.ones(3), torch.ones(2)), rank=1)
assert before == state(), (before, state())
"""

# the package and torch are imported once; then each case is a process of its own that begins there
EACH = f"""
import json, os, sys, traceback
import hot_nbdev
hot_nbdev.__version__, dir(hot_nbdev)
print(json.dumps(["nothing but the package", list(sys.modules)]), flush=True)
import torch
had = set(sys.modules)
for case, code in {CASES | {"settings": USED}}.items():
    if os.fork() == 0:
        found = []
        try:
            exec(code)
        except BaseException:
            found = [traceback.format_exc()]
        heavy = {HEAVY} + ["safetensors"] * case.endswith("top")
        found += [m for m in heavy if m in sys.modules and m not in had and case != "settings"]
        os.write(1, (json.dumps([case, found]) + chr(10)).encode())
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    "case -> what it imports that it should not, or how it fails."
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    folder = tmp_path_factory.mktemp("models")
    make_model(found(MODELS, "linear").config_class(12, (3,))).save(folder / "linear")
    make_model(ClassifierConfig(dim=16, heads=2, depth=1, ff="ndlinear")).save(folder / "ndlinear")
    return dict(map(json.loads, fresh(EACH, folder).splitlines()))


@pytest.mark.parametrize("case", CASES)
def test_import_is_light(heavy, case):
    "Nothing heavier than torch, of what is imported first; what torch itself loads does not count."
    assert heavy[case] == []


def test_the_package_alone_imports_no_torch(heavy):
    loaded = heavy["nothing but the package"]
    assert not {m for m in loaded if m.startswith("hot_nbdev.")} | {"torch", "numpy", *HEAVY} & set(loaded)


def test_a_layer_does_not_load_models_or_training(heavy):
    assert heavy["a layer alone"] == []


def test_import_and_use_leave_global_settings_alone(heavy):
    assert heavy["settings"] == []


def test_the_list_of_names_can_be_read_and_is_complete():
    import hot_nbdev
    # an imported module would take the place of a name that it shares
    assert not set(hot_nbdev.__all__) & {p.stem for p in PACKAGE.glob("*.py")}
    assert 40 <= len(hot_nbdev.__all__) <= 64 and len(set(hot_nbdev.__all__)) == len(hot_nbdev.__all__)
    for name in hot_nbdev.__all__:
        found = getattr(hot_nbdev, name)
        assert found.__name__ == name and found is getattr(hot_nbdev, name)
        assert found.__doc__, f"{name} does not say what it is"
    assert set(hot_nbdev.__all__) <= set(dir(hot_nbdev))
    assert not {"import_module", "_HOMES"} & set(dir(hot_nbdev))
    with pytest.raises(AttributeError, match="module 'hot_nbdev' has no attribute 'KronekerAttention'"):
        _ = hot_nbdev.KronekerAttention

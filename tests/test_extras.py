"What the extras bring along: nothing that would change the torch of whoever installs them."
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, requires

import pytest
from chapters import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "settings.ini", encoding="utf-8")
EXTRAS = {"train": ["train"], "book": ["book", "train"], "peers": ["peers"], "gpu": ["gpu"], "medmnist": ["medmnist"]}


def asked(extra):
    "What an extra asks for, as requirements, with what that asks for in turn; the core counts too."
    own = SETTINGS["DEFAULT"]
    todo = [Requirement(text) for part in EXTRAS[extra] for text in own[f"{part}_requirements"].split()]
    todo, seen = [*todo, *map(Requirement, own["requirements"].split())], {}
    while todo:
        wanted = todo.pop()
        seen.setdefault(canonicalize_name(wanted.name), []).append(wanted)
        if wanted.name == "torch" or len(seen[canonicalize_name(wanted.name)]) > 1:
            continue
        try:
            found = [Requirement(text) for text in requires(wanted.name) or []]
        except PackageNotFoundError:        # of another platform, or of an extra that is not installed here
            continue
        extras = ("", *wanted.extras)
        todo += [r for r in found if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in extras)]
    return seen


@pytest.mark.parametrize("extra", ["train", "book", "peers", "gpu"])
def test_an_extra_leaves_the_torch_that_is_there(extra):
    found = asked(extra)
    assert "torchvision" not in found and "torchaudio" not in found
    pins = [r for r in found["torch"] if {s.operator for s in r.specifier} & {"==", "===", "~=", "<", "<="}]
    assert pins == [], pins


def test_the_walk_sees_what_medmnist_brings():
    pytest.importorskip("medmnist.info", reason="medmnist is an extra")
    assert "torchvision" in asked("medmnist")

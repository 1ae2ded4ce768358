"What the extras bring along: nothing that would change the torch of whoever installs them."
import re
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, requires

import nbformat
import pytest
from chapters import NBS, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "settings.ini", encoding="utf-8")
EXTRAS = {"train": ["train"], "book": ["book", "train"], "peers": ["peers"], "gpu": ["gpu"]}


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


@pytest.mark.parametrize("extra", ["book", "peers", "gpu"])     # with `book` comes `train`
def test_an_extra_leaves_the_torch_that_is_there(extra):
    found = asked(extra)
    assert "torchvision" not in found and "torchaudio" not in found
    pins = [r for r in found["torch"] if {s.operator for s in r.specifier} & {"==", "===", "~=", "<", "<="}]
    assert pins == [], pins


def test_the_page_on_installing_says_what_each_extra_brings():
    page = "\n".join(cell.source for cell in nbformat.read(NBS / "install.ipynb", as_version=4).cells)
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]+)\|", page, re.M))
    own = {key.removesuffix("_requirements"): {Requirement(text).name.lower() for text in value.split()}
           for key, value in SETTINGS["DEFAULT"].items() if key.endswith("_requirements")}
    assert set(rows) == set(own)
    for extra in set(own) - {"dev"}:
        named = {*re.findall(r"[\w-]+", rows[extra]), *(own["train"] if "`train`" in rows[extra] else ())}
        assert own[extra] <= named, (extra, own[extra] - named)
    assert all(f"`{part}`" in rows["dev"] for part in ("train", "medmnist", "peers"))       # as in setup.py

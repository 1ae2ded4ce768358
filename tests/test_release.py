"""What is published: names and versions in one place, the wheel in an empty environment, the texts beside it."""
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from email import message_from_bytes

import nbformat
import outside
import pyproject
import pytest
import yaml
from chapters import ROOT

import hot_nbdev

cfg = ConfigParser()
cfg.read(ROOT / "settings.ini", encoding="utf-8")
SETTINGS = cfg["DEFAULT"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    pytest.importorskip("build", reason="no wheel is made: the package `build` is not here")
    folder = tmp_path_factory.mktemp("release")
    return outside.unpack(outside.build_wheel(folder / "dist"), folder / "package")


def test_the_wheel_says_what_settings_say(unpacked):
    about = message_from_bytes(next(unpacked.glob("*.dist-info/METADATA")).read_bytes())
    assert (about["Name"].replace("-", "_"), about["Version"]) == (SETTINGS["lib_name"], SETTINGS["version"])
    assert about["Requires-Python"] == f">={SETTINGS['min_python']}" and about["Summary"] == SETTINGS["description"]
    assert "Apache-2.0" in (about["License"] or "") + (about["License-Expression"] or "")
    assert about["Description-Content-Type"] == "text/markdown" and SETTINGS["title"] in about.get_payload()
    needs = about.get_all("Requires-Dist")
    plain = {re.sub(r"[\s()]", "", need) for need in needs if "extra ==" not in need}
    assert plain == set(SETTINGS["requirements"].split())
    assert set(about.get_all("Provides-Extra")) == {"train", "gpu", "medmnist", "book", "peers", "dev"}
    for name in ("book", "train"):
        listed = {re.match(r"[\w-]+", need)[0] for need in needs if re.search(f"extra == ['\"]{name}['\"]", need)}
        assert {re.match(r"[\w-]+", r)[0] for r in SETTINGS[f"{name}_requirements"].split()} <= listed
    scripts = next(unpacked.glob("*.dist-info/entry_points.txt")).read_text()
    assert all(re.sub(r"=", " = ", line) in scripts for line in SETTINGS["console_scripts"].split())
    assert next(unpacked.glob("*.dist-info/**/LICENSE")).read_text() == (ROOT / "LICENSE").read_text()
    assert (unpacked / "hot_nbdev" / "py.typed").exists()
    assert [p.name for p in unpacked.iterdir() if not p.name.startswith("hot_nbdev")] == []


def test_the_wheel_works_where_there_is_no_git(unpacked, tmp_path):
    "In an empty folder, with nothing on the path for programs."
    code = ("import hot_nbdev, torch\nfrom hot_nbdev import KroneckerAttention\n"
            "from hot_nbdev.results import library_commit\n"
            "assert KroneckerAttention(8, heads=2, order=2)(torch.randn(1, 2, 3, 8)).shape == (1, 2, 3, 8)\n"
            "print(hot_nbdev.__file__, hot_nbdev.__version__, repr(library_commit()))")
    env = os.environ | {"PYTHONPATH": str(unpacked), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(unpacked / "hot_nbdev" / "__init__.py"), SETTINGS["version"], "''"]


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == SETTINGS["version"] == hot_nbdev.__version__
    cells = nbformat.read(ROOT / "nbs" / "69_toplevel.ipynb", as_version=4).cells      # nbdev 3 reads it there
    assert f'__version__ = "{SETTINGS["version"]}"' in "\n".join(cell.source for cell in cells)
    assert citation["license"] == "Apache-2.0" and citation["repository-code"] == SETTINGS["git_url"]


def test_pyproject_is_what_settings_say_and_leaves_the_package_to_setup():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert text == pyproject.pyproject(SETTINGS)
    tomllib = pytest.importorskip("tomllib", reason="TOML is not read: Python 3.10 has no tomllib")
    found = tomllib.loads(text)
    assert set(found) == {"build-system", "project", "tool"} and set(found["tool"]) == {"nbdev", "ruff"}
    assert set(found["project"]) == {"name", "requires-python", "dynamic"}
    for key, value in found["tool"]["nbdev"].items():
        assert str(value) == SETTINGS[key], key


def test_pyproject_has_what_differs_from_nbdevs_own_choice():
    asked = {"lib_name": "x", "min_python": "3.11", "nbs_path": "chapters", "recursive": "False", "branch": "main",
             "title": "T"}
    assert pyproject.pyproject(asked).endswith('[tool.nbdev]\nnbs_path = "chapters"\nrecursive = false\ntitle = "T"\n')


@pytest.mark.parametrize("name", [".github/SECURITY.md", ".github/CONTRIBUTING.md", "CHANGELOG.md", "README.md"])
def test_links_of_the_texts_lead_somewhere(name):
    text = re.sub(r"`[^`\n]*`", "", (ROOT / name).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert re.match(r"https?:", target) or ((ROOT / name).parent / target).exists(), target

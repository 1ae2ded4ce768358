"""What is published: names and versions in one place, the wheel in an empty environment, the texts beside it."""
import re
from configparser import ConfigParser

import nbformat
import pytest
import yaml
from chapters import ROOT

import hot_nbdev

cfg = ConfigParser()
cfg.read(ROOT / "settings.ini", encoding="utf-8")
SETTINGS = cfg["DEFAULT"]


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == SETTINGS["version"] == hot_nbdev.__version__
    cells = nbformat.read(ROOT / "nbs" / "69_toplevel.ipynb", as_version=4).cells      # nbdev 3 reads it there
    assert f'__version__ = "{SETTINGS["version"]}"' in "\n".join(cell.source for cell in cells)
    assert citation["license"] == "Apache-2.0" and citation["repository-code"] == SETTINGS["git_url"]


def test_pyproject_is_what_settings_say_and_leaves_the_package_to_setup():
    tomllib = pytest.importorskip("tomllib", reason="TOML is not read: Python 3.10 has no tomllib")
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(found) == {"build-system", "project", "tool"} and set(found["tool"]) == {"nbdev", "ruff"}
    assert set(found["project"]) == {"name", "requires-python", "dynamic"}
    assert found["project"]["name"] == SETTINGS["lib_name"]
    assert found["project"]["requires-python"] == f">={SETTINGS['min_python']}"
    for key in ("recursive", "readme_nb", "tst_flags", "custom_sidebar", "update_pyproject", "title"):
        assert str(found["tool"]["nbdev"].pop(key)) == SETTINGS[key], key
    assert not found["tool"]["nbdev"]
    usual = {"nbs_path": "nbs", "doc_path": "_docs", "branch": "main", "clean_ids": "True", "clear_all": "False",
             "put_version_in_init": "True"}      # what nbdev 3 takes where nothing is said
    assert usual == {key: SETTINGS[key] for key in usual}


@pytest.mark.parametrize("name", [".github/SECURITY.md", ".github/CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_texts_lead_somewhere(name):
    "Those of the README follow test_readme.py."
    text = re.sub(r"`[^`\n]*`", "", (ROOT / name).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert re.match(r"https?:", target) or ((ROOT / name).parent / target).exists(), target

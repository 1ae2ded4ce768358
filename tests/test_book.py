"""The book outside of its repository: what the package carries, and notebooks that run with it alone."""
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib

import crossref
import matplotlib
import matplotlib.pyplot as plt
import pytest
from chapters import CHAPTERS, NBS, ROOT, Chapter, runs

from hot_nbdev.book import results_file, style

matplotlib.use("agg")
NEEDED = ["settings.ini", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "hot_nbdev", "results",
          "nbs/book.mplstyle", "nbs/verdicts.csv"]
URL = "https://example.org/x/hot_nbdev"
TABLES = sorted(p for pattern in ("[!.]*.csv", "maps/*.npy") for p in (ROOT / "results").glob(pattern))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    "The wheel made from the source distribution, unpacked; nothing is fetched, nothing written here."
    pytest.importorskip("build", reason="no wheel is made: the package `build` is not here")
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in NEEDED:
        (source / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    env = os.environ | {"PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source],
                          env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_carries_the_style_and_the_tables_as_they_are(wheel):
    carried = wheel / "hot_nbdev" / "_book"
    expected = {**{name: NBS / name for name in ("book.mplstyle", "verdicts.csv")},
                **{str(t.relative_to(ROOT)): t for t in TABLES}}
    found = {str(p.relative_to(carried)): p for p in carried.rglob("*") if p.is_file()}
    assert found.keys() == expected.keys()
    for name, path in expected.items():
        assert found[name].read_bytes() == path.read_bytes(), name


def test_what_the_wheel_carries_stays_small():
    assert sum(len(zlib.compress(t.read_bytes())) for t in TABLES) < 300_000        # a wheel is compressed


def test_the_package_in_the_wheel_is_that_of_the_checkout(wheel):
    "Modules, and what lies beside them, such as py.typed and tables that commands read."
    here, there = ({p.name: p.read_bytes() for p in (folder / "hot_nbdev").iterdir() if p.is_file()}
                   for folder in (ROOT, wheel))
    assert here == there


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_every_table_that_a_chapter_reads_is_carried(path):
    names = {t.relative_to(ROOT / "results").as_posix() for t in TABLES}
    code = "\n".join(c.source for c in Chapter(path).code)
    for name in re.findall(r"results_file\(\"([^\"]+)\"\)|\.\./results/([^\"{]+)\"", code):
        name = "".join(name)
        assert name in names or any(n.startswith(f"{name}/") for n in names), name


def script_of(path):
    "The code of a downloaded notebook, cell after cell."
    nb = crossref.for_readers(json.loads(path.read_text(encoding="utf-8")), "hot_nbdev", URL)
    cells = ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code"]
    assert not any("nbdev" in line and "hot_nbdev" not in line for cell in cells for line in cell.splitlines()
                   if re.match(r"\s*(from|import) ", line))
    shown = [c for c in cells if not re.search(r"^#\|\s*eval:\s*false", c, re.M)]
    return "import matplotlib; matplotlib.use('agg')\n" + "\n\n".join(shown)


@pytest.mark.parametrize("name", ["book", "index", "notation", "02_kronecker"])
def test_a_downloaded_notebook_runs_with_the_wheel_alone(wheel, tmp_path, name):
    script = script_of(NBS / f"{name}.ipynb") + (
        "\nimport hot_nbdev, pathlib\n"
        f"assert pathlib.Path(hot_nbdev.__file__).is_relative_to({str(wheel)!r}), hot_nbdev.__file__")
    env = os.environ | {"PYTHONPATH": str(wheel), "MPLCONFIGDIR": str(tmp_path / "config")}
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=folder, env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_extra_names_what_the_notebooks_import():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    extras = ("requirements", "train_requirements", "book_requirements")
    lists = " ".join(settings["DEFAULT"][key] for key in extras)
    listed = {re.match(r"[\w-]+", r)[0] for r in lists.split()} | {"scikit-learn"}
    names = {"sklearn": "scikit-learn", "tqdm": "accelerate"}       # or what it brings along
    optional = {"hot_nbdev", "nbdev", "monai", "tifffile", "pandas", "polars", "pooch"}
    for path in NBS.glob("*.ipynb"):
        code = "\n".join(c.source for c in Chapter(path).code if runs(c))
        imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.M))
        for module in imported - set(sys.stdlib_module_names) - optional:
            assert names.get(module, module) in listed, f"{path.name} imports {module}"


def test_downloads_say_how_they_are_run_and_need_no_tools_of_the_site():
    cells = [{"cell_type": "markdown", "source": ["# T"]},
             {"cell_type": "code", "source": ["#| hide\n", "from nbdev.showdoc import *"]},
             {"cell_type": "code", "source": ["from nbdev.showdoc import *\n", "import torch"]}]
    found = crossref.for_readers({"cells": cells, "metadata": {}}, "hot_nbdev", URL)["cells"]
    assert [c["cell_type"] for c in found] == ["markdown", "markdown", "code"]
    assert '"hot_nbdev[book] @ git+https://example.org/x/hot_nbdev"' in found[1]["source"][0]
    assert found[2]["source"] == ["import torch"]


def test_the_style_is_applied_and_the_tables_are_those_of_the_checkout():
    before = dict(plt.rcParams)
    try:
        style()
        assert plt.rcParams["axes.facecolor"] == "none" and plt.rcParams["image.cmap"] == "viridis"
    finally:
        plt.rcParams.update(before)
    assert results_file("kin.csv").samefile(ROOT / "results" / "kin.csv")


@pytest.mark.parametrize("name", ["gone.csv", "../settings.ini", "/etc/passwd", "maps/../../setup.py"])
def test_only_tables_of_the_book_are_found(name):
    with pytest.raises(ValueError, match=f"results_file: there is no {re.escape(name)} in .*clone it"):
        results_file(name)


def test_tables_in_the_working_directory_are_not_mistaken_for_those_of_the_book(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "kin.csv").write_text("mine")
    (tmp_path / "nbs").mkdir()
    monkeypatch.chdir(tmp_path / "nbs")
    assert results_file("kin.csv").samefile(ROOT / "results" / "kin.csv")

"""The book outside of its repository: what the package carries, and notebooks that run with it alone.

One of the notebooks runs with the wheel unpacked and the other packages of this environment; with PAGES=all, every one.
READER=ENV/bin/python runs them in an environment where `pip install "WHEEL[book,medmnist]"` was run.
"""
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from email import message_from_bytes

import lab
import matplotlib
import pytest
import smallbook
from book import Book
from chapters import NBS, ROOT, all_pages, runs

from hot_nbdev.book import results_file

matplotlib.use("agg")
cfg = configparser.ConfigParser()
cfg.read(ROOT / "settings.ini", encoding="utf-8")
SETTINGS = cfg["DEFAULT"]
PAGES = [c for c in all_pages() if c.path.stem != "42_book"]        # the page that makes results_file
READ = sorted(p for pattern in ("studies/*/*.*", "bench/rows/[!.]*.*") for p in ROOT.glob(pattern)
              if p.suffix in (".csv", ".npz", ".json", ".md") and p.name != "scores.npz")
READER = os.environ.get("READER")
RUN = sorted(p.stem for p in NBS.glob("*.ipynb")) if os.environ.get("PAGES") == "all" else ["42_book"]
# Before the first cell: the package is not that of the checkout, and knows no git; no file of the checkout is opened.
WATCH = f"""import os as _os, sys as _sys
import hot_nbdev as _package
from hot_nbdev.train.results import library_commit as _commit
_root = {str(ROOT)!r} + _os.sep
def _watch(event, args):
    if event == "open" and isinstance(args[0], str):
        path = _os.path.abspath(args[0])
        if path.startswith(_root) and not path.startswith(_root + ".venv" + _os.sep):
            raise PermissionError(f"a file of the checkout is opened: {{path}}")
if _os.path.realpath(_package.__file__).startswith(_root):
    raise ImportError(f"hot_nbdev is that of the checkout: {{_package.__file__}}")
assert (_package.__version__, _commit()) == ({SETTINGS["version"]!r}, "")
_sys.addaudithook(_watch)
"""


def run(name, package, empty):
    "What goes wrong with a download in a kernel of its own; `package` is a folder to find the library in."
    nb = lab.for_readers(Book(ROOT), f"{name}.ipynb", {})          # of its text nothing runs
    nb["cells"].insert(0, smallbook.cell(WATCH, []))
    (empty / f"{name}.ipynb").write_text(json.dumps(nb), encoding="utf-8")
    program = READER or sys.executable
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MPLBACKEND")}
    env |= {"OMP_NUM_THREADS": "1", "PATH": os.path.dirname(program)}       # without git
    env |= {"PYTHONPATH": str(package)} if package else {}
    command = [program, "-W", "ignore", "-c", "from nbclient.cli import main; main()",
               f"{name}.ipynb", "--timeout=600", "--kernel_name=python3"]
    done = subprocess.run(command, cwd=empty, env=env, capture_output=True, text=True)
    return done.stderr[-3000:] if done.returncode else ""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    "The folder with the wheel, and the source distribution that it was made from: in a copy, with nothing fetched."
    pytest.importorskip("build", reason="no wheel is made: the package `build` is not here")
    folder, left = tmp_path_factory.mktemp("dist"), (".*", "_build", "_docs", "_proc", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(*left))
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "copy"],
                          env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    shutil.rmtree(folder / "copy")
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    "The wheel unpacked, which is what installing it without its needs does."
    shutil.unpack_archive(next(built.glob("*.whl")), built / "unpacked", "zip")
    return built / "unpacked"


def test_the_source_distribution_has_what_the_package_is_built_from_and_nothing_of_git(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["settings.ini", "setup.py", "pyproject.toml", "README.md", "LICENSE", "nbs/book.mplstyle",
              "nbs/verdicts.csv", "nbs/promises.csv"]
    for path in [*READ, *(ROOT / name for name in needed), *(ROOT / "hot_nbdev").rglob("*.py")]:
        assert path.relative_to(ROOT).as_posix() in names, f"{path} is missing"
    assert not [name for name in names if re.match(r"\.git|tests|_build|studies/.*(/rows/|scores\.npz)", name)]


def test_the_wheel_carries_the_package_and_the_tables_as_they_are(wheel):
    "Modules, and what lies beside them, such as py.typed; the style and the tables that pages and commands read."
    def files(folder):
        return {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    beside = [NBS / name for name in ("book.mplstyle", "verdicts.csv", "promises.csv")]
    expected = {f"_book/{path.relative_to(ROOT)}": path for path in [*beside, *READ]} | files(ROOT / "hot_nbdev")
    found = files(wheel / "hot_nbdev")
    assert found.keys() == expected.keys() and "py.typed" in found
    for name, path in expected.items():
        assert found[name].read_bytes() == path.read_bytes(), name


def test_the_wheel_says_what_settings_say(wheel):
    about = message_from_bytes(next(wheel.glob("*.dist-info/METADATA")).read_bytes())
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
    scripts = next(wheel.glob("*.dist-info/entry_points.txt")).read_text()
    assert all(re.sub(r"=", " = ", line) in scripts for line in SETTINGS["console_scripts"].split())
    assert next(wheel.glob("*.dist-info/**/LICENSE")).read_text() == (ROOT / "LICENSE").read_text()
    assert [p.name for p in wheel.iterdir() if not p.name.startswith("hot_nbdev")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda c: c.path.stem)
def test_every_table_that_a_page_reads_is_named_in_full_and_carried(page):
    "By `results_file`, which is told the name alone; cells where it is expected to fail may name any."
    lessons = "\n".join(c.source for c in page.lessons() if "expect_fail(" not in c.source)
    assert not re.search(r"\.\./studies|[\"'](studies|bench)/|results_file as |= results_file\b(?!\()", lessons)
    for name in re.findall(r"\bresults_file\(([^)]*)", lessons):
        assert [t.name for t in READ].count(name.strip("\"'")) == 1, name


@pytest.mark.parametrize("name", RUN)
def test_a_downloaded_notebook_runs_with_the_wheel_alone(request, name, tmp_path):
    "In a kernel, in an empty folder, without git; where it is one only, one that reads the style and a table."
    assert run(name, None if READER else request.getfixturevalue("wheel"), tmp_path) == ""


def test_the_extra_names_what_the_notebooks_import():
    extras = ("requirements", "train_requirements", "book_requirements")
    lists = " ".join(SETTINGS[key] for key in extras)
    listed = {re.match(r"[\w-]+", r)[0] for r in lists.split()} | {"scikit-learn"}
    names = {"sklearn": "scikit-learn", "tqdm": "accelerate"}       # or what it brings along
    optional = {"hot_nbdev", "nbdev", "tifffile", "pandas", "polars", "pooch", "IPython",      # the kernel has the last
                "medmnist"}        # an extra of its own: the one page that imports it says so
    for page in all_pages():
        code = "\n".join(c.source for c in page.code if runs(c))
        imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.M))
        for module in imported - set(sys.stdlib_module_names) - optional:
            assert names.get(module, module) in listed, f"{page.path.name} imports {module}"


def test_downloads_say_how_they_are_run_and_need_no_tools_of_the_site():
    found = lab.for_readers(Book(ROOT), "01_tensor.ipynb", {})["cells"]
    package = f"hot_nbdev[book] @ git+https://github.com/{SETTINGS['user']}/{SETTINGS['repo']}"
    assert f'`pip install "{package}"`' in "".join(found[1]["source"])
    install = "".join(found[2]["source"])
    assert f'"{package}"' in install
    exec(re.sub(r"^%.*", "", install, flags=re.M), {})           # nothing is installed where the package is there
    assert not any("showdoc" in "".join(cell["source"]) for cell in found)


def test_notebooks_open_in_colab_and_binder_at_the_place_that_the_settings_name():
    place = "{user}/{repo}".format(**SETTINGS)
    found = dict(Book(ROOT).structure.online("01_tensor.ipynb"))
    assert found == {
        "Open in Colab": f"https://colab.research.google.com/github/{place}/blob/notebooks/01_tensor.ipynb",
        "Open in Binder": f"https://mybinder.org/v2/gh/{place}/notebooks?labpath=01_tensor.ipynb"}


@pytest.mark.parametrize("name", ["gone.csv", "../settings.ini", "/etc/passwd", "kin/../../setup.py", "scores.npz"])
def test_only_tables_of_the_book_are_found(name):
    with pytest.raises(ValueError, match=f"results_file: there is no {re.escape(name)} in .*clone it"):
        results_file(name)


def test_tables_in_the_working_directory_are_not_mistaken_for_those_of_the_book(tmp_path, monkeypatch):
    (tmp_path / "studies" / "kin").mkdir(parents=True)
    (tmp_path / "studies" / "kin" / "kin.csv").write_text("mine")
    (tmp_path / "nbs").mkdir()
    monkeypatch.chdir(tmp_path / "nbs")
    assert results_file("kin.csv").samefile(ROOT / "studies" / "kin" / "kin.csv")

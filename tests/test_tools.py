"""The tools behind `make book` and `make test`: what they do when something is wrong."""
import re
import subprocess
from configparser import ConfigParser

import execute
import nbformat
import pytest
import yaml
from chapters import ROOT
from nbformat.v4 import new_code_cell, new_notebook

# the cells here need no torch, which takes seconds
execute.FORKS.set_forkserver_preload(["matplotlib.pyplot", "execnb.shell", "nbformat"])


def write(path, *cells):
    nbformat.write(new_notebook(cells=[new_code_cell(c) for c in cells]), path)
    return path


def test_execute_fills_outputs_and_tells_which_stored_ones_are_outdated(tmp_path):
    source, new = write(tmp_path / "a.ipynb", "x = 6", "x * 7", "#| eval: false\nx = 1 / 0"), tmp_path / "b.ipynb"
    execute.execute_apart(source, new)
    found = [[o.data["text/plain"] for o in cell.outputs] for cell in nbformat.read(new, as_version=4).cells]
    assert found == [[], ["42"], []]
    assert execute.outdated(source, new) == [1] and execute.outdated(new, new) == []


@pytest.mark.parametrize("cell, says", [
    ("x / 0", "ZeroDivisionError"), ("import warnings\nwarnings.warn('loud')", "wrote to stderr:.*loud")])
def test_execute_names_chapter_cell_and_error_or_warning(tmp_path, cell, says):
    source = write(tmp_path / "09_broken.ipynb", "x = 1", cell)
    with pytest.raises(execute.ChapterError, match=rf"(?s)09_broken.ipynb, cell 1 .*{says}"):
        execute.execute_apart(source, tmp_path / "b.ipynb")


def test_make_tells_the_files_that_export_and_clean_make_change_or_remove(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("same", "changed", "removed", ".gitignore"):
        (tmp_path / name).write_text("ignored")
    program, words = tmp_path / ".venv" / "bin" / "nbdev_export", ["make", "-s", "-f", ROOT / "Makefile", "same"]
    program.parent.mkdir(parents=True)
    for commands, told in (("touch ignored", []), ("touch new; echo x > changed; rm removed; exit 0",
                                                   ["changed", "new", "removed"])):
        for path in (program, program.with_name("nbdev_clean")):
            path.write_text(f"#!/bin/sh\n{commands}\n")
            path.chmod(0o755)
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert (re.findall(r"^ (\w+) +\|", done.stdout, re.M), bool(done.returncode)) == (told, bool(told)), done


def test_floors_are_the_lowest_versions_and_each_requirement_has_one(tmp_path):
    def floors(text):
        (tmp_path / "settings.ini").write_text(text)
        subprocess.run(["make", "-s", "-B", "-f", ROOT / "Makefile", "floors.txt"], cwd=tmp_path, check=True)
        return (tmp_path / "floors.txt").read_text().split()

    own = "requirements = torch>=2.6 numpy>=1.26,<3\ntrain_requirements = scikit-learn<5,>=4.60.1\n"
    assert floors(f"{own}dev_requirements = a>=2\n") == ["torch==2.6", "numpy==1.26", "scikit-learn==4.60.1"]
    settings, cfg = (ROOT / "settings.ini").read_text(encoding="utf-8"), ConfigParser()
    cfg.read_string(settings)
    asked = f"{cfg['DEFAULT']['requirements']} {cfg['DEFAULT']['train_requirements']}".split()
    assert [re.split("[<=>]", line)[0] for line in floors(settings)] == [re.split("[<=>]", r)[0] for r in asked]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in floors(settings))


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_by_hash_with_their_version_beside_it(path):
    used = re.findall(r"uses:\s*(.+)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_workflows_may_read_and_only_a_job_that_runs_none_of_our_code_may_write(path):
    flow = yaml.safe_load(path.read_text())
    assert flow["permissions"] == {"contents": "read"}
    for job in flow["jobs"].values():
        if "write" in str(job.get("permissions", "")):
            assert not any("checkout" in step.get("uses", "") for step in job["steps"])
            commands = "\n".join(step.get("run", "") for step in job["steps"])     # git, with no file of ours there
            assert all(line.startswith("git -C notebooks ") for line in commands.splitlines() if line)


def test_the_recipes_of_the_makefile_are_those_of_the_readme():
    recipes = re.findall(r"^(\w+):.*##", (ROOT / "Makefile").read_text(), re.M)
    readme_text = (ROOT / "README.md").read_text()
    assert recipes and all(f"make {recipe}" in readme_text for recipe in recipes), recipes


HIDDEN = re.compile(r"^#\|\s*(hide|export$|echo: false|code-fold|folded)", re.M)

UNSEEN = re.compile(r"^::: \{\.(?:proof|callout-\w+ collapse=\"true\")\}.*?^:::$|\$\$.*?\$\$", re.DOTALL | re.M)


def minutes(path):
    "150 words a minute, 5 seconds for a line of code, of what is seen: no exercise, proof, formula, nothing folded."
    words = lines = exercise = 0
    for cell in nbformat.read(path, as_version=4).cells:
        text = cell.source
        if cell.cell_type == "markdown":
            exercise = bool(re.match("#+ Exercise", text)) or exercise and not text.startswith("## ")
            seen = re.sub(UNSEEN, " ", text)
            words += 0 if exercise else len(seen.split())
        elif not exercise and not HIDDEN.search(text):
            lines += sum(bool(line.strip()) and not line.startswith("#|") for line in text.splitlines())
    return words / 150 + lines / 12


def test_the_map_of_the_first_page_has_every_chapter_and_its_minutes():
    first = "\n".join(cell.source for cell in nbformat.read(ROOT / "nbs" / "index.ipynb", as_version=4).cells)
    rows = re.findall(r"^\| \[[^]]+\]\((\w+\.ipynb)\) \|[^|]+\| (\d+) \|", first, re.M)
    found, chapters = dict(rows), sorted((ROOT / "nbs").glob("[0-3][0-9]*_*.ipynb"))
    assert [p.name for p in chapters if p.name not in found] == []
    for path in chapters:
        said = re.search(r"Reading time: about (\d+) minutes", path.read_text(encoding="utf-8"))
        assert not said or said[1] == found[path.name], f"{path.name} says {said[0]}, the map {found[path.name]}"
        assert abs(int(found[path.name]) - minutes(path)) <= 4 and minutes(path) <= 45, (path.name, minutes(path))
    notes = r"(?:|up to Tucker|skip the proofs)"         # what a first reading takes, of the chapters
    taken = re.findall(rf"^\| \[[^]]+\]\(\d\w+\.ipynb\) \|[^|]+\| (\d+) \| {notes} ?\|$", first, re.M)
    hours = sum(map(int, taken)) / 60
    number = "zero one two three four five six seven eight nine ten".split()[round(hours)]
    assert f"and chapter 6 without its proofs: about {number} hours" in first

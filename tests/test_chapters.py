"""Every chapter keeps the form of the book, and its cells hold for the exported module as well."""
import importlib
import json
import re
import statistics

import forks
import matplotlib
import pytest
import yaml
from assertions import asserted
from book import DRAWN, page_of
from chapters import NBS, ROOT, SIDEBAR, all_chapters, all_pages, exported, options, runs
from nbdev.test import test_nb as run_notebook

from hot_nbdev.model_config import MODELS

matplotlib.use("agg")
CHAPTERS, PAGES = all_chapters(), all_pages()
chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda c: c.path.stem)
page = pytest.mark.parametrize("chapter", PAGES, ids=lambda c: c.path.stem)


@pytest.mark.parametrize("chapter", [c for c in PAGES if c.module], ids=lambda c: c.path.stem)
def test_the_module_has_the_names_of_the_chapter(chapter):
    "What the cells check holds for the module, since it is made of the same cells; that it is, the first step sees."
    module = importlib.import_module(f"hot_nbdev.{chapter.module}".removesuffix(".__init__"))
    for name in chapter.public_names():
        assert getattr(module, name).__module__ in {f"hot_nbdev.{m}".removesuffix(".__init__") for m in chapter.modules}


@page
def test_begins_with_title_and_subtitle_and_links_to_the_conventions(chapter):
    assert re.fullmatch(r"# \S.*\n\n> \S.*\.", chapter.cells[0].source)
    assert chapter.path.name == "notation.ipynb" or "(notation.ipynb" in chapter.text


@chapter
def test_ends_with_what_a_reader_takes_along(chapter):
    headings, sibling = chapter.headings(), re.match(r"\d+[a-z]_", chapter.path.name)      # 11a belongs to 11
    for title in ["Things to remember", "Exercises"] + ([] if sibling else ["What the papers say", "Further reading"]):
        if title == "What the papers say" and chapter.path.name.startswith("00_"):
            continue        # the opening decides nothing yet
        assert title in headings, f"{chapter.path.name} has no section '{title}'"
    exercises = [h for h in headings if h.startswith("Exercise: ")]
    solutions = [c for c in chapter.code if 'code-summary: "Solution"' in options(c)]
    assert len(exercises) >= (1 if sibling else 4)
    assert len(solutions) == len(exercises)
    for cell in solutions:      # a solution is checked by the cell that holds it
        assert re.search(r"^check_\w+\(", cell.source, re.M)


@page
def test_every_exported_name_is_shown_and_asserted_on_itself(chapter):
    lessons = "\n".join(c.source for c in chapter.lessons())
    found = asserted([c.source for c in chapter.lessons()])
    for name in chapter.public_names():
        assert re.search(rf"\b{name}\b", lessons), f"{name} is shown in no cell"
        assert name in found, f"no assertion depends on {name}; standing in a cell with an assertion is not enough"


def lines_of(cell):
    "Lines of code and notes, without empty ones and options."
    return len([line for line in cell.source.splitlines() if line.strip() and not line.lstrip().startswith("#")])


@page
def test_no_exported_cell_is_above_thirty_lines(chapter):
    sizes = {cell.id: lines_of(cell) for cell in chapter.code if exported(cell)}
    assert {name: n for name, n in sizes.items() if n > 30} == {}


def test_half_of_the_exported_cells_of_chapters_have_at_most_twelve_lines():
    sizes = [lines_of(c) for chapter in PAGES if chapter.path.name < "40" for c in chapter.code if exported(c)]
    assert len(sizes) > 300 and statistics.median(sizes) <= 12


@page
def test_figures_have_label_caption_and_alt_text(chapter):
    for cell in chapter.code:
        if "plt.show(" in cell.source or any("image/png" in o.get("data", {}) for o in cell.outputs):
            keys = {o.split(":")[0] for o in options(cell)}
            assert {"label", "fig-cap", "fig-alt"} <= keys, f"{chapter.path.name}, cell {cell.id}"
        elif any(mark in o.get("data", {}).get("text/html", "") for o in cell.outputs for mark in DRAWN):
            keys = {o.split(":")[0] for o in options(cell)}
            assert {"label", "fig-cap"} <= keys, f"{chapter.path.name}, cell {cell.id}"


@page
def test_stored_outputs_are_complete_and_clean(chapter):
    for cell in chapter.code:
        text = json.dumps(cell.outputs)
        paths = r"(/root/|/home/|/tmp/|/Users/|C:\\\\|<module '\S+' from)"
        assert not re.search(paths, text), f"a path in cell {cell.id}"
        assert not any(o.get("name") == "stderr" or o.output_type == "error" for o in cell.outputs)
        assert "<Figure size" not in text or "image/png" in text
        if runs(cell) and "plt.show(" in cell.source and "def " not in cell.source:
            assert "image/png" in text, f"{chapter.path.name}, cell {cell.id} has no stored figure"


def test_the_sidebar_lists_every_page_and_chapters_in_order():
    assert sorted(SIDEBAR) == sorted(p.name for p in NBS.glob("*.ipynb"))
    numbered = [name for name in SIDEBAR if name[0].isdigit()]
    assert numbered == sorted(numbered) and numbered[:len(CHAPTERS)] == [c.path.name for c in CHAPTERS]
    # a page without a number exports nothing
    assert not [c.path.name for c in PAGES if c.module and not c.path.name[0].isdigit()]


def test_title_and_links_of_the_site_are_those_of_the_package():
    from nbdev.config import get_config
    cfg, site = get_config(path=ROOT), yaml.safe_load((ROOT / "_quarto.yml").read_text())["website"]
    assert site["title"] == cfg.title
    assert site["repo-url"] == cfg.git_url
    assert site["site-url"] == cfg.doc_host + cfg.doc_baseurl


def test_every_module_comes_from_a_chapter_and_no_two_pages_have_one_name_on_the_site():
    package = ROOT / "hot_nbdev"
    files = [p for p in package.rglob("*.py") if p.stat().st_size > 0]      # an empty __init__ makes a folder a package
    modules = {".".join(p.relative_to(package).with_suffix("").parts) for p in files} - {"_modidx"}
    assert modules == {c.module for c in PAGES if c.module}
    names = [page_of(p.path.name) for p in PAGES]       # numbers are left out of addresses
    assert sorted(set(names)) == sorted(names)


def test_cell_ids_are_unique_and_no_anchor_of_a_name():
    "Quarto makes both an id of the page: of a cell its own, of a documented name the name in small letters."
    for chapter in PAGES:
        ids = {c.id for c in chapter.cells}
        names = {name.lower() for c in chapter.cells for name in re.findall(r"^(?:class|def) (\w+)", c.source, re.M)}
        assert len(ids) == len(chapter.cells) and names.isdisjoint(ids), chapter.path.name


def test_a_chapter_leaves_the_table_of_models_as_it_was(tmp_path, monkeypatch):
    "Chapters are tested one after the other in one process, and the next asks `make_model` for the package's classes."
    writes = re.compile(r"^ *MODELS(\[.*\] =| \|=)", re.M)
    changing = [c.path for c in PAGES if any(writes.search(cell.source) for cell in c.lessons())]
    before = dict(MODELS)

    def work():
        for path in changing:
            assert run_notebook(path)[0] and before == MODELS, path
    monkeypatch.chdir(NBS)
    assert changing and forks.run(tmp_path / "said.txt", work) == (0, "")

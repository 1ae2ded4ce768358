"""Notebooks for learners: no answer stands in them, and the version with answers has all."""
import ast
import functools
import json
import re

import book
import lab
import pytest
import smallbook
from chapters import NBS, ROOT

BOOK = book.Book(ROOT)
PAGES = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(NBS.glob("*.ipynb"))}


def source(cell):
    return "".join(cell["source"])


@functools.cache
def readers(name, answers):
    "What is downloaded, with empty text: what reads the text of the whole book asks for it below."
    return lab.for_readers(BOOK, name, {}, answers)["cells"]


def solutions(cells):
    code = [c for c in cells if c["cell_type"] == "code"]
    return [c for c in code if re.search(r'code-summary: *"?(Solution|Answer)', source(c))]


SOLVED = [name for name, page in PAGES.items() if solutions(page["cells"])]


@pytest.mark.parametrize("name", SOLVED)
def test_no_answer_leaks(name):
    "Neither a cell with a solution nor its output is there, nor a line of it that nothing else says."
    cells, kept = PAGES[name]["cells"], readers(name, answers=False)
    hidden = solutions(cells)
    assert not solutions(kept)
    text, elsewhere = json.dumps(kept, ensure_ascii=False), "\n".join(source(c) for c in cells if c not in hidden)
    for cell in hidden:
        for line in map(str.strip, source(cell).splitlines()):
            if len(line) > 15 and not line.startswith(("#|", "check_")) and line not in elsewhere:
                assert json.dumps(line, ensure_ascii=False)[1:-1] not in text, f"{name}, cell {cell['id']}: {line}"
        same, = [c for c in kept if c["id"] == cell["id"]]
        assert same["outputs"] == [] and same["execution_count"] is None


@pytest.mark.parametrize("name", SOLVED)
def test_the_version_with_answers_has_all_of_them(name):
    full = {c["id"]: source(c) for c in readers(name, answers=True)}
    for cell in solutions(PAGES[name]["cells"]):
        assert full[cell["id"]] == re.sub(r"^#\|.*\n", "", source(cell), flags=re.M).strip("\n")


@pytest.mark.parametrize("name", PAGES)
def test_what_is_left_is_a_notebook(name):
    "Every cell is of its kind, keeps its id and its place, and is Python without options where it is code."
    cells, kept = PAGES[name]["cells"], readers(name, answers=False)
    rest = [c["id"] for c in kept if c["id"] in {cell["id"] for cell in cells}]
    assert [i for i in (c["id"] for c in cells) if i in rest] == rest
    for cell in kept:
        if cell["cell_type"] == "code":
            ast.parse(re.sub(r"^[%!].*", "", source(cell), flags=re.M))
            assert not re.search(r"^#\| ?\S", source(cell), re.M), cell["id"]
    assert ("answers to its exercises were left out" in source(kept[1])) == (name in SOLVED)


SITE = re.compile(r":::|\{#|\{\.|(?<![\w`])@(?:thm|lem|cor|prp|def|exm|exr|rem|eq|fig|tbl|sec)-"
                  r"|\]\((?!https?://|mailto:)|^#\|", re.M)


def foreign(texts):
    "Blocks, labels, references, options or local links, but in what is quoted as code; folds that are not closed."
    for place, versions in texts.items():
        for text in versions:
            seen = re.sub(r"^(`{3,}).*?^\1|(`+).+?\2|\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.M | re.S)
            yield from (f"{place}: {seen[found.start():][:60]}" for found in SITE.finditer(seen))
            if seen.count("<details>") != seen.count("</details>"):
                yield f"{place}: a fold"


def test_nothing_that_only_the_site_knows_is_left_in_a_text():
    if not BOOK.texts.exists():
        pytest.skip("the texts of this book are not there, or older than it: `python tools/book.py` makes them")
    assert list(foreign(BOOK.markdown())) == []


def test_a_notebook_for_learners_runs_and_its_stubs_wait_for_them():
    "Up to the stubs and past them: nothing calls what is not written yet."
    space = {}
    for cell in readers("notation.ipynb", answers=False):
        if cell["cell_type"] == "code":
            exec(compile(re.sub(r"^%.*", "", source(cell), flags=re.M), cell["id"], "exec"), space)
    with pytest.raises(NotImplementedError, match="exercise"):
        space["index_of"](3, (2, 3))


CHAPTER = [
    ("markdown", "# T\n\n> S."),
    ("markdown", "## Why\n\n::: {.callout-note collapse=\"true\"}\n## A long proof\nStays.\n:::"),
    ("markdown", "Predict it.\n\n::: {.callout-tip collapse=\"true\"}\n## Answer\nSeven.\n\n"
                 "::: {#rem-x}\nInside.\n:::\n:::\n\n"
                 "After."),
    ("code", "#| code-fold: true\n#| code-summary: \"Table 1\"\ntable = 1"),
    ("markdown", "## Exercises\n\n### Exercise: one {#sec-exr-one}\n\n*5 minutes, easy.* Do it.\n\n"
                 "::: {.callout-note collapse=\"true\"}\n## A hint that tells all\nEight.\n:::"),
    ("code", "def f(x):\n    raise NotImplementedError(\"exercise\")"),
    ("code", "def check_f(f):\n    assert f(1) == 2"),
    ("code", "#| code-fold: true\n#| code-summary: \"Solution\"\ndef f(x):\n    return x + 1\n\ncheck_f(f)"),
    ("markdown", "## Further reading\n\n```text\n::: {.callout-note collapse=\"true\"}\n## Answer\n```\n\n"
                 "::: {.callout-note collapse=\"true\"}\n## More\nBooks.\n:::"),
]


def test_what_an_answer_is(tmp_path):
    cells = [smallbook.cell(text, [] if kind == "code" else None) for kind, text in CHAPTER]
    made = book.Book(smallbook.write_project(tmp_path, index=cells))
    assert not made.texts.exists()
    texts = made.markdown()
    assert made.texts.exists() and list(foreign(texts)) == []
    without, full = (lab.for_readers(made, "index.ipynb", texts, answers)["cells"] for answers in (False, True))
    less, more = ("\n".join(source(c).strip() for c in found) for found in (without, full))
    assert less.count(book.LEFT_OUT) == 2 and book.LEFT_OUT not in more
    assert "answers to its exercises were left out" in less and "exercises were left out" not in more
    for secret in ("Seven", "Inside", "Eight", "return x + 1"):
        assert secret not in less and secret in more, secret
    for kept in ("A long proof", "Stays.", "Books.", "After.", "table = 1", '# check_f(f); print("right")'):
        assert kept in less, kept
    hidden = [source(c) for c in full if c["metadata"].get("jupyter") == {"source_hidden": True}]
    assert len(hidden) == 2 and hidden[0] == "table = 1"                # folded: a table, and the solution

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

PAGES = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(NBS.glob("*.ipynb"))}


def source(cell):
    return "".join(cell["source"])


@functools.cache
def whole():
    made = book.Book(ROOT)
    return made, made.markdown()


@functools.cache
def readers(name, answers):
    made, texts = whole()
    return lab.for_readers(made, name, texts, answers)


def solutions(cells):
    code = [c for c in cells if c["cell_type"] == "code"]
    return [c for c in code if re.search(r'code-summary: *"?(Solution|Answer)', source(c))]


def said_elsewhere(cells, hidden):
    "All that the notebook says outside of its solutions, in one text."
    return "\n".join(source(c) for c in cells if c["id"] not in {h["id"] for h in hidden})


@pytest.mark.parametrize("name", PAGES)
def test_no_answer_leaks(name):
    "Neither a cell with a solution nor its output is there, nor a line of it that nothing else says."
    hidden, kept = solutions(PAGES[name]["cells"]), readers(name, answers=False)["cells"]
    assert not solutions(kept)
    text, elsewhere = json.dumps(kept, ensure_ascii=False), said_elsewhere(PAGES[name]["cells"], hidden)
    for cell in hidden:
        secret = [line.strip() for line in source(cell).splitlines() if len(line.strip()) > 15]
        for line in secret:
            if not line.startswith(("#|", "check_")) and line not in elsewhere:
                assert json.dumps(line, ensure_ascii=False)[1:-1] not in text, f"{name}, cell {cell['id']}: {line}"
        same, = [c for c in kept if c["id"] == cell["id"]]
        assert same["outputs"] == [] and same["execution_count"] is None


@pytest.mark.parametrize("name", PAGES)
def test_the_version_with_answers_has_all_of_them(name):
    full = {c["id"]: source(c) for c in readers(name, answers=True)["cells"]}
    for cell in solutions(PAGES[name]["cells"]):
        assert full[cell["id"]] == re.sub(r"^#\|.*\n", "", source(cell), flags=re.M).strip("\n")
    assert book.LEFT_OUT not in "".join(full.values())


SITE = re.compile(r":::|\{#|\{\.|(?<![\w`])@(?:thm|lem|cor|prp|def|exm|exr|rem|eq|fig|tbl|sec)-"
                  r"|\]\((?!https?://|mailto:)|^#\|", re.M)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_that_only_the_site_knows_is_left(name):
    "No block, label, reference, option or local link, but in code and in what is quoted as code."
    for cell in readers(name, answers=True)["cells"]:
        text = source(cell)
        if cell["cell_type"] == "markdown":
            text = re.sub(r"^(`{3,}).*?^\1|(`+).+?\2|\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.M | re.S)
            assert not (found := SITE.search(text)), f"{name}, cell {cell['id']}: {text[found.start():][:60]}"
            assert text.count("<details>") == text.count("</details>"), f"{name}, cell {cell['id']}"
        else:
            assert not re.search(r"^#\| ?(?!hide_line)\S", text, re.M), f"{name}, cell {cell['id']}"


def test_statements_equations_and_references_as_jupyter_shows_them():
    text = "\n".join(map(source, readers("08_kronecker_attention.ipynb", answers=True)["cells"]))
    assert "**Definition 8.2 (Kronecker attention).**" in text and "\\tag{8.2}" in text
    assert re.search(r"\[Theorem 2\.\d+\]\(https://[^)]*kronecker\.html#thm-", text)
    hidden = [c for c in readers("08_kronecker_attention.ipynb", True)["cells"] if "jupyter" in c["metadata"]]
    assert hidden and all(c["metadata"]["jupyter"] == {"source_hidden": True} for c in hidden)


@pytest.mark.parametrize("name", PAGES)
def test_what_is_left_is_a_notebook(name):
    "Every cell is of its kind, keeps its id and its place, and is Python where it is code."
    cells, kept = PAGES[name]["cells"], readers(name, answers=False)["cells"]
    rest = [c["id"] for c in kept if c["id"] in {cell["id"] for cell in cells}]
    assert [i for i in (c["id"] for c in cells) if i in rest] == rest
    for cell in kept:
        if cell["cell_type"] == "code":
            ast.parse(re.sub(r"^[%!].*", "", source(cell), flags=re.M))
    said = source(kept[1])
    full = {c["id"]: source(c) for c in readers(name, answers=True)["cells"]}
    fewer = [c["id"] for c in kept if c["id"] in full and c["id"] != "how-to-run" and source(c) != full[c["id"]]]
    assert ("answers to its exercises were left out" in said) == bool(fewer)


def test_a_notebook_for_learners_runs_and_its_stubs_wait_for_them():
    "Up to the stubs and past them: nothing calls what is not written yet."
    space = {}
    for cell in readers("notation.ipynb", answers=False)["cells"]:
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
    ("markdown", "## Further reading\n\n```\n::: {.callout-note collapse=\"true\"}\n## Answer\n```\n\n"
                 "::: {.callout-note collapse=\"true\"}\n## More\nBooks.\n:::"),
]


def test_what_an_answer_is(tmp_path):
    cells = [smallbook.cell(text, i, [] if kind == "code" else None) for i, (kind, text) in enumerate(CHAPTER)]
    made = book.Book(smallbook.write_project(tmp_path, index=cells))
    texts = made.markdown()
    without, full = ([source(c).strip() for c in lab.for_readers(made, "index.ipynb", texts, answers)["cells"]]
                     for answers in (False, True))
    less, more = ("\n".join(found) for found in (without, full))
    assert less.count(book.LEFT_OUT) == 2 and book.LEFT_OUT not in more
    for secret in ("Seven", "Inside", "Eight", "return x + 1"):
        assert secret not in less and secret in more, secret
    for kept in ("A long proof", "Stays.", "Books.", "After.", "table = 1", '# check_f(f); print("right")'):
        assert kept in less, kept

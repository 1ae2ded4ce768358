"""Numbers and references: each construct as Quarto gets it, and each mistake with its place."""
import json
import subprocess
import sys
from pathlib import Path

import apidoc
import crossref
import handover
import pytest
import smallbook

CROSSREF = Path(crossref.__file__)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    root = smallbook.write_project(tmp_path_factory.mktemp("book"))
    return crossref.Book(root / "nbs").check_or_raise()


def quarto(book, source, notebook="01_first.ipynb"):
    return crossref.QuartoWriter(book, notebook).write(source)


def test_labels_are_numbered_by_chapter_and_kind(book):
    names = {label: target.name for label, target in book.targets.items()}
    assert names == {
        "sec-statements": "Statements", "thm-main": "Theorem 1.1", "eq-norm": "equation (1.1)",
        "lem-help": "Lemma 1.1", "rem-inner": "Remark 1.1", "tbl-cost": "Table 1.1",
        "fig-dot": "Figure 1.1", "fig-plot": "Figure 1.2", "sec-other": "Other things",
        "def-second": "Definition 2.1", "exr-one": "Exercise 2.1"}


def test_a_sibling_has_a_letter_and_numbers_of_its_own(tmp_path):
    statement = "::: {#thm-side}\nTrue.\n:::\n\n$$ x = y $$ {#eq-side}"
    smallbook.write_nbs(tmp_path / "nbs", **{"01a_side": ["# A side", statement]})
    book = crossref.Book(tmp_path / "nbs", tmp_path).check_or_raise()
    assert [book.targets[label].number for label in ("thm-side", "eq-side", "thm-main")] == ["1a.1", "1a.1", "1.1"]
    assert crossref.page_of("01a_side.ipynb") == "side"
    assert crossref.numbered_title("title: A side", "01a_side.ipynb") == "title: 1a A side"


@pytest.mark.parametrize("source, expected", [
    ("by @lem-help.", "by [Lemma 1.1](#lem-help)."),
    ("by @def-second, @exr-one",
     "by [Definition 2.1](second.html#def-second), [Exercise 2.1](second.html#exr-one)"),
    ("of @eq-norm.", "of [equation (1.1)](#eq-norm)."),
    ("True. @eq-norm holds", "True. [Equation (1.1)](#eq-norm) holds"),
    ("see @sec-other", "see [Other things](second.html#sec-other)"),
    ("[here](02_second.ipynb#def-second)", "[here](second.html#def-second)"),
    ("[a](02_second.ipynb) and [b](#thm-main)", "[a](second.html) and [b](#thm-main)"),
    ("[so [`f`](https://x.org/f.html) is](02_second.ipynb)", "[so `f` is](second.html)"),
    ("[ours](../settings.ini)", "[ours](https://github.com/nobody/smallbook/blob/main/settings.ini)"),
    ("[out](https://example.org/a_(b))", "[out](https://example.org/a_(b))"),
    ("`@lem-help` and ``a ` @lem-help``", "`@lem-help` and ``a ` @lem-help``"),
    ("me@lem-help.org, <a@b.org>", "me@lem-help.org, <a@b.org>"),
    ("$x_{@lem-help}$ costs \\$5", "$x_{@lem-help}$ costs \\$5"),
    ("```python\n@lem-help\n::: {.x}\n```", "```python\n@lem-help\n::: {.x}\n```"),
    ("[@kolda2009, p. 3; see @hot1] and @hot1 [p. 2]",
     "[@kolda2009, p. 3; see @hot1] and @hot1 [p. 2]"),
    ("## Head {#sec-statements}", "## Head {#sec-statements}"),
    ("$$\nx = y\n$$", "$$\nx = y\n$$"),
    ("$$ x = y $$ {#eq-norm}", "[]{#eq-norm}\n$$\nx = y \\qquad(1.1)\n$$"),
    ("| a |\n|---|\n| 1 |\n\n: Cap {#tbl-cost}",
     "[]{#tbl-cost}\n\n| a |\n|---|\n| 1 |\n\n: Table 1.1: Cap"),
    ('![A *dot*](images/dot.png){#fig-dot fig-alt="One."}',
     '[]{#fig-dot}\n\n![Figure 1.1: A *dot*](images/dot.png){fig-alt="One."}'),
    ("- one\n\n  $$\n  x\n  $$\n\n- two", "- one\n\n  $$\n  x\n  $$\n\n- two"),
])
def test_text_for_quarto(book, source, expected):
    assert quarto(book, source) == expected


def test_statement_and_proof_for_quarto(book):
    text = quarto(book, "::: {#thm-main}\n## Of @hot1\nText\nmore.\n:::\n::: {.proof}\nClear.\n:::")
    assert text == ("::::::: {.book-statement .book-thm}\n\n[]{#thm-main}\n\n"
                    "**Theorem 1.1** (Of @hot1). Text\nmore.\n\n:::::::\n\n"
                    "::::::: {.book-proof}\n\n*Proof.* Clear.\n\n:::::::").replace(
                        ":::::::", "::::::::")


def test_callouts_stay_and_nest(book):
    text = quarto(book, '::: {.callout-note collapse="true"}\n## Why $x$\nA.\n\n'
                        "::: {#rem-inner}\nB.\n:::\n:::")
    assert text.startswith(':::::::: {.callout-note collapse="true"}\n\n## Why $x$\n\nA.')
    assert "\n::::::: {.book-statement .book-rem}\n" in text
    assert text.endswith("B.\n\n:::::::\n\n::::::::")


MISTAKES = [
    ("See @thm-gone.", "line 1: unknown label @thm-gone"),
    ("Fine.\n\nSee @nobody2000.", "line 3: @nobody2000 is neither a label nor a key"),
    ("See [@nobody2000].", "@nobody2000 is neither"),
    ("See [@sec-other].", "write @sec-other without brackets"),
    ("[x](07_gone.ipynb)", "link to 07_gone.ipynb: there is no such chapter"),
    ("[x](02_second.ipynb#thm-gone)", "link to #thm-gone: there is no such label"),
    ("[x](02_second.ipynb#thm-a)", "that label stands in 01_first.ipynb"),
    ("[x](../gone.txt)", "only chapters and ../FILE of the repository"),
    ("A <b>word</b>.", "raw HTML (<b>) is not part of the grammar"),
    ("<!-- note -->", "raw HTML"),
    ("{{< video x >}}", "shortcodes"),
    ("[x]{.red}", "attributes on a span or link"),
    ("[x](https://a.org){.red}", "attributes on a span or link"),
    ("so $$x$$ here", "$$ starts a line of its own"),
    ("$$\nx", "this $$ is never closed"),
    ("$$\nx\n\ny\n$$", "no blank line"),
    ("$$\nx\n$$ and", "after the closing $$"),
    ("$$\nx \\tag{1}\n$$", "\\tag does not work in both renderers"),
    ("$$\n\\begin{psmallmatrix}1\\end{psmallmatrix}\n$$", "psmallmatrix} does not work"),
    ("$$\nx\n$$ {#thm-b}", "label #thm-b must be one of eq-"),
    ("::: {#thm-b}\nx", "line 1: this ::: block is never closed"),
    (":::", "closes a block that was never opened"),
    ("::: {.column-margin}\nx\n:::", "unknown kind of block {.column-margin}"),
    ("::: proof\nx\n:::", "a block opens with"),
    ("::: {.callout-note icon=false}\nx\n:::", "a callout takes collapse= only"),
    ("::: {#thm-b .big}\nx\n:::", "a statement carries its label only"),
    ("::: {#thm-B}\nx\n:::", "lower-case words"),
    ("::: {#pro-b}\nx\n:::", "label #pro-b must be one of thm-"),
    ("::: {.proof}\nx\n\n## Title\n:::", "a heading inside :::"),
    ("## A {#part-a}", "label #part-a must be one of sec-"),
    ("## A {.unnumbered}", "a heading takes a label only"),
    ("## A -", "nbdev drops headings"),
    ("x\n## A", "line 2: a heading needs a blank line"),
    ("x\n- a", "line 2: a list or quote needs a blank line"),
    ("```\nx", "this ``` code is never closed"),
    ("```{python}\nx\n```", "code with attributes"),
    ("| a | b |\n|---|---|\n| $|x|$ | 2 |", "line 3: this row has 4 cells, the table 2"),
    ("| a |\n| b |", "needs a line like"),
    (": Caption", "a caption needs a pipe table"),
    ("+---+\n| a |", "grid tables"),
    ("![x](images/dot.png)", "an image needs fig-alt"),
    ('![x](images/gone.png){fig-alt="a"}', "there is no file images/gone.png"),
    ('![x](images/dot.png){width=3 fig-alt="a"}', "an image takes"),
    ("## T {#sec-other}\n\n## U {#sec-other}", "label #sec-other is taken by 02_second.ipynb, cell 2"),
    ("#| labl: fig-a\n1", "line 1: unknown cell option #| labl"),
    ("#| label: tbl-a\n1", "label #tbl-a must be one of fig-"),
    ("#| label: fig-a\n1", "a figure with a label needs a fig-cap"),
    ("#| fig-cap: A\n1", "a figure needs a fig-alt"),
    ('#| fig-cap: "A $\\alpha$"\n#| fig-alt: a\n1', "write backslashes double"),
    ('#| fig-cap: "See @thm-gone"\n#| fig-alt: a\n1', "unknown label @thm-gone"),
]


@pytest.mark.parametrize("source, message", MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes_name_notebook_cell_and_line(tmp_path, source, message):
    first = ["# First", "::: {#thm-a}\nYes.\n:::"]
    second = ["# Second", "## Other {#sec-other}", source]
    smallbook.write_nbs(tmp_path / "nbs", **{"01_first": first, "02_second": second, "index": ["# I"]})
    with pytest.raises(crossref.BookError) as error:
        crossref.Book(tmp_path / "nbs").check_or_raise()
    assert any(line.startswith("02_second.ipynb, cell 3, line ") and message in line
               for line in str(error.value).splitlines()), error.value


@pytest.mark.parametrize("title", ["Text.", "# A\n\nText", "# A\n\n> one\n> two", "## A"])
def test_first_cell_is_title_and_subtitle_only(tmp_path, title):
    smallbook.write_nbs(tmp_path / "nbs", index=[title, "x"])
    with pytest.raises(crossref.BookError, match="index.ipynb, cell 1, line 1: the first cell holds"):
        crossref.Book(tmp_path / "nbs").check_or_raise()


def test_all_mistakes_are_told_at_once(tmp_path):
    smallbook.write_nbs(tmp_path / "nbs", index=["# A", "@thm-a", "::: {.x}", "<i>"])
    with pytest.raises(crossref.BookError) as error:
        crossref.Book(tmp_path / "nbs").check_or_raise()
    assert [line.split(", line")[0] for line in str(error.value).splitlines()] == [
        "index.ipynb, cell 3", "index.ipynb, cell 2", "index.ipynb, cell 4"]


SCHEMATIC = ("#| label: fig-a\n#| fig-cap: \"See @fig-a\"\ndraw()",
             '<figure class="schematic" role="img" aria-label="A &lt; B."><svg></svg></figure>')


def drawing(source, html):
    data = {"text/html": [html], "text/plain": ["Schematic: A < B."]}
    return smallbook.cell(source, 9, [{"output_type": "execute_result", "metadata": {}, "data": data}])


def test_a_schematic_is_a_figure_that_says_itself_what_is_seen(tmp_path):
    source, html = SCHEMATIC
    smallbook.write_nbs(tmp_path / "nbs", index=["# A", drawing(source, html)])
    book = crossref.Book(tmp_path / "nbs").check_or_raise()
    assert book.targets["fig-a"].name == "Figure 1"
    smallbook.write_nbs(tmp_path / "nbs", index=["# A", drawing(source, "<table></table>")])
    with pytest.raises(crossref.BookError, match="holds no picture"):
        crossref.Book(tmp_path / "nbs").check_or_raise()


def test_for_quarto_the_caption_of_a_schematic_stands_below_it(tmp_path):
    smallbook.write_nbs(tmp_path / "nbs", index=["# A", drawing(*SCHEMATIC)])
    book = crossref.Book(tmp_path / "nbs").check_or_raise()
    other = drawing(SCHEMATIC[0].replace("\ndraw", '\n#| fig-alt: "Another \\"view\\"."\ndraw'), SCHEMATIC[1])
    for cell, seen in [(drawing(*SCHEMATIC), "A &lt; B."), (other, "Another &quot;view&quot;.")]:
        nb = crossref.for_quarto({"metadata": {}, "cells": [cell]}, book, "index.ipynb")
        sources = ["".join(c["source"]) for c in nb["cells"]]
        assert sources == ["[]{#fig-a}", "draw()", "::: {.book-caption}\nFigure 1: See [Figure 1](#fig-a)\n:::"]
        data = nb["cells"][1]["outputs"][0]["data"]
        html = "".join(data["text/markdown"])
        assert html.startswith('```{=html}\n<figure class="schematic"') and html.endswith("</figure>\n```\n")
        assert f'aria-label="{seen}"' in html and "text/html" not in data
        assert not [p for p in handover.of_notebook(nb) if "front matter" not in p]


def test_html_reaches_quarto_as_markdown_whatever_stands_in_it():
    "As HTML it would be taken for a widget, which needs scripts from another host."
    for html in ["<b>x</b>", "<pre>```\n````\n</pre>\n", ["<p>\n", "</p>"]]:
        cell = {"outputs": [{"data": {"text/html": html, "text/plain": "x"}}, {"text": "a stream"}]}
        crossref.as_markdown(cell)
        data = cell["outputs"][0]["data"]
        fence, *lines, end = data["text/markdown"].rstrip("\n").split("\n")
        assert fence == end + "{=html}" and set(end) == {"`"} and end not in "".join(html)
        assert "\n".join(lines) == "".join(html).rstrip("\n") and set(data) == {"text/markdown", "text/plain"}


ENTRY = """---

[source](https://example.org/k.py#L3){target="_blank" style="float:right; font-size:smaller"}

### kron_of

```python
def kron_of(
    *mats:Tensor, # k >= 1 factors, each (*batch, m_i) like `a|b`
    mode:collections.abc.Sequence[torch.Tensor] | None=None, plain=3
)->Tensor: # (*batch, m)
```

*All at once.*"""


def test_documented_symbols_get_a_table_of_arguments():
    entry = apidoc.Entry.parse(ENTRY)
    assert (entry.name, entry.source, entry.doc) == (
        "kron_of", "https://example.org/k.py#L3", "*All at once.*")
    assert entry.signature == "kron_of(*mats, mode=None, plain=3)"
    assert entry.table().splitlines() == [
        "|  | Type | Default | Meaning |", "| --- | --- | --- | --- |",
        "| `*mats` | `Tensor` |  | k \\>= 1 factors, each (\\*batch, m\\_i) like `a` or `b` |",
        "| `mode` | `Sequence[Tensor]` or `None` | `None` |  |", "| `plain` |  | `3` |  |",
        "| *returns* | `Tensor` |  | (\\*batch, m) |"]
    page, chapter = crossref.quarto_entry(entry), crossref.quarto_entry(entry, chapter="2")
    assert all("[source](https://example.org/k.py#L3){.api-source}" in text for text in (page, chapter))
    assert "<details>" not in page and sorted(set(page.split()) - set(chapter.split())) == []
    assert chapter.index(entry.doc) < chapter.index("<summary>Arguments</summary>") < chapter.index("kron_of(*mats")
    assert apidoc.Entry.parse("Some text") is None


@pytest.fixture
def processed(tmp_path):
    "A project whose notebooks went through nbdev (as far as this needs)."
    root = smallbook.write_project(tmp_path)
    proc = root / "_proc"
    proc.mkdir()
    front = {"cell_type": "raw", "metadata": {}, "source": "---\noutput-file: first.html\n"
             "title: 'First: steps'\n---\n"}
    for path in (root / "nbs").glob("*.ipynb"):
        nb = json.loads(path.read_text())
        nb["cells"][:1] = [front]
        (proc / path.name).write_text(json.dumps(nb))
    return proc


def run(folder):
    return subprocess.run([sys.executable, CROSSREF], cwd=folder, capture_output=True, text=True)


def test_before_quarto_renders_all_is_resolved_and_twice_is_harmless(processed):
    for _ in range(2):
        done = run(processed)
        assert (done.returncode, done.stderr) == (0, "")
    nb = json.loads((processed / "01_first.ipynb").read_text())
    sources = ["".join(c["source"]) for c in nb["cells"]]
    assert "title: '1 First: steps'" in sources[0]
    links = ("[Download this notebook](notebooks/01_first.ipynb){.download}", "[Open in Colab](https://colab.",
             "[Open in Binder](https://mybinder.org/v2/gh/")
    assert all(found.startswith(link) for found, link in zip(sources[1].split(" · "), links, strict=True))
    assert sources[-2] == "[]{#fig-plot}"
    assert sources[-1].splitlines() == [
        '#| fig-cap: "Figure 1.2: A plot of $x$, cf. [Figure 1.1](#fig-dot)"',
        '#| fig-alt: "A line that rises."', "1 + 1"]
    assert (processed / "notebooks" / "01_first.ipynb").exists()
    assert (processed / "images" / "dot.png").exists()  # nbdev leaves folders behind
    text = "\n".join(s for s in sources if "`@thm-main`" not in s)
    assert "@thm-" not in text and "{#thm-main}" in text and "::: {#" not in text


def test_a_mistake_stops_quarto(processed):
    smallbook.write_notebook(processed.parent / "nbs" / "index.ipynb", ["# A", "See @thm-gone."])
    done = run(processed)
    assert done.returncode == 1
    assert "index.ipynb, cell 2, line 1: unknown label @thm-gone" in done.stderr


FRONT = {"cell_type": "raw", "metadata": {}, "source": ["---\n", "title: T\n", "---\n"]}


def markdown(*lines):
    return {"cell_type": "markdown", "metadata": {}, "source": list(lines)}


def shows(**data):
    output = {"output_type": "display_data", "data": data}
    return {"cell_type": "code", "metadata": {}, "source": ["f()"], "outputs": [output]}


@pytest.mark.parametrize("cells, problem", [
    ([FRONT, markdown() | {"source": "one string"}], "cell 2: its text must be a list of lines"),
    ([FRONT, markdown("a", "b")], "cell 2: its text must be a list of lines"),
    ([FRONT, shows(**{"text/plain": "1\n2"})], "cell 2: its text must be a list of lines"),
    ([markdown("a"), FRONT], "cell 1: front matter"),
    ([markdown("a")], "cell 1: front matter"),
    ([FRONT, FRONT], "cell 1: front matter"),
    ([{**FRONT, "source": ["title: T\n"]}], "cell 1: front matter"),
    ([], "cell 1: front matter"),
    ([FRONT, markdown("::: {.a}\n", "text")], "cell 2: a ::: block is never closed"),
    ([FRONT, markdown("text\n", ":::")], "cell 2: ::: closes a block that was never opened"),
    ([FRONT, markdown(":::\n", "::: {.a}")], "cell 2: ::: closes"),
    ([FRONT, shows(**{"text/markdown": ["::: {.a}\n", "text"]})], "cell 2: a ::: block is never closed"),
    ([FRONT, markdown("```python\n", "x")], "cell 2: a fence of code is never closed"),
    ([FRONT, markdown("$$\n", "x")], "cell 2: $$ is never closed"),
    ([FRONT, shows(**{"text/html": ["<b>x</b>"]})], "cell 2: an output of type text/html makes the page load"),
    ([FRONT, shows(**{"application/javascript": ["x()"]})], "cell 2: an output of type application/javascript"),
])
def test_what_quarto_would_render_wrongly_is_told_with_its_cell(cells, problem):
    assert any(found.startswith(problem) for found in handover.of_notebook({"cells": cells}))


@pytest.mark.parametrize("text", [
    "::: {.a}\n\n:::: {.b}\nx\n::::\n\n:::", "```\n::: {.a}\n$$\n```", "so `$$` and `` ::: ``", "$$\nx\n$$",
    "- a\n\n  ```python\n  x\n  ```\n\n  $$\n  y\n  $$", "~~~\n```\n~~~",
])
def test_what_quarto_renders_rightly_is_no_problem(text):
    cells = [FRONT, markdown(*handover.lines_of(text))]
    assert handover.of_notebook({"cells": cells}) == []


def test_no_page_takes_a_name_that_quarto_deletes_or_another_page_has():
    pages = {"01_a.ipynb": "a", "index.ipynb": "index"}
    assert handover.clashes(pages, kept=True) == []
    assert "index.html.md, is deleted" in handover.clashes(pages, kept=False)[0]
    assert len(handover.clashes({"01_a.ipynb": "a"}, kept=False)) == 0
    both = handover.clashes({"01_a.ipynb": "a", "02_a.ipynb": "a"}, kept=True)
    assert both[0] == "01_a.ipynb: another notebook becomes a.html too" and len(both) == 2


def test_without_keep_md_the_handover_stops(processed):
    settings = processed.parent / "_quarto.yml"
    settings.write_text(settings.read_text().replace("    keep-md: true\n", ""))
    done = run(processed)
    assert done.returncode == 1 and "write `keep-md: true` under html in _quarto.yml" in done.stderr
    written = json.loads((processed / "index.ipynb").read_text())
    assert "book" not in written["metadata"]

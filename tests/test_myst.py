"""Each construct of a chapter as Sphinx gets it."""
import crossref
import myst
import pytest
import smallbook
from test_crossref import ENTRY

SITE = "https://nobody.example.org/smallbook"


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    root = smallbook.write_project(tmp_path_factory.mktemp("book"))
    book = crossref.Book(root / "nbs").check_or_raise()
    documented = smallbook.cell("show_doc(kron_of)", 1, [{"data": {"text/markdown": [ENTRY]}}])
    api = myst.Api({"02_second.ipynb": {"cells": [documented]}, "01_first.ipynb": {"cells": [documented]}})
    return myst.MystWriter(book, "01_first.ipynb", SITE, api)


@pytest.mark.parametrize("source, expected", [
    ("by @lem-help, @def-second", "by [Lemma 1.1](#lem-help), [Definition 2.1](#def-second)"),
    ("so. @eq-norm", "so. [Equation (1.1)](#eq-norm)"),
    ("[a](02_second.ipynb), [b](02_second.ipynb#def-second)", "[a](second.ipynb), [b](#def-second)"),
    (f"[`kron_of`]({SITE}/second.html#kron_of)", "[`kron_of`](#kron_of)"),
    (f"[`hidden`]({SITE}/second.html#hidden)", "[`hidden`](second.ipynb)"),
    (f"[so [`kron_of`]({SITE}/second.html#kron_of)](02_second.ipynb)", "[so `kron_of`](second.ipynb)"),
    ("[torch](https://pytorch.org/docs)", "[torch](https://pytorch.org/docs)"),
    ("[@kolda2009]", "{cite:p}`kolda2009`"),
    ("[@kolda2009, p. 3; see @hot1]", "{cite:p}`kolda2009{p. 3},{see}hot1`"),
    ("@hot1 and @hot1 [section 2]", "{cite:t}`hot1` and {cite:t}`hot1{section 2}`"),
    ("`@hot1`, $@hot1$, a@hot1.org", "`@hot1`, $@hot1$, a@hot1.org"),
    ("## Head {#sec-statements}", "(sec-statements)=\n## Head"),
    ("$$\nx\n$$", "$$\nx\n$$"),
    ("$$\nx\n$$ {#eq-norm}",
     "::::::::{container} book-equation\n:name: eq-norm\n\n$$\nx \\tag{1.1}\n$$\n::::::::"),
    ("| a |\n|---|\n| 1 |", "| a |\n|---|\n| 1 |"),
    ("| a |\n|---|\n| @hot1 |\n\n: Of @thm-main {#tbl-cost}",
     "::::::::{table} Table 1.1: Of [Theorem 1.1](#thm-main)\n:name: tbl-cost\n\n"
     "| a |\n|---|\n| {cite:t}`hot1` |\n::::::::"),
    ("| a |\n|---|\n\n: Plain", "::::::::{table} Plain\n\n| a |\n|---|\n::::::::"),
    ('![A](images/dot.png){#fig-dot fig-alt="One dot."}',
     "::::::::{figure} images/dot.png\n:name: fig-dot\n:alt: One dot.\n\nFigure 1.1: A\n::::::::"),
    ("::: {#thm-main}\n## On @hot1\nText.\n:::",
     "::::::::{container} book-statement book-thm\n:name: thm-main\n\n"
     "**Theorem 1.1** (On {cite:t}`hot1`). Text.\n\n::::::::"),
    ("::: {.proof}\nClear.\n:::",
     "::::::::{container} book-proof\n\n*Proof.* Clear.\n\n::::::::"),
    ("::: {.callout-tip}\n## Do $x$\nA.\n:::",
     "::::::::{admonition} Do $x$\n:class: tip\n\nA.\n\n::::::::"),
    ("::: {.callout-warning}\nA.\n:::", "::::::::{warning}\n\nA.\n\n::::::::"),
    ('::: {.callout-note collapse="true"}\n## Why\nA.\n:::',
     "::::::::{fold} Why\n:class: note\n\nA.\n\n::::::::"),
    ('::: {.callout-note collapse="false"}\nA.\n:::',
     "::::::::{fold} Note\n:class: note\n:open:\n\nA.\n\n::::::::"),
])
def test_markdown(writer, source, expected):
    assert writer.write(source) == expected


def test_inner_blocks_have_shorter_fences(writer):
    text = writer.write("::: {.callout-tip}\n## T\n\n::: {#rem-inner}\n$$\nx\n$$ {#eq-norm}\n:::\n:::")
    marks = [line.split("{")[0] for line in text.splitlines() if line.startswith(":::")]
    assert [len(m) for m in marks] == [8, 7, 6, 6, 7, 8]


def code(writer, source, outputs=None):
    return myst.code_cell(smallbook.cell(source, 1, outputs or []), source, writer)


@pytest.mark.parametrize("source, tags, settings", [
    ("#| echo: false\n1", ["remove-input"], None),
    ("#| output: false\n1", ["remove-output"], None),
    ("#| include: false\n1", ["remove-cell"], None),
    ("#| eval: false\n1", [], None),
    ('#| code-fold: true\n#| code-summary: "Solution"\n1', ["hide-input"],
     {"code_prompt_show": "Solution", "code_prompt_hide": "Solution"}),
    ('#| code-fold: show\n#| code-summary: "Exported source"\n1', ["exported"], None),
    ('#| label: fig-plot\n#| fig-cap: "By @hot1"\n#| fig-alt: "A line."\n1', [],
     {"image": {"alt": "A line."},
      "figure": {"caption": "Figure 1.2: By {cite:t}`hot1`", "name": "fig-plot"}}),
])
def test_options_of_cells(writer, source, tags, settings):
    made = code(writer, source)
    assert made["source"] == "1"
    assert made["metadata"]["tags"] == tags
    assert made["metadata"].get("mystnb") == settings


def test_documented_symbols_become_text_with_an_anchor(writer):
    made = code(writer, "show_doc(kron_of)", [{"data": {"text/markdown": [ENTRY]}}])
    assert made["cell_type"] == "markdown"
    assert made["source"].startswith("(first-kron_of)=\n\n### `kron_of`\n")
    assert "[source](https://example.org/k.py#L3){.api-source}" in made["source"]
    assert "```python\nkron_of(*mats, mode=None, plain=3)\n```" in made["source"]
    assert "| `mode` | `Sequence[Tensor]` or `None` | `None` |  |" in made["source"]


def test_labels_of_symbols_differ_even_where_only_the_case_does():
    api = myst.Api({})
    for page, name in (("one", "CP"), ("one", "cp"), ("two", "cp")):
        api.add(page, name)
    assert list(api.labels.values()) == ["cp", "one-cp", "two-cp"]
    assert api.links == {"one.html#cp": "cp", "two.html#cp": "two-cp"}


def test_pages_begin_with_number_title_and_links(writer):
    front = {"cell_type": "raw", "id": "x", "metadata": {},
             "source": "---\ntitle: 'First: steps'\ndescription: What comes first.\n---"}
    nb = {"cells": [front, smallbook.cell("Text.", 1), smallbook.cell("#| echo: true\n1", 2)]}
    made, places = myst.convert(nb, writer, "<p>links</p>")
    assert made["cells"][0]["source"] == (
        "# 1 First: steps\n\n::::{container} book-subtitle\nWhat comes first.\n::::\n\n<p>links</p>")
    assert places == ["01_first.ipynb, cell 1", "01_first.ipynb, cell 2", "01_first.ipynb, cell 3"]


def test_twin_is_markdown_without_marks(writer):
    front = {"cell_type": "raw", "metadata": {}, "source": "---\ndescription: About.\n---"}
    shown = smallbook.cell("#| echo: true\n6 * 7", 2, smallbook.text_output("42"))
    nb = {"cells": [front, smallbook.cell("::: {#thm-main}\nBy @def-second.\n:::", 1), shown]}
    text = myst.twin(nb, crossref.QuartoWriter(writer.book, "01_first.ipynb"), "1 First")
    assert text == ("# 1 First\n\nAbout.\n\n**Theorem 1.1.** By "
                    "[Definition 2.1](second.html.md#def-second).\n\n"
                    "```python\n6 * 7\n```\n\n```\n42\n```\n")


def test_a_schematic_keeps_its_figure_and_its_twin_says_what_is_seen(writer):
    html = '<figure class="schematic" role="img" aria-label="A &amp; B."><svg></svg></figure>'
    def cell(options):
        data = {"text/html": [html], "text/plain": ["Schematic: A & B."]}
        output = {"output_type": "execute_result", "metadata": {}, "data": data}
        return smallbook.cell(f'#| label: fig-plot\n#| fig-cap: "A"\n{options}draw()', 1, [output])
    told = cell("#| fig-alt: Seen\n")
    made = myst.code_cell(told, told["source"], writer)
    assert made["metadata"]["mystnb"]["figure"] == {"caption": "Figure 1.2: A", "name": "fig-plot"}
    assert 'aria-label="Seen"' in made["outputs"][0]["data"]["text/html"]
    plain = cell("")
    assert "*Figure: A & B.*" in myst.twin_of_code(plain, myst.Cell.parse(plain["source"]))

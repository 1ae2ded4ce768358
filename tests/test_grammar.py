"""Numbers, references and each construct on the page, and each mistake with the notebook and the cell it stands in."""
import re
import subprocess
from pathlib import Path

import api
import book
import nbformat
import pypandoc
import pytest
import smallbook

FENCE, ROOT = "```", Path(__file__).parent.parent
SIDE = ["# A side", "::: {#thm-side}\nTrue.\n:::\n\n$$ x = y $$ {#eq-side}",
        "So. @eq-side holds, by @eq-side [@hot1; @kolda2009, p. 3]."]


@pytest.fixture(scope="module")
def text_of(tmp_path_factory):
    "The text of a page of the small book as Jupyter shows it: numbers and references are those of the site."
    root = smallbook.write_project(tmp_path_factory.mktemp("book"), sidebar=["01a_side.ipynb"], **{"01a_side": SIDE})
    texts = book.Book(root).markdown()

    def text(page):
        keys = [f"{page}.ipynb#{cell.id}" for cell in nbformat.read(root / "nbs" / f"{page}.ipynb", 4).cells]
        return "\n".join(texts[key][0] for key in keys if key in texts)
    return text


def test_labels_are_numbered_by_chapter_and_kind_and_a_sibling_has_a_letter(text_of):
    first, second, side = map(text_of, ("01_first", "02_second", "01a_side"))
    for said in ("**Theorem 1.1 (The main one", "**Lemma 1.1.**", "**Remark 1.1.**", "*Table 1.1: Costs of",
                 "*Figure 1.1: A dot*", "*Figure 1.2: A plot of", "\\tag{1.1}",
                 "[equation (1.1)](https://nobody.example.org/smallbook/first.html#eq-norm)",
                 "[Definition 2.1](https://nobody.example.org/smallbook/second.html#def-second)", "`@thm-main`"):
        assert said in first, said
    assert "[Equation (1.1)](" in second and "[Statements](" in second and "**Exercise 2.1 (Compute).**" in second
    assert "**Theorem 1a.1.** True." in side and "\\tag{1a.1}" in side and "# 1a A side" in side
    assert "So. [Equation (1a.1)](" in side and "[Omranpour" in side and "p.\u00a03" in side    # beside a citation
    assert book.page_of("01a_side.ipynb") == "side"


def test_quarto_gets_the_same_numbers_and_references(tmp_path, text_of):
    "Its filter, by pandoc alone: Quarto hands it the same text, before its own filters."
    root, number = smallbook.write_project(tmp_path, sidebar=["01a_side.ipynb"], **{"01a_side": SIDE}), 0
    (root / "nbs" / "_quarto.yml").symlink_to(root / "_quarto.yml")         # as in this book
    for path in sorted((root / "nbs").glob("*.ipynb")):
        (tmp_path / "as_quarto.lua").write_text(
            f"quarto = {{doc = {{input_file = [[{path}]]}}}}\ndofile([[{ROOT / 'nbs' / 'quarto.lua'}]])")
        cells = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
        done = subprocess.run(
            [pypandoc.get_pandoc_path(), "-f", "markdown", "-t", "html", "--mathml", "--lua-filter",
             tmp_path / "as_quarto.lua"], input="\n\n".join(cells),
            capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        found = book.text_of(done.stdout)
        want = re.sub(r"\*Figure 1.\d: [^\n]*", "", text_of(path.stem))       # figures that cells draw
        numbers = [re.findall(r"(?:[A-Z][a-z]+|equation) \(?\d+a?\.\d+\)?", text) for text in (found, want)]
        assert numbers[0] == numbers[1], path.name
        number += len(numbers[0])
        assert not re.search(r"\{#|:::|@(?:thm|eq|fig|tbl|sec|def)-(?!main and a@b)", found), found
        assert ('id="thm-main"' in done.stdout) == ('href="#thm-main"' in done.stdout) == path.name.startswith("01_")
    assert number > 15


MISTAKES = [
    ("See @thm-gone.", "unknown label @thm-gone"),
    ("Fine.\n\nSee @nobody2000.", "@nobody2000 is neither a label nor a key"),
    ("See [@nobody2000].", "@nobody2000 is neither"),
    ("See [@sec-other].", "write @sec-other without brackets"),
    ("[x](07_gone.ipynb)", "link to 07_gone.ipynb: there is no such chapter"),
    ("[x](02_second.ipynb#thm-gone)", "link to #thm-gone: there is no such label"),
    ("[x](02_second.ipynb#thm-a)", "that label stands in 01_first.ipynb"),
    ("[x](../gone.txt)", "only chapters and ../FILE of the repository"),
    ("A <b>word</b>.", "raw HTML"), ("<!-- note -->", "raw HTML"), ("<div>\n\nx\n\n</div>", "raw HTML"),
    ("So \\emph{x}.", "raw HTML or TeX"), ("{{< video x >}}", "a mark of the source is left"),
    ("[x]{.red}", "a span with attributes"), ("[x](https://a.org){.red}", "attributes on a link"),
    ("so $$x$$ here", "$$ starts a line of its own"), ("$$\nx", "a mark of the source is left"),
    ("$$\nx\n\ny\n$$", "a mark of the source is left"), ("$$\nx\n$$ and", "after the closing $$"),
    ("$$\nx \\tag{1}\n$$", "\\tag does not work everywhere"),
    ("$$\n\\begin{psmallmatrix}1\\end{psmallmatrix}\n$$", "psmallmatrix} does not work"),
    ("$$\nx\n$$ {#thm-b}", "a mark of the source is left"),
    ("::: {.callout-note}\nx", "unclosed"), (":::", "a mark of the source is left"),
    ("::: {.column-margin}\nx\n:::", "unknown kind of block {.column-margin}"),
    ("::: {.callout-note icon=false}\nx\n:::", "a callout takes collapse="),
    ("::: {#thm-b .big}\nx\n:::", "a statement carries its label only"),
    ("::: {#thm-B}\nx\n:::", "lower-case words"), ("::: {#pro-b}\nx\n:::", "label #pro-b is not"),
    ("::: {.proof}\nx\n\n## Title\n:::", "a heading inside :::"),
    ("## A {#part-a}", "label #part-a is not"), ("## A {.unnumbered}", "a heading takes a label only"),
    ("## A -", "nbdev drops headings"), ("x\n## A", "a mark of the source is left"), ("x\n- a", "needs a blank line"),
    (f"{FENCE}\nx", "never closed"), (f"{FENCE}{{.python .big}}\nx\n{FENCE}", "code with attributes"),
    ("| a | b |\n|---|---|\n| $|x|$ | 2 |", "a row of a table has 4 cells, its head 2"),
    ("| a |\n| b |", "a table without"), (": Caption", "a caption needs a pipe table"),
    ("A[^1] b", "a mark of the source is left"),
    ('![x](images/dot.png){fig-alt="a"}', "a picture that no cell shows"),
    ("Of [a][b].", "a mark of the source is left"),
    ("## T {#sec-other}\n\n## U {#sec-other}", "label #sec-other is taken by 02_second.ipynb, cell 2"),
]
OF_CODE = [
    ("#| labl: fig-a\n1", "unknown cell option #| labl"),
    ("#| label: fig-a\n1", "a figure with a label needs a fig-cap"),
    ("#| fig-cap: A\n1", "a figure needs a fig-alt"),
    ('#| fig-cap: A\n#| label: fig-a\n#| fig-alt: a\n1', "this figure's cell holds no picture"),
]


@pytest.mark.parametrize("mistakes", [MISTAKES, OF_CODE], ids=["of text", "in the options of a cell"])
def test_mistakes_are_told_all_at_once_with_notebook_and_cell(tmp_path, mistakes):
    first = ["# First", "::: {#thm-a}\nYes.\n:::"]
    second = ["# Second", "## Other {#sec-other}", *(source for source, _ in mistakes)]
    root = smallbook.write_project(tmp_path, **{"01_first": first, "02_second": second, "index": ["# I"]})
    with pytest.raises(book.BookError) as error:
        book.Book(root).check()
    lines = str(error.value).splitlines()
    for number, (source, message) in enumerate(mistakes, 3):
        found = [line for line in lines if line.startswith(f"02_second.ipynb, cell {number}: ")]
        assert any(message in line for line in found), (source, found)


@pytest.mark.parametrize("title", ["Text.", "# A\n\nText", "# A\n\n> one\n> two", "## A"])
def test_first_cell_is_title_and_subtitle_only(tmp_path, title):
    with pytest.raises(book.BookError, match="index.ipynb, cell 1: the first cell holds"):
        book.Book(smallbook.write_project(tmp_path, index=[title, "x"]))


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
    entry = api.entry(ENTRY)
    assert [entry[key] for key in ("kind", "name", "source", "doc")] == [
        "api", "kron_of", "https://example.org/k.py#L3", "*All at once.*"]
    assert entry["signature"] == "kron_of(*mats, mode=None, plain=3)"
    assert entry["table"].splitlines() == [
        "|  | Type | Default | Meaning |", "| --- | --- | --- | --- |",
        "| `*mats` | `Tensor` |  | k \\>= 1 factors, each (\\*batch, m\\_i) like `a` or `b` |",
        "| `mode` | `Sequence[Tensor]` or `None` | `None` |  |", "| `plain` |  | `3` |  |",
        "| *returns* | `Tensor` |  | (\\*batch, m) |"]
    assert api.entry("Some text") is None


def test_a_link_of_the_author_wins_over_links_of_nbdev_inside_it():
    inside = "[see [`f`](a.html#f), [`g`](b.html#g)](#sec-x)"
    alone = "[`f`](a.html#f) and [`g`](b.html#g) or [h](c.html)"
    assert book.plain_links(f"{alone}\n\n{inside}") == f"{alone}\n\n[see `f`, `g`](#sec-x)"
    assert book.plain_links(f"{inside} {alone}") == f"[see `f`, `g`](#sec-x) {alone}"


@pytest.mark.parametrize("text, found", [
    ("<p>Fine: x, $5 and #tag.</p>", 0), ("<p>a ::: b</p>", 1), ("<p>so $$x$$ here</p>", 2),
    ("<h2>Title {#sec-x}</h2>", 1), ("<p>see ?@thm-x</p>", 1), ("<p>a<b>:</b>::</p>", 1),
    ("<pre>::: {#a}\n$$</pre><code>$$</code><script>'$$' {#</script><style>a{#b}</style>", 0),
    ("<pre>::: </pre><p>::: left</p>", 1), ("<p title=':::'>x</p>", 0)])
def test_marks_of_the_source_are_found_in_text_and_not_in_code(text, found):
    assert len(book.left_raw(f"<html><body>{text}</body></html>")) == found

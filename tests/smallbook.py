"""A small book that uses every construct of the grammar, written by the tests that need one."""
import base64
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

SETTINGS = """[DEFAULT]
repo = smallbook
lib_name = smallbook
version = 0.1.0
license = apache2
author = The authors
copyright = 2026
user = nobody
git_url = https://github.com/nobody/smallbook
doc_host = https://nobody.example.org
doc_baseurl = /smallbook
"""

QUARTO = """project:
  type: website
  output-dir: _docs
website:
  title: "A small book"
  description: "Every construct once."
  site-url: https://nobody.example.org/smallbook
  repo-url: https://github.com/nobody/smallbook
  repo-branch: main
  repo-subdir: nbs
  favicon: images/dot.png
  sidebar:
    contents:
      - index.ipynb
      - section: "Part I · Beginnings"
        contents:
          - href: 01_first.ipynb
          - href: 02_second.ipynb
            text: "2 Second, in short"
bibliography: references.bib
"""

BIB = """@article{kolda2009,
  title = {Tensor Decompositions and Applications},
  author = {Kolda, Tamara G. and Bader, Brett W.},
  year = {2009}
}
@misc{hot1,
  title = {Higher Order Transformers},
  author = {Omranpour, Soroush},
  year = {2024}
}
"""


def cell(source: str, outputs=None) -> dict:
    "A code cell where the source looks like code, else Markdown."
    if source.startswith("#|") or outputs is not None:
        return new_code_cell(source, outputs=outputs or [])
    return new_markdown_cell(source)


def text_output(text: str) -> list:
    return [new_output("execute_result", {"text/plain": text})]


def picture(source: str) -> dict:
    return cell(source, [new_output("display_data", {"image/png": PIXEL})])


INDEX = ["# A small book\n\n> Every construct once.", "Begin with [the first](01_first.ipynb)."]

FIRST = [
    "# First steps\n\n> What comes first.",
    "After this chapter you know what a zebrafish is, and why $a<b$ and $b>c$ (see @sec-other).",
    "## Statements {#sec-statements}",
    """::: {#thm-main}
## The main one, after [@kolda2009, section 2]
Every matrix $A \\in [0,1)^{n}$ obeys @eq-norm of @def-second.

- One.
- Two.
:::

::: {.proof}
By @lem-help, and by

$$
\\begin{aligned}
x &= y \\\\
  &= z.
\\end{aligned}
$$ {#eq-norm}
:::

::: {#lem-help}
No title.
:::

::: {.proof}
Obvious.
:::""",
    """::: {.callout-tip}
## A tip
Mind `@thm-main` and `a@b` and me@example.org.
:::

::: {.callout-note collapse="true"}
## Folded, $x^2$
Inside is a statement.

::: {#rem-inner}
Nested.
:::
:::

::: {.callout-warning}
Without a title.
:::""",
    """| size $n$ | cost |
|---|---:|
| 1 | $2$ |

: Costs of `f`, see @thm-main {#tbl-cost}

@kolda2009 [p. 3] and [see @hot1, chapter 2; @kolda2009] agree with @hot1.""",
    picture("""#| label: fig-dot
#| fig-cap: "A dot"
#| fig-alt: "One dot."
1"""),
    picture("""#| label: fig-plot
#| fig-cap: "A plot of $x$, cf. @fig-dot"
#| fig-alt: "A line that rises."
1 + 1"""),
]

SECOND = [
    "# Second steps\n\n> What comes: second.",
    """As @thm-main, @tbl-cost, @fig-plot, @sec-statements show. @eq-norm holds.
See [there](01_first.ipynb#lem-help), [chapter 1](01_first.ipynb) and
[our function](02_second.ipynb#def-second).""",
    "## Other things {#sec-other}",
    "::: {#def-second}\nA *gnu* is a gnu.\n:::",
    "::: {#exr-one}\n## Compute\n1. First.\n2. Second.\n:::",
    cell('#| code-fold: true\n#| code-summary: "Solution"\nanswer = 42\nanswer', text_output("42")),
    "#| echo: false\n7",
    "#| hide\nsecret = 1",
]


def write_notebook(path: Path, sources: list) -> None:
    "Of these cells; those given as dictionaries stay as they are."
    cells = [s if isinstance(s, dict) else cell(s) for s in sources]
    for number, made in enumerate(cells):
        made["id"] = f"c{number}"
    kernel = {"display_name": "python3", "language": "python", "name": "python3"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


def write_project(root: Path, sidebar=(), **chapters) -> Path:
    "A whole project, as nbdev wants it; `sidebar` are more pages of the part, `chapters` stand in place of the book's."
    images = root / "nbs" / "images"
    images.mkdir(parents=True)
    (images / "dot.png").write_bytes(base64.b64decode(PIXEL))
    more = "".join(f"          - {name}\n" for name in sidebar)
    listed = QUARTO.replace('in short"\n', f'in short"\n{more}')
    for name, text in {"settings.ini": SETTINGS, "_quarto.yml": listed, "nbs/references.bib": BIB,
                       "nbs/styles.css": ""}.items():
        (root / name).write_text(text, encoding="utf-8")
    for name, sources in ({"index": INDEX, "01_first": FIRST, "02_second": SECOND} | chapters).items():
        write_notebook(root / "nbs" / f"{name}.ipynb", sources)
    return root

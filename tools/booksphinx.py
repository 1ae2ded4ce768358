"""What the book needs of Sphinx beyond its extensions: folded callouts, and formulas left alone."""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective


class fold(nodes.General, nodes.Element):
    """A callout that opens at a click."""


class summary(nodes.General, nodes.TextElement):
    """The line of a fold that is always seen."""


class Fold(SphinxDirective):
    """`:::{fold} Title` as HTML's own <details>, which needs no script."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"class": directives.class_option, "open": directives.flag}

    def run(self) -> list[nodes.Node]:
        node = fold(classes=["admonition", *self.options.get("class", [])],
                    open="open" in self.options)
        inline, messages = self.state.inline_text(self.arguments[0], self.lineno)
        node += summary("", "", *inline)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node, *messages]


def visit_fold(self, node) -> None:
    opened = {"open": "open"} if node["open"] else {}
    self.body.append(self.starttag(node, "details", **opened))


def visit_summary(self, node) -> None:
    self.body.append(self.starttag(node, "summary", "", CLASS="admonition-title"))


class PlainFormulas(SphinxPostTransform):
    """Hands display formulas to MathJax as written.

    Sphinx puts formulas of several lines into `split`, inside of which no number may stand.
    """

    default_priority = 900

    def run(self, **kwargs) -> None:
        for node in self.document.findall(nodes.math_block):
            node["nowrap"] = node["no-wrap"] = True
            text = rf"\[{node.astext()}\]"
            node.children = [nodes.Text(text)]
            node.rawsource = text


def setup(app) -> dict:
    app.add_node(fold, html=(visit_fold, lambda self, node: self.body.append("</details>\n")))
    app.add_node(summary, html=(visit_summary, lambda self, node: self.body.append("</summary>\n")))
    app.add_directive("fold", Fold)
    app.add_post_transform(PlainFormulas)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

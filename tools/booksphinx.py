"""What the book needs of Sphinx beyond its extensions: folded callouts, MathML, and what is said of a page."""

from __future__ import annotations

from html import escape, unescape

import mathml
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


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


def visit_math(self, node) -> None:
    "A formula of running text. One that is left in pieces may break between lines."
    self.body.append(converted(mathml.inline, node))
    raise nodes.SkipNode


def visit_math_block(self, node) -> None:
    self.body.append(f'<div class="math">{converted(mathml.block, node)}</div>\n')
    raise nodes.SkipNode


def converted(convert, node) -> str:
    "What the converter does not know is a warning, and a warning builds no site."
    try:
        return convert(node.astext())
    except mathml.MathError as error:
        logger.warning(str(error), location=node)
        return ""


def describe(app, page, template, context, doctree) -> None:
    "What search engines, and people who are sent a link, see of a page before they open it."
    base, (about, picture) = app.config.html_baseurl, (app.config.book_about.get(page), app.config.book_picture)
    if not about:
        return
    shown = {"og:type": "article", "og:site_name": app.config.project, "og:title": context.get("title", ""),
             "og:description": about}
    if base:
        shown |= {"og:url": f"{base}{page}.html"} | ({"og:image": base + picture} if picture else {})
    tags = [f'<meta name="description" content="{escape(about)}" />']
    tags += [f'<meta property="{name}" content="{escape(unescape(value))}" />' for name, value in shown.items()]
    tags += ['<meta name="twitter:card" content="summary_large_image" />'] if picture else []
    context["metatags"] = context.get("metatags", "") + "\n    " + "\n    ".join(tags)


def setup(app) -> dict:
    app.add_config_value("book_about", {}, "html")
    app.add_config_value("book_picture", "", "html")
    app.connect("html-page-context", describe)
    app.add_node(fold, html=(visit_fold, lambda self, node: self.body.append("</details>\n")))
    app.add_node(summary, html=(visit_summary, lambda self, node: self.body.append("</summary>\n")))
    app.add_directive("fold", Fold)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

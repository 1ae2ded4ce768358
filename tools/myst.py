"""Quarto's Markdown to MyST: processed notebooks as Sphinx with myst-nb reads them.

What a construct means is decided in crossref.py; this file says how Sphinx is to write it.
"""

from __future__ import annotations

import re
from html import unescape

import apiindex
import yaml
from apidoc import Entry
from crossref import (
    Book,
    Target,
    Writer,
    chapter_of,
    describe,
    drawn,
    fold_long,
    mark_cell,
    markdown_of,
    page_of,
    source_of,
    unbroken,
    unbroken_outputs,
)
from grammar import KEY, Block, Cell


class Api:
    """Labels of the documented symbols. Sphinx tells no `Cost` from `cost`, and no label from a page."""

    def __init__(self, processed: dict[str, dict], taken=()):
        self.taken = {key.lower() for key in taken}     # by references: `lora` is cited, `LoRA` is documented
        self.labels: dict[tuple[str, str], str] = {}  # by page and name
        self.pages = {page_of(notebook) for notebook in processed}
        self.links: dict[str, str] = {}  # by what nbdev links to
        for notebook, nb in processed.items():
            for entry in entries_in(nb):
                self.add(page_of(notebook), entry.name)

    def add(self, page: str, name: str) -> None:
        label = name.lower()
        while label in self.pages or label in self.taken or label in self.labels.values():
            label = f"{page}-{label}"
        self.labels[page, name] = label
        self.links.setdefault(f"{page}.html#{name.lower()}", label)


class MystWriter(Writer):
    """Writes MyST. Labels become names that Sphinx resolves and checks across pages."""

    def __init__(self, book: Book, notebook: str, site_url: str, api: Api):
        super().__init__(book, notebook)
        self.site_url = site_url.rstrip("/") + "/"
        self.api = api

    def href(self, target: Target) -> str:
        return f"#{target.label}"

    def page_href(self, notebook: str) -> str:
        return f"{page_of(notebook)}.ipynb"

    def external(self, url: str) -> str:
        "nbdev links names to the published site; here they stay within the site being built."
        path = url.removeprefix(self.site_url)
        if path == url or self.site_url == "/":
            return url
        if path in self.api.links:
            return f"#{self.api.links[path]}"
        return re.sub(r"\.html$", ".ipynb", path.partition("#")[0])

    def cite(self, items: str) -> str:
        return "{cite:p}`" + ",".join(self.cited(item) for item in items.split(";")) + "`"

    def cite_in_text(self, key: str, locator: str) -> str:
        return "{cite:t}`" + key + (f"{{{locator}}}" if locator else "") + "`"

    @staticmethod
    def cited(item: str) -> str:
        "`see @key, p. 3` with its words before and after the key."
        before, key, after = re.fullmatch(
            rf"\s*(.*?)\s*-?(?<![\w@])@({KEY})\s*,?\s*(.*?)\s*", item, re.DOTALL).groups()
        return (f"{{{before}}}" if before else "") + key + (f"{{{after}}}" if after else "")

    def fence(self, directive: str, *options: str) -> list[str]:
        return [":" * self.colons(len(self.open) - 1) + directive, *options, ""]

    def open_statement(self, block: Block) -> None:
        directive = f"{{container}} book-statement book-{block.cls}"
        self.indented(block, *self.fence(directive, f":name: {block.label}"))

    def open_proof(self, block: Block) -> None:
        self.indented(block, *self.fence("{container} book-proof"))

    def open_callout(self, block: Block, title: str) -> None:
        kind = block.cls.removeprefix("callout-")
        if "collapse" in block.attrs:
            options = [f":class: {kind}"] + [":open:"] * (block.attrs["collapse"] == "false")
            lines = self.fence("{fold} " + (title or kind.capitalize()), *options)
        elif title:
            lines = self.fence("{admonition} " + title, f":class: {kind}")
        else:
            lines = self.fence(f"{{{kind}}}")
        self.indented(block, *lines)

    def on_heading(self, block: Block) -> None:
        label = [f"({block.label})="] if block.label else []
        self.paragraph(*label, "#" * block.attrs["level"] + " " + self.inline(block.text))

    def on_math(self, block: Block) -> None:
        if not block.label:
            return self.indented(block, "$$", block.text, "$$")
        marks = ":" * self.colons(len(self.open))
        number = self.book.targets[block.label].number
        self.indented(block, f"{marks}{{container}} book-equation", f":name: {block.label}", "",
                      "$$", f"{block.text} \\tag{{{number}}}", "$$", marks)

    def on_table(self, block: Block) -> None:
        text = self.inline(block.text)
        if not (block.title or block.label):
            return self.indented(block, text)
        marks = ":" * self.colons(len(self.open))
        name = [f":name: {block.label}"] if block.label else []
        self.indented(block, f"{marks}{{table}} {self.caption(block)}", *name, "", text, marks)

    def on_image(self, block: Block) -> None:
        marks = ":" * self.colons(len(self.open))
        name = [f":name: {block.label}"] if block.label else []
        self.indented(block, f"{marks}{{figure}} {block.text}", *name,
                      f":alt: {block.attrs['fig-alt']}", "", self.caption(block), marks)

    def entry(self, entry: Entry) -> str:
        """A symbol's documentation: an anchor, its name, where its code is, arguments, meaning.

        In a chapter, where the code stands beside it, the arguments open at a click."""
        marks = ":" * 8
        source = f"[source]({entry.source}){{.api-source}}" if entry.source else ""
        doc, arguments = self.inline(entry.doc), [f"```python\n{entry.signature}\n```", entry.table()]
        parts = ([doc, f"{marks[1:]}{{fold}} Arguments", *arguments, marks[1:]] if chapter_of(self.notebook)
                 else [arguments[0], doc, arguments[1]])
        return "\n\n".join(part for part in (
            f"({self.api.labels[page_of(self.notebook), entry.name]})=",
            f"### `{entry.name}`", f"{marks}{{container}} book-api", source, *parts, marks) if part)


def entries_in(nb: dict) -> list[Entry]:
    "All symbols that a processed notebook documents."
    outputs = [out for cell in nb["cells"] if cell["cell_type"] == "code"
               for out in cell.get("outputs", [])]
    return [entry for out in outputs if (entry := Entry.parse(markdown_of(out)))]


def front_matter(nb: dict) -> dict:
    "Title and description, which nbdev took from the first cell."
    cell = nb["cells"][0] if nb["cells"] else {"cell_type": ""}
    if cell["cell_type"] != "raw":
        return {}
    return yaml.safe_load(source_of(cell).strip().strip("-")) or {}


def title_cell(nb: dict, notebook: str, links: str) -> dict:
    "The head of a page: numbered title, subtitle, and what can be done with the page."
    meta = front_matter(nb)
    title = f"{chapter_of(notebook)} {meta.get('title', page_of(notebook))}".strip()
    lines = [f"# {title}"]
    if meta.get("description"):
        lines += ["", "::::{container} book-subtitle", meta["description"], "::::"]
    return mark_cell("\n".join([*lines, "", links]))


def convert(nb: dict, writer: MystWriter, links: str) -> tuple[dict, list[str]]:
    "A processed notebook as myst-nb reads it, and where in the source each of its cells stands."
    name = writer.notebook
    cells, places = [title_cell(nb, name, links)], [f"{name}, cell 1"]
    for cell in nb["cells"]:
        source = source_of(cell)
        if cell["cell_type"] == "raw" or source.startswith("<!--"):
            continue
        if cell["cell_type"] == "markdown":
            cells.append(mark_cell(writer.write(unbroken(source))))
        else:
            unbroken_outputs(cell)
            if anchor := writer.book.anchor(name, cell):
                cells.append(mark_cell(f'<span id="{anchor}"></span>'))
                places.append(writer.book.place(name, cell, places[-1]))
            cells.append(code_cell(cell, source, writer))
        places.append(writer.book.place(name, cell, places[-1]))
    for text in apiindex.of_book(name, writer.book.root):
        cells.append(mark_cell(writer.write(text)))
        places.append(f"{name}, the index added to it")
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {**nb, "cells": cells}, places


def code_cell(cell: dict, source: str, writer: MystWriter) -> dict:
    "Options of a cell as myst-nb's tags and settings; a documented symbol as text."
    for output in cell.get("outputs", []):
        if entry := Entry.parse(markdown_of(output)):
            return mark_cell(writer.entry(entry))
    parsed = Cell.parse(source)
    tags, settings = [], {}
    options = parsed.options
    describe(cell, options.get("fig-alt", ""))
    fold_long(options, parsed.body)
    tags += ["remove-input"] if options.get("echo") == "false" else []
    tags += ["remove-output"] if options.get("output") == "false" else []
    tags += ["remove-cell"] if options.get("include") == "false" else []
    if options.get("code-fold") == "true":
        tags.append("hide-input")
        summary = options.get("code-summary", "Code")
        settings |= {"code_prompt_show": summary, "code_prompt_hide": summary}
        tags += ["exported"] if summary.startswith("Source of ") else []
    elif options.get("code-fold") == "show":
        tags.append("exported")
    settings |= figure_settings(options, writer)
    metadata = {"tags": tags} | ({"mystnb": settings} if settings else {})
    return {**cell, "source": parsed.body.strip("\n"), "metadata": metadata}


def figure_settings(options: dict, writer: MystWriter) -> dict:
    settings = {}
    if "fig-alt" in options:
        settings["image"] = {"alt": options["fig-alt"]}
    if "fig-cap" in options:
        block = Block("image", 1, label=options.get("label", ""), title=options["fig-cap"])
        settings["figure"] = {"caption": writer.caption(block)}
        if block.label:
            settings["figure"]["name"] = block.label
    return settings


def twin(nb: dict, writer: Writer, title: str) -> str:
    "A page as plain Markdown, for those who read it with a program."
    parts = [f"# {title}", front_matter(nb).get("description", "")]
    for cell in nb["cells"]:
        source = source_of(cell)
        if cell["cell_type"] == "markdown" and not source.startswith("<!--"):
            text = re.sub(r"^\s*:{3,}.*\n?|\[\]\{#[^}]*\}", "", writer.write(source), flags=re.M)
            parts.append(re.sub(r"\]\(([\w-]+)\.html", r"](\1.html.md", text))
        elif cell["cell_type"] == "code":
            parts += twin_of_code(cell, Cell.parse(source))
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(part for part in parts if part)) + "\n"


def twin_of_code(cell: dict, parsed: Cell) -> list[str]:
    "Code with its text output; pictures by what they show."
    parts = []
    if parsed.options.get("echo") != "false":
        parts.append(f"```python\n{parsed.body.strip()}\n```")
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if markdown_of(output):
            parts.append(re.sub(r"\A---\s+|\{target=[^}]*\}", "", markdown_of(output)))
        elif output in drawn(cell):
            seen = re.search(r'aria-label="([^"]*)"', "".join(data["text/html"]))[1]
            parts.append(f"*Figure: {unescape(parsed.options.get('fig-alt', seen))}*")
        elif any(kind.startswith("image/") for kind in data):
            parts.append(f"*Figure: {parsed.options.get('fig-alt', '')}*")
        elif text := "".join(data.get("text/plain", output.get("text", ""))):
            parts.append(f"```\n{text.strip()}\n```")
    return parts

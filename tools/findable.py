"""What readers search in: every section, statement and documented name by itself.

Sphinx's own index knows pages only. This one takes its place; search.js, beside this file, ranks. Words are stemmed by
Sphinx here and by Sphinx's script there, so that both agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.search.en import SearchEnglish

RANKING = Path(__file__).with_name("search.js")
WORDS = re.compile(r"[^\W_]+")
SHOWN = 96      # characters of its text that a result shows
UNREAD = (nodes.raw, nodes.math, nodes.math_block, nodes.comment, nodes.target, nodes.image)


class Found:
    """A place that a search may lead to, with the words that lead there."""

    def __init__(self, page: str, anchor: str, kind: str, title: str = ""):
        self.page, self.anchor, self.kind, self.title = page, anchor, kind, title
        self.words: list[str] = []


def places(page: str, doctree: nodes.document) -> list[Found]:
    "The sections of a page, and within them its statements; a documented name is a section of its own."
    found: list[Found] = []

    def read(node: nodes.Node, place: Found | None) -> None:
        if isinstance(node, nodes.Text):
            place.words.append(str(node))
        if isinstance(node, (nodes.Text, nodes.title, *UNREAD)):
            return
        if isinstance(node, nodes.section):
            place = Found(page, node["ids"][0], "section" if found else "page", node[0].astext())
            found.append(place)
        elif "book-statement" in node.get("classes", ()):
            place = Found(page, node["ids"][0], "statement", name_of(node))
            found.append(place)
        elif "book-api" in node.get("classes", ()) and place:
            place.kind = "name"
        for child in node.children:
            if place or isinstance(child, nodes.section):
                read(child, place)

    read(doctree, None)
    return [place for place in found if place.title]


def name_of(statement: nodes.Element) -> str:
    "`Theorem 6.2`, with the name in brackets that some have."
    head = next(iter(statement.findall(nodes.strong)), None)
    if head is None:
        return ""
    after = re.match(r"\s*\([^)]*\)", head.parent.astext()[len(head.astext()):])
    return head.astext().rstrip(".") + (f" {after[0].strip()}" if after else "")


@cache
def stem(word: str) -> str:
    return LANGUAGE.stem(word)


LANGUAGE = SearchEnglish({})


def terms(text: str) -> list[str]:
    return [stem(word) for word in WORDS.findall(text.lower())]


def index_of(found: list[Found]) -> dict:
    "Places, and for each term the places that have it with how often."
    titles = {f.page: tidy(f.title) for f in found if f.kind == "page"}
    pages = sorted(titles)
    rows, lengths, postings = [], [], {}
    for number, place in enumerate(found):
        title, text = tidy(place.title), tidy(" ".join(place.words))
        counts = Counter(terms(text)) + Counter(terms(title))
        begin = text if len(text) < SHOWN else text[:SHOWN].rpartition(" ")[0]
        begin = begin.removeprefix(title).lstrip(" .:")        # the title stands above it
        rows.append([pages.index(place.page), place.anchor, place.kind, title, begin])
        lengths.append(sum(counts.values()))
        for term, count in counts.items():
            postings.setdefault(term, []).append((number, count))
    return {"docnames": pages, "titles": [titles[page] for page in pages],
            "places": rows, "lengths": lengths, "terms": {term: packed(posts) for term, posts in postings.items()}}


def packed(posts: list[tuple[int, int]]) -> str:
    """`3 14x2` for once in place 3 and twice in place 17: places as steps from the one before, in half the room.

    search.js reads it for the words that are looked for."""
    before = [0, *(place for place, _ in posts)]
    return " ".join(f"{place - last}" + (f"x{count}" if count > 1 else "")
                    for last, (place, count) in zip(before, posts, strict=False))


def tidy(text: str) -> str:
    return " ".join(text.split())


def write_index(found: list[Found], html: Path) -> None:
    "In the place of the index that Sphinx wrote."
    text = json.dumps(index_of(found), ensure_ascii=False, separators=(",", ":"))
    (html / "searchindex.js").write_text(f"{RANKING.read_text(encoding='utf-8')}\nSearch.setIndex({text});\n",
                                         encoding="utf-8")


def setup(app) -> dict:
    "As an extension of Sphinx: read the pages as they are written, and write the index after the last."
    found: list[Found] = []
    app.connect("doctree-resolved", lambda app, doctree, page: found.extend(places(page, doctree)))
    app.connect("build-finished", lambda app, error: None if error else write_index(found, Path(app.outdir)))
    # pages are resolved in the main process, in their order, also where others write them
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, made while the site is built: a page shows them at once, without a script.

    >>> mathml(r"x^2")
    '<math><msup><mi>x</mi><mn>2</mn></msup></math>'

Quarto makes MathML of its own; `remade` puts these formulas in its place, so that pages are alike.

Browsers break no line inside a formula. So a long one in running text is several `<math>` side by side,
cut before relations and after commas, as TeX would break it.
"""

from __future__ import annotations

import re
from html import escape, unescape
from xml.etree import ElementTree

from math_core import LatexError, LatexToMathML

CONVERTER = LatexToMathML()
TAG = re.compile(r"\s*\\tag\{([^}]*)\}\s*\Z")
PANDOC = re.compile(r'<math display="(inline|block)"(?:(?!</math>).)*<annotation encoding="application/x-tex">([^<]*)'
                    r"</annotation></semantics></math>", re.DOTALL)
NUMBER = re.compile(r"\s*\\qquad\(((?:\d+[a-z]?\.)?\d+)\)\s*\Z")      # as crossref.py writes it for Quarto
OPENING, CLOSING, RELATIONS = "([{⟨⌊⌈", ")]}⟩⌋⌉", "=≠≈≤≥<>∈∉⊂⊆→↦←⟼⟺∼∝≺⪰:"
LONG, SHORT, SUM = 14, 5, 8  # characters of a formula that may be broken, before a relation, before a sign
SCRIPTS = ("msup", "msub", "msubsup")
BIG = re.compile(r'<mo ((?:(?!minsize)[^>])*)minsize="1.2em" maxsize="1.2em"')   # what `\big` makes of a bracket
SIZED = re.compile(r'(<(?:msup|msub|msubsup)>)(<mo [^>]*minsize=[^>]*>[^<]*</mo>)')     # the bracket of `\Bigr)^2`
ADDED, VARIANT = "+−⊕⊗∘", "\ufe00"


class MathError(ValueError):
    """TeX that the converter does not know."""


def mathml(tex: str, display: bool = False) -> str:
    "A formula as one `<math>`."
    try:
        found = CONVERTER.convert_with_local_state(tex.strip(), displaystyle=display)
    except LatexError as error:
        reason = re.sub(r"\x1b\[[\d;]*m", "", str(error)).splitlines()
        raise MathError(f"{next(filter(None, reason), error)} in {tex.strip()}") from error
    found = BIG.sub(enlarged, found)
    found = SIZED.sub(r"\1<mrow>\2</mrow>", found)         # by itself, Chromium draws it small and too low
    return re.sub(r"&(?!(?:lt|gt|amp|quot);)\w+;", lambda m: unescape(m[0]), found).replace(VARIANT, "")


def enlarged(mo) -> str:
    "The beginning of a bracket in larger type: where Chromium stretches one, it leaves room for the largest there is."
    return f"<mo {re.sub(r'(stretchy|symmetric)=.true. ', '', mo[1])}stretchy=\"false\" mathsize=\"1.2em\""


def inline(tex: str) -> str:
    "A formula of running text, in pieces between which a line may break."
    whole = mathml(tex)
    if len(text_of(whole)) < LONG:
        return whole
    parts = pieces(list(ElementTree.fromstring(whole)))
    if len(parts) == 1:
        return whole
    return "<wbr>".join("<math>" + "".join(map(written, part)) + "</math>" for part in parts)


def block(tex: str) -> str:
    "A formula that stands alone, with its number where it has one."
    tag = TAG.search(tex)
    number = f'<span class="book-number">({escape(tag[1])})</span>' if tag else ""
    return mathml(TAG.sub("", tex), display=True) + number


def remade(page: str) -> str:
    "A page of Quarto's with each formula made from its TeX as it is made for Sphinx."
    def formula(found) -> str:
        tex = unescape(found[2])
        if found[1] == "inline":
            return inline(tex)
        numbered = NUMBER.sub(r" \\tag{\1}", tex)
        return f'<span class="math display">{block(numbered)}</span>'

    return PANDOC.sub(formula, page)


def text_of(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


def written(element) -> str:
    return ElementTree.tostring(element, encoding="unicode")


def breaks(mark: str, depth: int, size: int) -> bool:
    "May a line break before this mark, so deep in brackets, after a piece of this size? Inside only if it must."
    least = SHORT if mark in RELATIONS else SUM if mark in ADDED else 99
    return size >= (least, least if mark == ":" else max(least, 22))[depth] if depth < 2 else False


def pieces(children: list) -> list[list]:
    "The children of a formula, cut where a line may break."
    found, depth = [[]], 0
    for child in children:
        mark = child.text if child.tag == "mo" else ""
        size = len("".join(text for c in found[-1] for text in c.itertext()))
        if mark and breaks(mark, depth, size):
            child.set("form", "infix")      # with space before it, though it stands first
            found.append([])
        found[-1].append(child)
        base = child[0].itertext() if len(child) and child.tag in SCRIPTS else ""       # `)^2` closes too
        bracket = mark or "".join(base)
        depth += (bracket in OPENING) - (bracket in CLOSING) if bracket else 0
        if (mark == "," or child.tag == "mspace") and size >= (SHORT if depth == 0 else 22):
            found.append([])
    return [part for part in found if part]

"""Every exercise says at once how long it takes and how hard it is."""
import re

import pytest
from chapters import CHAPTERS, all_pages

SAID = re.compile(r"\*(?:About )?\d+ (?:minutes?|hours?), (?:easy|medium|hard)(?:: [^*]+)?\.\* \S")


def exercises(chapter):
    "(heading, first line of the text) for each exercise, proof and project."
    return re.findall(r"^#+ ((?:Exercise|Proof|Project): [^\n]*?)(?: \{#[\w-]+\})?\n\s*([^\n]*)", chapter.text, re.M)


@pytest.mark.parametrize("chapter", [c for c in all_pages() if exercises(c)], ids=lambda c: c.path.stem)
def test_each_exercise_says_time_and_difficulty_in_its_first_line(chapter):
    found, name = exercises(chapter), chapter.path.stem
    told = [h for h in chapter.headings() if h.startswith(("Exercise: ", "Proof: ", "Project: "))]
    assert len(found) == len(told) > 0
    for heading, line in found:
        assert SAID.match(line), f"{name}, {heading}: begins with {line[:40]!r}, not '*5 minutes, easy.* …'"
    if chapter.path in CHAPTERS and not re.match(r"27_|\d+[a-z]_", name):    # a sibling shares those of its chapter
        assert len(found) >= 5

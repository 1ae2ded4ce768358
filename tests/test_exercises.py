"""Every exercise says at once how long it takes and how hard it is."""
import re

import pytest
from chapters import CHAPTERS, NBS, Chapter

# The list grows, until it is all chapters.
TOLD = ["00_modes", "01_tensor", "02_kronecker", "03_factorization", "04_universality", "05_attention",
        "06_stochastic", "07_reachable", "08_kronecker_attention", "09_kernels", "10_positions",
        "11_transformer", "11a_patches", "12_cost", "13_ndlinear", "14_separability", "15_kin", "15b_adapters",
        "separability_more", "17_data", "17a_around", "17b_faults", "18_comparing", "19_forecasting", "20_volumes",
        "21_scenes", "23_maps", "24_motion", "26_streams", "27_near", "28_grids", "29_sharding", "notation"]
SAID = re.compile(r"\*(?:About )?\d+ (?:minutes?|hours?), (?:easy|medium|hard)(?:: [^*]+)?\.\* \S")


def exercises(chapter):
    "(heading, first line of the text) for each exercise, proof and project."
    return re.findall(r"^#+ ((?:Exercise|Proof|Project): [^\n]*?)(?: \{#[\w-]+\})?\n\s*([^\n]*)", chapter.text, re.M)


@pytest.mark.parametrize("name", TOLD)
def test_each_exercise_says_time_and_difficulty_in_its_first_line(name):
    chapter = Chapter(NBS / f"{name}.ipynb")
    found = exercises(chapter)
    told = [h for h in chapter.headings() if h.startswith(("Exercise: ", "Proof: ", "Project: "))]
    assert len(found) == len(told) > 0
    for heading, line in found:
        assert SAID.match(line), f"{name}, {heading}: begins with {line[:40]!r}, not '*5 minutes, easy.* …'"
    if chapter.path in CHAPTERS and not re.match(r"\d+[a-z]_", name):       # a sibling shares those of its chapter
        assert len(found) >= 5

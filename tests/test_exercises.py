"""Every exercise says at once how long it takes and how hard it is."""
import re

import pytest
from chapters import CHAPTERS, NBS, Chapter

# The list grows, until it is all chapters.
TOLD = ["00_modes", "01_tensor", "02_kronecker", "03_factorization", "04_universality", "05_attention",
        "06_stochastic", "07_reachable", "08_kronecker_attention", "09_kernels", "10_positions",
        "11_transformer", "11a_patches", "11b_axial", "11c_names", "11d_model_config", "11e_models", "12_cost",
        "13_ndlinear", "14_separability", "15_kin", "15b_adapters",
        "separability_more", "16_data", "16a_around", "16b_faults", "17_comparing", "18_forecasting", "19_volumes",
        "20_scenes", "21_maps", "22_motion", "23_streams", "23a_streaming", "24_near", "25_grids",
        "26_sharding", "notation"]
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

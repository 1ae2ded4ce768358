"""Schematics: well-formed, readable without colours of their own, and about the sizes that were asked for."""
import re
import xml.etree.ElementTree as ET

import pytest

from hot_nbdev.book import shapes

CASES = {name: [{}] for name in shapes.__all__ if name != "INDEX"} | {
    "unfolding": [{}, *(dict(shape=(2, 3, 4), mode=m) for m in range(3))],
    "mode_product_picture": [{}, *(dict(shape=(3, 2, 4), mode=m, size=5) for m in range(3))],
    "contraction_chain": [{}, dict(sizes_in=(2, 2, 3), sizes_out=(4, 3, 2), sequence=(2, 0, 1))],
}
DRAWN = [pytest.param(name, given, id=f"{name}-{i}")
         for name, cases in CASES.items() for i, given in enumerate(cases)]


@pytest.mark.parametrize("name, given", DRAWN)
def test_a_drawing_is_well_formed_and_says_what_is_seen(name, given):
    picture = getattr(shapes, name)(**given)
    html = picture._repr_html_()
    assert html == getattr(shapes, name)(**given)._repr_html_()            # the same at every run
    svg = ET.fromstring(re.search(r"<svg.*</svg>", html, re.S)[0])
    left, top, width, height = map(float, svg.get("viewBox").split())
    assert width > 50 and height > 30 and width / height < 12
    assert picture.alt and picture.alt[-1] == "." and picture.alt[:20] in html.replace("&amp;", "&")
    assert not re.search(r'\bid="', html) and "nan" not in html            # two of them can stand on a page
    for size in re.findall(r'font-size[=:]"?(\d+(?:\.\d+)?)', html):
        assert float(size) * min(1, 700 / width) >= 8
    numbers = [float(v) for v in re.findall(r"-?\d+\.?\d*", " ".join(re.findall(r' d="([^"]*)"', html)))]
    assert numbers and min(numbers) >= min(left, top) - 1 and max(numbers) <= max(left + width, top + height) + 1

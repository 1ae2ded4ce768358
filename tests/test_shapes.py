"""Schematics: well-formed, readable without colours of their own, and about the sizes that were asked for."""
import re
import xml.etree.ElementTree as ET

import pytest

from hot_nbdev.book import shapes

CASES = {
    "fibers_and_slices": [{}, dict(shape=(2, 3, 5))],
    "unfolding": [{}, *(dict(shape=(2, 3, 4), mode=m) for m in range(3))],
    "mode_product_picture": [{}, *(dict(shape=(3, 2, 4), mode=m, size=5) for m in range(3))],
    "contraction_chain": [{}, dict(sizes_in=(2, 2, 3), sizes_out=(4, 3, 2), sequence=(2, 0, 1))],
    "kronecker_blocks": [{}, dict(left=(2, 3), right=(2, 2), entry=(1, 2))],
    "kronecker_terms": [{}, dict(left=(2, 3), right=(2, 2), unit=20)],
    "flattened_attention": [{}, dict(shape=(2, 3), query=0)],
    "product_and_sum": [{}, dict(shape=(3, 5), query=(0, 4))],
    "pool_maps_product": [{}, dict(shape=(3, 2), features=2)],
    "prefix_pooling": [{}, dict(steps=4, variables=2, step=3)],
    "attention_order": [{}, dict(tokens=80, features=40)],
    "patches_picture": [{}, dict(grid=(2, 2), patch=(3, 1), features=2)],
    "transformer_block": [{}],
    "ndlinear_picture": [{}, dict(shape=(2, 3, 2), features=(3, 2, 2))],
    "adapter": [{}, dict(rows=80, columns=100, rank=10)],
}
DRAWN = [pytest.param(name, given, id=f"{name}-{i}")
         for name, cases in CASES.items() for i, given in enumerate(cases)]


def test_every_drawing_is_tried():
    assert {name for name in shapes.__all__ if name != "INDEX"} == set(CASES)


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

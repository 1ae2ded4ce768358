"""Properties of `hot_nbdev.positions`: tables, waves and turns on random sizes."""
import itertools

import pytest
import torch
from layers import each
from layers import tensor as draw
from parts import POSITIONS
from torch.testing import assert_close

from hot_nbdev.positions import stretch

added = each(POSITIONS[:4])


@added
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_shape_and_dtype_are_those_of_the_input(case, dtype):
    positions = case.layer(torch.float32)
    for shape in [(5, 3, 8), (2, 1, 7, 8), (0, 5, 3, 8), (2, 3, 4, 1, 8)]:
        y = positions(torch.zeros(shape, dtype=dtype))
        assert y.shape == shape and y.dtype == dtype


@added
def test_a_part_of_a_tensor_has_its_part_of_the_positions(case):
    positions = case.layer()
    for sizes in [(5, 3), (9, 4), (3, 6)]:
        x = draw(2, *sizes, 8)
        for mode, (first, count) in itertools.product((0, 1), [(0, 3), (1, 2), (2, 1)]):
            part = x.narrow(mode + 1, first, count)
            want = positions(x).narrow(mode + 1, first, count)
            assert_close(positions(part, {mode: (first, sizes[mode])}), want, rtol=0, atol=1e-12)


def test_stretching_is_pytorchs_interpolation():
    for n, m in itertools.product((1, 2, 5), (1, 2, 6, 7, 40)):
        table = draw(n, 3)
        theirs = torch.nn.functional.interpolate(table.T[None], size=m, mode="linear", align_corners=True)[0].T
        assert_close(stretch(table, 0, m), theirs if m > 1 else table[:1], rtol=0, atol=1e-5)

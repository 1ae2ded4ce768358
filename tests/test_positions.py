"""Properties of `hot_nbdev.positions`: tables, waves and turns on random sizes."""
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import F64, each
from layers import tensor as draw
from often import examples
from parts import POSITIONS
from torch.testing import assert_close

from hot_nbdev.positions import AxialRotary, LearnedPositions, Rotary, SineCosinePositions, stretch


@given(st.integers(2, 7), st.integers(0, 5), st.sampled_from([4, 6, 8]))
@examples(20)
def test_rotary_scores_depend_on_the_difference_alone(n, shift, dim):
    rotary, q, k = Rotary(dim), draw(dim), draw(dim, seed=1)
    long = n + shift
    Q, K = (rotary(t.expand(long, dim), 0) for t in (q, k))
    scores = Q @ K.T
    assert_close(scores[shift:, shift:], scores[:n, :n])
    assert_close(Q.norm(dim=-1), q.norm().expand(long))
    assert not torch.allclose(scores[0, 0], scores[0, 1])


def test_axial_rotary_gives_each_mode_its_own_planes():
    rotary, t = AxialRotary(8, 2), draw(2, 3, 8)
    once = rotary(t, 1)
    changed = (once != t).flatten(0, 1).any(0)
    other = (rotary(t.transpose(0, 1), 0).transpose(0, 1) != t).flatten(0, 1).any(0)
    assert changed.any() and other.any()
    assert not (changed & other).any()


def test_learned_tables_leave_other_modes_alone():
    positions = LearnedPositions((3, 5), 4, modes=[1], dtype=F64)
    assert positions.table().expand(3, 5, 4).shape == (3, 5, 4)
    assert {n: tuple(t.shape) for n, t in positions.named_parameters()} == {"table1": (1, 5, 4)}
    assert {n: tuple(t.shape) for n, t in LearnedPositions((3, 5), 4, modes=[1], full=True).named_parameters()} == {
        "grid": (1, 5, 4)}


def test_sine_and_cosine_stand_where_each_mode_has_its_share():
    positions = SineCosinePositions(8, 2)
    x = torch.zeros(4, 3, 8, dtype=F64)
    y = positions(x)
    along = (y[1:] != y[:-1]).flatten(0, 1).any(0), (y[:, 1:] != y[:, :-1]).flatten(0, 1).any(0)
    assert along[0].any() and along[1].any() and not (along[0] & along[1]).any()
    assert_close(y.square().sum(-1), torch.full((4, 3), 4.0, dtype=F64))      # a cosine and a sine in each plane


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

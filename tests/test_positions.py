"""Properties of `hot_nbdev.positions`: tables, waves and turns on random sizes."""
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from often import examples
from torch.testing import assert_close

from hot_nbdev.positions import (
    AxialRotary,
    LearnedPositions,
    Rotary,
    SineCosinePositions,
    frequencies,
    rotate,
)

F64 = torch.float64


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_frequencies_fall_from_one_by_equal_factors():
    assert_close(frequencies(8, 16.0, dtype=F64), torch.tensor([1, 0.5, 0.25, 0.125], dtype=F64))
    with pytest.raises(ValueError, match="in pairs"):
        frequencies(5)


def test_rotate_turns_plane_f_made_of_f_and_f_plus_half():
    t = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=F64)
    turned = rotate(t, torch.tensor([torch.pi / 2, torch.pi], dtype=F64))
    assert_close(turned, torch.tensor([0.0, 0.0, 1.0, -1.0], dtype=F64))


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


def test_rotary_turns_its_modes_only():
    rotary, t = Rotary(4, (1,)), draw(3, 4)
    assert torch.equal(rotary(t, 0), t)
    assert not torch.equal(rotary(t, 1), t)


def test_axial_rotary_gives_each_mode_its_own_planes():
    rotary, t = AxialRotary(8, 2), draw(2, 3, 8)
    once = rotary(t, 1)
    changed = (once != t).flatten(0, 1).any(0)
    other = (rotary(t.transpose(0, 1), 0).transpose(0, 1) != t).flatten(0, 1).any(0)
    assert changed.any() and other.any()
    assert not (changed & other).any()


@pytest.mark.parametrize("full", [False, True])
def test_learned_tables_are_interpolated_with_ends_in_place(full):
    torch.manual_seed(0)
    positions = LearnedPositions((3, 5), 4, full=full, dtype=F64)
    own, longer = positions.table(), positions.table((5, 5))
    assert_close(positions.table((3, 5)), own)
    assert_close(longer[::4], own[::2])             # both ends
    assert_close(longer[1], (own[0] + own[1]) / 2)  # halfway
    x = draw(2, 3, 5, 4)
    assert_close(positions(x), x + own)


def test_learned_tables_leave_other_modes_alone():
    positions = LearnedPositions((3, 5), 4, modes=[1], dtype=F64)
    assert positions.table().expand(3, 5, 4).shape == (3, 5, 4)
    assert [tuple(t.shape) for t in positions.tables] == [(5, 4)]


def test_sine_and_cosine_stand_where_each_mode_has_its_share():
    positions = SineCosinePositions(8, 2)
    x = torch.zeros(4, 3, 8, dtype=F64)
    y = positions(x)
    along = (y[1:] != y[:-1]).flatten(0, 1).any(0), (y[:, 1:] != y[:, :-1]).flatten(0, 1).any(0)
    assert along[0].any() and along[1].any() and not (along[0] & along[1]).any()
    assert_close(y.square().sum(-1), torch.full((4, 3), 4.0, dtype=F64))      # a cosine and a sine in each plane


@pytest.mark.parametrize("make", [lambda: Rotary(3), lambda: AxialRotary(2, 2), lambda: SineCosinePositions(7, 1),
                                  lambda: LearnedPositions((3,), 4, modes=[])])
def test_wrong_settings_say_the_way_out(make):
    with pytest.raises(ValueError, match=r"(give|name|leave|mode)"):
        make()


def test_planes_that_do_not_divide_evenly_are_all_given_away():
    assert AxialRotary(14, 3).planes == {0: (0, 3), 1: (3, 2), 2: (5, 2)}
    assert SineCosinePositions(10, 2).table((3, 4)).shape == (3, 4, 10)

"""Properties of `hot_nbdev.stochastic`, against definitions written out on small maps."""
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from often import examples
from torch.testing import assert_close

from hot_nbdev import stochastic as S
from hot_nbdev.kronecker import kron, kron_sum

sizes = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
F64 = torch.float64


def random_map(n, seed=0, batch=(), sharp=1.0):
    g = torch.Generator().manual_seed(seed)
    return (sharp * torch.randn(*batch, n, n, generator=g, dtype=F64)).softmax(-1)


def test_a_row_sum_may_be_off_by_the_tolerance_and_negative_entries_and_nan_are_no_map():
    A = random_map(4, batch=(5,))
    A[1, 2, 1] += 5e-6
    A[2, 2, 1] += 2e-5
    A[3, 0, 0], A[3, 0, 1] = -1e-3, A[3, 0, 0] + A[3, 0, 1] + 1e-3
    A[4, 1, 1] = float("nan")
    assert S.is_row_stochastic(A).tolist() == [True, True, False, False, False]
    wide = random_map(4)[:3]            # rectangles of weights are row-stochastic, and no maps
    assert S.is_row_stochastic(wide) and not S.is_row_stochastic(wide.T)
    for f in (S.stationary, lambda A: S.product_projection(A, (2, 2))):
        with pytest.raises(ValueError, match=r"must be a map \(\*batch, n, n\)"):
            f(wide)


@given(st.integers(1, 6), st.integers(0, 50))
@examples(30)
def test_the_stationary_distribution_stays(n, seed):
    A = random_map(n, seed, batch=(2,))
    law = S.stationary(A)
    assert_close((law[:, None] @ A)[:, 0], law)
    assert_close(law.sum(-1), torch.ones(2, dtype=F64))


def test_two_groups_have_several_stationary_distributions():
    with pytest.raises(ValueError, match="several stationary distributions"):
        S.stationary(torch.eye(3, dtype=F64))
    with pytest.raises(ValueError, match="softmax its scores"):
        S.stationary(torch.ones(2, 2, dtype=F64))


def test_stable_rank_by_hand():
    A = torch.diag(torch.tensor([2.0, 1.0, 1.0], dtype=F64))
    assert S.stable_rank(A).item() == pytest.approx(6 / 4)
    assert S.stable_rank(torch.zeros(2, 2)).isnan()
    assert S.stable_rank(1e-30 * A).item() == pytest.approx(6 / 4)


@given(sizes, st.integers(0, 50), st.sampled_from([0.1, 1.0, 10.0]))
@examples(40)
def test_stable_ranks_lie_between_their_bounds(sizes, seed, sharp):
    maps = [random_map(n, seed + i, sharp=sharp) for i, n in enumerate(sizes)]
    for combine, joint in [("product", kron(*maps)), ("sum", kron_sum(*maps) / len(maps))]:
        low, high = S.stable_rank_bounds(sizes, combine)
        assert low - 1e-9 <= S.stable_rank(joint).item() <= high + 1e-9


def test_the_bounds_are_met():
    assert S.stable_rank_bounds((2, 3), "product") == (1.0, 6.0)
    assert S.stable_rank_bounds((2, 3), "sum") == (6 / 4, 6.0)
    uniform = [torch.full((n, n), 1 / n, dtype=F64) for n in (2, 3)]
    assert S.stable_rank(kron(*uniform)).item() == pytest.approx(1.0)
    one_key = [torch.zeros(n, n, dtype=F64).index_fill(1, torch.tensor([0]), 1.0) for n in (2, 3)]
    for n, A in zip((2, 3), one_key, strict=True):      # the least that one mode can have, and more for both together
        assert S.stable_rank(A).item() == pytest.approx(S.stable_rank_bounds((n,), "sum")[0])
    assert S.stable_rank(kron_sum(*one_key)).item() >= 6 / 4


def divergence(A, B):
    return (torch.xlogy(A, A) - A * B.log()).sum(-1).mean()


@given(sizes, st.integers(0, 50))
@examples(30)
def test_the_projection_is_the_nearest_product_and_its_gap_the_divergence(sizes, seed):
    A = random_map(prod(sizes), seed)
    factors, gap = S.product_projection(A, sizes)
    assert_close(gap, divergence(A, kron(*factors)))
    others = [random_map(n, seed + 9 + i) for i, n in enumerate(sizes)]
    assert divergence(A, kron(*others)) >= gap - 1e-12
    factors, gap = S.product_projection(kron(*others), sizes)
    for a, b in zip(factors, others, strict=True):
        assert_close(a, b)
    assert_close(gap, torch.zeros_like(gap), atol=1e-12, rtol=0)

"""Properties of `hot_nbdev.reachable`, against the span of many products of maps."""
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from often import examples
from test_stochastic import F64, random_map, sizes
from torch.testing import assert_close

from hot_nbdev import reachable as R
from hot_nbdev.kronecker import kron
from hot_nbdev.stochastic import is_row_stochastic


@given(sizes)
@examples(20)
def test_the_dimension_is_the_rank_of_many_products(sizes):
    count = R.reachable_dim(sizes)
    n = prod(sizes)
    rows = torch.stack([kron(*(random_map(N, 100 * r + i) for i, N in enumerate(sizes))).flatten()
                        for r in range(min(count, 200) + 5)])
    assert torch.linalg.matrix_rank(rows, rtol=1e-10).item() == min(count, len(rows), n * n)


@given(sizes, st.integers(0, 50))
@examples(30)
def test_the_floor_is_the_distance_to_the_span(sizes, seed):
    A = random_map(prod(sizes), seed)
    near = R.reachable_projection(A, sizes)
    assert_close(R.reachable_projection(near, sizes), near)                         # a projection
    products = torch.stack([kron(*(random_map(N, 7 * r + i) for i, N in enumerate(sizes))).flatten() for r in range(5)])
    assert_close(products @ (A - near).flatten(), torch.zeros(5, dtype=F64), atol=1e-10, rtol=0)    # orthogonal
    floor = R.reachable_floor(A, sizes)
    assert_close(floor, torch.linalg.matrix_norm(A - near))
    assert R.spectral_floor(A, sizes) <= floor + 1e-12
    assert R.spectral_floor(A, sizes) <= torch.linalg.matrix_norm(A - near, 2) + 1e-12


@given(sizes, st.integers(0, 50), st.booleans())
@examples(30)
def test_heads_add_up_to_a_reachable_map(sizes, seed, zero):
    A = R.reachable_projection(random_map(prod(sizes), seed), sizes)
    A = 0 * A if zero else A
    weights, maps = R.head_decomposition(A, sizes)
    assert_close(torch.einsum("r,rij->ij", weights, kron(*maps)), A, atol=1e-9, rtol=0)
    for M in maps:
        assert is_row_stochastic(M).all()
        assert (M > 0).all()
    rest = sorted(N * N - N + 1 for N in sizes)[:-1]
    assert len(weights) <= 1 + prod(rest)


def test_what_is_not_reachable_is_refused():
    with pytest.raises(ValueError, match=r"distance .* reachable_projection"):
        R.head_decomposition(random_map(6), (2, 3))
    with pytest.raises(ValueError, match="describe 4 positions"):
        R.reachable_projection(random_map(6), (2, 2))
    with pytest.raises(ValueError, match="one reachable map"):
        R.head_decomposition(random_map(4, batch=(2,)), (2, 2))
    with pytest.raises(ValueError, match="spectral_floor: S must be a map"):
        R.spectral_floor(random_map(4)[:2], (2, 2))

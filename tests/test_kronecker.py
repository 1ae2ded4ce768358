"""Kronecker products and sums against torch.kron, formed and applied; chapter 2 tries broadcasting and errors."""
from functools import reduce

import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import tensor
from often import examples
from torch.testing import assert_close

from hot_nbdev.kronecker import kron, kron_apply, kron_sum, kron_sum_apply

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def eye(n):
    return torch.eye(n, dtype=torch.float64)


@given(sizes, st.data())
@examples(40)
def test_product_is_torch_kron_and_sum_is_one_factor_at_a_time(sizes, data):
    mats = [tensor(data.draw(st.integers(1, 3)), n, seed=i) for i, n in enumerate(sizes)]
    assert_close(kron(*mats), reduce(torch.kron, mats))
    square = [tensor(n, n, seed=i) for i, n in enumerate(sizes)]
    want = sum(reduce(torch.kron, [A if i == m else eye(len(B)) for i, B in enumerate(square)])
               for m, A in enumerate(square))
    assert_close(kron_sum(*square), want)


@given(sizes, st.sampled_from([(), (2,), (2, 3)]), st.booleans(), st.booleans(), st.data())
@examples(40)
def test_applying_equals_the_formed_matrix(sizes, batch, own, transpose, data):
    lead, x = batch if own else (), tensor(*batch, *sizes, 5)
    rows = [data.draw(st.integers(1, 4)) for _ in sizes]
    mats = [tensor(*lead, *((n, r) if transpose else (r, n)), seed=i)
            for i, (n, r) in enumerate(zip(sizes, rows, strict=True))]
    K = kron(*mats).mT if transpose else kron(*mats)
    y = kron_apply([A.mT for A in mats] if transpose else mats, x)
    assert_close(y.flatten(-len(sizes) - 1, -2), K @ x.flatten(-len(sizes) - 1, -2))
    square = [tensor(*lead, n, n, seed=i) for i, n in enumerate(sizes)]
    K = kron_sum(*square).mT if transpose else kron_sum(*square)
    y = kron_sum_apply([A.mT for A in square] if transpose else square, x)
    assert_close(y.flatten(-len(sizes) - 1, -2), K @ x.flatten(-len(sizes) - 1, -2))

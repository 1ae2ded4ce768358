"""Kronecker products and sums against torch.kron, formed and applied."""
from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import tensor
from often import examples
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from hot_nbdev.kronecker import kron, kron_apply, kron_sum, kron_sum_apply

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def eye(n):
    return torch.eye(n, dtype=torch.float64)


@given(sizes, st.data())
@examples(60)
def test_product_is_torch_kron_and_sum_is_one_factor_at_a_time(sizes, data):
    mats = [tensor(data.draw(st.integers(1, 3)), n, seed=i) for i, n in enumerate(sizes)]
    assert_close(kron(*mats), reduce(torch.kron, mats))
    square = [tensor(n, n, seed=i) for i, n in enumerate(sizes)]
    want = sum(reduce(torch.kron, [A if i == m else eye(len(B)) for i, B in enumerate(square)])
               for m, A in enumerate(square))
    assert_close(kron_sum(*square), want)


@given(sizes, st.sampled_from([(), (2,), (2, 3)]), st.booleans(), st.booleans(), st.data())
@examples(60)
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


def test_batches_of_factors_and_tensor_broadcast_and_may_be_empty():
    A, B, x = tensor(3, 2, 4), tensor(2, 5, seed=2), tensor(7, 1, 4, 5, 6)
    y = kron_apply([A, B], x)
    assert y.shape == (7, 3, 2, 2, 6)
    assert_close(y[4, 1], kron_apply([A[1], B], x[4, 0]))
    A, B = tensor(5, 2, 3, 3), tensor(2, 4, 4, seed=1)
    assert_close(kron(A, B)[3, 1], torch.kron(A[3, 1], B[1]))
    assert_close(kron_sum(A, B)[3, 1], torch.kron(A[3, 1], eye(4)) + torch.kron(eye(3), B[1]))
    assert kron(A[:0], B).shape == kron_sum(A[:0], B).shape == (0, 2, 12, 12)
    assert kron_apply([A[:0], B], tensor(2, 3, 4, 6)).shape == (0, 2, 3, 4, 6)


def test_the_cheapest_mode_is_multiplied_first():
    mats, x = [torch.empty(9, 3, device="meta"), torch.empty(1, 8, device="meta")], torch.empty(3, 8, 1, device="meta")
    with FlopCounterMode(display=False) as counter:
        kron_apply(mats, x)
    assert counter.get_total_flops() == 2 * (3 * 8 + 9 * 3)


def test_errors_say_what_would_fit():
    wanted = r"kron_apply: factors \[\(4, 2\)\] need x of shape \(\*batch, 2, d\), but x is \(4, 3\); A.mT"
    with pytest.raises(ValueError, match=wanted):
        kron_apply([torch.ones(4, 2)], torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"kron_sum_apply: needs square matrices .* got \[\(4, 2\)\]"):
        kron_sum_apply([torch.ones(4, 2)], torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="broadcast"):
        kron_apply([torch.ones(3, 2, 2)], torch.ones(2, 2, 1))

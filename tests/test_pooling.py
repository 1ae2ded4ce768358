"""Pooling against sums that are written out position by position."""
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import tensor
from often import examples
from torch.testing import assert_close

from hot_nbdev.pooling import pooling_additions, pooling_factors, slice_means, slice_sums

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(sizes, st.data())
@examples(40)
def test_means_and_counts_are_those_of_the_definition(sizes, data):
    "With masks and causal modes: a wrong axis, a prefix off by one, a padded position counted all show."
    k = len(sizes)
    causal = tuple(m for m in range(k) if data.draw(st.booleans()))
    x, mask = tensor(2, *sizes, 3), torch.rand(2, *sizes, generator=torch.Generator().manual_seed(k)) < 0.6
    means, counts = slice_means(x.masked_fill(~mask[..., None], 0), mask, causal)
    for m in range(k):
        others = [c for c in causal if c != m]
        for b, *at, p in itertools.product(*map(range, means[m].shape[:-1])):
            inside = [x[(b, *j)] for j in itertools.product(*map(range, sizes)) if j[m] == p and mask[(b, *j)]
                      and all(j[c] <= i for c, i in zip(others, at, strict=True))]
            assert counts[m][(b, *at, p)].item() == len(inside)
            want = sum(inside) / max(len(inside), 1) if inside else torch.zeros(3, dtype=x.dtype)
            assert_close(means[m][(b, *at, p)], want)


def test_half_precision_is_summed_in_float32():
    x = torch.full((1, 2, 50, 50, 1), 100.0, dtype=torch.float16)
    assert slice_sums(x)[0].max() == 250_000 and slice_means(x)[0][0].dtype == torch.float16


def test_factors_are_powers_of_the_count_and_one_for_nothing():
    assert pooling_factors([9, 4], "sum") == [9, 4] and pooling_factors([9, 4], "rsqrt") == [3, 2]
    assert pooling_factors([9, 4], "mean") == [1, 1]
    assert pooling_factors([torch.tensor([0.0, 4.0])], "rsqrt")[0].tolist() == [1, 2]
    with pytest.raises(ValueError, match="pool is 'max'"):
        pooling_factors([1], "max")


@given(sizes, st.data())
@examples(40)
def test_additions_are_those_that_a_recorder_sees(sizes, data):
    from hot_nbdev.cost import count
    causal = tuple(m for m in range(len(sizes)) if data.draw(st.booleans()))
    work = count(lambda x: slice_sums(x, causal), torch.zeros(1, *sizes, 3))
    assert work.additions == 3 * pooling_additions(sizes, causal)


def test_counts_without_a_mask_are_those_of_the_sizes():
    x = tensor(2, 3, 4, 5, 2)
    means, counts = slice_means(x)
    assert counts == [20, 15, 12]
    for m, axes in enumerate([(2, 3), (1, 3), (1, 2)]):
        assert_close(means[m], x.mean(axes))


def test_sums_are_float32_at_least():
    "Also with one mode, where nothing is summed, and in a causal mode."
    for sizes, causal in [((3,), ()), ((3, 4), ()), ((3, 4), (0,)), ((3,), (0,))]:
        assert all(s.dtype == torch.float32 for s in slice_sums(torch.ones(1, *sizes, 2, dtype=torch.float16), causal))

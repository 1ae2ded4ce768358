"""Pooling against sums that are written out position by position."""
import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import tensor
from often import examples
from torch.testing import assert_close

from hot_nbdev.kronecker_attention import pool, prefix_sums

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(sizes, st.data())
@examples(25)
def test_means_and_counts_are_those_of_the_definition(sizes, data):
    "With masks, or none, and causal modes: a wrong axis, a prefix off by one, a padded position counted all show."
    k = len(sizes)
    causal = tuple(m for m in range(k) if data.draw(st.booleans()))
    x, hidden = tensor(2, *sizes, 3), data.draw(st.booleans())
    mask = torch.rand(2, *sizes, generator=torch.Generator().manual_seed(k)) < (0.6 if hidden else 2)
    means, counts = pool(x.masked_fill(~mask[..., None], 0), mask if hidden else None, causal)
    counts = [torch.as_tensor(n).expand(*t.shape[:-1], 1) for n, t in zip(counts, means, strict=True)]
    for m in range(k):
        others = [c for c in causal if c != m]
        for b, *at, p in itertools.product(*map(range, means[m].shape[:-1])):
            inside = [x[(b, *j)] for j in itertools.product(*map(range, sizes)) if j[m] == p and mask[(b, *j)]
                      and all(j[c] <= i for c, i in zip(others, at, strict=True))]
            assert counts[m][(b, *at, p)].item() == len(inside)
            want = sum(inside) / max(len(inside), 1) if inside else torch.zeros(3, dtype=x.dtype)
            assert_close(means[m][(b, *at, p)], want)


def test_half_precision_is_summed_in_float32():
    "Also with one mode, where nothing is summed, and in a causal mode."
    x = torch.full((1, 2, 50, 50, 1), 100.0, dtype=torch.float16)
    assert prefix_sums(x, ())[0].max() == 250_000 and pool(x)[0][0].dtype == torch.float16
    assert pool(x)[0][0].max() == 100 and pool(x, causal=(0,))[0][0].max() == 100
    for sizes, causal in [((3,), ()), ((3, 4), ()), ((3, 4), (0,)), ((3,), (0,))]:
        assert all(s.dtype == torch.float32 for s in prefix_sums(torch.ones(1, *sizes, 2, dtype=torch.float16), causal))


def test_three_modes_are_pooled_with_two_readings_in_place_of_three():
    from hot_nbdev.cost import count
    x = torch.zeros(1, 28, 28, 28, 3)
    plain = count(lambda t: [t.sum(axes) for axes in ((2, 3), (1, 3), (1, 2))], x)
    assert count(pool, x).additions < 2.1 * x.numel() < 0.8 * plain.additions


def test_empty_slices_and_empty_batches_are_pooled():
    x, mask = tensor(2, 3, 4, 5), torch.zeros(2, 3, 4, dtype=torch.bool)
    means, counts = pool(x * 0, mask)
    assert not means[0].any() and not counts[0].any()
    assert [t.shape for t in pool(x[:0])[0]] == [(0, 3, 5), (0, 4, 5)]
    assert [t.shape for t in pool(x[:, :, :0])[0]] == [(2, 3, 5), (2, 0, 5)]

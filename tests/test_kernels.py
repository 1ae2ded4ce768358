"""What chapter 9 does not try: the past under loud input, scales, widths, layers with each kernel."""
from functools import partial
from math import prod

import pytest
import torch
from layers import DIM, HEADS, Full, by_map, random_mask, tensor
from torch.testing import assert_close

from hot_nbdev.attention import FullAttention, Seen
from hot_nbdev.kernels import (
    KernelMap,
    PositiveRandomFeatures,
    draw_directions,
    elu_features,
    log_linear_attention,
    running_sums,
)

BOTH = pytest.mark.parametrize("phi", [elu_features, PositiveRandomFeatures(4, 6, dtype=torch.float64)],
                               ids=["elu", "random"])


@pytest.mark.parametrize("causal", [(0,), (1,), (0, 1)])
def test_loud_causal_kernels_are_those_of_exact_arithmetic(causal):
    torch.manual_seed(0)
    make = partial(Full, DIM, HEADS, 2, kernel=PositiveRandomFeatures(DIM // HEADS, 6), causal=causal)
    low, high, x = make(), make().double(), 5 * torch.randn(6, 5, DIM)
    high.load_state_dict(low.state_dict())
    assert_close(low(x).double(), high(x.double()), rtol=1e-3, atol=1e-3)
    s, top = tensor(7, 2).exp(), 300 * tensor(7, 2, seed=2)         # sums carry any scale
    for axis in (0, -2):
        sums, scale = running_sums(s, top, axis)
        assert_close(sums.log() + scale, (s.log() + top).logcumsumexp(0))


def test_where_nothing_may_be_seen_the_result_is_zero():
    a, b, v = tensor(3, 2, 4), tensor(3, 2, 4, seed=2), tensor(3, 2, 5, seed=3)
    b[0] = -torch.inf
    y = log_linear_attention(a, b, v, causal=1)
    assert not y[0].any() and y[1:].isfinite().all() and y[1:].any()
    nobody = torch.zeros(1, 6, dtype=torch.bool)
    for seen in (Seen((6,), nobody, (0,)), Seen((6,), nobody)):
        q, k, v = tensor(3, 1, 2, 6, 4)
        for phi in (elu_features, PositiveRandomFeatures(4, 5)):
            assert not KernelMap(phi).attend(q, k, v, seen).any()


def test_features_may_be_zero_for_a_key_or_for_all():
    layer = FullAttention(DIM, HEADS, 1, weigh=KernelMap(torch.square)).double()
    x, mask = tensor(5, DIM), random_mask(5)
    assert_close(layer(x, mask), by_map(layer, x, mask))
    with torch.no_grad():
        layer.to_k.weight[:DIM // HEADS], layer.to_k.bias[:DIM // HEADS] = 0.0, 0.0
    for own in (None, mask):
        S = layer.dense_map(x, own)
        assert not S[0].any() and layer(x, own).isfinite().all()


def test_directions_have_their_lengths_and_with_one_feature_both_signs():
    W = draw_directions(5, 3, regularized=True)
    assert_close(W[:3] @ W[:3].T, 3 * torch.eye(3, dtype=W.dtype))
    assert_close(W.norm(dim=-1), torch.full((5,), 3 ** 0.5, dtype=W.dtype))
    lengths = draw_directions(4000, 4).norm(dim=-1).square()        # chi-square with four degrees of freedom
    assert abs(lengths.mean() - 4) < 0.2 and abs(lengths.var() - 8) < 1
    assert 16 < (draw_directions(64, 1) > 0).sum() < 48             # of an orthogonal matrix the sign is drawn too


@BOTH
@pytest.mark.parametrize("sizes, causal", [((6,), ()), ((6,), (0,)), ((3, 4), (0,)), ((3, 4), (1,)), ((3, 4), (0, 1)),
                                           ((2, 3, 2), (0, 2)), ((2, 3, 2), (1,))])
def test_what_is_applied_without_a_map_is_the_definition(phi, sizes, causal):
    "Sums over what is seen, in float64 and without any scale; a layer's dense map would go the same way as its output."
    n, weigh = prod(sizes), KernelMap(phi)
    q, k, v = tensor(3, 2, 2, n, 4)
    for keys in (None, random_mask(2, *sizes)):
        seen = Seen(sizes, keys, causal)
        near = torch.ones(n, n, dtype=torch.bool) if seen.dense() is None else seen.dense()
        a, b = weigh.scaled(q, k)
        weights = phi(a) @ phi(b).mT * near
        want = (weights @ v / weights.sum(-1, keepdim=True)).nan_to_num(0.0)
        assert_close(weigh.attend(q, k, v, seen), want)

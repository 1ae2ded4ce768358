"""Windows, biases and dropout of single modes, beyond what the contracts of layers.py hold all layers to.

Streams with a window are forked, restarted and saved in test_streams.py."""
import itertools
from functools import partial

import pytest
import torch
from layers import DIM, HEADS, KERNELS, SPANS, Axial, K, made, plus, random_mask, stepped, tensor
from torch.testing import assert_close

from hot_nbdev.attention import softmax_map
from hot_nbdev.kernels import KernelMap
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.near import ModeDropout, Near, alibi_slopes, window
from hot_nbdev.streams import steps


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [K, Axial])
def test_with_a_window_the_state_grows_to_the_window_and_no_further(kind, kernel):
    for size, dilation in [(2, 1), (2, 3), (0, 1)]:
        layer = made(kind, 2, kernel, causal=(0,), by_mode={0: dict(window=size, dilation=dilation)})
        state, found, frames, seen = None, set(), size * dilation, 0
        for t in range(9):
            _, state = steps(layer, tensor(2, 1 + t % 3, 3, DIM, seed=t), state)
            seen += 1 + t % 3
            tensors = (state if kind is K else state.inner[0]).tensors
            assert tensors["values"].shape[-3] == min(seen, frames)
            if seen > frames:
                found.add(state.nbytes)
                stored = tensors["values"].untyped_storage().nbytes()
                assert stored == tensors["values"].nbytes                     # and no longer tensor hides behind it
        assert len(found) == 1
        if kind is K:
            numbers = sum(t[0].numel() for n, t in tensors.items() if n != "age")
            assert numbers == frames * (DIM + 3 * DIM) + 3 * (DIM + 1)    # keys, values; sums and counts


def test_a_bias_handed_in_gets_true_positions():
    asked = []

    def bias(score, b, h, i, j):
        asked.append((i.flatten().tolist(), j.flatten().tolist()))
        return score - 0.1 * (i * i - 3 * j).abs()
    weigh = [Near(partial(window, size=3), bias), softmax_map]
    layer, x = made(KroneckerAttention, causal=(0,), weigh=weigh), tensor(2, 7, 3, DIM)
    y, _ = stepped(layer, x, None, 0, (5, 2))
    assert asked[-1] == ([5, 6], [0, 1, 2, 3, 4, 5, 6])      # all keys stay, so that places count from the first
    assert_close(y, layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("combine", ["product", "sum"])
@pytest.mark.parametrize("masked", [False, True])
def test_mode_dropout_puts_the_identity_in_place_of_maps(combine, masked):
    layer = made(K, combine=combine, causal=(1,), by_mode={0: dict(dropout=0.4), 1: dict(dropout=0.2, window=2)})
    x, mask = tensor(300, 3, 5, DIM), random_mask(300, 3, 5) if masked else None
    calm, again = layer.maps(x, mask), layer(x, mask)
    layer.train()
    for m, (S, T) in enumerate(zip(layer.maps(x, mask), calm, strict=True)):
        eye = torch.eye(S.shape[-1], dtype=S.dtype) * (T.sum(-1, keepdim=True) > 0)
        same = [((S - other).abs() < 1e-12).flatten(1).all(1) for other in (eye, T)]    # with a mask there is a share
        assert (same[0] | same[1]).all()
        share = (same[0] & ~same[1]).float().mean()
        assert (share - [0.4, 0.2][m]).abs() < 0.08, share
        assert_close(S.sum(-1), T.sum(-1), rtol=0, atol=1e-12)
    y = layer(x, mask)
    assert not torch.equal(y, again) and y.isfinite().all()
    assert torch.equal(layer.eval()(x, mask), again)


def test_mode_dropout_of_an_axis_draws_once_for_a_slice_and_leaves_rows_empty_that_see_nothing():
    for kernel in ({}, dict(kernel=plus)):
        layer = made(partial(Axial, **kernel), groups=[0], by_mode={0: dict(dropout=0.5)}).train()
        x, mask = tensor(40, 3, 4, DIM), random_mask(40, 3, 4)
        [S] = layer.maps(x, mask)                                        # (40, heads, 4, 3, 3)
        rows = mask.movedim(2, 1)[:, None, :, :, None]
        alone = (S == torch.eye(3, dtype=S.dtype) * rows).flatten(3).all(3)
        some = (rows.sum(3).flatten(2) > 1).expand(alone.shape)          # else both maps are the same
        assert torch.equal(alone[:, :1].expand(alone.shape)[some], alone[some])         # alike in all heads
        assert 0.3 < alone[some].double().mean() < 0.7
        assert_close(S.sum(-1), rows.squeeze(-1).expand(S.shape[:-1]).double())


def test_no_nan_where_a_window_holds_nothing_that_takes_part():
    for kind, own in itertools.product([K, Axial], SPANS):
        layer = made(kind, by_mode={0: own, 1: dict(window=0)}).float()
        x = torch.randn(2, 9, 3, DIM, requires_grad=True)
        mask = torch.zeros(2, 9, 3, dtype=torch.bool)
        mask[0, 4, 1] = True                                             # nobody else is near, and nobody in sample 1
        y = layer(x, mask)
        assert_close(y[0, 4, 1], layer.to_out(layer.to_v(x[0, 4, 1])))   # it sees itself
        y.square().sum().backward()
        assert y.isfinite().all() and x.grad.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
        T = layer.dense_map(x, mask)
        assert T[0, :, 13].sum() == HEADS and T.sum() == HEADS


def test_large_biases_do_not_overflow_a_kernel():
    kind, x = partial(K, kernel=plus), torch.randn(2, 6, DIM)
    layer, bare = made(kind, 1, by_mode={0: dict(bias="learned", reach=3)}).float(), made(kind, 1).float()
    torch.nn.init.constant_(layer.weigh[0].score_mod.table, 500.0)
    assert_close(layer(x), bare(x))                                      # the same number everywhere changes nothing
    ahead = Near(None, lambda score, b, h, i, j: score + 300.0 * (j - i), KernelMap(plus))       # most of what is later
    S, = made(KroneckerAttention, 1, causal=(0,), weigh=ahead).maps(x.double())
    assert_close(S.sum(-1), torch.ones_like(S[..., 0]))


def test_slopes_are_those_of_alibi():
    def published(n):
        if n & (n - 1) == 0:
            return [2 ** (-8 / n) ** 1 * 2 ** (-8 / n * i) for i in range(n)]
        low = 2 ** (n.bit_length() - 1)
        return published(low) + published(2 * low)[::2][:n - low]
    for n in range(1, 33):
        assert_close(alibi_slopes(n), torch.tensor(published(n)))


def test_what_cannot_be_a_window_or_a_chance_is_refused():
    "Beside those of chapter 24."
    q = tensor(1, 1, 3, 4)
    with pytest.raises(ValueError, match="window: size is 2 and dilation 0; give"):
        Near(partial(window, size=2, dilation=0))(q, q)
    with pytest.raises(ValueError, match="ModeDropout: chance is -0.1, but must be"):
        ModeDropout(-0.1)

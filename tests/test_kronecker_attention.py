"""Kronecker attention: what each test is named after went wrong once, or would go unseen."""
from functools import partial

import pytest
import torch
from layers import DIM, F64, HEADS, K, random_mask, since, tensor, told
from slow import slow_kronecker, slow_share
from torch import nn
from torch.testing import assert_close

from hot_nbdev import variants
from hot_nbdev.cost import count
from hot_nbdev.kronecker_attention import KroneckerAttention, floor_share, masked, mean, product
from hot_nbdev.train.loop import decay_groups
from hot_nbdev.variants import Activated, Centred, LateBias, OwnMatrices, Pooled, Tempered, combined

hot1, hot2, hot2_text = variants.hot1, variants.hot2, variants.hot2_text
Own = combined(OwnMatrices, KroneckerAttention)


@pytest.mark.parametrize("sizes, causal, hidden, forward, training", [
    ((4, 5), (), False, 17, 53), ((4, 5, 6), (), False, 22, 67), ((5, 5, 5), (), False, 18, 53),
    ((4, 5), (), True, 32, 100), pytest.param((4, 5, 6), (), True, 40, 125, marks=since("2.10")),
    ((5, 5, 5), (), True, 30, 88),
    ((4, 5), (0,), False, 23, 60), ((4, 5, 6), (0,), False, 29, 75), ((4, 5, 6), (0,), True, 52, 133)])
def test_no_more_kernels_are_launched_than_promised(sizes, causal, hidden, forward, training):
    layer, x = KroneckerAttention(DIM, HEADS, len(sizes), causal=causal), torch.randn(2, *sizes, DIM)
    mask = torch.rand(2, *sizes) < 0.7 if hidden else None
    with torch.no_grad():
        assert count(layer, x, mask).kernels <= forward
    assert count(lambda x: layer(x, mask).sum().backward(), x).kernels <= training


def valid(layer, x, mask, near):
    "All rows of positions that take part sum to one, and others to nothing."
    rows = layer.dense_map(x, mask).sum(-1)
    assert_close(rows.float(), mask.flatten(1)[:, None].expand(rows.shape).float(), rtol=0, atol=near)


@pytest.mark.parametrize("make", [
    partial(hot1, DIM, HEADS), partial(hot2, DIM, HEADS, combine=mean)], ids=["hot1", "hot2 sum"])
@pytest.mark.parametrize("scale", [30, 100])
def test_rows_of_ragged_masks_sum_to_one_and_gradients_are_finite_at_input_scale_100(make, scale):
    for seed in range(15):
        torch.manual_seed(seed)
        layer, x, mask = make(2), scale * torch.randn(2, 8, 8, DIM), torch.rand(2, 8, 8) < 0.5
        valid(layer, x.requires_grad_(), mask, 1e-5)
        grads = torch.autograd.grad(layer(x, mask).square().sum(), [x, *layer.parameters()])
        assert all(g.isfinite().all() for g in grads)


def test_four_modes_and_half_precision_keep_every_valid_row():
    torch.manual_seed(0)
    layer, x, mask = hot1(DIM, HEADS, 4), 100 * torch.randn(1, 3, 4, 3, 4, DIM), random_mask(1, 3, 4, 3, 4)
    valid(layer, x, mask, 1e-5)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert layer(x, mask).isfinite().all()
            valid(layer, x, mask, 1e-2)


@pytest.mark.parametrize("combine", ["product", "sum"])
def test_the_share_is_that_of_the_definition(combine):
    "In float32, with maps so sharp that the share decides some rows, against the slow loop with this share."
    torch.manual_seed(1)
    make = partial(K, DIM, HEADS, 2, combine=combine, pool="sum", qk_norm=False)
    layer, x, mask = make(), 6 * torch.randn(5, 5, DIM), random_mask(5, 5)
    found = layer.dense_map(x, mask)
    known = told(layer.double(), make, 2)
    share = slow_share(known, torch.float32)
    assert share == floor_share(torch.float32, 2) == 2 ** -23
    want, without = (slow_kronecker(known, x.double(), mask, share=s) for s in (share, 1e-30))
    assert_close(found.double(), want, rtol=0, atol=5e-3)
    assert combine == "sum" or (want - without).abs().max() > 0.05


def test_project_after_is_refused_where_it_changes_nothing():
    for options in (dict(pool="mean"), dict(pool="sum", bias=False), dict(pool="sum", qk_norm=True)):
        with pytest.raises(ValueError, match="project='after' differs from 'before'"):
            K(DIM, HEADS, 2, project="after", **{"qk_norm": False, **options})
    assert not isinstance(hot2_text(DIM, HEADS, 2, bias=False), LateBias)


def test_a_late_bias_changes_nothing_where_there_is_none():
    pooled, late = (combined(*p, KroneckerAttention)(DIM, HEADS, 2, bias=False) for p in ([Pooled], [Pooled, LateBias]))
    late.load_state_dict(pooled.state_dict())
    x = torch.randn(2, 3, 4, DIM)
    assert torch.equal(late(x), pooled(x))


@pytest.mark.parametrize("causal", [(), (1,), (0, 1)])
def test_rows_of_slices_that_hold_nothing_are_zero(causal):
    "And so are their columns, also for whom they are earlier."
    layer, x, mask = KroneckerAttention(DIM, HEADS, 2, causal=causal), tensor(3, 4, DIM), torch.ones(3, 4).bool()
    layer, (mask[1], mask[:, 2]) = layer.double(), (False, False)
    for S, empty in zip(layer.maps(x, mask), (1, 2), strict=True):
        assert_close(S.sum(-1), (torch.arange(S.shape[-1]) != empty).double().expand(S.shape[:-1]))
        assert not S[..., empty, :].any() and not S[..., empty].any()


def test_dropped_maps_are_divided_by_what_the_whole_ones_leave_and_a_map_without_weight_gives_zero():
    A, B, v = tensor(1, 1, 3, 3).softmax(-1), tensor(1, 1, 4, 4, seed=2).softmax(-1), tensor(1, 1, 3, 4, 2, seed=3)
    mask, C = random_mask(1, 3, 4), 2 * A * (tensor(3, 3, seed=4) > 0)
    ones = mask[:, None].double()
    want = torch.einsum("zhij,zhkl,zhjlf->zhikf", C, B, v * ones[..., None])
    want = want / torch.einsum("zhij,zhkl,zhjl->zhik", A, B, ones)[..., None] * ones[..., None]
    assert_close(masked(product, [C, B], v, mask, mask, (), [A, B]), want)
    A[..., 1, :], mask = 0, torch.ones_like(mask)
    y = masked(product, [A, B], v, mask, mask, (), [A, B])
    assert not y[:, :, 1].any() and y[:, :, [0, 2]].all()


@pytest.mark.parametrize("options", [dict(norm=nn.Identity), {}, dict(bias=False)], ids=str)
def test_a_layer_draws_what_its_linear_layers_draw_and_a_new_temperature_has_no_effect(options):
    torch.manual_seed(3)
    layer, after = KroneckerAttention(DIM, HEADS, 2, gain=1, **options), torch.rand(1)
    torch.manual_seed(3)
    drawn = [nn.Linear(DIM, DIM, options.get("bias", True)).weight for _ in range(4)]
    assert torch.equal(torch.rand(1), after)
    for f, w in zip((layer.to_q, layer.to_k, layer.to_v, layer.to_out), drawn, strict=True):
        assert torch.equal(f.weight, w)
    x = torch.randn(2, 3, 4, DIM)
    warm = combined(Tempered, KroneckerAttention)(DIM, HEADS, 2, **options)
    warm.load_state_dict({**layer.state_dict(), "logit_scale": torch.zeros(2)})
    assert torch.equal(warm(x), layer(x))


@pytest.mark.parametrize("kind", [KroneckerAttention, Own])
def test_the_gain_multiplies_matrices_of_queries_and_keys_alone(kind):
    layers = []
    for gain in (1, 4):
        torch.manual_seed(0)
        layers.append(kind(DIM, HEADS, 2, gain=gain))
    for (name, p), q in zip(layers[0].named_parameters(), layers[1].parameters(), strict=True):
        assert torch.equal(q, 4 * p if name.startswith(("to_q", "to_k")) and p.ndim == 2 else p)


def test_where_nothing_is_said_there_is_a_norm_and_a_gain():
    "As the study of defaults decided; by name there is no gain without the norm, and the presets have none."
    torch.manual_seed(0)
    layer = KroneckerAttention(DIM, HEADS, 2)
    assert layer.combine is product and isinstance(layer.norm_k, nn.LayerNorm)
    for other, factor in ((partial(KroneckerAttention, gain=1), 4), (partial(K, qk_norm=False), 4), (K, 1)):
        torch.manual_seed(0)
        assert torch.equal(layer.to_q.weight, factor * other(DIM, HEADS, 2).to_q.weight)
    for preset in (hot1, hot2, hot2_text):
        weights = [p for n, p in preset(DIM, HEADS, 2).named_parameters() if n.startswith("to_")]
        assert all(p.abs().max() <= DIM ** -0.5 for p in weights)


def test_one_slice_and_none_have_no_mean_to_take_off():
    layer, x = K(DIM, HEADS, 3, qk_center=True).double(), tensor(3, 4, 2, DIM)
    assert layer(x[:, :0]).shape == (3, 0, 2, DIM)
    assert torch.equal(layer.maps(x[:1])[0], torch.ones(HEADS, 1, 1, dtype=F64))


def test_the_temperature_is_learned_and_does_not_decay():
    layer = combined(Tempered, Pooled, KroneckerAttention)(DIM, HEADS, 2, power=0.5, norm=nn.Identity)
    layer(torch.randn(2, 3, 4, DIM)).square().sum().backward()
    assert layer.logit_scale.grad.abs().min() > 0
    assert any(p is layer.logit_scale for p in decay_groups(layer, 0.1)[1]["params"])


def test_with_a_mask_no_weight_leaves_the_window():
    "The share that a mask takes is spread within the window as well."
    torch.manual_seed(0)
    layer, x, mask = K(DIM, HEADS, 2, by_mode={0: dict(window=1)}), torch.randn(5, 4, DIM), random_mask(5, 4)
    at = torch.arange(5).repeat_interleave(4)
    far = (at[:, None] - at).abs() > 1
    assert not layer.dense_map(x, mask)[:, far].any() and layer.dense_map(x, mask)[:, ~far].any()


@pytest.mark.parametrize("parts, works", [
    ((Tempered, Activated, Pooled, Centred, LateBias, OwnMatrices), True), ((Activated, Pooled, OwnMatrices), True),
    ((Pooled, OwnMatrices, Centred), False), ((OwnMatrices, Pooled), False), ((OwnMatrices, Activated), False),
    ((Pooled, Activated, Centred), False)])
def test_no_part_is_skipped_without_a_word(parts, works):
    if works:
        layer = combined(*parts, KroneckerAttention)
        assert [p for p in layer.__mro__ if p in parts] == list(parts)
    else:
        with pytest.raises(ValueError, match=r"combined: \w+ would hide \w+ behind it; put parts .* side by side"):
            combined(*parts, KroneckerAttention)

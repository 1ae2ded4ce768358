"""Kronecker attention: what each test is named after went wrong once, or would go unseen."""
import warnings

import pytest
import torch
from layers import DIM, F64, HEADS, random_mask, tensor
from slow import slow_kronecker, slow_share
from torch.testing import assert_close

from hot_nbdev.attention import kernel_map
from hot_nbdev.kronecker_attention import KroneckerAttention, apply_masked, floor_share, kernel_factors

PRESETS = pytest.mark.parametrize("make", [
    lambda **o: KroneckerAttention.hot1(DIM, HEADS, 2, **o),
    lambda **o: KroneckerAttention.hot2(DIM, HEADS, 2, combine="sum", **o)], ids=["hot1", "hot2 sum"])


@PRESETS
def test_rows_of_ragged_masks_sum_to_one_at_input_scale_100(make):
    for seed in range(30):
        torch.manual_seed(seed)
        layer, x, mask = make(), 100 * torch.randn(2, 8, 8, DIM), torch.rand(2, 8, 8) < 0.5
        rows = layer.dense_map(x, mask).sum(-1)
        assert_close(rows, mask.flatten(1)[:, None].expand(rows.shape).float(), rtol=0, atol=1e-5)


@PRESETS
@pytest.mark.parametrize("scale", [20, 30, 100])
def test_gradients_of_ragged_masks_are_finite(make, scale):
    for seed in range(20):
        torch.manual_seed(seed)
        layer, x, mask = make(), scale * torch.randn(2, 8, 8, DIM), torch.rand(2, 8, 8) < 0.5
        x.requires_grad_()
        grads = torch.autograd.grad(layer(x, mask).square().sum(), [x, *layer.parameters()])
        assert all(g.isfinite().all() for g in grads)


def test_four_modes_and_half_precision_keep_every_valid_row():
    torch.manual_seed(0)
    layer = KroneckerAttention.hot1(DIM, HEADS, 4)
    x, mask = 100 * torch.randn(1, 3, 4, 3, 4, DIM), random_mask(1, 3, 4, 3, 4)
    rows = layer.dense_map(x, mask).sum(-1)
    assert_close(rows, mask.flatten(1)[:, None].expand(rows.shape).float(), rtol=0, atol=1e-5)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            rows = layer.dense_map(x, mask).sum(-1)
            assert layer(x, mask).isfinite().all()
        assert_close(rows.float(), mask.flatten(1)[:, None].expand(rows.shape).float(), rtol=0, atol=1e-2)


@pytest.mark.parametrize("combine", ["product", "sum"])
def test_the_share_is_that_of_the_definition(combine):
    "In float32, with maps so sharp that the share decides some rows, against the slow loop with this share."
    torch.manual_seed(1)
    layer = KroneckerAttention(DIM, HEADS, 2, combine=combine, pool="sum")
    x, mask = 6 * torch.randn(5, 5, DIM), random_mask(5, 5)
    found = layer.dense_map(x, mask)
    layer.double()
    share = slow_share(layer, torch.float32)
    assert share == floor_share(torch.float32, 2, combine) == 2 ** -23
    want, without = (slow_kronecker(layer, x.double(), mask, s) for s in (share, 1e-30))
    assert_close(found.double(), want, rtol=0, atol=5e-3)
    assert combine == "sum" or (want - without).abs().max() > 0.05


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_a_mask_that_is_true_everywhere_changes_nothing(order):
    layer = KroneckerAttention(DIM, HEADS, order, dtype=torch.float32)
    x = tensor(2, *(3, 2, 4, 2)[:order], DIM, dtype=torch.float32)
    assert_close(layer(x, torch.ones(x.shape[:-1], dtype=torch.bool)), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_hooks_see_every_submodule_with_and_without_gradients(grad, shared):
    layer, seen = KroneckerAttention(DIM, HEADS, 2, shared=shared, qk_norm=True), []
    for name, module in layer.named_modules():
        if name and not isinstance(module, torch.nn.ModuleList):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    with torch.set_grad_enabled(grad):
        layer(torch.randn(1, 3, 4, DIM))
    names = {n for n, m in layer.named_modules() if n and not isinstance(m, torch.nn.ModuleList)}
    assert set(seen) == names


def test_a_module_put_in_place_of_to_v_is_called_without_gradients():
    layer, x = KroneckerAttention(DIM, HEADS, 2), torch.randn(1, 3, 4, DIM)
    with torch.no_grad():
        before = layer(x)
        layer.to_v.forward = lambda t: torch.zeros_like(t)
        assert not torch.equal(layer(x), before)


@pytest.mark.parametrize("combine", ["product", "sum"])
@pytest.mark.parametrize("causal", [(), (0,)])
def test_maps_lie_in_ordinary_memory_order(combine, causal):
    layer, x = KroneckerAttention(DIM, HEADS, 2, combine=combine, causal=causal), torch.randn(2, 7, 7, DIM)
    maps = [*layer.maps(x), *layer.maps(x, random_mask(2, 7, 7)), *layer(x, return_maps=True)[1]]
    for S in [*maps, layer.dense_map(x)]:
        assert S.is_contiguous()
    torch.kron(layer.maps(x)[0].flatten(0, -3)[0], torch.eye(3))


@pytest.mark.parametrize("options", [{}, dict(combine="sum"), dict(causal=(0,)), dict(shared=False)])
def test_exports_with_a_dynamic_batch(options):
    layer, x = KroneckerAttention(DIM, HEADS, 2, **options).eval(), torch.randn(3, 4, 5, DIM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = torch.export.Dim("batch", min=2)
        program = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},)).module()
    for n in (2, 6):
        y = torch.randn(n, 4, 5, DIM)
        assert_close(program(y), layer(y))


def test_project_after_is_refused_where_it_changes_nothing():
    for options in (dict(pool="mean"), dict(pool="sum", bias=False)):
        with pytest.raises(ValueError, match="project='after' is the same function"):
            KroneckerAttention(DIM, HEADS, 2, project="after", **options)
    assert KroneckerAttention.hot2(DIM, HEADS, 2, bias=False).project == "before"


def test_the_repr_shows_every_setting():
    layer = KroneckerAttention(DIM, HEADS, 2, qk_norm=True, kernel=torch.relu, dropout=0.1, causal=(1,))
    for text in ("qk_norm=True", "kernel=relu", "dropout=0.1", "causal=(1,)", "rotary=None", "bias=True",
                 "project='before'"):
        assert text in repr(layer)


def test_order_has_no_default_and_causal_is_a_sequence():
    with pytest.raises(ValueError, match="order is None"):
        KroneckerAttention(DIM, HEADS)
    with pytest.raises(ValueError, match=r"write causal=\(0,\)"):
        KroneckerAttention(DIM, HEADS, 2, causal=0)


def test_qk_norm_makes_the_poolings_one_before_and_not_after():
    def layer(pool, project):
        torch.manual_seed(0)
        return KroneckerAttention(DIM, HEADS, 2, pool=pool, project=project, qk_norm=True, dtype=F64)
    x = tensor(4, 5, DIM)
    mean, total = (layer(pool, "before").dense_map(x) for pool in ("mean", "sum"))
    assert torch.equal(mean, total)
    assert (layer("sum", "after").dense_map(x) - mean).abs().max() > 1e-3


@pytest.mark.parametrize("causal", [(), (1,), (0, 1)])
def test_rows_of_slices_that_hold_nothing_are_zero(causal):
    "And so are their columns, also for whom they are earlier."
    layer, x, mask = KroneckerAttention(DIM, HEADS, 2, causal=causal), tensor(3, 4, DIM), torch.ones(3, 4).bool()
    layer, (mask[1], mask[:, 2]) = layer.double(), (False, False)
    for S, empty in zip(layer.maps(x, mask), (1, 2), strict=True):
        assert_close(S.sum(-1), (torch.arange(S.shape[-1]) != empty).double().expand(S.shape[:-1]))
        assert not S[..., empty, :].any() and not S[..., empty].any()


def test_two_thin_factors_are_the_map_of_a_kernel():
    taking = torch.tensor([True, True, False, True, False, True, True])[None, None, :, None]
    q, k = tensor(2, 1, 7, 3).exp(), tensor(2, 1, 7, 3, seed=2).exp().masked_fill(~taking, 0)
    L, R = kernel_factors(q, k, taking)
    assert_close(L @ R, kernel_map(q, k, taking.mT).masked_fill(~taking, 0))
    L, R = kernel_factors(q, k)
    assert_close(L @ R, kernel_map(q, k))


def test_dropped_maps_are_divided_by_what_the_whole_ones_leave():
    A, B, v = tensor(1, 1, 3, 3).softmax(-1), tensor(1, 1, 4, 4, seed=2).softmax(-1), tensor(1, 1, 3, 4, 2, seed=3)
    mask, C = random_mask(1, 3, 4), 2 * A * (tensor(3, 3, seed=4) > 0)
    ones = mask[:, None].double()
    want = torch.einsum("zhij,zhkl,zhjlf->zhikf", C, B, v * ones[..., None])
    want = want / torch.einsum("zhij,zhkl,zhjl->zhik", A, B, ones)[..., None] * ones[..., None]
    assert_close(apply_masked([C, B], v, mask, whole=[A, B]), want)


def test_a_map_without_any_weight_gives_zero():
    A, B, v = tensor(1, 1, 3, 3).softmax(-1), tensor(1, 1, 4, 4, seed=2).softmax(-1), tensor(1, 1, 3, 4, 2, seed=3)
    A[..., 1, :] = 0
    y = apply_masked([A, B], v, torch.ones(1, 3, 4, dtype=torch.bool))
    assert not y[:, :, 1].any() and y[:, :, [0, 2]].all()


def test_presets_are_those_of_the_two_papers():
    one, two = KroneckerAttention.hot1(DIM, HEADS, 2), KroneckerAttention.hot2(DIM, HEADS, 2, "sum")
    assert (one.combine, one.pool, one.project, one.shared) == ("product", "sum", "before", True)
    assert (two.combine, two.pool, two.project, two.shared) == ("sum", "sum", "after", False)

"""Kronecker attention: what each test is named after went wrong once, or would go unseen."""
import warnings

import pytest
import torch
from layers import DIM, F64, HEADS, random_mask, tensor
from slow import slow_kronecker, slow_share
from torch.testing import assert_close

from hot_nbdev.attention import kernel_map
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.mode_maps import apply_masked, floor_share, kernel_factors

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
    layer = KroneckerAttention(DIM, HEADS, 2, combine=combine, pool="sum", qk_norm=False)
    x, mask = 6 * torch.randn(5, 5, DIM), random_mask(5, 5)
    found = layer.dense_map(x, mask)
    layer.double()
    share = slow_share(layer, torch.float32)
    assert share == floor_share(torch.float32, 2, combine) == 2 ** -23
    want, without = (slow_kronecker(layer, x.double(), mask, share=s) for s in (share, 1e-30))
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
    assert (two.combine, two.pool, two.project, two.shared) == ("sum", "sum", "before", False)
    assert (one.qk_norm, one.qk_gain, two.qk_norm, two.qk_gain) == (False, 1.0, True, 1.0)
    text = KroneckerAttention.hot2(DIM, HEADS, 2, qk_norm=False)     # the paper's text, where its code has a norm
    assert (text.pool, text.project, text.shared, text.qk_gain) == ("sum", "after", False, 1.0)
    assert KroneckerAttention.hot2(DIM, HEADS, 2, qk_norm=False, pool="mean").project == "before"


def with_settings(sizes, seed=0, **options):
    "A layer in float64 whose learned numbers are not those it starts with, and an input."
    torch.manual_seed(seed)
    layer = KroneckerAttention(DIM, HEADS, len(sizes), **options).double()
    with torch.no_grad():
        for p in (p for p in layer.parameters() if p.ndim == 1):
            p.add_(0.5 * torch.randn_like(p))
    return layer, 0.5 * torch.randn(*sizes, DIM, dtype=F64)


SETTINGS = [dict(temperature=True), dict(qk_gain=3.0), *(dict(qk_act=act) for act in ("relu", "gelu", "silu")),
            dict(temperature=True, qk_gain=0.5, qk_act="gelu"), dict(qk_center=True),
            dict(qk_center=True, qk_act="relu")]


@pytest.mark.parametrize("more", SETTINGS, ids=str)
@pytest.mark.parametrize("pool", ["mean", "rsqrt", "sum"])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_settings_of_the_scores_are_those_of_the_slow_loop(more, pool, qk_norm):
    others = (dict(), dict(combine="sum", shared=False), dict(causal=(0,)), dict(kernel=lambda t: t.square() + 0.1))
    for other in others:
        layer, x = with_settings((3, 2, 2), pool=pool, qk_norm=qk_norm, **more, **other)
        for mask in (torch.ones(3, 2, 2, dtype=torch.bool), random_mask(3, 2, 2)):
            want = slow_kronecker(layer, x * mask[..., None], mask)
            assert_close(layer.dense_map(x, mask), want, rtol=1e-9, atol=1e-12)


def test_a_nonlinearity_after_the_bias_was_added_to_the_pooled():
    layer, x = with_settings((3, 4), pool="sum", project="after", qk_act="gelu", qk_norm=True)
    want = slow_kronecker(layer, x, torch.ones(3, 4, dtype=torch.bool))
    assert_close(layer.dense_map(x), want, rtol=1e-9, atol=1e-12)


def test_a_nonlinearity_tells_poolings_apart_in_spite_of_the_norm():
    mean, total = (with_settings((3, 4), pool=pool, qk_norm=True, qk_act="gelu") for pool in ("mean", "rsqrt"))
    assert (mean[0].dense_map(mean[1]) - total[0].dense_map(mean[1])).abs().max() > 1e-3


def test_parameters_are_made_only_where_a_setting_is_on():
    plain = set(KroneckerAttention(DIM, HEADS, 3, qk_norm=False).state_dict())
    norms = {f"norm_{name}.{what}" for name in "qk" for what in ("weight", "bias")}
    assert set(KroneckerAttention(DIM, HEADS, 3).state_dict()) == plain | norms
    assert plain == {f"{name}.{what}" for name in ("to_q", "to_k", "to_v", "to_out") for what in ("weight", "bias")}
    for more in (dict(qk_gain=2.0), dict(qk_act="gelu"), dict(qk_center=True)):
        assert set(KroneckerAttention(DIM, HEADS, 3, qk_norm=False, **more).state_dict()) == plain
    warm = KroneckerAttention(DIM, HEADS, 3, qk_norm=False, temperature=True)
    assert set(warm.state_dict()) - plain == {"logit_scale"} and warm.logit_scale.shape == (3,)
    bare = KroneckerAttention(DIM, HEADS, 3, qk_norm=False)
    assert warm.cost((2, 2, 2)).parameters == bare.cost((2, 2, 2)).parameters + 3


@pytest.mark.parametrize("options", [{}, dict(shared=False), dict(qk_norm=True), dict(bias=False)], ids=str)
def test_settings_that_are_off_change_no_bit_and_draw_no_number(options):
    "The weights are those that linear layers of the same sequence get, and an added temperature starts with no effect."
    torch.manual_seed(3)
    options = {"qk_norm": False, "qk_gain": 1, **options}
    layer, after = KroneckerAttention(DIM, HEADS, 2, **options), torch.rand(1)
    torch.manual_seed(3)
    drawn = [torch.nn.Linear(DIM, DIM, options.get("bias", True)).weight for _ in range(4)]
    if "shared" in options:
        drawn[:2] = [torch.nn.Linear(DIM, DIM).weight for _ in range(4)]
    own = [p for name, p in layer.named_parameters() if p.ndim == 2]
    order = drawn if "shared" not in options else [*drawn[:4], *drawn[4:]]
    assert torch.equal(torch.rand(1), after)
    assert {w.sum().item() for w in own} == {w.sum().item() for w in order}
    x, torch_state = torch.randn(2, 3, 4, DIM), layer.state_dict()
    warm = KroneckerAttention(DIM, HEADS, 2, temperature=True, **options)
    warm.load_state_dict({**torch_state, "logit_scale": torch.zeros(2)})
    assert torch.equal(warm(x), layer(x))


def test_the_gain_multiplies_matrices_of_queries_and_keys_alone():
    for shared in (True, False):
        torch.manual_seed(0)
        one = KroneckerAttention(DIM, HEADS, 2, shared=shared, qk_gain=1)
        torch.manual_seed(0)
        four = KroneckerAttention(DIM, HEADS, 2, shared=shared, qk_gain=4)
        for (name, p), q in zip(one.named_parameters(), four.parameters(), strict=True):
            assert torch.equal(q, 4 * p if name.startswith(("to_q", "to_k")) and p.ndim == 2 else p)


def test_where_nothing_is_said_there_is_a_norm_and_with_it_a_gain():
    "As the study of defaults decided; without the norm there is no gain."
    norm, bare = KroneckerAttention(DIM, HEADS, 2), KroneckerAttention(DIM, HEADS, 2, qk_norm=False)
    assert (norm.pool, norm.qk_norm, norm.qk_gain, bare.qk_norm, bare.qk_gain) == ("mean", True, 4.0, False, 1.0)
    assert KroneckerAttention(DIM, HEADS, 2, qk_norm=False, qk_gain=2).qk_gain == 2
    torch.manual_seed(0)
    norm = KroneckerAttention(DIM, HEADS, 2)
    torch.manual_seed(0)
    assert torch.equal(norm.to_q.weight, 4 * KroneckerAttention(DIM, HEADS, 2, qk_norm=False).to_q.weight)


def test_an_unknown_keyword_is_told_with_the_name_of_the_layer():
    with pytest.raises(TypeError, match="^KroneckerAttention.__init__.. got an unexpected keyword argument 'dims'"):
        KroneckerAttention(DIM, HEADS, 2, dims=3)


def test_a_norm_of_one_feature_is_refused():
    with pytest.raises(ValueError, match="KroneckerAttention: a head has one feature, .* or qk_norm=False"):
        KroneckerAttention(4, 4, 2)
    KroneckerAttention(4, 4, 2, qk_norm=False)


def test_centred_maps_do_not_see_what_all_positions_share_but_along_causal_modes():
    "Nor do maps along a mode see what all of its slices share, such as a step in another mode."
    layer, x = with_settings((3, 4, 2), qk_center=True)
    for more in (torch.randn(DIM, dtype=F64), torch.randn(4, 2, DIM, dtype=F64)):
        assert_close(layer.maps(x + more)[0], layer.maps(x)[0], rtol=1e-9, atol=1e-12)
    causal, _ = with_settings((3, 4, 2), qk_center=True, causal=(0,))
    far = causal.maps(x + 5 * torch.randn(DIM, dtype=F64))
    assert (far[0] - causal.maps(x)[0]).abs().max() > 0.01
    assert_close(far[1:], causal.maps(x)[1:], rtol=1e-9, atol=1e-12)


def test_one_slice_and_no_slice_have_no_mean_to_take_off():
    layer, x = with_settings((1, 3), qk_center=True)
    assert layer(x).isfinite().all() and torch.equal(layer.maps(x)[0], torch.ones(HEADS, 1, 1, dtype=F64))
    assert layer(x[:, :0]).shape == (1, 0, DIM)
    assert layer(x, torch.zeros(1, 3, dtype=torch.bool)).isfinite().all()


def test_a_stream_takes_off_the_means_of_the_frames_so_far():
    for masked in (False, True):
        layer, x = with_settings((5, 3, 2), qk_center=True, causal=(0,))
        mask, state, found = random_mask(5, 3, 2) if masked else None, None, []
        for t in range(5):
            y, state = layer.step(x[t], state, None if mask is None else mask[t])
            found.append(y)
        assert_close(torch.stack(found), layer(x, mask), rtol=1e-9, atol=1e-12)


def test_the_temperature_is_learned_and_does_not_decay():
    from hot_nbdev.training import decay_groups
    layer = KroneckerAttention(DIM, HEADS, 2, temperature=True, pool="rsqrt")
    layer(torch.randn(2, 3, 4, DIM)).square().sum().backward()
    assert layer.logit_scale.grad.abs().min() > 0
    assert any(p is layer.logit_scale for p in decay_groups(layer, 0.1)[1]["params"])


@pytest.mark.parametrize("options, message", [
    (dict(qk_act="tanh"), "qk_act is 'tanh'; choose one of"), (dict(qk_center=1), "qk_center"),
    (dict(qk_gain=0), "qk_gain is 0, but must be a number above 0"),
    (dict(qk_gain=float("nan")), "qk_gain is nan"), (dict(qk_gain=True), "qk_gain is True"),
    (dict(qk_gain="2"), "qk_gain is '2'"), (dict(qk_gain=float("inf")), "qk_gain is inf")])
def test_a_wrong_setting_of_the_scores_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        KroneckerAttention(DIM, HEADS, 2, **options)


def test_new_settings_compile_and_export_and_train_in_half_precision():
    options = dict(temperature=True, qk_gain=2.0, qk_act="gelu", qk_norm=True, qk_center=True, pool="rsqrt")
    layer, x = KroneckerAttention(DIM, HEADS, 2, **options).eval(), torch.randn(3, 4, 5, DIM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},)).module()
        assert_close(torch.compile(layer, backend="eager", fullgraph=True)(x), layer(x))
    assert_close(program(x[:2]), layer(x[:2]))
    half = KroneckerAttention(DIM, HEADS, 2, **options, dtype=torch.bfloat16)
    assert half(x.bfloat16()).dtype == torch.bfloat16 and half(x.bfloat16()).isfinite().all()
    assert "temperature=True, qk_gain=2.0, qk_act='gelu'" in repr(layer)


def test_the_code_released_with_the_second_paper_is_a_preset():
    "Project, sum, LayerNorm: the same up to its epsilon, which a large input hides."
    torch.manual_seed(0)
    layer = KroneckerAttention.hot2(DIM, HEADS, 2).double()
    assert (layer.pool, layer.project, layer.shared, layer.qk_norm) == ("sum", "before", False, True)
    x = 100 * torch.randn(3, 4, DIM, dtype=F64)
    for m, S in enumerate(layer.maps(x)):
        q, k = (norm(f[m](x).sum(1 - m).unflatten(-1, (HEADS, -1))).transpose(0, 1)
                for f, norm in ((layer.to_q, layer.norm_q), (layer.to_k, layer.norm_k)))
        assert_close(S, (q @ k.mT / (DIM // HEADS) ** 0.5).softmax(-1), rtol=0, atol=1e-6)

"""What attention promises beyond test_contracts.py: maps, masks, order in time, dropout, kernels."""
import copy
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import (
    ATTENTION,
    DIM,
    F64,
    GRIDS,
    HEADS,
    Axial,
    Divided,
    Full,
    K,
    Multi,
    SeenAs,
    SquarePlus,
    each,
    random_mask,
    settings_of,
    tensor,
)
from often import examples
from slow import slow_kronecker, slow_share
from torch.testing import assert_close

from hot_nbdev.names import ATTENTIONS, make_attention

attention = each(ATTENTION)


@attention
@examples(6)
@given(data=st.data())
def test_maps_are_row_stochastic_over_what_takes_part(case, data):
    layer, (x, mask) = case.draw(data)
    T = layer.dense_map(x, mask)
    valid = (torch.ones(x.shape[:-1], dtype=torch.bool) if mask is None else mask.expand(x.shape[:-1]))
    valid = valid.flatten(x.ndim - 1 - case.order).unsqueeze(-2)
    assert (T >= 0).all()
    assert_close(T.sum(-1), valid.to(T).expand(T.shape[:-1]), rtol=0, atol=1e-12)
    assert not T.masked_select(~valid.unsqueeze(-2)).any()
    for S in layer.maps(x, mask):
        assert S.shape[:x.ndim - case.order] == (*x.shape[:-1 - case.order], HEADS) and (S >= 0).all()
        assert_close(S.sum(-1), (S.sum(-1) > 0).to(S), rtol=0, atol=1e-12)


@attention
@examples(6)
@given(data=st.data())
def test_padding_changes_nothing(case, data):
    "Not by a bit, whatever stands there; and where all is padding, attention gives zero."
    layer, (x, mask) = case.draw(data)
    mask = torch.zeros(x.shape[-1 - case.order:-1], dtype=torch.bool) if mask is None else mask
    junk = x.masked_fill(~mask[..., None], data.draw(st.sampled_from([float("nan"), float("inf"), -1e30])))
    y = layer(x, mask)
    assert torch.equal(y, layer(junk, mask))
    assert torch.equal(layer.dense_map(x, mask), layer.dense_map(junk, mask))
    padded = y.masked_select(~mask[..., None].expand(y.shape)).reshape(-1, DIM)
    ones = (1,) * case.order
    nothing = layer(torch.zeros(*ones, DIM, dtype=F64), torch.zeros(ones, dtype=torch.bool)).reshape(1, DIM)
    if case.output is None:
        assert torch.equal(nothing, layer.to_out(torch.zeros(1, DIM, dtype=F64)))
    assert_close(padded, nothing.expand(padded.shape), rtol=0, atol=0)


@each([c for c in ATTENTION if c.layer().causal])
@examples(6)
@given(data=st.data())
def test_nothing_leaks_from_the_future(case, data):
    layer, (x, mask) = case.draw(data)
    c = data.draw(st.sampled_from(layer.causal))
    axis = x.ndim - 1 - case.order + c
    step = data.draw(st.integers(0, x.shape[axis] - 1))
    past, future = (x.narrow(axis, 0, step), x.narrow(axis, step, x.shape[axis] - step))
    changed = torch.cat([past, future * 3 + 1], axis)
    other = mask
    if mask is not None:    # validity of future positions may change too
        mask = mask.expand(x.shape[:-1])
        other = torch.cat([mask.narrow(axis, 0, step), ~mask.narrow(axis, step, x.shape[axis] - step)], axis)
    before, after = (f.narrow(axis, 0, step) for f in (layer(x, mask), layer(changed, other)))
    assert torch.equal(before, after) if mask is None else torch.allclose(before, after, rtol=0, atol=1e-14)


@attention
def test_sizes_may_change_from_call_to_call(case):
    layer = case.layer()
    for sizes in [(3, 2, 4), (1, 5, 2), (4, 4, 1)]:
        x = case.input(2, sizes=sizes[:case.order])
        assert layer(x).shape == x.shape


@each([case for case in (*ATTENTION, *GRIDS) if case.name in (
    "product", "sum", "full", "hot1 kernel", "causal product", "other grid, full", "other grid, product",
    "other grid, multiscale")])
def test_dropout_acts_in_training_only(case):
    layer, x = case.layer(dropout=0.5), case.input(3, sizes=(6, 5, 4)[:case.order])
    calm = layer(x)
    assert torch.equal(calm, layer(x))
    layer.train()
    torch.manual_seed(0)
    mean = layer(x.expand(400, *x.shape)).mean(0)
    assert not torch.equal(layer(x), layer(x))
    assert (mean - calm).norm() < 0.2 * calm.norm()


@pytest.mark.parametrize("order", [2, 5, 6])
@pytest.mark.parametrize("combine", ["product", "sum"])
def test_the_share_of_a_masked_map_grows_with_the_number_of_modes(combine, order):
    "In float32 it is that of rounding for two modes, and 6e-5 for six: else products of weights would underflow."
    torch.manual_seed(0)
    layer = K(DIM, HEADS, order, combine=combine, qk_gain=30.0)
    x, mask = torch.randn(2, 3, *[1, 2, 1, 2][:order - 2], DIM), random_mask(2, 3, *[1, 2, 1, 2][:order - 2])
    told = SeenAs(copy.deepcopy(layer).double(), settings_of(partial(K, combine=combine), order))
    want = slow_kronecker(told, x.double(), mask, share=slow_share(told, torch.float32))
    assert_close(layer.dense_map(x, mask).double(), want, rtol=0, atol=4e-6)


NORMED = [
    (K, dict(heads=1)), (K, dict(pool="rsqrt", qk_center=True)), (Full, dict(kernel=SquarePlus())),
    (Axial, dict(by_mode={0: dict(window=1)})), (Axial, dict(heads=1)), (Divided, {}), (Multi, {})]


@pytest.mark.parametrize("make, options", NORMED, ids=[f"{make.__name__} {i}" for i, (make, _) in enumerate(NORMED)])
def test_normalized_heads_compile_forward_and_backward(make, options):
    """In AOT's model of layer_norm the gradient keeps any memory order, the real one puts it into the ordinary one.

    The two agree in what is viewed later only if the norm acts before the heads are moved. What test_contracts.py
    compiles is not tried here again.
    """
    torch.compiler.reset()
    torch.manual_seed(0)
    layer = make(DIM, **{"heads": HEADS, **options}, order=2, qk_norm=True).eval()
    x = tensor(2, 3, 4, DIM, dtype=torch.float32).requires_grad_()
    compiled, inputs = torch.compile(layer, fullgraph=True, backend="aot_eager"), [x, *layer.parameters()]
    y, want = compiled(x), layer(x)
    assert_close(y, want)
    for a, b in zip(*(torch.autograd.grad(t.square().sum(), inputs) for t in (y, want)), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", sorted(ATTENTIONS))
def test_a_mode_without_positions_gives_nothing_and_no_error(name, sizes):
    layer, x = make_attention(name, 8, 2, 2), torch.randn(2, *sizes, 8, requires_grad=True)
    for mask in (None, torch.ones(2, *sizes, dtype=torch.bool)):
        y = layer(x, mask=mask)
        assert y.shape == x.shape
        y.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("name, option", [
    ("product", "qk_norm"), ("product", "shared"), ("sum", "temperature"), ("hot2", "bias"), ("full", "qk_norm"),
    ("axial", "bias"), ("divided", "qk_norm"), ("multiscale", "qk_norm"), ("none", "bias")])
def test_a_word_is_no_switch(name, option):
    "Any word is true, 'False' among them."
    for value in ("False", 0, None):
        with pytest.raises(ValueError, match=f": {option} is {value!r}, but must be True or False"):
            make_attention(name, 8, 2, 2, **{option: value})

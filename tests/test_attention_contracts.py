"""What attention promises beyond test_contracts.py: maps, masks, order in time, dropout, kernels, loud inputs."""
import copy
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import ATTENTION, DIM, GRIDS, HEADS, Full, K, Multi, any_sizes, by_map, each, random_mask, since, told
from often import examples
from slow import slow_kronecker, slow_share
from torch.testing import assert_close

from hot_nbdev.kernels import PositiveRandomFeatures
from hot_nbdev.names import ATTENTIONS, make_attention

Axial, Hot1 = ATTENTIONS["axial"], ATTENTIONS["hot1"]
everyone = each(ATTENTION + GRIDS)


def drawn(case, data):
    """A layer, x, its mask, and as keywords a context of other sizes and its mask, where the layer takes one. Masks are
    for each sample or for all of them, or hide everything, or are None."""
    if case in ATTENTION:
        layer, (x, mask) = case.draw(data)
        return layer, x, mask, {}
    sizes, batch = any_sizes(data, case.order), data.draw(st.sampled_from([(), (2,), (2, 1)]))
    there = case.context_sizes(data, sizes)
    x, c = (case.input(*batch, sizes=own, seed=data.draw(st.integers(0, 99))) for own in (sizes, there))
    masks = [data.draw(st.sampled_from([None, random_mask(*batch, *own, seed=len(own)), random_mask(*own, seed=5),
                                        torch.zeros(own, dtype=torch.bool)])) for own in (sizes, there)]
    return case.plain(), x, masks[0], dict(context=c, context_mask=masks[1])


def whole(mask, x, order, otherwise=True):
    "A mask for each sample; where there is none, everything."
    mask = torch.full(x.shape[-1 - order:-1], otherwise) if mask is None else mask
    return mask.expand(x.shape[:-1])


@each(GRIDS)
@examples(4)
@given(data=st.data())
def test_contexts_agree_with_the_slow_loop(case, data):
    "With masks of their own on both sides, or on one; of both, nothing may be left."
    with torch.no_grad():
        layer, x, mask, more = drawn(case, data)
        for got, wanted in case.answers(layer, x, mask, *more.values()):
            assert_close(got, wanted, rtol=0, atol=1e-10)


@everyone
@examples(4)
@given(data=st.data())
def test_maps_are_row_stochastic_over_what_takes_part(case, data):
    "Where a query takes part and sees a valid key at all; other rows are zero, and so are columns of other keys."
    layer, x, mask, more = drawn(case, data)
    T, order = layer.dense_map(x, mask, **more), case.order
    c, c_mask = (more["context"], more["context_mask"]) if more else (x, mask)
    asking, taking = (whole(m, t, order).flatten(t.ndim - 1 - order) for m, t in ((mask, x), (c_mask, c)))
    assert (T >= 0).all() and not T.masked_select(~taking[..., None, None, :]).any()
    total = T.sum(-1)
    assert_close(total, (total > 0).to(T), rtol=0, atol=1e-12)
    assert not (total > 0).masked_select(~asking.unsqueeze(-2)).any()
    if not (more and (layer.causal or case.name == "other grid, sum")):   # a key is in reach
        assert torch.equal(total > 0, (asking & taking.any(-1, keepdim=True)).unsqueeze(-2).expand(total.shape))
    for S in layer.maps(x, mask, **more):
        assert S.shape[:x.ndim - order] == (*x.shape[:-1 - order], HEADS) and (S >= 0).all()
        assert_close(S.sum(-1), (S.sum(-1) > 0).to(S), rtol=0, atol=1e-12)


@everyone
@examples(4)
@given(data=st.data())
def test_padding_changes_nothing(case, data):
    """Not by a bit, neither result nor map nor gradients, whatever stands there, in x or in the context; and where all
    is padding, attention gives zero."""
    layer, x, mask, more = drawn(case, data)
    mask, order = whole(mask, x, case.order, otherwise=False), case.order
    masks = [mask, *([whole(more["context_mask"], more["context"], order)] if more else [])]
    answers = []
    for junk in (1.0, data.draw(st.sampled_from([float("nan"), float("inf"), -1e30, 1e300]))):
        given_ = [t.masked_fill(~m[..., None], junk).requires_grad_()
                  for t, m in zip((x, *list(more.values())[:1]), masks, strict=True)]
        own = dict(context=given_[1], context_mask=masks[1]) if more else {}
        y = layer(given_[0], mask, **own)
        wanted = [*given_, *layer.parameters()]
        grads = torch.autograd.grad(y.square().sum(), wanted, materialize_grads=True, allow_unused=True)
        answers.append([y, layer.dense_map(given_[0], mask, **own), *grads])
        assert not any(g.masked_select(~m[..., None]).any() for g, m in zip(grads, masks, strict=False))
        assert all(g.isfinite().all() for g in grads)
    assert all(map(torch.equal, *answers))
    padded, ones = y.masked_select(~mask[..., None]).reshape(-1, DIM), (1,) * order
    nothing = layer.to_out(x.new_zeros(1, DIM)) if case.output is None else layer(
        x.new_zeros(*ones, DIM), torch.zeros(ones, dtype=torch.bool)).reshape(1, DIM)
    assert torch.equal(padded, nothing.expand(padded.shape))


@each(GRIDS)
@examples(4)
@given(data=st.data())
def test_all_true_masks_change_nothing_and_x_may_ask_itself(case, data):
    layer, x, _, more = drawn(case, data)
    c, mask = more["context"], random_mask(*x.shape[:-1])
    ones = [torch.ones(t.shape[:-1], dtype=torch.bool) for t in (x, c)]
    for own in (None, ones[0]):
        assert_close(layer(x, own, context=c, context_mask=ones[1]), layer(x, context=c), rtol=0, atol=1e-12)
    assert_close(layer(x, context=x), layer(x), rtol=0, atol=1e-14)
    assert_close(layer(x, mask, context=x, context_mask=mask), layer(x, mask), rtol=0, atol=1e-12)


@each([c for c in ATTENTION + GRIDS if c.make.keywords.get("causal")])
@examples(4)
@given(data=st.data())
def test_nothing_leaks_from_the_future(case, data):
    "Neither of x nor of a context; which of its positions are valid may change too."
    layer, x, mask, more = drawn(case, data)
    axis = data.draw(st.sampled_from(layer.causal)) - case.order
    step = data.draw(st.integers(0, x.shape[axis - 1] - 1))

    def later(t, axis, change):
        return t if t is None else torch.cat([t.narrow(axis, 0, step), change(t.narrow(
            axis, step, t.shape[axis] - step))], axis)
    mask = None if mask is None else mask.expand(x.shape[:-1])
    other = {name: later(t, axis - 1, lambda t: t * 3 + 1) if name == "context" else t for name, t in more.items()}
    before, after = layer(x, mask, **more), layer(
        later(x, axis - 1, lambda t: t * 3 + 1), later(mask, axis, torch.logical_not), **other)
    near = 0 if mask is None else 1e-14
    assert_close(*(y.narrow(axis - 1, 0, step) for y in (before, after)), rtol=0, atol=near)


@each([case for case in (*ATTENTION, *GRIDS) if case.name in (
    "product", "sum", "full", "axial", "hot1 kernel", "causal product", "other grid, full", "other grid, product",
    "other grid, multiscale causal")])
def test_dropout_acts_in_training_only_and_maps_are_shown_whole(case):
    layer, x = case.layer(dropout=0.5), case.input(3, sizes=(6, 5, 4)[:case.order])
    own = getattr(layer, "layer", layer)
    calm, maps = layer(x), [own.dense_map(x), *own.maps(x)]
    assert torch.equal(calm, layer(x))
    layer.train()
    assert_close([own.dense_map(x), *own.maps(x)], maps, rtol=0, atol=0)
    torch.manual_seed(0)
    mean = layer(x.expand(400, *x.shape)).mean(0)
    assert not torch.equal(layer(x), layer(x))
    assert (mean - calm).norm() < 0.2 * calm.norm()


@pytest.mark.parametrize("order", [5, 6])
@pytest.mark.parametrize("combine", ["product", "sum"])
def test_the_share_of_a_masked_map_grows_with_the_number_of_modes(combine, order):
    "In float32 it is that of rounding for two modes, and 6e-5 for six: else products of weights would underflow."
    torch.manual_seed(0)
    layer = K(DIM, HEADS, order, combine=combine, qk_gain=30.0)
    x, mask = torch.randn(2, 3, *[1, 2, 1, 2][:order - 2], DIM), random_mask(2, 3, *[1, 2, 1, 2][:order - 2])
    known = told(copy.deepcopy(layer).double(), partial(K, combine=combine), order)
    want = slow_kronecker(known, x.double(), mask, share=slow_share(known, torch.float32))
    assert_close(layer.dense_map(x, mask).double(), want, rtol=0, atol=4e-6)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=since("2.10")) if name in ("multiscale", "tied", "tied-mix")
                                  else name for name in sorted(ATTENTIONS)])
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


@pytest.mark.parametrize("make, loud", [
    (K, 30), (Hot1, 10), (Full, 30), (Axial, 30), (Multi, 30)])
@pytest.mark.parametrize("features", [1, 8])
def test_padding_does_not_set_the_scale_of_a_kernel(make, loud, features):
    "Padded keys are small; if the largest feature were taken over them too, loud real ones would underflow."
    torch.manual_seed(0)
    layer = make(DIM, HEADS, 2, kernel=PositiveRandomFeatures(DIM // HEADS, features))
    x, mask = loud * torch.randn(4, 5, DIM), torch.zeros(7, 9, dtype=torch.bool)
    padded = torch.zeros(7, 9, DIM)
    padded[:4, :5], mask[:4, :5] = x, True
    for y in (layer(padded, mask), by_map(layer, padded, mask)):
        assert_close(y[:4, :5], layer(x), rtol=1e-4, atol=1e-5)
    assert_close(layer.dense_map(padded, mask).sum(-1), mask.flatten().float().expand(HEADS, -1))


@pytest.mark.parametrize("make", [K, Hot1, Full])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_leaves_scores_in_full_precision(make, dtype):
    "Dot products here go far beyond the largest number of float16."
    torch.manual_seed(0)
    layer = make(64, 1, 2)
    x = 1000 * (torch.randn(1, 4, 5, 64) + 1)
    with torch.autocast("cpu", dtype), torch.no_grad():
        y, (S, *_) = layer(x), layer.maps(x)
    assert y.isfinite().all() and S.dtype == torch.float32
    assert_close(S.sum(-1), torch.ones(S.shape[:-1]))


@pytest.mark.parametrize("make", [Full, Axial, Multi])
def test_autocast_with_a_norm_drops_as_without(make):
    "The norm gives queries and keys in float32, the values are half: no reason to forget the dropout."
    torch.manual_seed(0)
    layer, x = make(DIM, HEADS, 2, qk_norm=True, dropout=0.5), torch.randn(2, 4, 5, DIM)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert not torch.equal(layer(x), layer(x))
        assert torch.equal(layer.eval()(x), layer(x))

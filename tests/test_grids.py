"""Queries on another grid: contexts, masks on both sides, sizes that must agree."""
from functools import partial

import pytest
import torch
from layers import DIM, GRIDS, HEADS, Axial, Full, K, Multi, each, random_mask, tensor
from torch.testing import assert_close

from hot_nbdev.attention import FullAttention
from hot_nbdev.axial import AxialAttention, DividedAttention, MultiscaleAttention, NoAttention
from hot_nbdev.grids import Latents
from hot_nbdev.kronecker_attention import KroneckerAttention, mean
from hot_nbdev.maps import model_maps
from hot_nbdev.rivals.fields import AxialTokenAttention
from hot_nbdev.transformer import Block, FeedForward

grids = each(GRIDS)
WRONG = [
    (partial(KroneckerAttention, combine=mean), (3, 4), (3, 5),
     "mode 1 has size 4 in x and 5 in the context, but the mean moves along one mode .*; give as many"),
    (partial(KroneckerAttention, causal=(0,)), (3, 4), (2, 4),
     "mode 0 has size 3 in x and 2 in the context, but along a causal mode both share one time; give as many"),
    (partial(FullAttention, causal=(-1,)), (3, 4), (3, 5), "mode 1 has size 4 in x and 5 .* causal mode"),
    (partial(MultiscaleAttention, causal=(0,), stride=(1, 2)), (3, 4), (4, 4),
     "mode 0 has size 3 in x and 4 .* causal mode"),
    (AxialAttention, (3, 4), (5, 4), r"mode 0 has size 3 in x and 5 .*group \(1,\) asks along its own modes"),
    (partial(AxialAttention, groups=[0]), (3, 4), (5, 6), r"mode 1 has size 4 in x and 6 .*group \(0,\)"),
    (partial(AxialAttention, groups=[0], causal=(0,)), (3, 4), (5, 4), "mode 0 has size 3 in x and 5"),
    (partial(K, by_mode={0: dict(window=1)}), (3, 4), (5, 6), "mode 0 has size 3 in x and 5 .* places of one grid"),
    (partial(K, by_mode={-1: dict(dropout=0.5)}), (3, 4), (5, 6), "mode 1 has size 4 in x and 6 .* places of one grid"),
    (partial(Axial, groups=[0], by_mode={0: dict(bias="alibi")}), (3, 4), (5, 4), "mode 0 .* 3 in x and 5 .* grid"),
    (NoAttention, (3, 4), (3, 4), "takes no context, since it has no keys"),
]


@pytest.mark.parametrize("make, sizes, there, says", WRONG)
def test_what_cannot_be_is_refused(make, sizes, there, says):
    layer = make(DIM, HEADS, order=2)
    name = type(layer).__name__
    with pytest.raises(ValueError, match=f"{name}: .*{says}"):
        layer(torch.zeros(*sizes, DIM), context=torch.zeros(*there, DIM))


@pytest.mark.parametrize("make", [partial(K, order=2), partial(Axial, order=2, groups=[0])])
def test_with_as_many_places_a_context_may_have_a_window(make):
    layer, x, c = make(DIM, HEADS, by_mode={0: dict(window=1)}).double(), tensor(3, 4, DIM), tensor(3, 4, DIM, seed=2)
    plain = make(DIM, HEADS, by_mode={0: dict(window=5)}).double()
    plain.load_state_dict(layer.state_dict())
    assert layer(x, context=c).isfinite().all() and not torch.equal(layer(x, context=c), plain(x, context=c))
    assert torch.equal(layer.maps(x, context=c)[0] == 0, layer.maps(x)[0] == 0)


@pytest.mark.parametrize("kind", [DividedAttention, AxialTokenAttention])
def test_who_reads_one_grid_has_no_argument_for_a_context(kind):
    layer, x = kind(DIM, HEADS, order=2), torch.zeros(3, 4, DIM)
    with pytest.raises(TypeError, match="unexpected keyword argument 'context'"):
        layer(x, context=x)


def test_the_sum_exists_with_one_mode_whatever_the_sizes():
    layer = KroneckerAttention(DIM, HEADS, 1, combine=mean).double()
    product = KroneckerAttention(DIM, HEADS, 1).double()
    product.load_state_dict(layer.state_dict())
    x, c = tensor(3, DIM), tensor(7, DIM)
    assert_close(layer(x, context=c), product(x, context=c))


@grids
def test_errors_of_a_context_say_what_came(case):
    layer, x = case.plain(), case.input(2)
    c = case.input(2, sizes=tuple(n if m in case.same else n + 1 for m, n in enumerate(case.sizes)))
    name, last, mode = type(layer).__name__, c.shape[-2], case.order - 1
    with pytest.raises(ValueError, match=rf"{name}: context must be .* {DIM}\).*but is .*; "):
        layer(x, context=c[..., 1:])
    with pytest.raises(ValueError, match=rf"{name}: context_mask must be bool.*write context_mask = "):
        layer(x, context=c, context_mask=torch.ones(c.shape[:-1]))
    with pytest.raises(ValueError, match=rf"{name}: mode {mode} of context has size {last}, so context_mask must"):
        layer(x, context=c, context_mask=torch.ones(*c.shape[:-2], last + 1, dtype=torch.bool))
    with pytest.raises(ValueError, match=rf"{name}: the batch of context is \(2,\), so context_mask must be"):
        layer(x, context=c, context_mask=torch.ones(3, *c.shape[1:-1], dtype=torch.bool))
    with pytest.raises(ValueError, match=rf"{name}: x has the batch \(2,\) and the context \(\); expand the smaller"):
        layer(x, context=c[0])
    with pytest.raises(ValueError, match=rf"{name}: there is a context_mask, but no context"):
        layer(x, context_mask=torch.ones(c.shape[:-1], dtype=torch.bool))


def test_a_block_asks_a_context_behind_a_norm_of_its_own():
    make = partial(KroneckerAttention, DIM, HEADS, 2)
    torch.manual_seed(0)
    block = Block(make(), FeedForward(DIM), context=True).double()
    x, c, mask = tensor(2, 3, 4, DIM), tensor(2, 2, 5, DIM, seed=3), random_mask(2, 2, 5)
    with torch.no_grad():
        block.norm_context.weight.add_(0.5)
    want = x + block.attention(block.norm1(x), context=block.norm_context(c), context_mask=mask)
    want = want + block.ff(block.norm2(want))
    assert_close(block(x, context=c, context_mask=mask), want)
    [maps] = model_maps(block, x, context=c, context_mask=mask)
    assert [tuple(S.shape[-2:]) for S in maps] == [(3, 2), (4, 5)]
    junk = c.masked_fill(~mask[..., None], float("nan"))
    assert torch.equal(block(x, context=junk, context_mask=mask), block(x, context=c, context_mask=mask))
    assert not any("context" in name for name in Block(make(), None).state_dict())


def block(context, kind=K, **new):
    return Block(kind(DIM, HEADS, 2, **new), FeedForward(DIM, **new), context=context, **new)


def latents(kind=K, sizes=(2, 3)):
    torch.manual_seed(0)
    return Latents(sizes, partial(block, kind=kind)).double()


kinds = pytest.mark.parametrize("kind", [K, Full, Multi])


@kinds
def test_latents_read_work_and_are_asked(kind):
    model, x, mask = latents(kind), tensor(2, 3, 5, 4, DIM), random_mask(2, 3, 5, 4)
    z = model.work(model.read(model.latents.expand(2, 3, 2, 3, DIM), context=x, context_mask=mask))
    assert torch.equal(model(x, mask), model.write(x, mask, context=z))
    assert_close(model(x, mask)[1, 2], model(x[1, 2], mask[1, 2]))
    assert_close(model(x), model(x, torch.ones(5, 4, dtype=torch.bool)))
    for batch in ((0,), (2, 0)):
        assert model(x.new_zeros(*batch, 5, 4, DIM)).shape == (*batch, 5, 4, DIM)


@kinds
def test_what_latents_may_not_read_has_no_say(kind):
    model, x, mask = latents(kind), tensor(2, 4, 6, DIM), random_mask(2, 4, 6)
    y = model(x, mask)[mask]
    for junk in (7.0, float("nan"), float("inf")):
        assert torch.equal(model(x.masked_fill(~mask[..., None], junk), mask)[mask], y)
    frame, larger = x.new_full((2, 6, 8, DIM), 3.0), torch.zeros(2, 6, 8, dtype=torch.bool)
    frame[:, :4, :6], larger[:, :4, :6] = x, mask
    assert_close(model(frame, larger)[:, :4, :6][mask], y)


def test_a_field_with_its_slices_exchanged_is_answered_so():
    model, x, p = latents(), tensor(2, 4, 6, DIM), torch.tensor([2, 0, 3, 1])
    assert_close(model(x[:, p]), model(x)[:, p])
    assert not torch.allclose(model(x[:, p]), model(x))

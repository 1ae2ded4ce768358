"""What NdLinear promises beyond test_contracts.py: dense twin, sequence of modes, counts, start, the peer."""
import itertools
import re
from functools import partial
from inspect import signature
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import F64, any_sizes, tensor
from often import examples
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from hot_nbdev.ndlinear import NdLinear, approximation_error, effective_dimension, flops, nd_linear
from hot_nbdev.tensor import contraction_sequence

BIASES = ["mode", "full", False]


def make(sizes, out, bias="mode", sequence=None, dtype=F64):
    "A layer whose biases are not zero."
    layer = NdLinear(sizes, out, bias, sequence=sequence, dtype=dtype)
    for b in layer.biases:
        nn.init.normal_(b)
    return layer


@examples(20)
@given(data=st.data())
def test_ways_change_nothing_but_time(data):
    "The function, and the layer told to take either way."
    N = data.draw(st.integers(1, 4))
    sizes, out = any_sizes(data, N, 7), any_sizes(data, N, 7)
    bias, sequence = data.draw(st.sampled_from(BIASES)), data.draw(st.none() | st.permutations(range(N)))
    layer, x = make(sizes, out, bias, sequence), tensor(2, *sizes)
    want, biases = layer(x), layer.biases if bias == "mode" else layer.biases[0] if bias else None
    assert_close(nd_linear(x, layer.weights, biases, sequence), want)
    for way in [(layer.sequence, bias == "mode"), (tuple(contraction_sequence(sizes, out)), False)]:
        layer.way = way
        assert_close(layer(x), want)


def test_repr_shows_every_setting():
    "All that the constructor takes but device and dtype, so that a layer can be made from it."
    for options in (dict(bias=True), dict(bias="full", sequence=(1, 0)), dict(bias=False)):
        layer = NdLinear((2, 3), (4, 5), **options)
        settings = signature(NdLinear).parameters.keys() - {"device", "dtype"}
        assert set(re.findall(r"(\w+)=", layer.extra_repr())) == settings
        again = eval(f"NdLinear({layer.extra_repr()})")
        assert all(getattr(again, name) == getattr(layer, name) for name in settings)
    assert repr(NdLinear((2, 3), (4, 5), True)) == repr(NdLinear((2, 3), (4, 5)))
    assert effective_dimension((4, 6), (3, 5), True) == effective_dimension((4, 6), (3, 5))


def test_the_rule_leaves_the_given_sequence_where_that_saves_two_thirds_of_the_work():
    "Sequences and numbers of flops are those of chapter 13; here, what a layer of each kind of bias takes and runs."
    for bias, out in itertools.product(BIASES, [(4, 20), (4, 8), (4, 4), (4, 2)]):  # 1.83 to 3.33 times as much
        plain, cheapest = flops((2, 20), out), flops((2, 20), out, contraction_sequence((2, 20), out))
        kept, layer = bias == "mode" and plain <= 3 * cheapest, NdLinear((2, 20), out, bias)
        assert layer.way == (((0, 1), True) if kept else ((1, 0), False)) and cheapest < plain
        with FlopCounterMode(display=False) as counter:
            layer(torch.zeros(1, 2, 20))
        assert counter.get_total_flops() == (plain if kept else cheapest)


def test_a_product_starts_from_its_bias():
    "No pass of its own for a bias where the sequence is that of the layer: as many calls as without biases."
    def calls(layer):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            layer(torch.zeros(3, *layer.in_features))
        return sum(e.count for e in seen.key_averages() if e.key in ("aten::add", "aten::mul", "aten::addcmul"))
    sizes = (4, 30, 30), (4, 20, 10)
    assert contraction_sequence(*sizes) == [2, 1, 0] and flops(*sizes) < 3 * flops(*sizes, [2, 1, 0])
    assert [calls(NdLinear(*sizes, bias)) for bias in BIASES] == [0, 1, 0]


@pytest.mark.parametrize("bias", BIASES)
def test_a_seed_gives_the_weights_that_it_always_gave(bias):
    "Weights and biases are drawn in turn, biases too, though they become zero."
    torch.manual_seed(3)
    layer = NdLinear((4, 3, 2), (2, 5, 3), bias)
    torch.manual_seed(3)
    for k, (n, W) in enumerate(zip((4, 3, 2), layer.weights, strict=True)):
        assert_close(W, torch.empty_like(W).uniform_(-1, 1) * (3 / n) ** 0.5)
        for b in layer.biases[k:k + 1]:
            torch.empty_like(b).uniform_(-1, 1)
            assert not b.any()


@pytest.mark.parametrize("change", [partial(prune.l1_unstructured, amount=0.5), spectral_norm, orthogonal, weight_norm])
def test_weights_may_be_reparametrized(change):
    "And what stands behind a weight is trained: the next call sees the step."
    layer, x = make((4, 4), (4, 4)).eval(), tensor(3, 4, 4)
    before = layer(x)
    change(layer, name="weight0")
    want = nd_linear(x, [layer.weight0, layer.weight1], layer.biases)
    assert_close(layer(x), want)
    assert torch.allclose(before, want) == (change is weight_norm)
    loss = layer(x).square().sum()
    loss.backward()
    with torch.no_grad():
        for p in layer.parameters():
            p -= 1e-3 * p.grad
    assert layer(x).square().sum() < loss


@pytest.mark.parametrize("call, says", [        # beside those of chapter 13
    (lambda: make((3, 4), (2, 5))(None), "NdLinear: x is a NoneType, but the weights are torch.float64"),
    *((lambda sizes=sizes: NdLinear(sizes, (2, 3)), "NdLinear: in_features .* and out_features")
      for sizes in [0, (), (0, 3), (2.0, 3), "ab", None, (4,)]),
    (lambda: NdLinear((2, 3), (4, 5), sequence=1), "NdLinear: sequence is 1"),
    (lambda: flops((2, 3), (4,)), "flops: in_features .* and out_features"),
    (lambda: nd_linear(torch.zeros(2, 3), [torch.ones(3, 4)]), r"nd_linear: mode 0 of x has size 3, .* as \(4,\)"),
    (lambda: NdLinear.from_linear(nn.Linear(8, 20), (2, 4), (4, 6)), "NdLinear.from_linear: .*8.*20.*8.*24; ")])
def test_what_does_not_fit_is_told(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("sizes, out, bias", [((6,), (5,), True), ((2, 3, 4), (3, 2, 2), False)])
def test_from_linear_keeps_dtype_and_bias_and_the_nearest_to_zero_is_zero(sizes, out, bias):
    "That nothing is nearer than what it finds, chapter 13 tries."
    linear = nn.Linear(prod(sizes), prod(out), bias, dtype=F64)
    layer = NdLinear.from_linear(linear, sizes, out)
    assert layer.weights[0].dtype == F64 and layer.bias == ("full" if bias else False)
    assert all(p.requires_grad for p in layer.parameters())
    assert not bias or torch.equal(layer.biases[0].flatten(), linear.bias)
    far = NdLinear(sizes, out, dtype=F64)
    nn.init.zeros_(linear.weight)
    layer = NdLinear.from_linear(linear, sizes, out)
    assert not any(W.any() for W in layer.weights)
    assert approximation_error(linear, layer) == 0 and approximation_error(linear, far) == float("inf")


@pytest.mark.parametrize("sizes, out", [
    ((5,), (3,)), ((20, 16, 17), (16, 17, 20)), ((3, 4, 2, 5), (2, 3, 4, 1))])
@pytest.mark.parametrize("outer", [True, False])
def test_equals_the_published_layer(sizes, out, outer):
    "With its weights: forward and gradients; the other way round its modes act from last to first."
    peer = pytest.importorskip("ndlinear", reason='needs ndlinear: pip install "hot_nbdev[peers]"')
    theirs = peer.NdLinear(input_dims=sizes, hidden_size=out, transform_outer=outer).to(F64)
    ours = NdLinear(sizes, out, sequence=None if outer else range(len(sizes))[::-1], dtype=F64)
    ours.load_state_dict({f"{kind}{k}": getattr(linear, kind) for k, linear in enumerate(theirs.align_layers)
                          for kind in ("weight", "bias")})
    x = tensor(6, *sizes).requires_grad_()
    y, want = ours(x), theirs(x)
    assert_close(y, want)
    mine = [x, *ours.weights, *ours.biases]
    other = [x, *(linear.weight for linear in theirs.align_layers), *(linear.bias for linear in theirs.align_layers)]
    g = tensor(*y.shape, seed=2)
    for a, b in zip(torch.autograd.grad(y, mine, g), torch.autograd.grad(want, other, g), strict=True):
        assert_close(a, b)

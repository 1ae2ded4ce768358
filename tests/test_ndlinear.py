"""What NdLinear promises beyond test_contracts.py: dense twin, sequence of modes, counts, start, the peer."""
import re
from functools import partial
from inspect import signature
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import F64, LINEAR, draw_sizes, each, tensor
from often import examples
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from hot_nbdev.ndlinear import NdLinear, approximation_error, effective_dimension, flops, nd_linear
from hot_nbdev.tensor import contraction_sequence

linear = each(LINEAR)
BIASES = ["mode", "full", False]


def make(sizes, out, bias="mode", sequence=None, dtype=F64):
    "A layer whose biases are not zero."
    layer = NdLinear(sizes, out, bias, sequence=sequence, dtype=dtype)
    for b in layer.biases:
        nn.init.normal_(b)
    return layer


@examples(40)
@given(data=st.data())
def test_ways_change_nothing_but_time(data):
    "The function, and the layer told to take either way."
    N = data.draw(st.integers(1, 4))
    sizes, out = draw_sizes(data, N, 7), draw_sizes(data, N, 7)
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
    assert NdLinear((1, 100), (100, 1)).way == ((1, 0), False)
    assert [flops((1, 100), (100, 1), order) for order in [(0, 1), (1, 0)]] == [40_000, 400]
    for bias in BIASES:
        for out in [(4, 20), (4, 8), (4, 4), (4, 2)]:                   # 1.83, 2.08, 2.5, 3.33 times the cheapest
            plain, cheapest = flops((2, 20), out), flops((2, 20), out, contraction_sequence((2, 20), out))
            kept = bias == "mode" and plain <= 3 * cheapest
            layer = NdLinear((2, 20), out, bias)
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


@pytest.mark.parametrize("x, message", [
    (tensor(2, 3, 4).float(), "x is torch.float32, but the weights are torch.float64; torch.as_tensor(x, "
                              "dtype=torch.float64) fits"),
    (None, "x is a NoneType, but the weights are torch.float64"),
    (tensor(2, 12), "x has shape (2, 12), but must end in one axis for each of the 2 modes, (3, 4); x.movedim "
                    "brings modes to the end, x.unflatten(-1, (3, 4)) cuts features into them"),
    (tensor(4, 3), "mode 0 of x has size 4, but in_features is (3, 4); x has shape (4, 3); x.movedim brings "
                   "modes to the end")])
def test_what_is_no_input_is_told(x, message):
    with pytest.raises(ValueError, match="^NdLinear: " + re.escape(message)):
        make((3, 4), (2, 5))(x)


@pytest.mark.parametrize("call, says", [
    *((lambda sizes=sizes: NdLinear(sizes, (2, 3)), "NdLinear: in_features .* and out_features")
      for sizes in [0, (), (0, 3), (2.0, 3), "ab", None]),
    *((lambda order=order: NdLinear((2, 3), (4, 5), sequence=order), f"NdLinear: sequence is {re.escape(str(order))}")
      for order in [1, (1,), (1, 2)]),
    (lambda: NdLinear((2, 3), (4,)), "NdLinear: in_features .* and out_features"),
    (lambda: flops((2, 3), (4,)), "flops: in_features .* and out_features"),
    (lambda: flops(2, 3), "flops: in_features .* and out_features"),
    (lambda: nd_linear(torch.zeros(2, 3), [torch.ones(3, 4)]), r"nd_linear: mode 0 of x has size 3, .* as \(4,\)"),
    (lambda: NdLinear.from_linear(nn.Linear(8, 20), (2, 3), (4, 5)), "NdLinear.from_linear: .*8.*20.*6.*20; "),
    (lambda: NdLinear.from_linear(nn.Linear(8, 20), (2, 4), (4, 6)), "NdLinear.from_linear: .*8.*20.*8.*24; ")])
def test_what_does_not_fit_is_told(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("sizes, out", [((6,), (5,)), ((3, 4), (2, 5)), ((2, 3, 4), (3, 2, 2))])
def test_the_nearest_to_zero_is_zero(sizes, out):
    zero, far = nn.Linear(prod(sizes), prod(out)), NdLinear(sizes, out)
    nn.init.zeros_(zero.weight)
    layer = NdLinear.from_linear(zero, sizes, out)
    assert not any(W.any() for W in layer.weights)
    assert approximation_error(zero, layer) == 0 and approximation_error(zero, far) == float("inf")


@pytest.mark.parametrize("sizes, out, bias", [
    ((6,), (5,), True), ((3, 4), (2, 5), True), ((2, 3, 4), (3, 2, 2), False)])
def test_from_linear_keeps_dtype_and_bias_and_no_small_step_is_nearer(sizes, out, bias):
    torch.manual_seed(0)
    linear = nn.Linear(prod(sizes), prod(out), bias, dtype=F64)
    layer = NdLinear.from_linear(linear, sizes, out)
    assert layer.weights[0].dtype == F64 and layer.bias == ("full" if bias else False)
    assert all(p.requires_grad for p in layer.parameters())
    assert not bias or torch.equal(layer.biases[0].flatten(), linear.bias)
    error = approximation_error(linear, layer)
    for W in layer.weights:
        kept = W.detach().clone()
        W.data.add_(0.01 * torch.randn_like(W))
        assert approximation_error(linear, layer) > error - 1e-6
        W.data.copy_(kept)


@pytest.mark.parametrize("sizes, out", [
    ((5,), (3,)), ((7, 5), (3, 8)), ((20, 16, 17), (16, 17, 20)), ((3, 4, 2, 5), (2, 3, 4, 1))])
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
    g = tensor(*y.shape, seed=2)
    pairs = [(x, x), *((w, f.weight) for w, f in zip(ours.weights, theirs.align_layers, strict=True)),
             *((b, f.bias) for b, f in zip(ours.biases, theirs.align_layers, strict=True))]
    for a, b in zip(torch.autograd.grad(y, [a for a, _ in pairs], g),
                    torch.autograd.grad(want, [b for _, b in pairs], g), strict=True):
        assert_close(a, b)

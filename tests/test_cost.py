"""What is counted, by hand; what `cost` says on the device meta, against runs. Chapter 12 has the formulas."""
import copy
import re
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from layers import any_attention, any_sizes
from often import examples
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hot_nbdev.attention import FullAttention, softmax_map
from hot_nbdev.cost import Work, cost, count
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.names import ATTENTIONS, make_attention
from hot_nbdev.positions import Rotary

ARITHMETIC = ("multiply_adds", "additions", "exponentials", "parameters")


def arithmetic(work):
    return [getattr(work, name) for name in ARITHMETIC]


@examples(30)
@given(data=st.data())
def test_what_is_said_without_computing_is_what_a_run_does(data):
    "Arithmetic exactly, for any settings, batches and masks; memory too where no kernel is fused."
    case, batch, masked = any_attention(data), data.draw(st.sampled_from([1, 3])), data.draw(st.booleans())
    sizes, layer = any_sizes(data, case.order, {1: 40, 2: 20, 3: 9}[case.order]), case.layer(torch.float32)
    x, mask = torch.zeros(batch, *sizes, layer.dim), torch.ones(batch, *sizes, dtype=torch.bool) if masked else None
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        run, plain = count(layer, x, mask), FlopCounterMode(display=False)
        with plain:
            layer(x, mask)
    said = cost(layer, sizes, batch, masked=masked)
    assert arithmetic(said) == arithmetic(run)
    assert 2 * run.multiply_adds == plain.get_total_flops()
    if isinstance(layer, KroneckerAttention):
        assert (said.peak, said.kept, said.largest) == (run.peak, run.kept, run.largest)


@pytest.mark.parametrize("make", [FullAttention, KroneckerAttention])
def test_a_context_has_a_grid_of_its_own(make):
    layer, sizes, there = make(8, 2, 2), (3, 4), (5, 2)
    x, c = (torch.zeros(2, *n, 8) for n in (sizes, there))
    for masks in ((None, None), [t[..., 0] == 0 for t in (x, c)]):
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            run = count(layer, x, masks[0], c, masks[1])
        said = cost(layer, sizes, 2, context=there, masked=masks[0] is not None)
        assert arithmetic(said) == arithmetic(run)


@pytest.mark.parametrize("grad, masked", [(False, True), (True, False)])
def test_a_fused_kernel_is_charged_with_what_it_hides(grad, masked):
    q, k, v = (torch.zeros(3, 2, n, 4, requires_grad=grad) for n in (5, 7, 7))
    mask = torch.ones(3, 1, 1, 7, dtype=torch.bool) if masked else None
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        fused = count(F.scaled_dot_product_attention, q, k, v, mask)
    with sdpa_kernel(SDPBackend.MATH):
        plain = count(F.scaled_dot_product_attention, q, k, v, mask)
    for work in (fused, plain):
        assert (work.multiply_adds, work.exponentials) == (3 * 2 * 35 * 8, 3 * 2 * 35)
    assert fused.kernels < plain.kernels and fused.moved < plain.moved


def test_a_fused_backward_pass_is_charged():
    "Five products of the map's size: scores again, and four gradients. One projection has a gradient of its input too."
    layer, x = FullAttention(8, 2, 2), torch.zeros(1, 3, 4, 8)
    step = count(lambda x: layer(x).sum().backward(), x)
    assert step.multiply_adds == 4 * 12 * 64 + 2 * 144 * 8 + 5 * 12 * 64 + 5 * 144 * 8
    assert step.exponentials == 2 * 144


@pytest.mark.parametrize("name", ATTENTIONS)
def test_gradients_and_inference_mode_do_not_change_the_arithmetic_and_an_empty_batch_takes_nothing(name):
    layer, x = make_attention(name, 8, 2, 2).eval(), torch.zeros(1, 3, 4, 8)
    with torch.inference_mode():
        quiet = count(layer, x)
    assert arithmetic(count(layer, x)) == arithmetic(quiet)
    assert name == "axial-token" or cost(layer, (3, 4), 0, masked=True).multiply_adds == 0
    assert cost(layer, (3, 4), 6).multiply_adds == 6 * quiet.multiply_adds


def test_by_hand():
    "What chapter 12 has no example of."
    assert count(nn.Conv1d(2, 3, 5), torch.zeros(7, 2, 11)).multiply_adds == 7 * 3 * 7 * 2 * 5
    x = torch.zeros(6, 5)
    assert count(lambda: x.cumsum(0).softmax(-1).mean(0)).additions == 30 + 25
    assert count(lambda: x.add_(1)) == Work(0, 0, 0, 1, 0, peak=0, kept=0, moved=120, largest=0)


def test_bytes_follow_the_type():
    stored = partial(softmax_map)       # no fused kernel for what is not `softmax_map`
    double, single = (cost(FullAttention(8, 2, 2, dtype=t, weigh=stored), (3, 4))
                      for t in (torch.float64, torch.float32))
    assert double.peak == 2 * single.peak and double.multiply_adds == single.multiply_adds
    assert cost(KroneckerAttention(8, 2, 2, dtype=torch.bfloat16), (30, 40)).kept == 30 * 40 * 8 * 2


def test_the_layer_stays_as_it_was():
    layer = KroneckerAttention(8, 2, 2).train()
    before = {name: (id(p), p.clone()) for name, p in layer.named_parameters()}
    cost(layer, (3, 4), masked=True)
    for name, p in layer.named_parameters():
        assert id(p) == before[name][0] and p.equal(before[name][1]) and p.requires_grad
    assert layer.training
    there = copy.deepcopy(layer).to("meta")
    assert cost(there, (3, 4)) == cost(layer, (3, 4))
    nn.utils.parametrizations.weight_norm(layer.to_v)
    assert cost(layer, (3, 4)).multiply_adds == cost(there, (3, 4)).multiply_adds


@pytest.mark.parametrize("name, options", [
    ("product", dict(qk_center=True, temperature=True)), ("product", dict(shared=False, rotary=Rotary(4))),
    ("axial", dict(rotary=Rotary(4), causal=(0,))), ("full", dict(causal=(0,)))])
def test_quantized_layers(name, options):
    "Matrices of eight bits are no parameters, and take as many multiply-adds."
    layer = make_attention(name, 8, 2, 2, **options).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)
    said, whole = (cost(own, (3, 4), 2, masked=True) for own in (packed, layer))
    assert arithmetic(said)[:3] == arithmetic(whole)[:3]
    matrices = sum(p.numel() for n, p in layer.named_parameters() if n.startswith("to_"))
    assert said.parameters == whole.parameters - matrices


class Silent(nn.Module):
    "An attention of one's own needs no more than a width and a number of modes."
    dim, order = 8, 2

    def forward(self, x):
        return x @ torch.ones(8, 8, device=x.device)


def test_a_layer_of_ones_own_and_what_is_no_layer():
    assert cost(Silent(), (3, 4)).multiply_adds == 12 * 64
    for sizes in ((3,), 3):
        with pytest.raises(ValueError, match=re.escape(f"order 2 and sizes {sizes}")):
            cost(Silent(), sizes)

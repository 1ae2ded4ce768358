"""Nothing later reaches an earlier output, not by a bit: all layers, kinds of kernels, quiet or loud, padded or not."""
from functools import partial

import pytest
import torch
from layers import DIM, HEADS, Axial, Divided, Full, Hot1, Hot2, K, Multi, Tied, by_map, stepped
from torch.testing import assert_close

from hot_nbdev.kernels import KernelMap, PositiveRandomFeatures, elu_features, relu_features
from hot_nbdev.positions import Rotary

prf = partial(PositiveRandomFeatures, DIM // HEADS, 6)
KERNELS = {"softmax": None, "elu": elu_features, "relu": relu_features, "prf": prf(), "smreg": prf(regularized=True)}
TURNS = [("softmax", "elu", "prf"), ("softmax", "relu", "smreg")]       # no kernel, plain features, logarithms
NEAR = {0: dict(window=2, bias="alibi"), 1: dict(bias="learned", reach=2), 2: dict(window=1, dilation=2)}
LAYERS = {
    "product": K, "product bare": partial(K, qk_norm=False), "sum": partial(K, combine="sum"),
    "sum bare": partial(K, combine="sum", qk_norm=False), "hot1": Hot1, "hot1 normed": partial(Hot1, qk_norm=True),
    "turned": partial(Hot1, rotary=Rotary(DIM // HEADS), temperature=True), "hot2": Hot2,
    "hot2 text": partial(Hot2, qk_norm=False), "hot2 sum": partial(Hot2, combine="sum"),
    "centred": partial(K, qk_norm=False, qk_center=True, temperature=True, pool="rsqrt"),
    "near": partial(K, qk_norm=False, by_mode=NEAR), "near sum": partial(K, combine="sum", by_mode=NEAR),
    "full": Full, "full normed": partial(Full, qk_norm=True), "axial": Axial,
    "axial groups": partial(Axial, groups=[(0, 2), 1]), "near axial": partial(Axial, by_mode=NEAR),
    "divided": Divided, "near divided": partial(Divided, by_mode={0: dict(window=1)}),
    "multiscale": partial(Multi, stride=(1, 1, 2))}
SOFTMAX = {"tied": Tied, "tied sum": partial(Tied, combine="sum", power=1.0), "tied near": partial(Tied, by_mode=NEAR)}
PAIRS = [(name, TURNS[n % 2][j], n // 2 + j) for n, name in enumerate(LAYERS) for j in range(3)]
PAIRS += [(name, "softmax", n) for n, name in enumerate(SOFTMAX)]
every = pytest.mark.parametrize("name, kernel", [pair[:2] for pair in PAIRS])
turn = pytest.mark.parametrize("name, kernel, i", PAIRS)
# i takes turns: what i % 2 or 3 chooses meets every layer, and that and what i % 4 chooses every kernel


def make(name, kernel, causal, dtype):
    "A layer whose norms and tables count."
    torch.manual_seed(0)
    layer = (LAYERS | SOFTMAX)[name](DIM, HEADS, order=3, kernel=KERNELS[kernel], causal=causal).to(dtype).eval()
    with torch.no_grad():
        for key, p in layer.named_parameters():
            if "norm" in key or "table" in key or "scale" in key:
                p += 0.3 * torch.randn_like(p)
    return layer


def inputs(loud, dtype):
    "One sample, and masks: none, and one with an empty slice, an empty first frame and holes."
    x, mask = loud * torch.randn(1, 5, 4, 3, DIM, dtype=dtype), torch.rand(1, 5, 4, 3) < 0.7
    mask[:, 0], mask[:, :, 2] = False, False
    return x, (None, mask)


def later(x, axis, at, factor):
    "x, with what stands from `at` on times a factor."
    past, rest = x.tensor_split([at], axis)
    return torch.cat([past, factor * rest], axis)


@turn
@torch.no_grad()
def test_no_later_position_changes_an_earlier_output_by_a_bit(name, kernel, i):
    for causal in ((0,), (0, 1 if name == "multiscale" else 2)):
        loud, dtype = (1, 20, 100, 20)[(i + len(causal)) % 4], torch.float64 if i % 4 == 1 else torch.float32
        layer, (x, masks) = make(name, kernel, causal, dtype), inputs(loud, dtype)
        for mask in masks:
            y = layer(x, mask)
            assert y.isfinite().all()
            for axis, factor in [(c + 1, f) for c in causal for f in (0.0, -1.0, 1e4)]:
                at = x.shape[axis] - 1 if factor else 1
                changed = layer(later(x, axis, at, factor), mask)
                assert torch.equal(changed.narrow(axis, 0, at), y.narrow(axis, 0, at))


@turn
@torch.no_grad()
def test_the_chunks_of_a_stream_are_the_whole(name, kernel, i):
    "Along any mode, one frame at a time, some at once, all at once; in a batch of several axes too."
    for c, loud in ((0 if name == "multiscale" else i % 3, 1), (0, (20, 100)[i % 2])):
        layer, (x, masks) = make(name, kernel, (c,), torch.float64), inputs(loud, torch.float64)
        n = x.shape[c + 1]
        for mask in masks:
            y = layer(x, mask)
            for cuts in ([1] * n, [2, n - 2], [n]):
                own, their = (x, mask) if cuts[0] > 1 else (x[None], None if mask is None else mask[None])
                near = dict(rtol=0, atol=1e-12) if loud == 1 else dict(rtol=1e-6, atol=1e-6 * loud)
                assert_close(stepped(layer, own, their, c, cuts)[0].view(y.shape), y, **near)


@every
@torch.no_grad()
def test_maps_that_are_formed_are_those_that_are_applied(name, kernel):
    layer = make(name, kernel, (0,), torch.float64)
    x, masks = inputs(20, torch.float64)
    for own in getattr(layer, "stages", [layer]):
        for mask in masks:
            assert_close(by_map(own, x, mask), own(x, mask), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("regularized", [False, True])
def test_a_scale_for_each_query_leaves_the_map_as_it_is(regularized):
    "Against logarithms, where nothing is lost; with a factor of the weights, and a query that sees nothing."
    torch.manual_seed(0)
    kernel, q, k = prf(regularized=regularized).double(), *30 * torch.randn(2, 2, 6, DIM // HEADS, dtype=torch.float64)
    seen, factor = torch.rand(6, 6).tril() > 0.3, torch.rand(2, 6, 6, dtype=torch.float64)
    seen[2] = False
    a, b = (kernel.logarithms(t * (DIM // HEADS) ** -0.25) for t in (q, k))
    logs = (a.unsqueeze(-2) + b.unsqueeze(-3)).logsumexp(-1) + factor.log()
    want = logs.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)
    assert_close(KernelMap(kernel)(q, k, seen, lambda scores: scores + factor.log()), want)


@pytest.mark.parametrize("name", ["near", "full"])
def test_gradients_of_a_scale_for_each_query(name):
    layer = make(name, "prf", (0,), torch.float64)
    x, (_, mask) = inputs(1, torch.float64)
    x, mask = x[:, :3, :2], mask[:, :3, :2]
    assert torch.autograd.gradcheck(lambda x: layer(x, mask), (x.requires_grad_(),), fast_mode=True)

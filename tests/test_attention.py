"""What chapter 5 does not try: settings and tensors at the edge, memory order, hooks, kernels of all sorts."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from layers import DIM, HEADS, random_mask, tensor
from torch import nn
from torch.testing import assert_close

from hot_nbdev.attention import FullAttention, Seen, attend, softmax_map
from hot_nbdev.axial import AxialAttention, DividedAttention, MultiscaleAttention, NoAttention
from hot_nbdev.kernels import KernelMap, kernel_map
from hot_nbdev.kronecker_attention import KroneckerAttention, mean
from hot_nbdev.variants import OwnMatrices, combined

KINDS = [FullAttention, KroneckerAttention, combined(OwnMatrices, KroneckerAttention), AxialAttention,
         DividedAttention, MultiscaleAttention, NoAttention]
kinds = pytest.mark.parametrize("kind", KINDS)
weighing = pytest.mark.parametrize("kind", KINDS[:-1])
weighs = pytest.mark.parametrize("weigh", [softmax_map, KernelMap(torch.exp)], ids=["softmax", "kernel"])


@weighing
@weighs
@pytest.mark.parametrize("options", [{}, dict(causal=(0,)), dict(combine=mean)], ids=["", "causal", "mean"])
def test_maps_of_layers_lie_in_memory_row_by_row(kind, weigh, options):
    more = dict(stride=1) if kind is MultiscaleAttention else {}
    if "combine" in options and not issubclass(kind, KroneckerAttention):
        pytest.skip("it has no combination")
    layer, x = kind(DIM, HEADS, 2, weigh=weigh, **options, **more).double(), tensor(2, 3, 4, DIM)
    assert all(S.is_contiguous() for S in (*layer.maps(x), *layer.maps(x, random_mask(2, 3, 4)), layer.dense_map(x)))


@kinds
@pytest.mark.parametrize("setting, says", [
    (dict(heads=0), "heads is 0, but must be a whole number of at least 1"),
    (dict(heads=-2), "heads is -2"), (dict(heads=2.0), "heads is 2.0"),
    (dict(heads=3), "does not divide dim 8; choose one of"), (dict(dim=0), "dim is 0"),
    (dict(order=None), "order is None.*has order=2"), (dict(order=0), "order is 0"),
    (dict(order=True), "order is True"), (dict(order=np.bool_(True)), r"order is (np\.)?True"),
    (dict(causal=0), r"causal is 0, .*time is causal=\(0,\)"),
    (dict(causal=True), r"causal is True, .*time is causal=\(0,\)"),
    (dict(causal=(2,)), r"causal is \(2,\), but must be a sequence of modes, counted from 0 to 1"),
    (dict(causal=None), r"causal is None, .*\(\) is none"), (dict(causal=(True,)), r"causal is \(True,\)"),
    (dict(causal="0"), "causal is '0'"), (dict(causal=("a",)), r"causal is \('a',\)")])
def test_settings_are_checked_with_a_way_out(kind, setting, says):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: .*{says}"):
        kind(**{**dict(dim=DIM, heads=HEADS, order=2), **setting})


@weighing
@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan"), "0.1", None])
def test_dropout_is_a_share(kind, dropout):
    with pytest.raises(ValueError, match=f"{kind.__name__}: dropout is {dropout!r}, but must be at least 0 and below"):
        kind(DIM, HEADS, 2, dropout=dropout)


@kinds
def test_numbers_of_numpy_are_taken_like_those_of_python(kind):
    more = dict(stride=1) if kind is MultiscaleAttention else {}
    of_numpy = kind(np.int64(DIM), np.int32(HEADS), np.int64(2), causal=(np.int64(-1),), **more)
    of_python = kind(DIM, HEADS, 2, causal=(1,), **more)
    of_numpy.load_state_dict(of_python.state_dict())
    x = tensor(3, 4, DIM, dtype=torch.float32)
    assert torch.equal(of_numpy(x), of_python(x)) and repr(of_numpy.causal) == "(1,)"


@weighing
@pytest.mark.parametrize("wrong, says", [
    (lambda x: x.tolist(), r"x must be a dense floating tensor, but is of type list; write .*to_dense\(\).float\(\)"),
    (lambda x: x.numpy(), "of type ndarray"), (lambda x: None, "of type NoneType"),
    (lambda x: x.to_sparse(), r"is torch.float32 and torch.sparse_coo; write .*to_dense\(\)"),
    (lambda x: x.long(), r"is torch.int64 and torch.strided; write .*float\(\)"),
    (lambda x: x.double(), r"x is torch.float64, and the weights are torch.float32; write x.to"),
    (lambda x: x[..., 1:], r"x must be \(\*batch, n1, n2, 8\) with 2 modes and 8 features, but is \(2, 3, 4, 7\)"),
    (lambda x: x[0, 0], r"must be \(\*batch, n1, n2, 8\) with 2 modes and 8 features, but is \(4, 8\)")])
def test_what_is_no_input_is_refused_with_a_way_out(kind, wrong, says):
    if kind is DividedAttention and "float64" in says:
        pytest.skip("its norms come before the door of its stages")
    layer, x = kind(DIM, HEADS, 2), tensor(2, 3, 4, DIM, dtype=torch.float32)
    for call in (layer, layer.maps, layer.dense_map):
        with pytest.raises(ValueError, match=says):
            call(wrong(x))


@kinds
@pytest.mark.parametrize("wrong, says", [
    (lambda m: m.float(), "mask must be bool, True where a position takes part, but is torch.float32"),
    (lambda m: m.float(), r"PyTorch's key_padding_mask is the inverse: write ~key_padding_mask"),
    (lambda m: m.byte(), "is torch.uint8"), (lambda m: m.tolist(), "is list"),
    (lambda m: m[:, :2], r"mode 0 of x has size 3, so mask must be \(\*batch, 3, 4\), .* but is \(2, 2, 4\)"),
    (lambda m: m[:, :, :2], "mode 1 of x has size 4, so mask must be"),
    (lambda m: m[0, 0], r"but is \(4,\)"),
    (lambda m: m.repeat(2, 1, 1), r"the batch of x is \(2,\), so mask must be .* but is \(4, 3, 4\)")])
def test_what_is_no_mask_is_refused_with_a_way_out(kind, wrong, says):
    layer, x = kind(DIM, HEADS, 2), tensor(2, 3, 4, DIM, dtype=torch.float32)
    for call in (layer, layer.maps, layer.dense_map):
        with pytest.raises(ValueError, match=says):
            call(x, wrong(torch.ones(2, 3, 4, dtype=torch.bool)))


@weighs
def test_dropped_are_entries_of_the_map(weigh):
    q, k, v = (tensor(2, 1, 6, 4, seed=s) for s in range(3))
    S = attend(weigh, q, k, torch.eye(6).double().expand(2, 1, 6, 6), Seen((6,)))
    torch.manual_seed(0)
    found = torch.stack([attend(weigh, q, k, v, Seen((6,)), 0.5) for _ in range(400)])
    assert not torch.equal(found[0], found[1])
    assert (found.mean(0) - S @ v).abs().max() < 0.2
    constant = attend(weigh, q, k, torch.ones_like(v), Seen((6,)), 0.5)     # each entry 0 or twice what it was
    assert constant.min() < 0.9 < 1.1 < constant.max()


@pytest.mark.parametrize("plain", [torch.relu, torch.exp, nn.Softplus(), lambda t: t.square(), F.elu])
def test_any_function_of_one_tensor_is_a_kernel(plain):
    "Also builtins, which have no signature to look at."
    phi = (lambda t: plain(t) + 1) if plain is F.elu else plain
    layer, x = FullAttention(DIM, HEADS, 2, weigh=KernelMap(phi)).double(), tensor(2, 3, 4, DIM)
    q, k, v = (f(x).unflatten(-1, (HEADS, -1)).movedim(-2, 1).flatten(2, 3)
               for f in (layer.to_q, layer.to_k, layer.to_v))
    features = [phi(t * (DIM // HEADS) ** -0.25) for t in (q, k)]
    assert_close(layer.dense_map(x), kernel_map(*features))
    mask = tensor(2, 3, 4) > 0
    S = kernel_map(*features, mask.flatten(1)[:, None, None])
    assert_close(layer(x, mask)[mask], layer.to_out((S @ v).transpose(1, 2).reshape(x.shape))[mask])


def test_later_values_must_be_finite_for_a_softmax_and_need_not_for_a_kernel():
    x = tensor(4, 2, DIM)
    broken = torch.cat([x[:2], x[2:] * float("nan")])
    softmax = FullAttention(DIM, HEADS, 2, causal=(0,)).double()
    linear = FullAttention(DIM, HEADS, 2, causal=(0,), weigh=KernelMap(torch.exp)).double()
    assert torch.equal(linear(broken)[:2], linear(x)[:2])
    assert torch.equal(softmax(torch.cat([x[:2], x[2:] * 1e30]))[:2], softmax(x)[:2])


@pytest.mark.parametrize("weigh", [lambda *given: softmax_map(*given), lambda q, k, seen: (q.exp(), k.mT.exp())],
                         ids=["map", "pair"])
def test_maps_that_are_formed_keep_their_precision_under_autocast(weigh):
    q, k, v = (tensor(2, 1, 6, 6, seed=s, dtype=torch.float32) for s in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(weigh, q, k, v, Seen((6,)))
    assert found.dtype == torch.float32
    assert_close(found, attend(weigh, q, k, v, Seen((6,))))

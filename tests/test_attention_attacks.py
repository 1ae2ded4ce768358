"""Attacks that the contracts do not try: loud inputs, kernels that scale, gradients of padding."""
import pytest
import torch
from layers import DIM, HEADS, Axial, Full, Hot1, K, Multi, by_map
from torch.testing import assert_close

from hot_nbdev.kernels import PositiveRandomFeatures


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

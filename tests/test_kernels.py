"""What chapter 8 does not try: the past under loud input, scales, widths, layers with each kernel."""
import pytest
import torch
from layers import DIM, HEADS, random_mask, tensor
from torch.testing import assert_close

from hot_nbdev.attention import FeatureFunction, FullAttention, kernel_map
from hot_nbdev.axial import AxialAttention, DividedAttention, MultiscaleAttention
from hot_nbdev.kernels import (
    ElementwiseFeatures,
    PositiveRandomFeatures,
    kernel_product,
    log_prefix_attention,
    running_sums,
)

LAYERS = [(FullAttention, {}), (AxialAttention, {}), (DividedAttention, {}),
          (MultiscaleAttention, dict(stride=(1, 1, 2)))]


def prf(regularized=False, **options):
    return PositiveRandomFeatures(DIM // HEADS, 6, regularized=regularized, **options)


@pytest.mark.parametrize("kind, more", LAYERS)
@pytest.mark.parametrize("regularized", [False, True])
@pytest.mark.parametrize("causal", [(0,), (0, 1)])
@pytest.mark.parametrize("loud", [1, 20, 100])
def test_no_later_key_changes_an_earlier_output_by_a_bit(kind, more, regularized, causal, loud):
    "In float32, where all features of earlier keys would underflow if a later one set their scale."
    torch.manual_seed(0)
    layer = kind(DIM, HEADS, 3, kernel=prf(regularized), causal=causal, **more)
    x = loud * torch.randn(5, 4, 3, DIM)
    for later in (0.0, -1.0, 50.0):
        changed = torch.cat([x[:3], later * x[3:]])
        assert torch.equal(layer(changed)[:3], layer(x)[:3])
    if kind is FullAttention:
        assert_close(layer.dense_map(x).sum(-1), torch.ones(HEADS, 60))


@pytest.mark.parametrize("causal", [(0,), (1,), (0, 1)])
def test_loud_causal_kernels_are_those_of_exact_arithmetic(causal):
    torch.manual_seed(0)
    low = FullAttention(DIM, HEADS, 2, kernel=prf(), causal=causal)
    high, x = FullAttention(DIM, HEADS, 2, kernel=prf(), causal=causal).double(), 5 * torch.randn(6, 5, DIM)
    high.load_state_dict(low.state_dict())
    assert_close(low(x).double(), high(x.double()), rtol=1e-3, atol=1e-3)


def test_a_causal_kernel_with_a_mask_agrees_with_its_map_and_has_gradients():
    layer = FullAttention(DIM, HEADS, 2, kernel=prf(), causal=(0,)).double()
    x = tensor(2, 4, 3, DIM).requires_grad_()
    mask = random_mask(2, 4, 3)
    mask[:, 0] = False
    y = layer(x, mask)
    assert_close(y, layer(x, mask, return_maps=True)[0])
    y.square().sum().backward()
    assert x.grad.isfinite().all() and not x.grad[~mask].any()
    assert torch.autograd.gradcheck(layer, (tensor(3, 2, DIM).requires_grad_(),), fast_mode=True)


def test_running_sums_carry_any_scale():
    s, top = tensor(7, 2).exp(), 300 * tensor(7, 2, seed=2)
    for axis in (0, -2):
        sums, scale = running_sums(s, top, axis)
        assert_close(sums.log() + scale, (s.log() + top).logcumsumexp(0))


def test_where_nothing_may_be_seen_the_result_is_zero():
    a, b, v = tensor(3, 2, 4), tensor(3, 2, 4, seed=2), tensor(3, 2, 5, seed=3)
    b[0] = -torch.inf
    y = log_prefix_attention(a, b, v, causal=1)
    assert not y[0].any() and y[1:].isfinite().all()


def test_features_say_their_width_and_their_price():
    assert (prf().width(4), prf().multiply_adds(4)) == (6, 24)
    assert (ElementwiseFeatures().width(4), ElementwiseFeatures().multiply_adds(4)) == (4, 0)


def test_the_protocol_of_kernels_is_fixed():
    class Squares(FeatureFunction):
        def forward(self, t, is_query=False, mask=None):
            return t.square() if mask is None else t.square() * mask[..., None]
    layer, x, mask = FullAttention(DIM, HEADS, 1, kernel=Squares()).double(), tensor(5, DIM), random_mask(5)
    assert_close(layer(x, mask), layer(x, mask, return_maps=True)[0])
    with pytest.raises(NotImplementedError, match="define forward"):
        FeatureFunction()(x)


def test_a_product_of_kernels_is_that_of_its_maps():
    q, k = ([tensor(3, 2, seed=s).exp(), tensor(4, 5, seed=s + 1).exp()] for s in (1, 3))
    v = tensor(3, 4, 2)
    A, B = (kernel_map(*each) for each in zip(q, k, strict=True))
    assert_close(kernel_product(q, k, v), torch.einsum("ia,jb,abd->ijd", A, B, v))

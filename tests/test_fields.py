"""Rivals that read a field and write a field: what they see, how they are saved, what they refuse."""
import pytest
import torch
from torch.testing import assert_close

from hot_nbdev.model_config import ModelConfig
from hot_nbdev.models import load_model, make_model
from hot_nbdev.rivals.fields import (
    AxialTokenAttention,
    DilatedConfig,
    DilatedNet,
    FieldModel,
    FourierConfig,
    FourierNet,
    SpectralConvolution,
    UNetConfig,
    UNetNet,
)

KINDS = {DilatedNet: DilatedConfig(in_channels=2, width=4),
         FourierNet: FourierConfig(in_channels=2, width=3, frequencies=4),
         UNetNet: UNetConfig(in_channels=2, width=2)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_it_is_made_saved_and_loaded_by_name_and_takes_any_batch(kind, tmp_path):
    torch.manual_seed(0)
    model, x = make_model(KINDS[kind]).eval(), torch.randn(2, 3, 32, 32, 2)
    assert type(model) is kind and issubclass(kind, FieldModel) and model(x).shape == (2, 3, 32, 32, 1)
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert type(again) is kind and ModelConfig.from_dict(KINDS[kind].to_dict()) == KINDS[kind]
    assert_close(again(x), model(x), rtol=0, atol=0)
    mask = torch.rand(32, 32) < 0.7
    assert_close(model(x, mask)[1, 2], model((x * mask[..., None])[1, 2]), atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match=rf"{kind.__name__}: x must be \(\*batch, n1, n2, 2\)"):
        model(torch.randn(2, 32, 32, 3))
    assert model(x[0, :0]).shape == (0, 32, 32, 1) and model(x[:, :0]).shape == (2, 0, 32, 32, 1)
    want = model(x[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(model(x[0]).float(), want, rtol=0.1, atol=0.1)
    assert model.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_on_a_torus_it_commutes_with_shifts():
    "Page 61 has the Fourier network's shifts."
    torch.manual_seed(0)
    model = DilatedNet(DilatedConfig(width=3, padding="circular")).double()
    x = torch.randn(1, 32, 32, 1, dtype=torch.float64)
    assert_close(model(x.roll((5, -7), (1, 2))), model(x).roll((5, -7), (1, 2)))


def test_the_dilated_network_reaches_as_far_as_its_dilations():
    net = DilatedNet(DilatedConfig(width=1, dilations=(1, 2, 4), order=1)).double()
    for norm in net.norms:                                      # the norms see all of the field
        norm.forward = lambda x: x
    x = torch.zeros(1, 41, 1, dtype=torch.float64, requires_grad=True)
    net(x)[0, 20, 0].backward()
    seen = x.grad[0, :, 0].nonzero().flatten()
    assert (seen[0].item(), seen[-1].item()) == (20 - 8, 20 + 8)        # 1 of the first layer, then 1 + 2 + 4


@pytest.mark.parametrize("sizes", [(12,), (8, 9), (4, 6, 5)])
def test_a_spectral_convolution_is_one_matrix_for_each_low_frequency(sizes):
    torch.manual_seed(0)
    layer, k = SpectralConvolution(2, 2, len(sizes)).double(), len(sizes)
    n = [torch.arange(s, dtype=torch.float64) for s in sizes]
    frequency = [1, -1, 1][:k - 1] + [1]                        # a wave that is kept
    waves = zip(frequency, n, sizes, strict=True)
    phase = sum((f * t / s).view(-1, *[1] * (k - 1 - m)) for m, (f, t, s) in enumerate(waves))
    x = torch.zeros(1, 2, *sizes, dtype=torch.float64)
    x[0, 0] = torch.cos(2 * torch.pi * phase)
    W = torch.complex(*layer.weight)[(0, slice(None), *(f % 3 for f in frequency[:-1]), frequency[-1])]
    want = torch.stack([(w * torch.exp(2j * torch.pi * phase)).real for w in W])
    assert_close(layer(x)[0], want)
    high = torch.zeros(1, 2, *sizes, dtype=torch.float64)
    high[0, 0] = torch.cos(2 * torch.pi * 2 * n[0] / sizes[0]).view(-1, *[1] * (k - 1)).expand(sizes)
    assert_close(layer(high), torch.zeros_like(high), atol=1e-12, rtol=0)


def test_what_a_u_net_cannot_take():
    with pytest.raises(ValueError, match=r"sizes are \(32, 40\).*multiple of 16"):
        UNetNet(UNetConfig(width=2))(torch.randn(1, 32, 40, 1))
    assert sum(p.numel() for p in UNetNet(UNetConfig(in_channels=2)).parameters()) == 462_753       # as page 61 says


def test_the_token_reads_every_position_and_the_axial_part_is_the_axial_layer():
    "And nothing is added to what takes no part."
    torch.manual_seed(0)
    layer = AxialTokenAttention(8, 2, 2, qk_norm=True).double()
    x = torch.randn(2, 3, 4, 8, dtype=torch.float64)
    told = layer(x) - layer.axial(x)
    assert_close(told, told[:, :1, :1].expand_as(told))         # the same everywhere
    q, k, v = layer.norm_q(layer.token), layer.to_k(x), layer.to_v(x)
    k, v = (t.flatten(1, 2).unflatten(-1, (2, 4)).transpose(1, 2) for t in (k, v))
    S = (q @ layer.norm_k(k).mT / 2).softmax(-1)
    assert_close(told[:, 0, 0], layer.to_out((S @ v).transpose(1, 2).flatten(1)))
    mask = torch.rand(2, 3, 4) < 0.6
    mask[0] = False
    assert layer(x, mask).isfinite().all() and torch.equal(layer(x, mask)[~mask], layer.axial(x, mask)[~mask])


def test_a_token_that_reads_everything_has_no_causal_modes():
    with pytest.raises(ValueError, match="its token reads all positions, so it would look ahead"):
        AxialTokenAttention(8, 2, 2, causal=(0,))

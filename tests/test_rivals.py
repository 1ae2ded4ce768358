"""Rivals by convolutions and waves: what they see, how they are saved, what they refuse.

MONAI, which takes seconds to import, makes the 3D ResNet and the U-Net.
"""
import importlib.util

import pytest
import torch
from smallfiles import TINY, fails, write_volumes
from torch.nn import functional
from torch.testing import assert_close

from hot_nbdev.cli.commands import hot_classify, hot_predict
from hot_nbdev.cost import count
from hot_nbdev.model_config import ModelConfig
from hot_nbdev.models import load_model, make_model
from hot_nbdev.rivals import fields
from hot_nbdev.rivals.convolution import ResNetClassifier, ResNetConfig
from hot_nbdev.train.results import read_rows

monai = pytest.mark.skipif(not importlib.util.find_spec("monai"), reason="it is MONAI's: pip install monai")


@pytest.mark.parametrize("kind, config", [
    (fields.DilatedNet, fields.DilatedConfig(in_channels=2, width=4)),
    (fields.FourierNet, fields.FourierConfig(in_channels=2, width=3, frequencies=4)),
    pytest.param(fields.UNetNet, fields.UNetConfig(in_channels=2, width=2), marks=monai)])
def test_a_field_model_is_made_saved_and_loaded_by_name_and_takes_any_batch(kind, config, tmp_path):
    torch.manual_seed(0)
    model, x = make_model(config).eval(), torch.randn(2, 3, 32, 32, 2)
    assert type(model) is kind and issubclass(kind, fields.FieldModel) and model(x).shape == (2, 3, 32, 32, 1)
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert type(again) is kind and ModelConfig.from_dict(config.to_dict()) == config
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


def test_the_dilated_network_reaches_as_far_as_its_dilations():
    net = fields.DilatedNet(fields.DilatedConfig(width=1, dilations=(1, 2, 4), order=1)).double()
    for norm in net.norms:                                      # the norms see all of the field
        norm.forward = lambda x: x
    x = torch.zeros(1, 41, 1, dtype=torch.float64, requires_grad=True)
    net(x)[0, 20, 0].backward()
    seen = x.grad[0, :, 0].nonzero().flatten()
    assert (seen[0].item(), seen[-1].item()) == (20 - 8, 20 + 8)        # 1 of the first layer, then 1 + 2 + 4


@pytest.mark.parametrize("sizes", [(12,), (4, 6, 5)])
def test_a_spectral_convolution_is_one_matrix_for_each_low_frequency(sizes):
    torch.manual_seed(0)
    layer, k = fields.SpectralConvolution(2, 2, len(sizes)).double(), len(sizes)
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


@monai
def test_what_a_u_net_cannot_take():
    for sizes in ((32, 40), (16, 16)):
        with pytest.raises(ValueError, match=r"sizes are \(.*multiple of 16.* and one larger"):
            fields.UNetNet(fields.UNetConfig(width=2))(torch.randn(1, *sizes, 1))
    model = fields.UNetNet(fields.UNetConfig(in_channels=2))
    assert sum(p.numel() for p in model.parameters()) == 462_753        # as page 61 says


def test_the_token_reads_every_position_so_none_is_causal_and_the_axial_part_is_the_axial_layer():
    "And nothing is added to what takes no part."
    torch.manual_seed(0)
    layer = fields.AxialTokenAttention(8, 2, 2, qk_norm=True).double()
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
    with pytest.raises(ValueError, match="its token reads all positions, so it would look ahead"):
        fields.AxialTokenAttention(8, 2, 2, causal=(0,))


SMALL = ResNetConfig(depth=10, width=1 / 16, in_channels=2, classes=3)


@monai
def test_counts_of_the_baseline():
    "3D ResNet-18 of MedMNIST: no max pooling, first stride 1, no bias before a norm."
    work = count(ResNetClassifier(ResNetConfig(), device="meta"), torch.empty(1, 28, 28, 28, 1, device="meta"))
    assert (work.parameters, work.multiply_adds) == (33_140_802, 17_749_103_616)


def written_out(net, x):
    "Scores of the network with these weights, for volumes (b, n1, n2, n3, channels)."
    def step(x, conv, norm, stride=1):
        x = functional.conv3d(x, conv.weight, stride=stride, padding=conv.weight.shape[-1] // 2)
        return functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    x = step(x.movedim(-1, 1), net.conv1, net.bn1).relu()
    for i, block in enumerate([*net.layer1, *net.layer2, *net.layer3, *net.layer4]):
        stride = 2 if i in (2, 4, 6) else 1
        y = step(step(x, block.conv1, block.bn1, stride).relu(), block.conv2, block.bn2)
        x = (y + (step(x, *block.downsample, stride) if stride > 1 else x)).relu()
    return net.fc(x.mean((2, 3, 4)))


@monai
@torch.no_grad()
def test_the_network_written_out_gives_the_same_scores_with_any_batch_axes():
    torch.manual_seed(0)
    model = ResNetClassifier(ResNetConfig(in_channels=2, classes=3, width=1 / 16), dtype=torch.float64).eval()
    for name, buffer in model.named_buffers():
        if "running" in name:                           # means and variances that are not 0 and 1
            buffer.uniform_(0.5, 2)
    x = torch.randn(2, 3, 9, 8, 7, 2, dtype=torch.float64)
    y = model(x)
    assert_close(y, written_out(model.net, x.flatten(0, 1)).unflatten(0, (2, 3)))
    assert_close(model(x[0, 1]), y[0, 1])
    assert model(x[:, :0]).shape == (2, 0, 3)


@monai
def test_errors_of_the_resnet_say_the_way_out():
    model = ResNetClassifier(SMALL).eval()
    for x, mask, says in [((2, 8, 8, 8), None, "x must be .*channels are the last axis"),
                          ((8, 0, 8, 2), None, "but is .*; no mode may be empty"),
                          ((8, 8, 8, 2), torch.ones(1, 8, 8, 8, dtype=torch.bool), "mask must be None.*masked_fill")]:
        with pytest.raises(ValueError, match=says):
            model(torch.randn(1, *x), mask)


@monai
def test_a_saved_resnet_has_the_means_and_counts_of_its_norms(tmp_path):
    model, x = ResNetClassifier(SMALL), torch.randn(4, 6, 6, 6, 2)
    model(x)
    model.eval().save(tmp_path)
    again, double = load_model(tmp_path), load_model(tmp_path, dtype=torch.float64)
    assert again.config == SMALL and isinstance(again, ResNetClassifier) and not again.training
    assert again.net.bn1.num_batches_tracked == 1 and torch.equal(again(x), model(x))
    assert double.net.bn1.num_batches_tracked.dtype == torch.int64
    assert double.net.fc.weight.dtype == torch.float64


@monai
def test_a_resnet_trains_and_predicts_and_takes_no_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_volumes(size=16)
    hot_classify(["--data", "own.npz", "--model", "resnet", *TINY[8:],
                  "--model-option", "width=0.05", "stem_stride=2", "max_pool=true"])
    (row,) = read_rows("results/classify.csv")
    assert row["attention"] == "resnet" and row["run"].startswith("classify-own-resnet-seed0")
    hot_predict([f"runs/{row['run']}", "own.npz", "--key", "test_images"])
    assert len(read_rows("own-classes.csv")) == 8
    write_volumes(order=2)
    assert "own.npz holds pictures" in fails(capsys, hot_classify, "--data", "own.npz", "--model", "resnet", "--cpu")

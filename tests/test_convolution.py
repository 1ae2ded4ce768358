"""The 3D ResNet behind the interface of the classifiers: counts, shapes, errors, saving."""
import importlib.util

import pytest
import torch
from torch import nn

from hot_nbdev.cost import count
from hot_nbdev.models import load_model
from hot_nbdev.rivals.convolution import ResNetClassifier, ResNetConfig

# looked for and not imported, which takes seconds in each process that collects tests
pytestmark = pytest.mark.skipif(not importlib.util.find_spec("monai"),
                                reason="the 3D ResNet is MONAI's: pip install monai")
SMALL = ResNetConfig(depth=10, width=1 / 16, in_channels=2, classes=3)


def test_counts_of_the_baseline():
    "3D ResNet-18 of MedMNIST: no max pooling, first stride 1, no bias before a norm."
    model = ResNetClassifier(ResNetConfig(), device="meta")
    work = count(model, torch.empty(1, 28, 28, 28, 1, device="meta"))
    pairs = [(64, 64), (64, 128), (128, 256), (256, 512)]
    blocks = sum(27 * (a * b + 3 * b * b) + 8 * b + (a * b + 2 * b) * (a != b) for a, b in pairs)
    assert work.parameters == 27 * 64 + 2 * 64 + blocks + 513 * 2 == 33_140_802
    assert work.multiply_adds == 17_749_103_616


def conv(a, b, width, stride=1):
    return nn.Sequential(nn.Conv3d(a, b, width, stride, width // 2, bias=False), nn.BatchNorm3d(b))


class Residual(nn.Module):
    "Two convolutions, and a way around them."
    def __init__(self, a, b, stride):
        super().__init__()
        self.first, self.second = conv(a, b, 3, stride), conv(b, b, 3)
        self.around = conv(a, b, 1, stride) if a != b else nn.Identity()

    def forward(self, x):
        return (self.second(self.first(x).relu()) + self.around(x)).relu()


class ResNet18(nn.Module):
    "The network written out: scores (b, classes) of volumes (b, n1, n2, n3, channels)."
    def __init__(self, channels, classes, width):
        super().__init__()
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
        both = [s for a, b, stride in sizes for s in ((a, b, stride), (b, b, 1))]
        self.stem, self.blocks = conv(channels, width, 3), nn.Sequential(*(Residual(*s) for s in both))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x.movedim(-1, 1)).relu()).mean((2, 3, 4)))


def test_the_network_written_out_gives_the_same_scores():
    torch.manual_seed(0)
    ours = ResNet18(channels=2, classes=3, width=4).double()
    for norm in ours.modules():
        if isinstance(norm, nn.BatchNorm3d):              # means and variances that are not 0 and 1
            norm.running_mean.uniform_(-1, 1), norm.running_var.uniform_(0.5, 2)
    theirs = ResNetClassifier(ResNetConfig(in_channels=2, classes=3, width=1 / 16), dtype=torch.float64)
    kinds = nn.Conv3d | nn.BatchNorm3d | nn.Linear
    pairs = zip(*([m for m in model.modules() if isinstance(m, kinds)] for model in (ours, theirs)), strict=True)
    for one, other in pairs:
        other.load_state_dict(one.state_dict())
    x = torch.randn(2, 9, 8, 7, 2, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(x), ours.eval()(x))


def test_any_batch_axes():
    torch.manual_seed(0)
    model, x = ResNetClassifier(SMALL).eval(), torch.randn(2, 3, 9, 8, 7, 2)
    with torch.no_grad():
        y, one = model(x), model(x[0, 0])
        each = [model.net(v.movedim(-1, 0)[None])[0] for v in x.flatten(0, 1)]
    assert y.shape == (2, 3, 3)
    torch.testing.assert_close(y.flatten(0, 1), torch.stack(each))
    torch.testing.assert_close(one, each[0])
    assert model(x[:, :0]).shape == (2, 0, 3)
    with pytest.raises(ValueError, match="but is .*; no mode may be empty"):
        model(torch.randn(2, 8, 0, 8, 2))


def test_errors_say_the_way_out():
    model = ResNetClassifier(SMALL, dtype=torch.float64).eval()
    assert model(torch.randn(1, 8, 8, 8, 2).double()).dtype == torch.float64
    with pytest.raises(ValueError, match="x must be .*channels are the last axis"):
        model(torch.randn(1, 2, 8, 8, 8))
    with pytest.raises(ValueError, match="mask must be None.*masked_fill"):
        model(torch.randn(1, 8, 8, 8, 2), torch.ones(1, 8, 8, 8, dtype=torch.bool))
    for wrong in (dict(depth=20), dict(classes=0), dict(width=0.01)):
        with pytest.raises(ValueError, match=f"ResNetConfig: {list(wrong)[0]}"):
            ResNetConfig(**wrong)


def test_what_it_saves(tmp_path):
    "The running means and the count of batches of the norms survive; test_commands.py trains one."
    model, x = ResNetClassifier(SMALL), torch.randn(4, 6, 6, 6, 2)
    model(x)
    model.eval().save(tmp_path)
    again, double = load_model(tmp_path), load_model(tmp_path, dtype=torch.float64)
    assert again.config == SMALL and isinstance(again, ResNetClassifier) and not again.training
    assert all(torch.equal(t, again.state_dict()[name]) for name, t in model.state_dict().items())
    assert again.net.bn1.num_batches_tracked == 1 and torch.equal(again(x), model(x))
    assert double.net.bn1.num_batches_tracked.dtype == torch.int64
    assert double.net.fc.weight.dtype == torch.float64

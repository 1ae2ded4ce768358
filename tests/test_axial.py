"""What the page on attention along some modes does not try."""
import pytest
import torch
from layers import DIM, HEADS, Axial, Divided, Full, Multi

from hot_nbdev.cost import cost
from hot_nbdev.kernels import PositiveRandomFeatures


def largest(layer, *sizes):
    return cost(layer, sizes).largest


@pytest.mark.parametrize("kernel", [torch.relu, PositiveRandomFeatures(DIM // HEADS, 4)])
@pytest.mark.parametrize("causal", [(), (0,)])
@pytest.mark.parametrize("kind, more", [(Full, {}), (Axial, {}), (Divided, {}), (Multi, dict(stride=1))])
def test_a_kernel_is_linear_in_every_layer(kind, more, causal, kernel):
    "The largest tensor for n = 128, 256, 512 doubles with n, and is no map."
    layer = kind(DIM, HEADS, 1, kernel=kernel, causal=causal, **more)
    found = [largest(layer, n) for n in (128, 256, 512)]
    assert found[1] == 2 * found[0] and found[2] == 4 * found[0]
    assert found[2] <= 512 * DIM * 8


def test_a_kernel_is_linear_along_groups_and_between_windows():
    "Along two modes at once, and with fewer keys than queries."
    for kind, more in [(Axial, dict(groups=[(0, 1)])), (Divided, {}), (Multi, {})]:
        layer = kind(DIM, HEADS, 2, kernel=torch.relu, **more)
        a, b = largest(layer, 16, 32), largest(layer, 32, 32)
        assert b == 2 * a and b <= 4 * 1024 * DIM

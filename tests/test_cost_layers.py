"""Each layer's own cost against what is counted and measured, for random settings."""
import random

import pytest
import torch

from hot_nbdev.attention import FullAttention
from hot_nbdev.axial import AxialAttention, DividedAttention, MultiscaleAttention, NoAttention
from hot_nbdev.cost import count, peak_memory
from hot_nbdev.kernels import ElementwiseFeatures, PositiveRandomFeatures


def any_layer(kind):
    "A layer with random settings, and sizes for it."
    k, heads, width = random.randint(1, 3), random.choice([1, 2, 4]), random.choice([4, 8, 16])
    causal = tuple(m for m in range(k) if random.random() < 0.3)
    few = random.choice([4, 16])
    kernels = [None, None, torch.relu, ElementwiseFeatures(), PositiveRandomFeatures(width, few)]
    strides = [[1 if m in causal else random.randint(1, 3) for m in range(k)] for _ in range(2)]
    groups = random.choice([None, [0], [range(k)], [-1, 0]])
    more = {FullAttention: (), NoAttention: (), AxialAttention: (groups,), DividedAttention: (groups,),
            MultiscaleAttention: (*strides, random.choice(["mean", "learned"]))}[kind]
    options = dict(causal=causal, bias=random.random() < 0.5)
    if kind is not NoAttention:
        options.update(qk_norm=random.random() < 0.3, kernel=random.choice(kernels))
    sizes = [random.randint(1, [200, 14, 8][k - 1]) for _ in range(k)]
    return kind(heads * width, heads, k, *more, **options), sizes


@pytest.mark.parametrize("kind", [FullAttention, AxialAttention, DividedAttention, MultiscaleAttention,
                                  NoAttention])
def test_a_layer_knows_its_cost(kind):
    "Multiply-adds, parameters, entries of maps exactly; the peak within a factor of 2, bytes moved within 3."
    random.seed(0)
    torch.manual_seed(0)
    for _ in range(60):
        layer, sizes = any_layer(kind)
        x, cost = torch.randn(1, *sizes, layer.dim), layer.cost(sizes)
        with torch.no_grad():
            work, memory = count(layer, x), peak_memory(layer, x)
            entries = sum(S.numel() for S in layer.maps(x))
        kernel = layer.stages[0].kernel if kind is DividedAttention else layer.kernel
        assert (cost.multiply_adds, cost.parameters) == (work.multiply_adds, work.parameters), (layer, sizes)
        assert cost.map_entries == (0 if kernel is not None else entries)
        assert memory.peak / 2 <= cost.peak <= 2 * memory.peak, (layer, sizes)
        assert memory.moved / 3 <= cost.moved <= 3 * memory.moved, (layer, sizes)


def test_a_subclass_has_a_cost():
    class Own(FullAttention):
        pass
    assert Own(8, 2, 2).cost((3, 4)) == FullAttention(8, 2, 2).cost((3, 4))


def test_bytes_follow_the_type():
    half, single = (FullAttention(8, 2, 2, dtype=t).cost((3, 4)) for t in (torch.float16, torch.float32))
    assert 2 * half.peak == single.peak and half.multiply_adds == single.multiply_adds

"""Each layer's own cost against the recorders, over random settings."""
import random
from math import prod

import pytest
import torch
from torch import nn

from hot_nbdev.attention import FullAttention
from hot_nbdev.cost import Work, attention_cost, count, peak_memory
from hot_nbdev.kernels import ElementwiseFeatures, PositiveRandomFeatures
from hot_nbdev.kronecker_attention import KroneckerAttention


def any_layer(rng):
    "A Kronecker layer of random settings, and sizes for it."
    k, heads, width = rng.randint(1, 4), rng.choice([1, 2, 4]), rng.choice([2, 4, 8])
    sizes = [rng.randint(1, {1: 40, 2: 20, 3: 9, 4: 5}[k]) for _ in range(k)]
    kernel = rng.choice([None, None, ElementwiseFeatures(), PositiveRandomFeatures(width, rng.randint(1, 6))])
    causal = tuple(m for m in range(k) if rng.random() < 0.3)
    return KroneckerAttention(heads * width, heads, k, combine=rng.choice(["product", "sum"]), causal=causal,
                              kernel=kernel, shared=rng.random() < 0.5, bias=rng.random() < 0.5,
                              qk_norm=rng.random() < 0.5, qk_center=rng.random() < 0.5,
                              pool=rng.choice(["mean", "sum", "rsqrt"])), sizes


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_kronecker_multiply_adds_are_exact_and_memory_is_near(seed, masked):
    layer, sizes = any_layer(random.Random(seed))
    x = torch.zeros(1, *sizes, layer.dim)
    mask = torch.ones(1, *sizes, dtype=torch.bool) if masked else None
    with torch.no_grad():
        found, memory = count(layer, x, mask), peak_memory(layer, x, mask)
    cost = layer.cost(sizes, masked)
    assert found.multiply_adds == cost.multiply_adds
    assert found.parameters == cost.parameters
    assert cost.peak / 2 <= memory.peak <= 2 * cost.peak
    assert cost.moved / 3 <= memory.moved <= 3 * cost.moved
    if layer.kernel is None:
        assert found.exponentials == cost.map_entries
        assert masked or layer.qk_norm or found.additions == cost.pooling


def test_gradients_do_not_change_the_count():
    layer, x = KroneckerAttention(8, 2, 3), torch.zeros(1, 3, 4, 5, 8)
    assert count(layer, x).multiply_adds == layer.cost((3, 4, 5)).multiply_adds


def test_a_layer_without_cost_is_counted_and_a_subclass_is_asked():
    class Mine(FullAttention):
        pass

    class Silent(nn.Module):
        dim = 8

        def forward(self, x):
            return x @ torch.ones(8, 8, device=x.device)
    assert attention_cost(Mine(8, 2, 2), (3, 4)) == FullAttention(8, 2, 2).cost((3, 4))
    assert attention_cost(Silent(), (3, 4)).multiply_adds == prod((3, 4)) * 64
    with pytest.raises(ValueError, match="a Linear has neither"):
        attention_cost(nn.Linear(2, 2), (3, 4))


def test_count_and_peak_by_hand():
    assert count(nn.Linear(3, 5), torch.zeros(4, 3)) == Work(60, 0, 0, 20)
    found = peak_memory(lambda x: (x + 1) * 2, torch.zeros(10, 10))
    assert (found.peak, found.kept, found.moved, found.largest) == (800, 400, 1600, 100)

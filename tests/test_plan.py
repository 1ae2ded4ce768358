"""How the maps of Kronecker attention are multiplied: plans, layouts and bytes, counted and never timed."""
import itertools

import pytest
import torch
from layers import since
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from hot_nbdev.cost import count
from hot_nbdev.kronecker import kron_apply
from hot_nbdev.kronecker_attention import KroneckerAttention, mean, product

HEADS = 8
SHAPES = [  # batch, sizes, dim: those of bench/attention.py
    (8, (7, 7, 7), 128), (2, (14, 14, 14), 128), (1, (28, 28, 28), 64),
    (4, (321, 24), 128), (16, (21, 24), 128), (2, (66, 66), 128),
]
IDS = ["x".join(map(str, sizes)) for _, sizes, _ in SHAPES]


class Seen(TorchDispatchMode):
    "Products of batches of matrices, with shapes and strides of their operands."

    def __init__(self):
        super().__init__()
        self.products = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("bmm", "baddbmm"):
            self.products.append([(tuple(t.shape), t.stride()) for t in args[-2:]])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", [s for _, s, _ in SHAPES], ids=IDS)
def test_no_product_of_the_forward_pass_gets_a_transposed_map(sizes, grad):
    "Nor a copy of a map, repeated over other modes, that is larger than a quarter of the values."
    torch.manual_seed(0)
    layer, x = KroneckerAttention(32, HEADS, len(sizes)), torch.randn(2, *sizes, 32)
    with torch.set_grad_enabled(grad), Seen() as forward:
        layer(x)
    maps = [left for left, right in forward.products if left[0][1] == left[0][2] and right[0][2] != left[0][1]]
    assert len(maps) >= len(sizes)
    for (batch, rows, columns), (_, row, column) in maps:
        assert not (rows > 1 and columns > 1 and row == 1 and column > 1)       # columns side by side in memory
        assert batch * rows * columns <= max(x.numel() // 4, 2 * HEADS * max(sizes) ** 2)


@since("2.13")
@pytest.mark.parametrize("batch, sizes, dim", SHAPES, ids=IDS)
def test_a_forward_pass_holds_no_more_than_two_projections(batch, sizes, dim):
    layer, x = KroneckerAttention(dim, HEADS, len(sizes)).to("meta"), torch.empty(batch, *sizes, dim, device="meta")
    with torch.no_grad():
        found = count(layer, x)
    maps = batch * HEADS * sum(n * n for n in sizes)
    assert found.peak == 4 * (2 * x.numel() + maps)


@pytest.mark.parametrize("sizes", [(1,), (5,), (1, 1), (3, 1, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_both_ways_give_the_same(batch, sizes, width):
    "The way without a gradient, the way with one, and the definition; sizes of 1 and empty tensors too."
    torch.manual_seed(1)
    maps = [torch.randn(batch, 2, n, n, dtype=torch.float64).softmax(-1) for n in sizes]
    v = torch.randn(batch, *sizes, 2, width, dtype=torch.float64).movedim(-2, 1)        # as heads are cut
    kept = v.clone()
    with torch.no_grad():
        free = product(maps, v)
    assert_close(free, product(maps, v), rtol=0, atol=1e-12)
    assert_close(free, kron_apply(maps, v) if v.numel() else kept, rtol=0, atol=1e-12)
    assert torch.equal(v, kept) and free.shape == v.shape
    total = mean(maps, v)
    assert torch.equal(v, kept) and total.shape == v.shape


def test_values_with_zero_strides_and_half_precision():
    units = torch.eye(6, dtype=torch.float64).reshape(1, 1, 2, 3, 6).expand(2, 4, 2, 3, 6)
    maps = [torch.rand(2, 4, n, n, dtype=torch.float64) for n in (2, 3)]
    with torch.no_grad():
        assert_close(product(maps, units), kron_apply(maps, units))
        half = product(maps, units.to(torch.bfloat16))
    assert half.dtype == torch.bfloat16


def pairs(sizes, features, **options):
    "Thin factors of a map for each mode, for one head."
    return [(torch.empty(1, 1, n, features, **options), torch.empty(1, 1, features, n, **options)) for n in sizes]


@pytest.mark.parametrize("sizes", [(9,), (9, 4), (3, 8, 5), (6, 6, 6)])
@pytest.mark.parametrize("features", [1, 2, 3, 5, 9])
def test_no_other_plan_is_cheaper(sizes, features):
    "All sequences of all choices, counted: each pair as it is, R before L, or as a matrix."
    k, v = len(sizes), torch.empty(1, 1, *sizes, 4)
    maps, costs = pairs(sizes, features), []
    for formed in itertools.product((True, False), repeat=k):
        steps = [[(m, "S")] if whole else [(m, "R"), (m, "L")] for m, whole in enumerate(formed)]
        for order in set(itertools.permutations([m for part in steps for m, _ in part])):
            left, cost, entries = [list(part) for part in steps], 0, v.numel()
            for m in order:
                _, which = left[m].pop(0)
                rows, columns = {"S": (sizes[m], sizes[m]), "R": (features, sizes[m]), "L": (sizes[m], features)}[which]
                cost += entries * rows + (sizes[m] * features * sizes[m] if which == "S" else 0)
                entries = entries // columns * rows
            costs.append(cost)
    assert count(product, maps, v).multiply_adds <= min(costs)


def test_maps_of_queries_on_another_grid_are_planned():
    torch.manual_seed(0)
    maps = [torch.rand(2, 3, n, m).double() for n, m in ((5, 2), (1, 6), (4, 4))]
    v = torch.randn(2, 3, 2, 6, 4, 3).double()
    want = torch.einsum("bhai,bhcj,bhel,bhijlf->bhacef", *maps, v)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert_close(product(maps, v), want)
    costs = []
    for order in itertools.permutations(range(3)):
        cost, entries = 0, v.numel()
        for m in order:
            cost += entries * maps[m].shape[-2]
            entries = entries // maps[m].shape[-1] * maps[m].shape[-2]
        costs.append(cost)
    assert count(product, maps, v).multiply_adds == min(costs)

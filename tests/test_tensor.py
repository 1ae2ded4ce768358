"""Properties of `hot_nbdev.tensor` on shapes that hypothesis draws, and the ways engineers call it."""
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from hot_nbdev import tensor as T

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)
orders = st.sampled_from(["row", "kolda"])
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"))])


def draw_tensor(shape, seed=0, **kwargs):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(**kwargs)


@given(shapes, orders, st.data())
def test_fold_undoes_unfold(shape, order, data):
    x, mode = draw_tensor(shape), data.draw(st.integers(-len(shape), len(shape) - 1))
    assert torch.equal(T.fold(T.unfold(x, mode, order), mode, shape, order), x)
    assert torch.equal(T.unvec(T.vec(x, order), shape, order), x)


@given(shapes, st.data())
def test_kolda_index_translates(shape, data):
    x, mode = draw_tensor(shape), data.draw(st.integers(-len(shape), len(shape) - 1))
    assert torch.equal(T.unfold(x, mode)[:, T.kolda_index(shape, mode)], T.unfold(x, mode, "kolda"))


@given(shapes, st.data())
@settings(deadline=None)
def test_multi_mode_dot_is_einsum(shape, data):
    x = draw_tensor(shape)
    mats = [draw_tensor((data.draw(st.integers(1, 6)), n), seed=i) for i, n in enumerate(shape)]
    letters = "abcdefghij"
    inputs = ",".join(f"{letters[i + 5]}{letters[i]}" for i in range(len(shape)))
    spec = f"{letters[:len(shape)]},{inputs}->{letters[5:5 + len(shape)]}"
    assert_close(T.multi_mode_dot(x, mats), torch.einsum(spec, x, *mats))


@given(shapes, st.data())
@settings(deadline=None)
def test_mode_dot_takes_strided_and_empty_input(shape, data):
    mode = data.draw(st.integers(0, len(shape) - 1))
    x, A = draw_tensor(shape + (2,))[..., 0], draw_tensor((3, shape[mode]), seed=1)
    assert_close(T.mode_dot(x, A, mode), T.mode_dot(x.contiguous(), A, mode))
    for axis in set(range(len(shape))) - {mode}:
        want = list(shape)
        want[axis], want[mode] = 0, 3
        assert T.mode_dot(x.narrow(axis, 0, 0), A, mode).shape == tuple(want)


def test_a_number_has_no_mode():
    with pytest.raises(ValueError, match="mode 0 is out of range for a tensor with 0 modes$"):
        T.unfold(torch.tensor(1.0), 0)


@devices
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_dtype_and_device_are_kept(device, dtype, mode):
    x, A = draw_tensor((3, 4, 20)), draw_tensor((5, (3, 4, 20)[mode]), seed=1)
    y = T.mode_dot(x.to(device, dtype), A.to(device, dtype), mode)
    assert (y.dtype, y.device.type) == (dtype, device)
    want = T.mode_dot(x.to(dtype).double(), A.to(dtype).double(), mode)
    assert_close(y.cpu().double(), want, rtol=4 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)


def test_unfold_and_vec_share_memory_where_they_can():
    x = draw_tensor((2, 3, 4))
    assert T.unfold(x, 0).data_ptr() == x.data_ptr() == T.vec(x).data_ptr()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_compiles_without_graph_breaks(mode):
    x = draw_tensor((3, 4, 20), dtype=torch.float32)
    A = draw_tensor((5, (3, 4, 20)[mode]), dtype=torch.float32)
    compiled = torch.compile(lambda x, A: T.mode_dot(x, A, mode), fullgraph=True, backend="aot_eager")
    assert_close(compiled(x, A), T.mode_dot(x, A, mode))


@pytest.mark.parametrize("order", ["row", "kolda"])
def test_foldings_compile_without_graph_breaks(order):
    x = draw_tensor((3, 4, 5))
    folded = torch.compile(lambda x: T.fold(2 * T.unfold(x, 1, order), 1, x.shape, order),
                           fullgraph=True, backend="aot_eager")
    assert_close(folded(x), 2 * x)
    converted = torch.compile(lambda x: T.unfold(x, 1)[:, T.kolda_index(x.shape, 1)],
                              fullgraph=True, backend="aot_eager")
    assert_close(converted(x), T.unfold(x, 1, "kolda"))


def test_compiles_once_for_all_sizes():
    mats = [torch.randn(5, 3), torch.randn(2, 4)]
    compiled = torch.compile(T.multi_mode_dot, fullgraph=True, backend="aot_eager", dynamic=True)
    for sizes in [(3, 4, 20), (3, 4, 31)]:
        x = torch.randn(sizes)
        assert_close(compiled(x, mats), T.multi_mode_dot(x, mats))
    for n, m in [(6, 7), (8, 9)]:
        x, mats = torch.randn(n, m, 5), [torch.randn(m, n), torch.randn(n, m)]
        assert_close(compiled(x, mats), T.multi_mode_dot(x, mats))

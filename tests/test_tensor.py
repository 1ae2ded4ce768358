"""Properties of `hot_nbdev.tensor` on shapes that hypothesis draws, and the ways engineers call it."""
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from often import examples
from torch.func import vmap
from torch.testing import assert_close

from hot_nbdev import tensor as T

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def draw_tensor(shape, seed=0, **kwargs):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(**kwargs)


@given(shapes, st.data())
@examples(60)
def test_kolda_index_translates_and_fold_undoes_unfold(shape, data):
    "Their order is that of the tensor with its indices reversed."
    x, mode = draw_tensor(shape), data.draw(st.integers(-len(shape), len(shape) - 1))
    reverse, p = x.permute(*reversed(range(x.ndim))), T.kolda_index(shape, mode)
    kolda = T.unfold(x, mode)[:, p]
    assert torch.equal(kolda, T.unfold(reverse, -1 - mode))
    assert torch.equal(T.fold(kolda[:, p.argsort()], mode, shape), x)
    assert torch.equal(T.vec(x)[T.kolda_index(shape)], T.vec(reverse))


@given(shapes, st.data())
@examples(60)
def test_multi_mode_dot_is_einsum(shape, data):
    x = draw_tensor(shape)
    mats = [draw_tensor((data.draw(st.integers(1, 6)), n), seed=i) for i, n in enumerate(shape)]
    letters = "abcdefghij"
    inputs = ",".join(f"{letters[i + 5]}{letters[i]}" for i in range(len(shape)))
    spec = f"{letters[:len(shape)]},{inputs}->{letters[5:5 + len(shape)]}"
    assert_close(T.multi_mode_dot(x, mats), torch.einsum(spec, x, *mats))


def test_unfold_and_vec_share_memory_and_a_number_has_no_mode():
    x = draw_tensor((2, 3, 4))
    assert T.unfold(x, 0).data_ptr() == x.data_ptr() == T.vec(x).data_ptr()
    with pytest.raises(ValueError, match="mode 0 is out of range for a tensor with 0 modes"):
        T.unfold(torch.tensor(1.0), 0)


@given(shapes, st.lists(st.integers(1, 3), max_size=2).map(tuple), st.booleans(), st.data())
@examples(60)
def test_mode_dot_gives_each_element_of_the_batch_its_matrix(shape, batch, shared, data):
    "Wide tensors too, so that matrices are repeated, and narrow ones, so that the mode goes to the front."
    shape = (*shape, data.draw(st.sampled_from([1, 2, 17, 40])))
    mode, rows = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.integers(1, 6))
    x = draw_tensor((*batch, *shape))
    A = draw_tensor((*(() if shared else batch), rows, shape[mode]), seed=1)
    modes, lead = "abcdef"[:len(shape)], "xyz"[:len(batch)]
    spec = f"{lead}{modes},{'' if shared else lead}r{modes[mode]}->{lead}{modes.replace(modes[mode], 'r')}"
    want = torch.einsum(spec, x, A)
    assert_close(T.mode_dot(x, A, mode, batch=len(batch)), want)
    assert_close(T.mode_dot(x, A, mode - len(shape), batch=len(batch)), want)
    backwards = x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))
    assert_close(T.mode_dot(backwards, A, mode, batch=len(batch)), want)


def test_mode_dot_takes_empty_batches_modes_and_broadcast_matrices():
    x, A = draw_tensor((3, 2, 4, 5, 6)), draw_tensor((1, 2, 7, 4), seed=1)
    assert_close(T.mode_dot(x, A, 0, batch=2)[1], T.mode_dot(x[1], A[0], 0, batch=1))
    assert T.mode_dot(x[:0], A, 0, batch=2).shape == (0, 2, 7, 5, 6)
    assert T.mode_dot(x[..., :0, :], A, 0, batch=2).shape == (3, 2, 7, 0, 6)
    nothing = T.mode_dot(x[:, :, :0], A[..., :0], 0, batch=2)
    assert torch.equal(nothing, torch.zeros(3, 2, 7, 5, 6, dtype=x.dtype))


@examples(40)
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), d=st.integers(1, 20), data=st.data())
def test_mode_dot_starts_from_a_bias(shape, d, data):
    "Along the mode, whichever way the product takes, also where it sums nothing."
    mode, wide = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    x, A, b = draw_tensor((*shape, *[17] * wide)), draw_tensor((d, shape[mode])), draw_tensor((d,), seed=1)
    want = T.mode_dot(x, A, mode) + b.reshape(-1, *[1] * (x.ndim - mode - 1))
    assert_close(T.mode_dot(x, A, mode, bias=b), want)
    assert_close(vmap(lambda b: T.mode_dot(x, A, mode, bias=b))(torch.stack([b, 2 * b]))[0], want)


@pytest.mark.parametrize("A, mode, batch, bias, message", [
    ((2, 4), 1, 0, None, r"mode 1 of x \(2, 3, 4\) has size 3, so A must be \(d, 3\), but is \(2, 4\)$"),
    ((3, 5), 1, 0, None, r"A must be \(d, 3\), but is \(3, 5\); its transpose fits: A.mT$"),
    ((2, 5, 3), 1, 1, None, r"mode 1 of .* has size 4, so A must be \(d, 4\) or \(2, d, 4\), but is \(2, 5, 3\)$"),
    ((3, 5, 3), 0, 1, None, r"so A must be \(d, 3\) or \(2, d, 3\), but is \(3, 5, 3\)"),
    ((5, 4), 2, 1, None, "mode 2 is out of range for a tensor with 2 modes"),
    ((4,), 1, 1, None, r"A must be \(d, 4\) or \(2, d, 4\), but is \(4,\)$"),
    *[(A, 0, 1, bias, r"mode_dot: bias has shape .* must be \(5,\)")
      for A, bias in (((5, 3), (3,)), ((5, 3), (5, 1)), ((2, 5, 3), (5,)))]])
def test_mode_dot_says_what_would_fit(A, mode, batch, bias, message):
    with pytest.raises(ValueError, match=message):
        T.mode_dot(torch.zeros(2, 3, 4), torch.zeros(A), mode, batch, bias and torch.zeros(bias))

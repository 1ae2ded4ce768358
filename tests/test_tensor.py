"""Properties of `hot_nbdev.tensor` on shapes that hypothesis draws; chapter 1 tries loops, layouts and errors."""
import torch
from hypothesis import given
from hypothesis import strategies as st
from often import examples
from torch.func import vmap
from torch.testing import assert_close

from hot_nbdev import tensor as T

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def draw_tensor(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_unfold_and_vec_share_memory():
    x = draw_tensor((2, 3, 4))
    assert T.unfold(x, 0).data_ptr() == x.data_ptr() == T.vec(x).data_ptr()


@given(shapes, st.data())
@examples(30)
def test_multi_mode_dot_is_einsum(shape, data):
    x = draw_tensor(shape)
    mats = [draw_tensor((data.draw(st.integers(1, 6)), n), seed=i) for i, n in enumerate(shape)]
    letters = "abcdefghij"
    inputs = ",".join(f"{letters[i + 5]}{letters[i]}" for i in range(len(shape)))
    spec = f"{letters[:len(shape)]},{inputs}->{letters[5:5 + len(shape)]}"
    assert_close(T.multi_mode_dot(x, mats), torch.einsum(spec, x, *mats))


@given(shapes, st.lists(st.integers(0, 3), max_size=2).map(tuple), st.booleans(), st.data())
@examples(40)
def test_mode_dot_gives_each_element_of_the_batch_its_matrix(shape, batch, shared, data):
    "Wide tensors too, so that matrices are repeated, and narrow ones, so that the mode goes to the front; and none."
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


@examples(30)
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), d=st.integers(1, 20), data=st.data())
def test_mode_dot_starts_from_a_bias(shape, d, data):
    "Along the mode, whichever way the product takes, also where it sums nothing."
    mode, wide = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.booleans())
    x, A, b = draw_tensor((*shape, *[17] * wide)), draw_tensor((d, shape[mode])), draw_tensor((d,), seed=1)
    want = T.mode_dot(x, A, mode) + b.reshape(-1, *[1] * (x.ndim - mode - 1))
    assert_close(T.mode_dot(x, A, mode, bias=b), want)
    assert_close(vmap(lambda b: T.mode_dot(x, A, mode, bias=b))(torch.stack([b, 2 * b]))[0], want)

"""Properties of `factorization` and `universality`, against TensorLy and what the theorem allows."""
from math import prod

import pytest
import tensorly as tl
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import tensor as draw
from often import examples
from torch.testing import assert_close

from hot_nbdev import factorization as f
from hot_nbdev import universality as u
from hot_nbdev.kronecker import kron

sizes = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)


@examples(60)
@given(sizes, st.integers(0, 20))
def test_exact_kron_is_exact_with_as_many_terms_as_the_small_modes_allow(pairs, seed):
    rows, cols = zip(*pairs, strict=True)
    drawn = draw(prod(rows), prod(cols), seed=seed)
    for S in (drawn, (10 * drawn).long()):
        terms = u.exact_kron(S, rows, cols)
        assert torch.equal(f.kron_terms_to_matrix(terms), S)
        assert len(terms) <= u.enough_terms(rows, cols) == prod(sorted(m * n for m, n in pairs)[:-1])
        assert len(u.exact_kron(0 * S, rows, cols)) == 1


def test_exact_kron_drops_zeros_only_and_has_gradients():
    S = kron(torch.tensor([[1.0, 1e-9], [0.0, torch.nan]]), torch.eye(3))
    assert len(u.exact_kron(S, (2, 3), (2, 3))) == 3
    leaf = draw(4, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda S: u.exact_kron(S, (2, 2), (3, 2))[3], leaf)


@examples(15)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=2, max_size=4), st.integers(0, 20))
def test_parafac_is_exact_with_as_many_terms_as_the_theorem_says(pairs, seed):
    "TensorLy's CP of the rearranged matrix, folded: for every order and rectangular sizes, from one random start."
    rows, cols = zip(*pairs, strict=True)
    S = draw(prod(rows), prod(cols), seed=seed)
    R = u.enough_terms(rows, cols)
    with tl.backend_context("numpy", local_threadsafe=True):
        _, factors = tl.decomposition.parafac(f.rearrange(S, rows, cols).numpy(), R, n_iter_max=3, init="random",
                                              random_state=seed, tol=0)
    folded = [torch.from_numpy(A.T.copy()).reshape(R, m, n) for A, m, n in zip(factors, rows, cols, strict=True)]
    total = f.kron_terms_to_matrix(list(zip(*folded, strict=True)))
    near = 1e-4 * S.norm()      # rounding, made larger by starts that are near a singular one; 1e-9 is common
    assert (total - S).norm() < near
    found = u.kron_cp(S, rows, cols, R, n_iter=3, seed=seed)
    assert len(found.terms) == R and found.error < near
    assert (f.kron_terms_to_matrix(found.terms) - total).norm() < near


def test_fewer_terms_than_the_rank_of_an_unfolding_leave_an_error():
    S = draw(16, 16, seed=2)                # 2 x 2 x 4: mode 3 is as large as the others together
    assert u.enough_terms((2, 2, 4), (2, 2, 4)) == 16
    tail = torch.linalg.svdvals(f.rearrange(S, (2, 2, 4), (2, 2, 4)).reshape(16, 16))[-1]
    found = u.kron_cp(S, (2, 2, 4), (2, 2, 4), 15, n_iter=20)
    assert found.error >= tail > 0.001
    assert_close((S - f.kron_terms_to_matrix(found.terms)).norm(), found.error)      # which it says


@pytest.mark.filterwarnings("ignore:Trying to compute SVD")
@examples(5)
@given(st.lists(st.integers(2, 5), min_size=3, max_size=4), st.data())
def test_tucker_is_no_worse_than_tensorlys(shape, data):
    ranks = tuple(data.draw(st.integers(1, n)) for n in shape)
    x = draw(*shape, seed=sum(shape))
    with tl.backend_context("numpy", local_threadsafe=True):
        core, factors = tl.decomposition.tucker(x.numpy(), ranks, n_iter_max=100, tol=0, random_state=0)
        other = torch.from_numpy(tl.tucker_to_tensor((core, factors)).copy())
    found = f.tucker(x, ranks, n_iter=100)
    assert [U.shape for U in found[1]] == [(n, r) for n, r in zip(shape, ranks, strict=True)]
    assert (x - f.tucker_to_tensor(found)).norm() <= (1 + 1e-6) * (x - other).norm() + 1e-9


def test_the_users_backend_stays():
    for name in ("numpy", "pytorch"):
        with tl.backend_context(name, local_threadsafe=True):
            assert isinstance(f.cp(draw(3, 3), 1, n_iter=2)[0], torch.Tensor)
            assert tl.get_backend() == name
    with torch.autocast("cpu", dtype=torch.bfloat16):       # a fit is not made in lower precision
        found = f.cp(draw(3, 1) @ draw(1, 4, seed=1), 1)
    assert_close(f.cp_to_tensor(found), draw(3, 1) @ draw(1, 4, seed=1))

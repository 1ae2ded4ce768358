"""Properties of `hot_nbdev.factorization`, against einsum and exhaustive constructions."""
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from often import examples
from torch.testing import assert_close

from hot_nbdev import factorization as f
from hot_nbdev.kronecker import kron

F64 = torch.float64
sizes = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@examples(100)
@given(sizes, st.booleans(), st.integers(0, 20))
def test_rearranging_turns_kronecker_into_outer_products_and_back(pairs, batched, seed):
    rows, cols = zip(*pairs, strict=True)
    mats = [draw(m, n, seed=seed + i) for i, (m, n) in enumerate(pairs)]
    S = kron(*mats)
    T = f.rearrange(S, rows, cols)
    want = mats[0].flatten()
    for A in mats[1:]:
        want = want[..., None] * A.flatten()
    assert_close(T, want)
    S = torch.stack([S, 2 * S]) if batched else S
    assert torch.equal(f.unrearrange(f.rearrange(S, rows, cols), rows, cols), S)


def test_nearest_kron_is_the_best_and_says_how_far():
    S = draw(2, 6, 6, seed=3)
    errors = []
    for terms in (1, 2, 4):
        found = f.nearest_kron(S, (2, 3), (3, 2), terms)
        far = torch.linalg.matrix_norm(S - f.kron_terms_to_matrix(found.terms))
        assert_close(far, found.error)
        errors.append(far)
    assert (errors[0] > errors[1]).all() and (errors[1] > errors[2]).all()
    for seed in range(20):      # no other pair is nearer
        A, B = draw(2, 3, seed=seed), draw(3, 2, seed=seed + 50)
        K = kron(A, B)
        K = K * (S[0] * K).sum() / K.square().sum()
        assert (S[0] - K).norm() >= errors[0][0] - 1e-9


def test_nearest_kron_refuses_more_terms_than_there_are():
    with pytest.raises(ValueError, match="from 1 to 6 terms, but 7 came"):
        f.nearest_kron(draw(6, 6), (2, 3), (3, 2), 7)
    with pytest.raises(ValueError, match="use kron_cp"):
        f.nearest_kron(draw(8, 8), (2, 2, 2), (2, 2, 2))


@given(sizes, st.integers(0, 20))
def test_exact_kron_is_exact_with_as_many_terms_as_the_small_modes_allow(pairs, seed):
    rows, cols = zip(*pairs, strict=True)
    S = draw(prod(rows), prod(cols), seed=seed)
    terms = f.exact_kron(S, rows, cols)
    assert torch.equal(f.kron_terms_to_matrix(terms), S)
    assert len(terms) <= prod(sorted(m * n for m, n in pairs)[:-1])
    assert len(f.exact_kron(0 * S, rows, cols)) == 1


def test_exact_kron_drops_what_is_below_the_tolerance_only():
    S = kron(torch.tensor([[1.0, 1e-9], [0.0, 0.0]]), torch.eye(3))
    assert len(f.exact_kron(S, (2, 3), (2, 3))) == 2
    assert len(f.exact_kron(S, (2, 3), (2, 3), tol=1e-8)) == 1


def test_cp_finds_a_tensor_of_its_rank_and_sorts_its_terms():
    factors = [draw(n, 2, seed=n) for n in (4, 5, 6)]
    x = torch.einsum("ir,jr,kr->ijk", *factors)
    found = f.cp(x, 2, n_iter=500, seed=1)
    assert_close(f.cp_to_tensor(found), x, atol=1e-6, rtol=1e-6)
    assert found.weights[0] >= found.weights[1] > 0
    for factor in found.factors:
        assert_close(factor.norm(dim=0), torch.ones(2, dtype=F64))


def test_cp_to_tensor_takes_no_weights():
    factors = [draw(n, 2, seed=n) for n in (2, 3)]
    assert_close(f.cp_to_tensor((None, factors)), factors[0] @ factors[1].T)


def test_tucker_is_exact_at_full_ranks_and_orthonormal():
    x = draw(3, 4, 5)
    core, factors = f.tucker(x, (3, 4, 5))
    assert_close(f.tucker_to_tensor((core, factors)), x)
    core, factors = f.tucker(x, (2, 2, 2))
    assert core.shape == (2, 2, 2)
    for U in factors:
        assert_close(U.T @ U, torch.eye(2, dtype=F64))
    with pytest.raises(ValueError, match="ranks"):
        f.tucker(x, (2, 5, 2))


@examples(5)
@given(st.integers(0, 20))
def test_kron_cp_says_its_own_error(seed):
    S = draw(8, 8, seed=seed)
    found = f.kron_cp(S, (2, 2, 2), (2, 2, 2), 2, n_iter=20)
    assert_close((S - f.kron_terms_to_matrix(found.terms)).norm(), found.error)


def test_the_users_backend_stays():
    import tensorly as tl
    before = tl.get_backend()
    f.cp(draw(3, 3), 1, n_iter=2)
    assert tl.get_backend() == before

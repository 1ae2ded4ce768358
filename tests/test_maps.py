"""Numbers of maps: their dtypes and gradients, what is refused, and the script behind the rows."""
import pytest
import torch
from scripts import load

from hot_nbdev.book import results_file
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.maps import (
    Changed,
    changed,
    map_rows,
    model_maps,
    other_sample,
    pattern_share,
    rank_one_distance,
    sum_rank_bound,
    uniform_map,
)
from hot_nbdev.model_config import HOTConfig
from hot_nbdev.models import HOTEncoder
from hot_nbdev.names import kronecker
from hot_nbdev.train.results import read_rows


def maps(*shape, sizes=(3, 4), blocks=2):
    torch.manual_seed(0)
    return [[torch.randn(*shape, n, n).softmax(-1) for n in sizes] for _ in range(blocks)]


def test_numbers_follow_the_dtype_and_have_gradients():
    S = torch.randn(4, 5, 5, dtype=torch.float64).softmax(-1).requires_grad_()
    assert torch.autograd.gradcheck(rank_one_distance, S)
    assert torch.autograd.gradcheck(lambda S: pattern_share(S, "offset"), S)
    assert pattern_share(S.float()).dtype == torch.float32


def test_the_script_behind_the_rows_measures_what_they_say():
    script, rows = load("map_ranks"), read_rows(results_file("map_ranks.csv"))
    expected = {(kind, mode) for kind, (*_, modes) in script.KINDS.items() for mode in [*modes, "joint"]}
    assert {(r["attention"], r["mode"]) for r in rows} == expected
    for kind, (*_, combine, modes) in script.KINDS.items():
        found = maps(8, 4, sizes=(12, 8)[:len(modes) or 1])
        assert [r["mode"] for r in script.measure(kind, 0, found)] == 2 * [*modes, "joint"]
        assert script.model_of(kind).config.patch == (8, 1) and combine in ("product", "sum")
    same = [S[:1].expand(8, -1, -1, -1) for S in maps(8, 4)[0]]
    assert script.averaging(same) < 1e-6 < script.averaging(maps(8, 4)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_worked_on_in_float32(dtype):
    block = [S.to(dtype) for S in maps(2, sizes=(3, 4), blocks=1)[0]]
    assert sum_rank_bound(block).dtype == dtype
    single = [S.float() for S in block]
    for found, expected in zip(map_rows([block], "sum"), map_rows([single], "sum"), strict=True):
        for name in ("stable_rank", "rank_one_distance"):
            assert found[name] == pytest.approx(expected[name], rel=1e-5)
    large = torch.randn(200, 200).softmax(-1).to(dtype)         # far from uniform
    assert abs(pattern_share(large).item() - pattern_share(large.float()).item()) < 1e-2
    assert pattern_share(torch.full((200, 200), 1 / 200, dtype=dtype)).isnan()


def test_diagonals_of_a_long_sequence_need_no_table_of_classes():
    S = torch.zeros(1000, 1000).softmax(-1).roll(1, 1) + torch.eye(1000)
    assert pattern_share(S / 2, "offset").item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("call, message", [      # beside those of chapter 21
    (lambda: rank_one_distance(torch.eye(2, dtype=torch.int64)), "torch.int64"),
    (lambda: pattern_share(torch.empty(0, 0)), "of shape (0, 0)"),
    (lambda: sum_rank_bound([torch.rand(3, 4)]), "sum_rank_bound: S must be a map"),
    (lambda: map_rows(maps(2)[0]), "map_rows: maps must be a list of blocks"),
    (lambda: map_rows([[torch.rand(2, 4, 3, 3), torch.rand(2, 3, 4, 4)]]), "choose one line of the grid"),
    (lambda: map_rows(maps(2), "mean"), "but got 'mean'"),
])
def test_errors_say_what_came(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def test_rows_of_one_mode_and_of_several():
    assert [r["mode"] for r in map_rows(maps(2, sizes=(3,)))] == ["joint", "joint"]
    rows = map_rows(maps(2), "sum", step=4)
    assert [(r["block"], r["step"]) for r in rows] == [(block, 4) for block in (0, 1) for _ in range(3)]
    assert all((r["equation_12"] is None) == (r["mode"] != "joint") for r in rows)
    assert all(r["equation_12"] <= r["stable_rank"] + 1e-6 for r in rows if r["mode"] == "joint")


@pytest.mark.parametrize("name", ["product", "sum", "hot2", "full", "axial", "divided", "multiscale"])
def test_an_intervention_changes_one_head_of_a_model_and_leaves_it_as_it_was(name):
    "Chapter 21 tries layers, and all of their heads."
    torch.manual_seed(0)
    model = HOTEncoder(HOTConfig(patch=(1, 1), dim=8, depth=2, heads=2, attention=name, positions="none")).eval()
    x, mask, keys = torch.randn(3, 4, 5, 1), torch.rand(3, 4, 5) < 0.7, list(model.state_dict())
    y = model(x, mask)
    with pytest.raises(KeyError), changed(model, uniform_map, heads=[1]):
        for S in sum(model_maps(model, x, mask), []):
            assert (S[:, 0] - S[:, 0].amax(-1, keepdim=True)).abs().max() > 1e-3
            even = S[:, 1].amax(-1) * (S[:, 1] > 1e-9).sum(-1)
            torch.testing.assert_close(even[even > 0], torch.ones_like(even[even > 0]))
        assert (model(x, mask) - y).abs().max() > 1e-4
        raise KeyError
    assert model(x, mask).equal(y) and list(model.state_dict()) == keys
    assert not any(isinstance(m, Changed) for m in model.modules())


def test_the_maps_of_another_sample_are_those_that_it_has():
    torch.manual_seed(0)
    layer, x = KroneckerAttention(8, 2, 2), torch.randn(3, 4, 5, 8)
    whole = [S.roll(1, 0) for S in layer.maps(x)]
    with changed(layer, other_sample):
        torch.testing.assert_close(layer.maps(x), whole)
    with changed(layer, other_sample, mode=1):
        torch.testing.assert_close(layer.maps(x)[1], whole[1])
        assert not torch.allclose(layer.maps(x)[0], whole[0])


def test_an_intervention_keeps_windows_causal_modes_and_gradients():
    torch.manual_seed(0)
    layer = kronecker(8, 2, 2, causal=(0,), by_mode={1: dict(window=1), 0: dict(bias="learned", reach=2)}).double()
    x = torch.randn(2, 4, 5, 8, dtype=torch.float64, requires_grad=True)
    own = layer.maps(x)
    with changed(layer, uniform_map):
        S, T = layer.maps(x)
        layer(x).square().sum().backward()
    assert ((S > 0) == (own[0] > 0)).all() and ((T > 0) == (own[1] > 0)).all()
    assert x.grad.abs().max() > 0 and layer.weigh[0].score_mod.table.grad is None

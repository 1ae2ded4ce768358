"""Numbers of maps: their dtypes and gradients, what is refused, and the script behind the rows."""
import importlib.util
from pathlib import Path

import pytest
import torch

from hot_nbdev.maps import check_blocks, map_rows, pattern_share, rank_one_distance, sum_rank_bound
from hot_nbdev.results import read_rows


def maps(*shape, sizes=(3, 4), blocks=2):
    torch.manual_seed(0)
    return [[torch.randn(*shape, n, n).softmax(-1) for n in sizes] for _ in range(blocks)]


def test_numbers_follow_the_dtype_and_have_gradients():
    S = torch.randn(4, 5, 5, dtype=torch.float64).softmax(-1).requires_grad_()
    assert torch.autograd.gradcheck(rank_one_distance, S)
    assert torch.autograd.gradcheck(lambda S: pattern_share(S, "offset"), S)
    assert pattern_share(S.float()).dtype == torch.float32


def test_the_bound_of_the_sum_does_not_depend_on_the_order_of_modes():
    block = maps(2, sizes=(2, 3, 4), blocks=1)[0]
    torch.testing.assert_close(sum_rank_bound(block), sum_rank_bound(block[::-1]))


def test_the_script_behind_the_rows_measures_what_they_say():
    path = Path(__file__).parents[1]
    spec = importlib.util.spec_from_file_location("map_ranks", path / "bench" / "map_ranks.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = read_rows(path / "results" / "map_ranks.csv")
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


@pytest.mark.parametrize("call, message", [
    (lambda: rank_one_distance(torch.eye(2, dtype=torch.int64)), "torch.int64"),
    (lambda: rank_one_distance([torch.eye(2)]), "but is a list"),
    (lambda: pattern_share(torch.empty(0, 0)), "of shape (0, 0)"),
    (lambda: sum_rank_bound([torch.rand(3, 4)]), "sum_rank_bound: S must be a map"),
    (lambda: map_rows(maps(2)[0]), "map_rows: maps must be a list of blocks"),
    (lambda: map_rows([[]]), "map_rows: maps must be a list of blocks"),
    (lambda: map_rows([[torch.rand(2, 12, 4)]]), "map_rows: S must be a map"),
    (lambda: map_rows([[torch.rand(2, 4, 3, 3), torch.rand(2, 3, 4, 4)]]), "choose one line of the grid"),
    (lambda: check_blocks("f", [torch.eye(2)]), "f: maps must be a list of blocks"),
    (lambda: map_rows(maps(2), "mean"), "map_rows: combine is 'mean'"),
    (lambda: pattern_share(torch.eye(3), "row"), "but is 'row'"),
])
def test_errors_say_what_came(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def test_rows_of_one_mode_and_of_several():
    assert [r["mode"] for r in map_rows(maps(2, sizes=(3,)), step=4)] == ["joint", "joint"]
    rows = map_rows(maps(2), "sum", step=4)
    expected = [(block, mode, 4) for block in (0, 1) for mode in (0, 1, "joint")]
    assert [(r["block"], r["mode"], r["step"]) for r in rows] == expected
    assert all((r["equation_12"] is None) == (r["mode"] != "joint") for r in rows)
    assert all(r["equation_12"] <= r["stable_rank"] + 1e-6 for r in rows if r["mode"] == "joint")

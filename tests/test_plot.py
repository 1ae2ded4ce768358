"""Pictures of maps: what is drawn, on which axes, and that nothing else of matplotlib changes."""
import importlib.util
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from hot_nbdev.plot import (
    equation_12,
    map_rows,
    pattern_share,
    plot_curves,
    plot_joint,
    plot_maps,
    rank_one_distance,
)
from hot_nbdev.training import read_rows

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    "No figure is left to the next test."
    yield
    plt.close("all")


def maps(*shape, sizes=(3, 4), blocks=2):
    torch.manual_seed(0)
    return [[torch.randn(*shape, n, n).softmax(-1) for n in sizes] for _ in range(blocks)]


def test_importing_the_module_does_not_import_matplotlib():
    code = "import sys, hot_nbdev.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_settings_of_matplotlib_stay_as_they_are():
    before = dict(matplotlib.rcParams)
    fig = plot_maps(maps(5, 2))
    plot_joint([S[0, 0] for S in maps(5, 2)[0]])
    plot_curves(map_rows(maps(5, 2), step=0))
    assert dict(matplotlib.rcParams) == before and plt.fignum_exists(fig.number)


@pytest.mark.parametrize("batch", [(), (5,), (5, 2)])
def test_the_grid_is_modes_times_blocks_by_heads_in_one_scale(batch):
    found = maps(*batch, 3)
    fig = plot_maps(found, ["time", "series"])
    images = [image for ax in fig.axes for image in ax.images]
    assert len(images) == 2 * 2 * 3 and len({image.get_clim() for image in images}) == 1
    labels = [ax.get_ylabel() for ax in fig.axes if ax.get_ylabel() and ax.images]
    assert labels == ["time\nblock 1", "time\nblock 2", "series\nblock 1", "series\nblock 2"]
    first = found[0][0].reshape(-1, 3, 3, 3).mean(0)[0]                 # samples are averaged, heads are not
    torch.testing.assert_close(torch.tensor(images[0].get_array().data), first)


def test_figures_and_axes_of_the_caller_are_drawn_on():
    fig, ax = plt.subplots()
    assert plot_joint([torch.eye(2), torch.eye(3)], "sum", ax=ax) is ax
    assert plot_curves([{"step": 0, "mode": 0, "stable_rank": "1.5"}], ax=ax) is ax
    part = plt.figure().subfigures(1, 2)[0]
    assert plot_maps(maps(2), fig=part) is part


def test_numbers_follow_the_dtype_and_have_gradients():
    S = torch.randn(4, 5, 5, dtype=torch.float64).softmax(-1).requires_grad_()
    assert torch.autograd.gradcheck(rank_one_distance, S)
    assert torch.autograd.gradcheck(lambda S: pattern_share(S, "offset"), S)
    assert pattern_share(S.float()).dtype == torch.float32


def test_equation_12_does_not_depend_on_the_order_of_modes():
    block = maps(2, sizes=(2, 3, 4), blocks=1)[0]
    torch.testing.assert_close(equation_12(block), equation_12(block[::-1]))


@pytest.mark.parametrize("call, message", [
    (lambda: plot_maps(torch.rand(2, 3, 3)), "must be a list of blocks"),
    (lambda: plot_maps(maps(2), ["time"]), "1 names ('time',) for 2 modes"),
    (lambda: plot_joint([torch.eye(2)], "mean"), "combine is 'mean'"),
    (lambda: plot_joint([torch.eye(2)], query=(0, 0)), "the modes have sizes (2,)"),
    (lambda: plot_curves([]), "the rows have none"),
    (lambda: rank_one_distance(torch.eye(2, dtype=torch.int64)), "torch.int64"),
    (lambda: rank_one_distance([torch.eye(2)]), "but is a list"),
    (lambda: pattern_share(torch.empty(0, 0)), "of shape (0, 0)"),
    (lambda: equation_12([torch.rand(3, 4)]), "equation_12: S must be a map"),
    (lambda: map_rows(maps(2)[0]), "map_rows: maps must be a list of blocks"),
    (lambda: map_rows([[]]), "map_rows: maps must be a list of blocks"),
    (lambda: map_rows([[torch.rand(2, 12, 4)]]), "map_rows: S must be a map"),
    (lambda: map_rows([[torch.rand(2, 4, 3, 3), torch.rand(2, 3, 4, 4)]]), "choose one line of the grid"),
])
def test_errors_say_what_came_and_draw_nothing(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value) and not plt.get_fignums()


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
    assert equation_12(block).dtype == dtype
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


def test_curves_take_names_as_they_stand_in_rows_and_leave_out_what_is_not_there():
    points = [(0, 1.0), (0, float("nan")), (1, 2.0), (1, 4.0), (None, 9.0)]
    rows = [{"step": s, "mode": 0, "stable_rank": v} for s, v in points]
    ax = plot_curves(rows, labels={0: "time"})
    assert ax.get_legend().get_texts()[0].get_text() == "time"
    assert ax.lines[0].get_xdata().tolist() == [0, 1] and ax.lines[0].get_ydata()[1] == 3

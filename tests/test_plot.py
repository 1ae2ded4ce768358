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

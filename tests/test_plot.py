"""Pictures of maps: what is drawn, on which axes, and that nothing else of matplotlib changes."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from hot_nbdev.book.plot import plot_curves, plot_joint, plot_maps
from hot_nbdev.maps import map_rows

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    "No figure is left to the next test."
    yield
    plt.close("all")


def maps(*shape, sizes=(3, 4), blocks=2):
    torch.manual_seed(0)
    return [[torch.randn(*shape, n, n).softmax(-1) for n in sizes] for _ in range(blocks)]


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


@pytest.mark.parametrize("call, message", [
    (lambda: plot_maps(torch.rand(2, 3, 3)), "must be a list of blocks"),
    (lambda: plot_maps(maps(2), ["time"]), "1 names ('time',) for 2 modes"),
    (lambda: plot_joint([torch.eye(2)], query=(0, 0)), "the modes have sizes (2,)"),
    (lambda: plot_curves([]), "the rows have none"),
])
def test_errors_say_what_came_and_draw_nothing(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value) and not plt.get_fignums()


def test_curves_leave_out_what_is_not_there():
    points = [(0, 1.0), (0, float("nan")), (1, 2.0), (1, 4.0), (None, 9.0)]
    rows = [{"step": s, "mode": 0, "stable_rank": v} for s, v in points]
    ax = plot_curves(rows)
    assert ax.get_legend().get_texts()[0].get_text() == "0"
    assert ax.lines[0].get_xdata().tolist() == [0, 1] and ax.lines[0].get_ydata()[1] == 3

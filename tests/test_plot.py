"""Pictures of maps: what is drawn, on which axes, and that nothing else of matplotlib changes."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from hot_nbdev.book.plot import plot_maps

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    "No figure is left to the next test."
    yield
    plt.close("all")


def maps(*shape, sizes=(3, 4), blocks=2):
    torch.manual_seed(0)
    return [[torch.randn(*shape, n, n).softmax(-1) for n in sizes] for _ in range(blocks)]


@pytest.mark.parametrize("batch", [(), (5,), (5, 2)])
def test_the_grid_is_modes_times_blocks_by_heads_in_one_scale(batch):
    found, before = maps(*batch, 3), dict(matplotlib.rcParams)
    fig = plot_maps(found, ["time", "series"])
    assert dict(matplotlib.rcParams) == before and plt.fignum_exists(fig.number)
    images = [image for ax in fig.axes for image in ax.images]
    assert len(images) == 2 * 2 * 3 and len({image.get_clim() for image in images}) == 1
    labels = [ax.get_ylabel() for ax in fig.axes if ax.get_ylabel() and ax.images]
    assert labels == ["time\nblock 1", "time\nblock 2", "series\nblock 1", "series\nblock 2"]
    first = found[0][0].reshape(-1, 3, 3, 3).mean(0)[0]                 # samples are averaged, heads are not
    torch.testing.assert_close(torch.tensor(images[0].get_array().data), first)


def test_maps_that_are_no_list_draw_nothing():
    with pytest.raises(ValueError, match="must be a list of blocks"):
        plot_maps(torch.rand(2, 3, 3))
    assert not plt.get_fignums()

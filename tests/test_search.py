"""The papers' search spaces, as they are printed."""
import pytest

from hot_nbdev.cli.jobs import config_for, job_class
from hot_nbdev.models import make_model
from studies.papers.search import SPACES, points


@pytest.mark.parametrize("space, size", [("series1", 1440), ("volumes1", 1080), ("series2", 192), ("volumes2", 192)])
def test_a_space_has_the_points_that_the_paper_prints_and_each_makes_a_model(space, size):
    found, command = points(space, 10 ** 6), SPACES[space][0]
    assert len(found) == size == len({repr(p) for p in found})
    for point in found[::7]:
        job = job_class(command).from_dict({**point, "data": "x"})
        config = config_for(job, (96, 8) if command == "forecast" else (28, 28, 28), 1, 2)
    make_model(config, device="meta")


def test_a_seed_draws_the_same_points():
    drawn = points("series1", 20, seed=3)
    assert drawn == points("series1", 20, seed=3) != points("series1", 20, seed=4)

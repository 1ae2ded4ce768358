"""The benchmarks run and count what they say; how fast anything is stands in results/, not here."""
import argparse
import importlib.util
from itertools import accumulate
from math import prod
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "bench"
NO_PEER = 'needs ndlinear: pip install "hot_nbdev[peers]"'


@pytest.fixture
def load(monkeypatch):
    "A benchmark as a module, by its name; bench/ is searched only while the test runs."
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name):
        spec = importlib.util.spec_from_file_location(f"bench_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load


@pytest.fixture
def args(tmp_path):
    return argparse.Namespace(device=torch.device("cpu"), rounds=2, least=0, about=[2, "", ""],
                              out=tmp_path / "rows.csv")


def test_the_published_layer_is_not_our_own_file(load):
    published = load("ndlinear").published()
    if published is None:
        pytest.skip(NO_PEER)
    assert published.__module__.startswith("ndlinear") and hasattr(published((2,), (3,)), "align_layers")


def test_random_shapes_keep_their_limits_and_stay_the_same(load):
    bench = load("ndlinear")
    shapes = bench.random_shapes(60)
    assert shapes == bench.random_shapes(60) and len(set(shapes)) == 60
    for batch, sizes, out in shapes:
        steps = accumulate(zip(sizes, out, strict=True), lambda n, s: n // s[0] * s[1],
                           initial=batch * prod(sizes))
        assert all(500 <= n <= 1_500_000 for n in steps)


@pytest.mark.parametrize("training", [False, True])
def test_rivals_of_ndlinear_agree_and_are_timed(load, args, training):
    "A rival that computes anything else raises."
    import tensorly
    bench = load("ndlinear")
    published = bench.published() or pytest.skip(NO_PEER)
    with tensorly.backend_context("pytorch"):
        found = bench.measure(published, 2, (3, 4), (5, 2), training, True, args)
    assert set(found) == {"published", "NdLinear", "plain", "einsum", "TensorLy", "dense"}
    assert found["published"] == [1] * 4 + found["published"][4:]
    assert all(len(numbers) == 5 and min(numbers) > 0 for numbers in found.values())


def test_attention_is_timed(load, args):
    bench = load("attention")
    rows = list(bench.measure(1, (3, 2), 8, False, args))
    assert {len(row) for row in rows} == {len(bench.HEAD)} and rows[0][4:6] == ["floor", "1.00"]
    bench.write(args, bench.HEAD, rows)
    assert len(args.out.read_text().splitlines()) == len(rows) + 1


def test_long_calls_drop_out_of_the_rounds(load, args):
    "After five rounds, once they have had a second."
    timing = load("timing")
    timing.timed = lambda call, times, device: getattr(call, "seconds", 0.001)
    short, long = lambda: None, lambda: None
    short.seconds, long.seconds = 0.001, 0.3
    args.rounds, args.least = 8, 0.01
    times = timing.in_turns({"short": short, "long": long}, args)
    assert len(times["short"]) == len(times["second"]) == 8 and len(times["long"]) == 5
    assert timing.over(times["long"], times["short"]) == pytest.approx([300] * 5)


def test_numbers_of_a_shape(load):
    pytest.importorskip("sklearn", reason='needs scikit-learn: pip install "hot_nbdev[train]"')
    bench = load("volumes")
    x = torch.zeros(2, 6, 6, 6)
    x[0, 1:3, 2:4, 2:4], x[1, 0, 0, :4] = 1, 1                  # a cube inside, a rod at an edge
    found = bench.numbers(x)
    assert found["voxels"][:, 0].tolist() == [8, 4] and found["faces"][:, 0].tolist() == [24, 18]
    assert found["logistic, 84 sums over slices"].shape == (2, 18)
    y, bench.DRAWS = torch.tensor([0, 0, 1, 1]).numpy(), 20
    assert (bench.bootstrap(y, [y, -y])[:5] == [1, 0]).all()

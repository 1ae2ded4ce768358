"""The layers of the chapter on kin against libraries, and the rows of studies/kin against the layers."""
import random

import pytest
import torch
from scripts import load
from torch.testing import assert_close

from hot_nbdev.book import results_file
from hot_nbdev.cost import count
from hot_nbdev.train.results import read_rows

bench = load("kin")
kin = bench.forms()
every = read_rows(results_file("kin.csv"))
rows = [r for r in every if r["study"] != "near"]       # of the plan; those of the check of rates stand behind them


@pytest.fixture
def tltorch():
    "TensorLy-Torch, which switches TensorLy's backend when it is imported; it is switched back."
    import tensorly as tl
    before = tl.get_backend()
    found = pytest.importorskip("tltorch", reason='needs tensorly-torch: pip install "hot_nbdev[peers]"')
    tl.set_backend("pytorch")
    yield found
    tl.set_backend(before)


def drawn(layer):
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_()
    return layer.double()


def test_the_contraction_layer_is_ndlinear(tltorch):
    from hot_nbdev.ndlinear import NdLinear
    peer = drawn(tltorch.TCL((2, 3, 4), (5, 6, 7)))              # it may expand every mode
    layer = NdLinear((2, 3, 4), (5, 6, 7), bias=False, dtype=torch.float64)
    for W, V in zip(layer.weights, peer.factors, strict=True):
        W.data = V.data
    x = torch.randn(8, 2, 3, 4, dtype=torch.float64)
    assert_close(layer(x), peer(x))


def test_the_contraction_layer_with_bias_raises(tltorch):
    "The chapter says so of version 0.5.0; when this fails, say otherwise there."
    with pytest.raises(AttributeError, match="output_shape"):
        tltorch.TCL((2, 3), (4, 5), bias=True)


@pytest.mark.parametrize("kind, form", [("cp", "trl_cp"), ("tucker", "trl_tucker")])
def test_regression_layers(tltorch, kind, form):
    peer = drawn(tltorch.TRL((2, 3, 4), (5,), factorization=kind, rank=3 if kind == "cp" else (2, 2, 3, 4)))
    *V, U = (f.detach() for f in peer.weight.factors)
    core = [] if kind == "cp" else [peer.weight.core.detach().movedim(-1, 0)]
    if kind == "cp":
        U = U * peer.weight.weights.detach()
    x = torch.randn(8, 2, 3, 4, dtype=torch.float64)
    assert_close(kin[form](x, U, *core, *(v.T for v in V)), peer(x))


def test_the_train_of_a_factorized_linear_layer(tltorch):
    peer = drawn(tltorch.FactorizedLinear((2, 3, 2), (3, 2, 2), bias=False, factorization="blocktt", rank=[1, 3, 3, 1]))
    x = torch.randn(8, 12, dtype=torch.float64)
    assert_close(kin["tensor_train"](x.reshape(8, 2, 3, 2), *peer.weight.factors), peer(x))


def test_rows_belong_to_the_layers_of_the_chapter():
    "Parameters and multiply-adds of every row are those of the layer that the chapter shows now."
    now, x = {}, torch.randn(1, 5, 5, 200)
    for name, setting, budget, make in bench.networks(kin, 12):
        net = make()
        work = count(net if name == "logistic" else net[0], x)
        now[name, setting, budget] = str(work.parameters), str(work.multiply_adds)
    now |= {(name, setting, "none"): ("", "") for name, setting, *_ in bench.simple()}
    assert {(r["layer"], r["setting"], r["budget"]) for r in rows} == set(now)
    assert all((r["parameters"], r["multiply_adds"]) == now[r["layer"], r["setting"], r["budget"]] for r in rows)
    assert {r["settings"] for r in rows} == {bench.SETTINGS} and all(r["processor"] and r["commit"] for r in rows)


def test_counts_are_those_of_the_layers_of_today():
    found = read_rows(results_file("kin_counts.csv"))
    assert list(load("layers").counted(kin)) == found
    for budget, off in (("large", 0.06), ("small", 0.11)):       # how far from the middle of the budget
        sizes = [int(r["parameters"]) for r in found if r["budget"] == budget]
        assert max(sizes) / ((min(sizes) + max(sizes)) / 2) - 1 < off


def test_rows_are_complete():
    "No run is missing or there twice; every rate is the best of its search, with a worse one on both sides."
    found = [tuple(r[k] for k in bench.KEY) for r in rows]
    assert len(found) == len(set(found))
    assert all((r["study"] == "main") == bool(r["test"]) for r in rows)     # a search reads no test part
    for name, setting, budget, _ in bench.networks(kin, 12):
        layer = name, setting, budget
        assert bench.following(layer, rows) == []
        tried, run = ([key for key in found if key[:4] == (study, *layer)] for study in ("rate", "main"))
        rates, (used,) = ({float(key[-1]) for key in keys} for keys in (tried, run))
        assert min(rates) < used < max(rates) and len(tried) == len(rates) * len(bench.RATE_SEEDS)
        lost = [r for r in rows if tuple(r[k] for k in bench.KEY) != run[0]]        # is made again
        assert [tuple(map(str, key)) for key in bench.following(layer, lost)] == [run[0]]
    seeds = {layer: [int(s) for study, *key, s, _ in found if (study, *key) == ("main", *layer)]
             for layer in {key[1:4] for key in found}}
    assert all(sorted(s) == list(bench.SEEDS) for s in seeds.values())


def test_differences_that_are_put_into_rows_are_found():
    "Invented scores: one layer is four points behind NdLinear and one is not; what weakens a comparison is named."
    main = [dict(r) for r in rows if r["study"] == "main"]
    chance = random.Random(0)
    for r in main:
        behind = 4 * (r["layer"] in ("NdLinear", "TCL")) + chance.gauss(0, 0.2)
        r["test"], r["stopped"] = str(0.6 + behind / 100), "cap" if r["layer"] == "TCL" else "turned"
    families = bench.families(main)
    assert [len(others) for _, others, _ in families.values()] == [10, 8, 5]
    lines = list(bench.summary(main))
    assert len(lines) == 10 + 8 + 5 + 1 and "10 of 10 runs ended at the cap: ('TCL'" in lines[-1]
    p = {line.split(": ")[1].split(" - ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines[:10]}
    assert p.pop("TCL (out 2x2x100)") > 0.05 and max(p.values()) < 0.001


def test_the_check_of_rates_has_the_neighbors_of_each_rate_and_lets_each_deal_choose():
    check = load("kin_rates")
    own, others, _ = bench.families(rows)["large"]
    wanted = {tuple(map(str, key)) for key in check.todo(rows, [own, *others])}
    assert {tuple(r[k] for k in bench.KEY) for r in every if r["study"] == "near"} == wanted
    best = check.best_of_deal(every)
    assert sum(r["layer"] == "TCL" for r in best) == 10 and {r["study"] for r in best} == {"main"}
    names = ("layer", "setting", "budget", "seed")
    for r in best:
        tried = [q for q in every if q["study"] != "rate" and [q[k] for k in names] == [r[k] for k in names]]
        assert float(r["val"]) == max(float(q["val"]) for q in tried)


def test_a_run_of_the_bench():
    "One epoch: the search has no test score, a deal has one, and a run is the same each time."
    make = next(make for name, *_, make in bench.networks(kin, 12) if name == "low rank")
    layer = "low rank", "rank 4", "large"
    searched = bench.run(("rate", *layer, 97, 1e-3), make, cap=1)
    assert "test" not in searched and searched["stopped"] == "cap" and searched["parameters"] == 22_000
    tested = [bench.run(("main", *layer, 97, 1e-3), make, cap=1) for _ in range(2)]
    assert len({(r["val"], r["test"], r["test_classes"]) for r in tested}) == 1
    assert tested[0]["val"] == searched["val"] and len(tested[0]["test_classes"].split(";")) == 12

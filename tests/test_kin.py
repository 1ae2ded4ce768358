"""The layers of the chapter on kin against libraries, and the rows of bench/kin.py against the layers."""
import csv
import importlib.util
import itertools
import sys

import pytest
import torch
from chapters import ROOT
from torch import nn
from torch.testing import assert_close

from hot_nbdev.cost import count
from hot_nbdev.kronecker import kron

PEERS = 'not installed: pip install "hot_nbdev[peers]"'


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_kin", ROOT / "bench" / "kin.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kin(bench):
    return bench.chapter()


@pytest.fixture
def rows():
    return list(csv.DictReader((ROOT / "results" / "kin.csv").open()))


@pytest.fixture
def tltorch():
    "TensorLy-Torch, which switches TensorLy's backend when it is imported; it is switched back."
    import tensorly as tl
    before = tl.get_backend()
    found = pytest.importorskip("tltorch", reason=f"tensorly-torch is {PEERS}")
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
def test_regression_layers(tltorch, kin, kind, form):
    peer = drawn(tltorch.TRL((2, 3, 4), (5,), factorization=kind, rank=3 if kind == "cp" else (2, 2, 3, 4)))
    *V, U = (f.detach() for f in peer.weight.factors)
    core = [] if kind == "cp" else [peer.weight.core.detach().movedim(-1, 0)]
    if kind == "cp":
        U = U * peer.weight.weights.detach()
    x = torch.randn(8, 2, 3, 4, dtype=torch.float64)
    assert_close(kin[form](x, U, *core, *(v.T for v in V)), peer(x))


@pytest.mark.parametrize("rank", [1, 3])
def test_the_train_of_a_factorized_linear_layer(tltorch, kin, rank):
    peer = drawn(tltorch.FactorizedLinear((2, 3, 2), (3, 2, 2), bias=False, factorization="blocktt",
                                          rank=[1, rank, rank, 1]))
    x = torch.randn(8, 12, dtype=torch.float64)
    assert_close(kin["tensor_train"](x.reshape(8, 2, 3, 2), *peer.weight.factors), peer(x))


def test_lokr(kin, monkeypatch):
    # peft imports transformers, which looks for torchvision; it is not needed, and None hides it
    monkeypatch.setitem(sys.modules, "torchvision", None)
    peft = pytest.importorskip("peft", reason=f"peft is {PEERS}")
    linear = nn.Linear(24, 12, bias=False).double()
    W0 = linear.weight.detach().clone()
    config = peft.LoKrConfig(r=1, alpha=1, target_modules=["0"], decompose_factor=3, init_weights=False)
    peer = peft.inject_adapter_in_model(config, nn.Sequential(linear)).double()
    W1, A, B = (peer[0].get_parameter(f"lokr_{name}.default").detach() for name in ("w1", "w2_a", "w2_b"))
    x = torch.randn(8, 24, dtype=torch.float64)
    assert_close(kin["lokr"](x.reshape(8, W1.shape[1], -1), W0, W1, A, B), peer(x))
    assert_close(peer(torch.eye(24).double()).T - W0, kron(W1, A @ B))


def test_rows_belong_to_the_layers_of_the_chapter(bench, kin, rows):
    "Parameters and FLOPs of every row are those of the layer that the chapter shows now."
    now, x = {}, torch.randn(1, 5, 5, 200)
    for name, setting, budget, make in bench.networks(kin, 12):
        net = make()
        work = count(net if name == "logistic" else net[0], x)
        now[name, setting, budget] = str(work.parameters), str(2 * work.multiply_adds)
    assert {(r["layer"], r["setting"], r["budget"]) for r in rows} == set(now)
    assert all((r["parameters"], r["flops"]) == now[r["layer"], r["setting"], r["budget"]] for r in rows)


def test_rows_are_complete(bench, rows):
    found = [tuple(r[k] for k in bench.HEAD[:5]) for r in rows]
    assert len(found) == len(set(found))
    layers = {key[:3] for key in found}
    wanted = itertools.product(layers, map(str, bench.SEEDS), map(str, bench.RATES))
    assert set(found) == {(*layer, seed, rate) for layer, seed, rate in wanted}


def test_the_bench_goes_on_where_it_stopped(bench, rows, tmp_path, monkeypatch):
    "With all rows but the last one there, one run is made and the others stay."
    out = tmp_path / "kin.csv"
    lines = (ROOT / "results" / "kin.csv").read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:-1]))
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["kin.py", "--out", str(out)])
    monkeypatch.setattr(bench, "measure", lambda *_: ["new"] * (len(bench.HEAD) - 9))
    bench.main()
    torch.set_num_threads(threads)
    text = out.read_text().splitlines(keepends=True)
    assert text[:-1] == lines[:-1]
    assert text[-1].startswith(lines[-1].rsplit(",", len(bench.HEAD) - 5)[0]) and ",new," in text[-1]

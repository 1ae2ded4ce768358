"""The kernel of the chapter on GPUs, without a card; Triton is looked for where HOT_TRITON says, too.

    python -m pip install --target ../triton --no-deps triton
    HOT_TRITON=../triton python -m pytest tests/test_fused.py

`HOT_FUSED_SHAPES=200` tries as many random shapes, in some minutes.
"""
import logging
import os
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
import torch
from chapters import ROOT
from torch.testing import assert_close

from hot_nbdev import fused
from hot_nbdev.attention import softmax_map
from hot_nbdev.kernels import KernelMap, elu_features
from hot_nbdev.kronecker_attention import KroneckerAttention, along, mean, product
from hot_nbdev.streams import step

FOLDER = os.environ.get("HOT_TRITON", "")
needs_triton = pytest.mark.skipif(PathFinder.find_spec("triton", [*filter(None, [FOLDER]), *sys.path]) is None,
                                  reason="triton is not installed, and HOT_TRITON names no folder that has it")


def checked(*call, **more):
    "What a check says that runs in a process of its own."
    places = [str(ROOT), *filter(None, [FOLDER and str(Path(FOLDER).resolve()), os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, str(ROOT / "tests/fused_checks.py"), *call], env=env, cwd=ROOT,
                          capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_triton
def test_the_kernel_equals_the_plain_form_in_both_passes():
    shapes = os.environ.get("HOT_FUSED_SHAPES", "24")
    assert f"{shapes} shapes are equal" in checked("equal", shapes, TRITON_INTERPRET="1")


@needs_triton
def test_the_operation_is_one_for_pytorch_and_its_compiler():
    assert "is sound" in checked("operation", TRITON_INTERPRET="1")


@needs_triton
def test_no_tile_needs_a_stack(tmp_path):
    cards = ("80", "90", "100")
    told = checked("compiled", *cards, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    assert len(told.splitlines()) == 12 * len(cards)


def test_triton_is_not_imported_before_it_is_used():
    code = "import sys, hot_nbdev.fused; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_on_a_cpu_it_is_the_plain_form_and_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(fused, "_told", set())
    torch.manual_seed(0)
    maps, v = [torch.rand(2, 3, n, n) for n in (4, 5)], torch.randn(2, 3, 4, 5, 6)
    with caplog.at_level(logging.DEBUG, "hot_nbdev.fused"):
        for _ in range(2):
            assert_close(fused.fused_product(maps, v), product(maps, v), rtol=0, atol=0)
    assert len(caplog.records) == 1 and "product as usual" in caplog.text


@pytest.mark.parametrize("combine", [product, mean, fused.fused_product])
@pytest.mark.parametrize("weigh", [softmax_map, KernelMap(elu_features)])
def test_a_step_of_a_stream_is_one_graph_and_with_a_kernel_of_static_shapes(weigh, combine):
    "What recording needs: no break, and a state whose shapes stay; softmax keeps all frames, so its state grows."
    torch.manual_seed(0)
    layer = KroneckerAttention(16, 2, 3, causal=(0,), combine=combine, weigh=weigh).eval()
    x = torch.randn(2, 6, 3, 4, 16)
    torch._dynamo.reset()
    compiled, state, shapes = torch.compile(step, backend="aot_eager", fullgraph=True), None, []
    with torch.no_grad():
        want = layer(x)
        for i in range(6):
            y, state = compiled(layer, x[:, i], state)
            assert_close(y, want[:, i], rtol=1e-4, atol=1e-5)
            shapes.append({name: t.shape for name, t in state.tensors.items()})
    assert (shapes[1] == shapes[-1]) == (weigh is not softmax_map)


def test_fuse_changes_product_layers_and_back():
    model = torch.nn.Sequential(KroneckerAttention(8, 2, 2), KroneckerAttention(8, 2, 2, combine=mean))
    assert [layer.combine for layer in fused.fuse(model)] == [fused.fused_product, mean]
    assert fused.unfit([torch.ones(1, 1, 2, 2)] * 2, torch.ones(1, 1, 2, 2, 1), (), along)
    assert [layer.combine for layer in fused.fuse(model, on=False)] == [product, mean]

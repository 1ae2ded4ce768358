"""The kernels of the chapter on GPUs, without a card; Triton is looked for where HOT_TRITON says, too.

    python -m pip install --target ../triton --no-deps triton
    HOT_TRITON=../triton python -m pytest tests/test_fused.py

`HOT_FUSED_SHAPES=200` tries as many random shapes, in some minutes.
"""
import copy
import inspect
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
from hot_nbdev.kernels import KernelMap, elu_features
from hot_nbdev.kronecker_attention import KroneckerAttention, product
from hot_nbdev.streams import steps

FOLDER = os.environ.get("HOT_TRITON", "")
needs_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
NO_TRITON = PathFinder.find_spec("triton", [*filter(None, [FOLDER]), *sys.path]) is None
needs_triton = pytest.mark.skipif(NO_TRITON or "Interpreted" not in inspect.getsource(torch.library.wrap_triton),
                                  reason="no triton here, and none where HOT_TRITON says; or a torch that knows no "
                                         "kernels which are run in Python")


def checked(*call, **more):
    "What a check says that runs in a process of its own."
    places = [str(ROOT), *filter(None, [FOLDER and str(Path(FOLDER).resolve()), os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, str(ROOT / "tests/fused_checks.py"), *call], env=env, cwd=ROOT,
                          capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SHAPES = os.environ.get("HOT_FUSED_SHAPES", "24")

@needs_triton
@pytest.mark.parametrize("call, interpret, says", [
    (("equal", SHAPES), "1", f"{SHAPES} shapes are equal"), (("operation",), "1", "is sound"),
    (("traced",), "0", "kernels in the two graphs")], ids=["equal", "operation", "traced"])
def test_the_kernel_equals_the_plain_form_and_is_one_operation_that_the_compiler_looks_into(call, interpret, says):
    assert says in checked(*call, TRITON_INTERPRET=interpret)


@needs_triton
def test_no_tile_needs_a_stack(tmp_path):
    cards = ("80", "90", "100")
    told = checked("compiled", *cards, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    assert len(told.splitlines()) == 34 * len(cards)


def test_on_a_cpu_it_is_the_plain_form_and_says_so_once(caplog):
    fused._tell.cache_clear()
    torch.manual_seed(0)
    maps, v = [torch.rand(2, 3, n, n) for n in (4, 5)], torch.randn(2, 3, 4, 5, 6)
    with caplog.at_level(logging.DEBUG, "hot_nbdev.fused"):
        for _ in range(2):
            assert_close(fused.fused_product(maps, v), product(maps, v), rtol=0, atol=0)
    assert len(caplog.records) == 1 and "product" in caplog.text


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_card)])
@pytest.mark.parametrize("on", [False, True])
def test_recorded_steps_of_a_stream_keep_their_state_in_one_place(device, on):
    torch.manual_seed(0)
    layer = fused.fuse(KroneckerAttention(16, 2, 3, causal=(0,), weigh=KernelMap(elu_features)), on).to(device).eval()
    x = torch.randn(2, 9, 3, 4, 16, device=device)
    with torch.no_grad():
        want, (_, state) = layer(x), steps(layer, x[:, :2])
    before = [t.clone() for t in state.all]
    play = fused.record_steps(layer, x[:, 2], state)
    for i in range(2, 9):
        assert_close(play(x[:, i]), want[:, i], rtol=1e-4, atol=1e-4)
    assert_close(state.all, before)                 # the given one stays, so that a stream can be forked


@needs_card
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [(7, 7, 7), (14, 9, 16), (16, 28, 28), (21, 24), (40, 40, 40), (66, 66)])
def test_on_a_card_the_kernels_equal_the_plain_form_also_recorded_and_compiled(sizes, dtype):
    torch.manual_seed(0)
    plain = KroneckerAttention(64, 8, len(sizes)).to("cuda", dtype)
    layer, x = fused.fuse(copy.deepcopy(plain)), torch.randn(2, *sizes, 64, device="cuda", dtype=dtype)
    close = dict(rtol=1e-3, atol=1e-4) if dtype == torch.float32 else dict(rtol=0.05, atol=0.05)
    fast = torch.compile(layer, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        want = plain(x)
        assert_close(layer(x), want, **close)
        assert_close(fused.record(layer, x)(x), want, **close)
        for _ in range(3):
            y = fast(x).clone()
        assert_close(y, want, **close)
    for _ in range(3):                              # steps of training
        for f in (plain, fast):
            torch.compiler.cudagraph_mark_step_begin()
            f.zero_grad()
            f(x).float().square().mean().backward()
    for a, b in zip(layer.parameters(), plain.parameters(), strict=True):
        off = (a.grad - b.grad).float().norm() / b.grad.float().norm().clamp(min=1e-4)
        assert off < (1e-2 if dtype == torch.float32 else 0.2), off
    torch._dynamo.reset()

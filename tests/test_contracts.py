"""What every exported layer promises, run over the list in layers.py."""
import copy
import io
import pickle
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import LAYERS, SquarePlus
from safetensors.torch import load, save
from torch.testing import assert_close

CPU_GPU = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"))])
each = pytest.mark.parametrize("case", LAYERS, ids=lambda c: c.name)
traced = pytest.mark.parametrize("case", [c for c in LAYERS if not c.twin], ids=lambda c: c.name)
DIM, HEADS, F64 = 8, 2, torch.float64


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    "Tensors are tiny: a second thread would only wait for the first."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(case, dtype=F64, device="cpu", dim=DIM, heads=HEADS, seed=0, **options):
    torch.manual_seed(seed)
    return case.make(dim, heads, dtype=dtype, device=device, **options).eval()


def tensor(*shape, seed=1, dtype=F64, device="cpu"):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=F64).to(device=device, dtype=dtype)


def random_mask(*shape, seed=2):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def sizes_of(case, *sizes):
    return (3, 2, 4)[:case.order] if not sizes else sizes[:case.order]


def draw(data, case):
    "Sizes, batch axes and perhaps a mask."
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=case.order, max_size=case.order))
    batch = data.draw(st.sampled_from([(), (2,), (2, 1)]))
    x = tensor(*batch, *sizes, DIM, seed=data.draw(st.integers(0, 99)))
    masks = [None, random_mask(*batch, *sizes, seed=len(sizes)), random_mask(*sizes)]
    mask = data.draw(st.sampled_from(masks))
    return x, mask


def slow_output(case, layer, x, mask):
    "The slow joint map times the values, projected: what the layer must give."
    sizes = x.shape[-case.order - 1:-1]
    flat = x.reshape(-1, *sizes, DIM)
    mask = torch.ones(sizes, dtype=torch.bool) if mask is None else mask
    masks = mask.expand(*x.shape[:-1]).reshape(-1, *sizes)
    S = torch.stack([case.slow(layer, a, b) for a, b in zip(flat, masks, strict=True)])
    if case.output is not None:
        y = [case.output(layer, a, b) for a, b in zip(flat, masks, strict=True)]
        return S, torch.stack(y).reshape(x.shape)
    v = layer.to_v(flat).flatten(1, -2).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    return S, layer.to_out((S @ v).transpose(1, 2).reshape(x.shape))


@each
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_agrees_with_the_slow_loop(case, data):
    x, mask = draw(data, case)
    with torch.no_grad():
        layer = make(case)
        S, y = slow_output(case, layer, x, mask)
        T = layer.dense_map(x, mask)
        with_maps, maps = layer(x, mask, return_maps=True)
    for got in (layer(x, mask), with_maps):
        assert_close(got, y, rtol=0, atol=1e-10)
    assert_close(T.reshape(S.shape), S, rtol=0, atol=1e-10)
    for a, b in zip(maps, layer.maps(x, mask), strict=True):
        assert torch.equal(a, b)


@each
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_maps_are_row_stochastic_over_what_takes_part(case, data):
    x, mask = draw(data, case)
    T = make(case).dense_map(x, mask)
    valid = (torch.ones(x.shape[:-1], dtype=torch.bool) if mask is None else mask.expand(x.shape[:-1]))
    valid = valid.flatten(x.ndim - 1 - case.order).unsqueeze(-2)
    assert (T >= 0).all()
    assert_close(T.sum(-1), valid.to(T).expand(T.shape[:-1]))
    assert not T.masked_select(~valid.unsqueeze(-2)).any()


@each
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_padding_changes_nothing(case, data):
    "Not by a bit, whatever stands there; and where all is padding, attention gives zero."
    x, mask = draw(data, case)
    mask = torch.zeros(x.shape[-1 - case.order:-1], dtype=torch.bool) if mask is None else mask
    layer = make(case)
    junk = x.masked_fill(~mask[..., None], data.draw(st.sampled_from([float("nan"), float("inf"), -1e30])))
    y = layer(x, mask)
    assert torch.equal(y, layer(junk, mask))
    assert torch.equal(layer.dense_map(x, mask), layer.dense_map(junk, mask))
    padded = y.masked_select(~mask[..., None].expand(y.shape)).reshape(-1, DIM)
    ones = (1,) * case.order
    nothing = layer(torch.zeros(*ones, DIM, dtype=F64), torch.zeros(ones, dtype=torch.bool)).reshape(1, DIM)
    if case.output is None:
        assert torch.equal(nothing, layer.to_out(torch.zeros(1, DIM, dtype=F64)))
    assert_close(padded, nothing.expand(padded.shape), rtol=0, atol=0)


@each
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_nothing_leaks_from_the_future(case, data):
    layer = make(case)
    if not layer.causal:
        return
    x, mask = draw(data, case)
    c = data.draw(st.sampled_from(layer.causal))
    axis = x.ndim - 1 - case.order + c
    step = data.draw(st.integers(0, x.shape[axis] - 1))
    past, future = (x.narrow(axis, 0, step), x.narrow(axis, step, x.shape[axis] - step))
    changed = torch.cat([past, future * 3 + 1], axis)
    other = mask
    if mask is not None:    # validity of future positions may change too
        mask = mask.expand(x.shape[:-1])
        other = torch.cat([mask.narrow(axis, 0, step), ~mask.narrow(axis, step, x.shape[axis] - step)], axis)
    before, after = (f.narrow(axis, 0, step) for f in (layer(x, mask), layer(changed, other)))
    assert torch.equal(before, after) if mask is None else torch.allclose(before, after, rtol=0, atol=1e-14)


@each
def test_gradients(case):
    layer = make(case, dim=4, heads=2)
    x = tensor(2, *sizes_of(case, 2, 3, 2), 4).requires_grad_()
    mask = random_mask(2, *sizes_of(case, 2, 3, 2))
    mask.view(-1)[0] = True
    for m in (None, mask):
        assert torch.autograd.gradcheck(lambda x, m=m: layer(x, m), x, fast_mode=True)
        loss = layer(x, m).square().sum()
        for name, p in layer.named_parameters():
            (g,) = torch.autograd.grad(loss, p, retain_graph=True, allow_unused=True)
            assert g is not None and g.isfinite().all(), name


@each
def test_fully_masked_samples_have_finite_gradients(case):
    layer = make(case)
    x = tensor(2, *sizes_of(case), DIM).requires_grad_()
    mask = torch.ones(2, *sizes_of(case), dtype=torch.bool)
    mask[0] = False
    layer(x, mask).sum().backward()
    assert x.grad.isfinite().all() and not x.grad[0].any()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@each
@CPU_GPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(case, device, dtype):
    layer = make(case, torch.float32, device)
    x = tensor(2, *sizes_of(case), DIM, dtype=torch.float32, device=device)
    mask = random_mask(2, *sizes_of(case)).to(device)
    with torch.autocast(device, dtype=dtype):
        y, z = layer(x), layer(x, mask)
    for got, want in [(y, layer(x)), (z, layer(x, mask))]:
        assert got.dtype == dtype and got.isfinite().all()
        assert (got.float() - want).norm() < 0.05 * want.norm()


@each
@CPU_GPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(case, device, dtype):
    "Layers of half precision, on inputs whose slices sum to more than float16 holds."
    layer, double = make(case, dtype, device), make(case)
    double.load_state_dict(layer.state_dict())
    x = tensor(2, *sizes_of(case, 7, 6, 3), DIM, dtype=dtype, device=device)
    mask = random_mask(2, *sizes_of(case, 7, 6, 3)).to(device)
    for m in (None, mask):
        y = layer(x, m)
        assert y.dtype == dtype and y.isfinite().all()
        assert layer(x * 0 + 100, m).isfinite().all() and layer(x * 2000, m).isfinite().all()


@traced
@CPU_GPU
def test_compiles_to_one_graph(case, device):
    torch.compiler.reset()
    layer = make(case, torch.float32, device)
    x = tensor(2, *sizes_of(case), DIM, dtype=torch.float32, device=device)
    mask = random_mask(2, *sizes_of(case)).to(device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x), layer(x))
    with torch.no_grad():
        assert_close(compiled(x, mask), layer(x, mask))


@each
def test_exports(case):
    layer = make(case, torch.float32)
    x = tensor(2, *sizes_of(case), DIM, dtype=torch.float32)    # with a mask: the export to ONNX below
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(layer, (x,))
    assert_close(program.module()(x), layer(x))


@traced
def test_exports_to_onnx(case):
    pytest.importorskip("onnx", reason="needs onnx")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    from onnx.reference import ReferenceEvaluator
    layer = make(case, torch.float32)
    x, mask = tensor(2, *sizes_of(case), DIM, dtype=torch.float32), random_mask(2, *sizes_of(case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(layer, (x, mask), dynamo=True, verbose=False)
    run = ReferenceEvaluator(program.model_proto)
    (y,) = run.run(None, dict(zip(run.input_names, (x.numpy(), mask.numpy()), strict=True)))
    assert_close(torch.from_numpy(y), layer(x, mask), rtol=1e-4, atol=1e-5)


@each
def test_state_dict_through_safetensors(case):
    layer, other = make(case), make(case, seed=5)
    x = tensor(*sizes_of(case), DIM)
    assert not torch.equal(layer(x), other(x))
    other.load_state_dict(load(save(layer.state_dict())))
    assert torch.equal(layer(x), other(x))


@each
def test_copies_and_pickles(case):
    layer, x = make(case), tensor(*sizes_of(case), DIM)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    read = torch.load(buffer, weights_only=False)
    for other in [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), read]:
        assert torch.equal(other(x), layer(x))


@each
@CPU_GPU
def test_device_and_dtype_arguments(case, device):
    layer = case.make(DIM, HEADS, device=device, dtype=F64)
    assert all(p.dtype == F64 and p.device.type == device for p in layer.parameters())
    x = tensor(*sizes_of(case), DIM, dtype=torch.float32, device=device)
    assert layer.to(torch.float32)(x).dtype == torch.float32
    meta = case.make(DIM, HEADS, device="meta")
    assert meta(torch.empty(2, *sizes_of(case), DIM, device="meta")).shape == (2, *sizes_of(case), DIM)


@each
def test_empty_batch_and_modes_of_size_one(case):
    layer, ones = make(case), (1,) * case.order
    for shape in [(0, *sizes_of(case), DIM), (2, 0, *sizes_of(case), DIM)]:
        mask = torch.ones(shape[:-1], dtype=torch.bool)
        assert layer(torch.zeros(shape, dtype=F64)).shape == shape
        assert layer(torch.zeros(shape, dtype=F64), mask).shape == shape
    x = tensor(3, *ones, DIM)
    assert_close(layer(x), slow_output(case, layer, x, None)[1])
    if case.output is None:
        assert_close(layer(x), layer.to_out(layer.to_v(x)))
    assert_close(layer.dense_map(x), torch.ones(3, HEADS, 1, 1, dtype=F64))


@each
def test_leading_axes_and_memory_layout_do_not_matter(case):
    layer, sizes = make(case), sizes_of(case)
    x = tensor(2, 3, *sizes, DIM)
    y = layer(x)
    assert_close(y[1, 2], layer(x[1, 2]), rtol=0, atol=1e-12)
    assert_close(y, layer(x.flatten(0, 1)).unflatten(0, (2, 3)), rtol=0, atol=1e-12)
    strided = x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))
    assert not strided.is_contiguous()
    assert_close(layer(strided), y, rtol=0, atol=1e-12)
    mask = random_mask(*sizes)
    assert torch.equal(layer(x, mask), layer(x, mask.expand(2, 3, *sizes)))


@each
def test_sizes_may_change_from_call_to_call(case):
    layer = make(case)
    for sizes in [(3, 2, 4), (1, 5, 2), (4, 4, 1)]:
        assert layer(tensor(2, *sizes[:case.order], DIM)).shape == (2, *sizes[:case.order], DIM)


@each
def test_unknown_keywords_raise(case):
    with pytest.raises(TypeError, match="mask_padding"):
        make(case)(tensor(*sizes_of(case), DIM), mask_padding=None)
    with pytest.raises(TypeError, match="head"):
        case.make(DIM, head=2)


@each
def test_errors_say_what_was_expected_and_what_came(case):
    layer, sizes = make(case), sizes_of(case)
    name = type(layer).__name__
    x = tensor(2, *sizes, DIM)
    with pytest.raises(ValueError, match=rf"{name}: x must be .* {DIM}\).*but is .*; "):
        layer(x[..., 1:])
    with pytest.raises(ValueError, match=rf"{name}: x must be .*but is \({DIM},\)"):
        layer(torch.zeros(DIM, dtype=F64))
    with pytest.raises(ValueError, match=rf"{name}: mask must be bool.*write mask.bool"):
        layer(x, torch.ones(2, *sizes))
    bad = torch.ones(2, *sizes[:-1], sizes[-1] + 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=rf"{name}: mode {case.order - 1} of x has size {sizes[-1]}.*but is"):
        layer(x, bad)
    with pytest.raises(ValueError, match=rf"{name}: mask .*batch"):
        layer(x, torch.ones(3, *sizes, dtype=torch.bool))
    with pytest.raises(ValueError, match=rf"{name}: dim 9 is not divisible by heads 2"):
        case.make(9, 2)


def test_dropout_acts_in_training_only():
    for case in LAYERS:
        if case.name in ("product", "sum", "full", "hot1 kernel", "causal product"):
            layer, x = make(case, dropout=0.5), tensor(3, *sizes_of(case, 6, 5, 4), DIM)
            calm = layer(x)
            assert torch.equal(calm, layer(x))
            layer.train()
            torch.manual_seed(0)
            mean = sum(layer(x) for _ in range(400)) / 400
            assert not torch.equal(layer(x), layer(x))
            assert (mean - calm).norm() < 0.2 * calm.norm()


def test_kernels_without_the_keyword_and_with_it():
    class Asks(SquarePlus):
        def forward(self, t, is_query=False):
            self.asked = [*getattr(self, "asked", []), is_query]
            return super().forward(t)
    for case in LAYERS:
        if not isinstance(getattr(make(case), "kernel", None), SquarePlus):
            continue
        plain, asked = make(case), make(case)
        asked.kernel, asked.kernel_asks = Asks(), ("is_query",)
        x = tensor(2, *sizes_of(case), DIM)
        assert torch.equal(plain(x), asked(x))
        assert sorted(set(asked.kernel.asked)) == [False, True]

"""What every exported layer promises, run over the list in layers.py, and every module, over that in parts.py too."""
import copy
import io
import pickle
import sys
from pathlib import Path

import pytest
import torch
from forks import fresh
from hypothesis import given
from hypothesis import strategies as st
from layers import CPU_GPU, F64, LAYERS, any_attention, each, tensor
from often import examples
from parts import ADAPTED, MERGED, MODELS, PARTS, STEMS
from safetensors.torch import load, save
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from hot_nbdev import kronecker_attention
from hot_nbdev.kronecker_attention import floor_share
from hot_nbdev.variants import LateBias

layers, modules = each(LAYERS), each(LAYERS + PARTS)


def trained(layer):
    "Its parameters that are trained, by name."
    return {name: p for name, p in layer.named_parameters() if p.requires_grad}


@layers
@examples(6)
@given(data=st.data())
def test_agrees_with_the_slow_loop(case, data):
    with torch.no_grad():
        layer, arguments = case.draw(data)
        for got, want in case.answers(layer, *arguments):
            assert_close(got, want, rtol=0, atol=1e-10)


@examples(60)
@given(data=st.data())
def test_any_settings_agree_with_the_slow_loop(data):
    case = any_attention(data)
    with torch.no_grad():
        layer, arguments = case.draw(data)
        for got, want in case.answers(layer, *arguments):
            assert_close(got, want, rtol=0, atol=1e-10)


def along(vectors, way):
    return sum((v * w).sum() for v, w in zip(vectors, way, strict=True))


@modules
def test_gradients(case, step=1e-6):
    """First and second derivatives along random directions of input and parameters against differences.

    PyTorch's fused attention has no second derivative: its plain form, MATH, has, and the first of both is the same."""
    layer = case.layer()
    for x, *more in case.arguments(case.input(2)):
        start = {"x": x, **trained(layer)}
        way, other = ([tensor(*t.shape, seed=seed) for t in start.values()] for seed in (5, 6))

        def derived(step, start=start, way=way, more=more):
            "The inputs a step away, a loss there, and its gradient."
            leaves = [(t + step * w).detach().requires_grad_() for t, w in zip(start.values(), way, strict=True)]
            x, *parameters = leaves
            y = functional_call(layer, dict(zip([*start][1:], parameters, strict=True)), (x, *more))
            loss = (y * (y + tensor(*y.shape, seed=7))).sum()
            return leaves, loss, torch.autograd.grad(loss, leaves, create_graph=True)
        with sdpa_kernel(SDPBackend.MATH):
            (leaves, _, grads), (_, more_loss, more_grads), (_, less_loss, less_grads) = map(derived, (0, step, -step))
            second = torch.autograd.grad(along(grads, other), leaves, materialize_grads=True)
        close = dict(rtol=1e-5, atol=1e-5)
        assert_close(along(grads, way), (more_loss - less_loss) / (2 * step), **close)
        assert_close(along(second, way), (along(more_grads, other) - along(less_grads, other)) / (2 * step), **close)
        for name, got, want in zip(start, derived(0)[2], grads, strict=True):
            assert got.isfinite().all(), name
            assert_close(got, want, rtol=1e-9, atol=1e-11)


@layers
def test_checkpointing_changes_nothing(case):
    "The checkpoint comes first, with a batch of its own, so that the layer meets these sizes in it."
    layer = case.layer()
    for x, *more in case.arguments(case.input(7)):
        inputs = [x.requires_grad_(), *layer.parameters()]
        y = checkpoint(layer, x, *more, use_reentrant=False)
        grads = torch.autograd.grad(y.square().sum(), inputs)
        again = layer(x, *more)
        assert torch.equal(y, again)
        for a, b in zip(grads, torch.autograd.grad(again.square().sum(), inputs), strict=True):
            assert torch.equal(a, b)


@each(LAYERS + STEMS + MODELS + ADAPTED + MERGED)
@CPU_GPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(case, device, dtype):
    layer = case.layer(torch.float32, device)
    for arguments in case.arguments(case.input(2, dtype=torch.float32, device=device)):
        with torch.autocast(device, dtype=dtype):
            got = layer(*arguments)
        want = layer(*arguments)
        assert got.dtype == (dtype if case in LAYERS else got.dtype) and got.isfinite().all()
        assert (got.float() - want).norm() < 0.05 * want.norm()


@layers
@CPU_GPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(case, device, dtype, monkeypatch):
    """Layers of half precision, on inputs whose slices sum to more than float16 holds.

    The floor of masked maps is that of float32 in both: float64 has a smaller one, and a row that gives nearly all its
    weight to masked positions shows the difference."""
    monkeypatch.setattr(kronecker_attention, "floor_share", lambda _, *rest: floor_share(torch.float32, *rest))
    sizes = (7, 6, 3, 2)[:case.order]
    layer, double = (case.layer(d, device, sizes=sizes) for d in (dtype, F64))
    double.load_state_dict(layer.state_dict())
    for x, *more in case.arguments(case.input(2, sizes=sizes, dtype=dtype, device=device)):
        y, want = layer(x, *more), double(x.double(), *more)
        assert y.dtype == dtype and (y - want).norm() < 0.05 * want.norm()
        for loud in (x * 0 + 100, x * 2000):
            if double(loud.double(), *more).abs().max() < 2 ** 15:
                assert layer(loud, *more).isfinite().all()


def named(*names):
    return [case for case in (*LAYERS, *PARTS, *MERGED) if case.name in names]


IN_ONNX = named(        # one of each kind of operation
    "full causal", "hot2 product", "causal product", "tied mix", "near causal sum", "multiscale kernel",
    "linear full bias", "segmenter, axial-token")
BARE = {case.slow: case for case in IN_ONNX + named("divided")}.values()     # traced without other arguments, too
TRACED = IN_ONNX + named(       # the other modules take no way of their own through the library: see below
    "divided", "hot1 kernel", "rsqrt after, shared", "causal kernel", "one mode", "near axial",
    "no attention", "other grid, sum", "other grid, tied", "other grid, axial",
    "linear four modes", "positions of one mode", "waves", "local stem", "flattening classifier",
    "forecaster, mean", "lora", "ndlora", "lora, merged", "latents")


def ways(cases):
    "Steps from line to line of the library that these cases take, with the first and with the last of their arguments."
    found, home = set(), str(Path(kronecker_attention.__file__).parent)

    def enter(frame, event, _):
        before = None

        def step(frame, event, _):
            nonlocal before
            if event == "line":
                found.add((which, frame.f_code, before, before := frame.f_lineno))
            return step
        return step if frame.f_code.co_filename.startswith(home) else None
    for case in cases:
        layer, own = case.layer(torch.float32), case.arguments(case.input(3, dtype=torch.float32))
        layer(*own[0])      # what is remembered of sizes is made
        for which in (0, -1):
            former = sys.gettrace()
            sys.settrace(enter)
            layer(*own[which])
            sys.settrace(former)
    return found


def test_what_is_not_traced_takes_no_way_of_its_own():
    "Compiling and exporting take long; a module that joins is traced too where its lines are those of no other."
    assert ways(case for case in (*LAYERS, *PARTS, *MERGED) if case not in TRACED) <= ways(TRACED)


@each(TRACED)
@CPU_GPU
def test_compiles_to_one_graph(case, device):
    "One of each kind with derivatives traced, too, and with all arguments, with which others are exported below."
    torch.compiler.reset()
    layer, whole = case.layer(torch.float32, device), case in BARE
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager" if whole else "eager")
    x = case.input(2, dtype=torch.float32, device=device).requires_grad_()
    arguments, inputs = case.arguments(x)[-1 if whole else 0], [x, *(() if case in MERGED else trained(layer).values())]
    y, want = compiled(*arguments), layer(*arguments)
    assert_close(y, want, rtol=1e-4, atol=1e-5)
    for a, b in zip(*(torch.autograd.grad(t.square().sum(), inputs) for t in (y, want)), strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


BATCH, ANY_BATCH = torch.export.Dim("batch", min=2, max=64), "hot2 product"


@each([case for case in TRACED if case.name != ANY_BATCH])
@pytest.mark.filterwarnings("ignore")
@torch._dynamo.config.patch(fake_tensor_cache_enabled=False)        # which takes longer than it saves here
def test_exports(case):
    "For any batch: the number of samples is an input like others, which `len` would fix."
    layer, given = case.layer(torch.float32), case.arguments(case.input(3, dtype=torch.float32))
    arguments = given[0 if case in BARE else -1]
    program = torch.export.export(layer, arguments, dynamic_shapes=tuple({0: BATCH} for _ in arguments)).module()
    more = [t[[0, 1, 2, 1, 0]] for t in arguments]
    assert_close(program(*more), layer(*more), rtol=1e-4, atol=1e-5)


class SideBySide(torch.nn.Module):
    "Layers, each with arguments of its own."

    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, *arguments):
        return [layer(*own) for layer, own in zip(self.layers, arguments, strict=True)]


@pytest.mark.filterwarnings("ignore")
def test_exports_to_onnx():
    """With all arguments there are, for one batch, and since that takes twice as long one layer for any.

    What onnxscript makes simpler afterwards is its own. Several layers in one file, since reading the list of operators
    takes longer than exporting one of them, and since export makes a new object of a module whenever a layer asks for
    it: a layer that told its modules by `is` was right alone and wrong in company."""
    layers = [case.layer(torch.float32) for case in IN_ONNX]
    given = [case.arguments(case.input(3, dtype=torch.float32))[-1] for case in IN_ONNX]
    free = [case.name == ANY_BATCH for case in IN_ONNX]
    shapes = [tuple({0: BATCH} if any_batch else None for _ in own) for own, any_batch in zip(given, free, strict=True)]
    program = torch.export.export(SideBySide(layers), tuple(given), dynamic_shapes=(tuple(shapes),))
    given = [tuple(t[[0, 1, 2, 1, 0]] for t in own) if any_batch else own
             for own, any_batch in zip(given, free, strict=True)]

    def compare(found):
        for case, layer, own, got in zip(IN_ONNX, layers, given, found, strict=True):
            said = lambda m, name=case.name: f"{name}: {m}"     # noqa: E731
            assert_close(torch.as_tensor(got), layer(*own), rtol=1e-4, atol=1e-5, msg=said)
    compare(program.module()(*given))
    pytest.importorskip("onnx", reason="needs onnx")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    from onnx.reference import ReferenceEvaluator
    run = ReferenceEvaluator(torch.onnx.export(program, dynamo=True, verbose=False, optimize=False).model_proto)
    compare(run.run(None, dict(zip(run.input_names, (a.numpy() for own in given for a in own), strict=True))))


@modules
def test_state_dict_through_safetensors(case):
    layer, other, x = case.layer(), case.layer(seed=5), case.input()
    assert not layer.state_dict() or not torch.equal(layer(x), other(x))
    other.load_state_dict(load(save(layer.state_dict())))
    assert torch.equal(layer(x), other(x))


@each([*LAYERS, *PARTS, *MERGED])
def test_copies_and_pickles(case):
    layer, x = case.layer(), case.input()
    layer(x)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    read = torch.load(buffer, weights_only=False)
    for other in [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), read]:
        assert torch.equal(other(x), layer(x))


def test_a_fresh_process_reads_what_was_pickled(tmp_path):
    "All layers in one process, whose imports take longer than they."
    pairs = [(case.layer(), case.input(2)) for case in (*LAYERS, *PARTS, *MERGED)]
    (tmp_path / "layers").write_bytes(pickle.dumps([(layer, x, layer(x).detach()) for layer, x in pairs]))
    code = """if True:
        import pickle, torch
        for layer, x, y in pickle.load(open("layers", "rb")):
            torch.testing.assert_close(layer(x), y)
            again = pickle.loads(pickle.dumps(layer))
            assert type(again) is type(layer) and again(x).equal(layer(x))"""
    fresh(code, tmp_path)


@modules
@CPU_GPU
def test_device_and_dtype_arguments(case, device):
    layer = case.layer(F64, device)
    assert all(p.dtype == F64 and p.device.type == device for p in layer.parameters())
    x = case.input(dtype=torch.float32, device=device)
    assert layer.to(torch.float32)(x).dtype == torch.float32
    meta = case.layer(device="meta")(case.input(2, device="meta"))
    assert meta.device.type == "meta" and meta.shape == (2, *layer(x).shape)


@modules
def test_empty_batch_and_modes_of_size_one(case):
    layer = case.layer()
    shape = layer(case.input()).shape
    for batch in [(0,), (2, 0)]:
        for arguments in case.arguments(case.input(*batch).requires_grad_()):
            y = layer(*arguments)
            assert y.shape == (*batch, *shape)
            y.sum().backward()
    ones = (1,) * case.order
    for got, want in case.answers(case.layer(sizes=ones), case.input(3, sizes=ones)):
        assert_close(got, want)


@modules
def test_leading_axes_and_memory_layout_do_not_matter(case):
    layer, x = case.layer(), case.input(2, 3)
    y = layer(x)
    assert_close(y[1, 2], layer(x[1, 2]), rtol=0, atol=1e-12)
    assert_close(y, layer(x.flatten(0, 1)).unflatten(0, (2, 3)), rtol=0, atol=1e-12)
    reverse = tuple(reversed(range(x.ndim)))
    strided = x.permute(reverse).contiguous().permute(reverse)
    assert not strided.is_contiguous()
    assert_close(layer(strided), y, rtol=0, atol=1e-12)
    spread = x[:, :1].expand(2, 3, *x.shape[2:])
    assert_close(layer(spread), y[:, :1].expand(y.shape), rtol=0, atol=1e-12)


@modules
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_each_sample_and_a_batch_of_weights(case):
    "By vmap, over samples and over weights."
    layer, other, x = case.layer(), case.layer(seed=3), case.input(3)
    weights = {n: p.detach() for n, p in trained(layer).items()}

    def call(weights, x):
        return functional_call(layer, weights, (x,))

    def loss(weights, x):
        return call(weights, x).square().sum()
    found = vmap(grad(loss), (None, 0))(weights, x)
    for i, sample in enumerate(x):
        for name, g in grad(loss)(weights, sample).items():
            assert_close(found[name][i], g, rtol=0, atol=1e-10)
    both = {n: torch.stack([p, q.detach()]) for (n, p), q in
            zip(weights.items(), trained(other).values(), strict=True)}
    if both:
        assert_close(vmap(call, (0, None))(both, x)[0], layer(x), rtol=0, atol=1e-12)


@each([c for c in LAYERS + PARTS if not any(isinstance(m, LateBias) for m in c.layer(device="meta").modules())])
def test_weights_may_come_before_each_call_and_go_behind_it(case):
    """As hooks of offloading and sharding have them, with and without gradients: else they are on the meta device.

    Not so LateBias, which reads a bias behind the call of its module."""
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate: pip install 'hot_nbdev[train]'")
    layer, x = case.layer(), case.input(2)
    want = layer(x).detach()
    accelerate.cpu_offload(layer, execution_device="cpu")
    for context in (torch.no_grad, torch.enable_grad):
        with context():
            assert_close(layer(x), want, rtol=0, atol=1e-12)
    assert all(p.is_meta for p in layer.parameters())


@each([c for c in LAYERS + PARTS if c not in ADAPTED])
def test_weights_drawn_after_the_meta_device_are_distributed_as_new_ones(case):
    torch.manual_seed(0)
    new, later = case.maker()(), case.maker()(device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for t in (*later.parameters(), *later.buffers()):
            t.fill_(float("nan") if t.is_floating_point() else 0)
        for module in later.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    for name, want in new.state_dict().items():
        got = later.state_dict()[name]
        if want.is_floating_point() and (want != want.flatten()[0]).any() and not name.endswith("omega"):
            assert got.isfinite().all() and got.any(), name
            assert 0.5 < got.std() / want.std() < 2 or got.numel() < 30, name
        else:
            assert torch.equal(got, want), name     # norms, temperatures, directions from a seed


@layers
def test_unknown_keywords_raise(case):
    with pytest.raises(TypeError, match="mask_padding"):
        case.layer()(case.input(), mask_padding=None)
    with pytest.raises(TypeError, match="mask_padding"):
        case.layer(mask_padding=None)

"""Streams: steps give the numbers of the whole, whatever the layer, the cut, the mask, the start."""
import itertools
import random
from functools import partial

import pytest
import torch
from forks import fresh
from layers import DIM, HEADS, KERNELS, SPANS, Axial, Divided, Full, K, Multi, made, random_mask, since, stepped, tensor
from torch import nn, testing
from torch._dynamo.testing import CompileCounter
from ways import every_line

from hot_nbdev import streaming, streams
from hot_nbdev.axial import NoAttention
from hot_nbdev.kernels import PositiveRandomFeatures, elu_features
from hot_nbdev.model_config import ClassifierConfig, ForecasterConfig, HOTConfig, SegmenterConfig
from hot_nbdev.models import Model, make_model
from hot_nbdev.positions import Rotary
from hot_nbdev.streaming import load_state, save_state
from hot_nbdev.streams import StreamState, prefix_means, restart_streams, select_streams, step, steps, sum_dtype
from hot_nbdev.transformer import Block, FeedForward

EVERY = [K, Full, Axial, Divided, Multi]
make = partial(made, causal=(0,))
lines = every_line(streams, streaming)


def assert_close(a, b, rtol=0, atol=1e-12):
    testing.assert_close(a, b, rtol=rtol, atol=atol)


def test_one_frame_has_no_axis_of_time_and_gradients_pass_through_the_state():
    layer, x = make(K, 3, causal=(1,)), tensor(4, 2, 5, 3, DIM).requires_grad_()
    state, total = None, 0
    for t in range(5):
        y, state = step(layer, x[:, :, t], state)
        assert y.shape == (4, 2, 3, DIM) and state.tensors["age"].tolist() == [t + 1] * 4
        assert (state.streams, state.frame) == (4, (2, 3))
        total = total + y.square().sum()
    want = torch.autograd.grad(layer(x).square().sum(), x)[0]
    assert_close(torch.autograd.grad(total, x)[0], want)


def test_half_precision_stays_near():
    layer, x = make(K).bfloat16(), tensor(2, 5, 3, DIM, dtype=torch.bfloat16)
    y, _ = stepped(layer, x, None, 0, (1, 2, 2))
    assert y.dtype == torch.bfloat16
    assert_close(y, layer(x), atol=0.03, rtol=0.03)


WINDOWED = [*zip(SPANS, 2 * [*KERNELS], strict=False), (SPANS[1], "softmax")]


@pytest.mark.parametrize("kind, kernel, near", [
    *itertools.product(EVERY, KERNELS, [{}]),
    *((kind, kernel, {0: own}) for kind in (K, Axial, Divided) for own, kernel in WINDOWED)])
def test_streams_are_forked_dropped_and_restarted(kind, kernel, near, tmp_path):
    layer = make(kind, 2, kernel, rotary=Rotary(DIM // HEADS), **{"by_mode": near} if near else {})
    x, new = tensor(3, 5, 3, DIM), tensor(3, 2, 3, DIM, seed=9)
    rows = [2, 0, 2]
    for mask, more in [(None, None), (random_mask(3, 5, 3), random_mask(3, 2, 3, seed=5))]:
        whole = layer(torch.cat([x, new], 1), None if mask is None else torch.cat([mask, more], 1))[:, 5:]
        _, state = steps(layer, x, None, mask)
        before = state.map(lambda tensors: {n: t.clone() for n, t in tensors.items()})
        forked, _ = steps(layer, new[rows], select_streams(state, rows), None if mask is None else more[rows])
        assert_close(forked, whole[rows])
        again, anew = steps(layer, new, restart_streams(state, [1]), more)
        assert_close(again, torch.stack([whole[0], layer(new, more)[1], whole[2]]))     # the second one has forgotten
        assert anew.tensors["age"].tolist() == [7, 2, 7]
        save_state(state, tmp_path / "state.safetensors")
        for other in (before, load_state(tmp_path / "state.safetensors")):              # a state is a value
            assert all(map(torch.equal, flat(state), flat(other)))
            assert (other.layer, other.frame, other.masked, other.nbytes) == (
                state.layer, state.frame, mask is not None, state.nbytes)


def test_a_stream_begins_anew_after_nan_and_however_loud_it_is():
    "Features may be so small that nothing of them is left beside a scale of 1."
    for kind in EVERY:
        layer, x, new = make(kind), tensor(2, 3, 3, DIM), tensor(2, 2, 3, DIM, seed=3)
        x[1] = torch.nan
        assert_close(steps(layer, new, restart_streams(steps(layer, x)[1], [1]))[0][1:], layer(new[1:]))
    for kind in (K, Full, Axial):
        layer, x = make(kind, 2, "random", qk_norm=False), 300 * tensor(2, 3, 3, DIM)
        y, _ = steps(layer, x, restart_streams(steps(layer, x)[1], [1]))
        assert_close(y[1], layer(x)[1], atol=1e-9)


def flat(state):
    return [*(state.tensors[n] for n in sorted(state.tensors)), *(t for s in state.inner for t in flat(s))]


def test_in_ten_thousand_steps_a_kernel_keeps_one_size_and_does_not_drift():
    "In float32, against the same layer in float64: the error of the last frames is that of the first."
    layer, exact = make(K, 2, "elu").float(), make(K, 2, "elu")
    x, state, other, errors, kept = torch.randn(10_000, 3, DIM), None, None, [], set()
    with torch.no_grad():
        for part in x.split(250):
            y, state = steps(layer, part, state)
            want, other = steps(exact, part.double(), other)
            errors.append((y - want).abs().max().item())
            kept.add(state.nbytes)
    assert state.tensors["age"].item() == 10_000 and max(errors[-4:]) < 4 * max(errors[:4]) < 1e-5
    assert len(kept) == 1


def test_sums_go_on_where_float32_would_stop():
    many = torch.full((1, 1, 5), 2.0 ** 24, dtype=sum_dtype(torch.device("cpu")))       # four features, and a count
    means, counts, kept = prefix_means(torch.ones(1, 1, 1, 4), None, 0, {"sum1": many})
    assert kept["sum1"].unique().tolist() == [2 ** 24 + 1]
    assert means[1].unique().tolist() == [1.0]


@pytest.mark.parametrize("kernel, scale", [("softmax", 30), ("elu", 3000)])
@pytest.mark.parametrize("combine", ["product", "sum"])
def test_with_a_mask_sharp_maps_leave_the_same_weight(combine, kernel, scale):
    "In float32, where next to nothing would be left of some rows without the share that each row spreads evenly."
    torch.manual_seed(3)
    for _ in range(2):
        layer = K(16, 2, 2, combine=combine, qk_norm=False, causal=(0,), kernel=KERNELS[kernel]).eval()
        x, mask = scale * torch.randn(2, 8, 8, 16), torch.rand(2, 8, 8) < 0.5
        assert_close(stepped(layer, x, mask, 0, (1,) * 8)[0], layer(x, mask), atol=0.01, rtol=0.01)


@pytest.fixture
def saved(tmp_path):
    "A state, with states within, and its file."
    layer, x = make(Divided), tensor(2, 7, 3, DIM)
    _, state = steps(layer, x[:, :5], None, torch.ones(2, 5, 3, dtype=torch.bool))
    save_state(state, tmp_path / "s.safetensors")
    return layer, x, state, tmp_path / "s.safetensors"


@since("2.13")
def test_a_fresh_process_steps_other_attentions_and_goes_on_from_a_file(saved):
    "Whoever imports `steps` can step them all; the first step may be compiled."
    layer, x, _, path = saved
    torch.save((layer, x[:, 5:], layer(x)[:, 5:]), path.with_name("layer.pt"))
    fresh("""
import torch
from torch.testing import assert_close
from hot_nbdev.streams import step, steps
layer, x, want = torch.load("layer.pt", weights_only=False)
once = torch.compile(step, backend="eager", fullgraph=True)
assert_close(once(layer, x[:, 0], None)[0], layer(x)[:, 0])
from hot_nbdev.streaming import load_state
assert_close(steps(layer, x, load_state("s.safetensors"))[0], want, rtol=0, atol=1e-12)
""", path.parent)


def test_every_changed_byte_of_a_state_is_refused_in_one_line_with_the_name(saved):
    "Of the header and of the numbers; `make stress` changes some thousands more."
    *_, path = saved
    whole, draw = path.read_bytes(), random.Random(0)
    head = 8 + int.from_bytes(whole[:8], "little")
    for at in [*range(8), *draw.sample(range(8, head), 100), *draw.sample(range(head, len(whole)), 50)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ draw.randrange(1, 256)]) + whole[at + 1:])
        with pytest.raises(ValueError) as error:
            load_state(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
    save_state(StreamState(), path)
    assert load_state(path) == StreamState()


def test_states_of_another_layer_are_refused():
    x = tensor(2, 5, 4, DIM)
    settings = [(K, {}), (K, dict(combine="sum")), (K, dict(heads=4)), (K, dict(kernel=elu_features)),
                (K, dict(kernel=PositiveRandomFeatures(4, 6))), (K, dict(rotary=Rotary(4))),
                *((K, dict(by_mode={0: own})) for own in (dict(window=1), dict(window=2), dict(bias="alibi"))),
                (Axial, {}), (Axial, dict(groups=[(0, 1)])), (Multi, dict(stride=(1, 2))), (NoAttention, {})]
    made = [kind(DIM, order=2, causal=(0,), **{"heads": HEADS, **own}) for kind, own in settings]
    states = [steps(layer.double().eval(), x)[1] for layer in made]
    for (i, layer), (j, state) in itertools.product(enumerate(made), enumerate(states)):
        if i == j:
            steps(layer, x, state)
            continue
        with pytest.raises(ValueError, match="of another layer, which has .* where this one has .*; begin with"):
            steps(layer, x, state)
    one, two = (make_model(SegmenterConfig(**MODEL | {"depth": depth})).eval() for depth in (1, 2))
    x = torch.randn(2, 2, 4, 3, 1)
    with pytest.raises(ValueError, match="which has depth=1 where this one has depth=2"):
        steps(two, x, steps(one, x)[1])


def test_what_cannot_be_stepped_says_so():
    "Beside what chapters 23 and 23a refuse."
    x, frames = tensor(2, 5, 3, DIM), tensor(2, 8, 4, 3, 1)
    layer = make(K)
    _, state = steps(layer, x)
    for other, args, says in [
            (K(DIM, HEADS, 2), (x,), r"runs along one causal mode, but causal is \(\)"),
            (K(DIM, HEADS, 2, causal=(0,), by_mode={1: dict(dropout=0.5)}), (x,), "with dropout, .*call eval"),
            (Block(Full(DIM, HEADS, 2, causal=(0,)), FeedForward(DIM), dropout=0.1), (x,), r"call eval\(\) first"),
            (nn.Linear(DIM, DIM), (x,), "Linear cannot be stepped"),
            (layer, (tensor(2, 1, 4, DIM), state), r"2 streams of frames \(4,\) .* on 2 .* frames \(3,\)"),
            (make_model(SegmenterConfig(**{**MODEL, "causal": ()})), (frames,), r"causal is \(\)"),
            (make_model(SegmenterConfig(**MODEL, dropout=0.1)), (frames,), r"call eval\(\) first")]:
        with pytest.raises(ValueError, match=says) as error:
            steps(other.double(), *args)
        assert isinstance(other, Model) or type(other).__name__ in str(error.value)
    y, state = steps(layer, x, None, torch.ones(2, 5, 3, dtype=torch.bool))
    assert_close(steps(layer, x, state)[0], steps(layer, x, state, torch.ones(2, 5, 3, dtype=torch.bool))[0])


MODEL = dict(patch=(2, 2, 1), dim=16, depth=2, heads=2, causal=(0,), sizes=(8, 4, 3))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("attention", ["product", "sum", "hot1", "hot2", "full", "divided", "axial", "spatial", "none",
                                       "tied", "product+divided", "near product", "near axial", "near divided"])
def test_models_step_as_a_whole(attention, masked):
    "A head and an attention see tokens and a mask alone: each once, and each stem and kind of positions."
    near, attention = attention.startswith("near"), attention.removeprefix("near ")
    options = {"by_mode": {0: dict(window=1, bias="learned", reach=2)}} if near else {}
    each = [(HOTConfig, "conv", "none" if attention == "none" else "rotary")]
    if attention == "product":
        each += [(SegmenterConfig, "linear", "sincos"), (ClassifierConfig, "local", "learned"),
                 (ClassifierConfig, "conv", "none")]
    for settings, stem, positions in each:
        torch.manual_seed(0)
        model = make_model(settings(**MODEL, attention=attention, stem=stem, positions=positions,
                                    attention_options=options)).double().eval()
        x, mask = tensor(2, 8, 4, 3, 1), random_mask(2, 8, 4, 3) if masked else None
        state, found = None, []
        for part in (slice(2), slice(2, 6), slice(6, 8)):
            y, state = steps(model, x[:, part], state, None if mask is None else mask[:, part])
            found.append(y)
        assert_close(y if settings is ClassifierConfig else torch.cat(found, 1), model(x, mask))


def test_a_model_steps_along_its_last_mode():
    model = make_model(SegmenterConfig(**{**MODEL, "causal": (-1,)})).double().eval()
    x, state = tensor(2, 8, 4, 3, 1), None
    for t in range(3):
        y, state = steps(model, x[..., t:t + 1, :], state)
        assert_close(y, model(x)[..., t:t + 1, :])


@pytest.mark.parametrize("readout, cuts", [("mean", (8, 8)), ("flatten", (16,))])
def test_forecasters_step_along_time(readout, cuts):
    model = make_model(ForecasterConfig(patch=(4, 1), dim=16, depth=2, heads=2, causal=(0,), instance_norm=False,
                                        lookback=16, horizons=(5,), readout=readout)).double().eval()
    x, mask, state = tensor(2, 16, 3), random_mask(2, 16, 3), None
    for part, own in zip(x.split(cuts, 1), mask.split(cuts, 1), strict=True):
        y, state = steps(model, part, state, own)
    assert_close(y, model(x, mask))
    y, _ = steps(model, tensor(2, 4, 3, seed=5), state)
    assert y.shape == (2, 5, 3) and y.isfinite().all()


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_models_restart_as_if_new_or_say_that_they_cannot(positions):
    model = make_model(SegmenterConfig(**MODEL, positions=positions, stem="conv")).double().eval()
    x, new = tensor(3, 4, 4, 3, 1), tensor(3, 2, 4, 3, 1, seed=9)
    _, state = steps(model, x)
    everything, _ = steps(model, new, restart_streams(state, [0, 1, 2]))
    assert_close(everything, steps(model, new)[0])
    if positions == "rotary":
        y, _ = steps(model, new, restart_streams(state, [1]))
        assert_close(y[1:2], model(new[1:2]))
        assert_close(y[[0, 2]], model(torch.cat([x, new], 1))[[0, 2], 4:])
    else:
        with pytest.raises(ValueError, match=r"streams have had \[2, 0, 2\] tokens"):
            steps(model, new, restart_streams(state, [1]))
    with pytest.raises(ValueError, match="there are 2 streams, but the state is of 3"):
        steps(model, new[:2], state)
    y, _ = steps(model, new[[2, 2]], select_streams(state, [2, 2]))
    assert_close(y, steps(model, new, state)[0][[2, 2]])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [*EVERY, partial(K, combine="sum"), NoAttention])
def test_steps_of_one_mode_and_of_two_some_of_no_frames_equal_the_whole(kind, kernel):
    "In batches of several axes and empty ones; three modes are those of test_leaks.py."
    for sizes, batch, masked in itertools.product([(5,), (5, 3)], [(2, 1), (0,), (2, 0)], [False, True]):
        layer = make(kind, len(sizes), "softmax" if kind is NoAttention else kernel)
        x, mask = tensor(*batch, *sizes, DIM), random_mask(*batch, *sizes) if masked else None
        y, state = stepped(layer, x, mask, 0, (0, 2, 0, 3))
        assert y.dtype == x.dtype
        assert_close(y, layer(x, mask))
        rows = [*range(state.streams)]
        assert steps(layer, x, restart_streams(select_streams(state, rows), rows), mask)[0].shape == x.shape


def test_models_read_any_batch_axes_and_empty_batches_and_refuse_zero_frames():
    ones = torch.ones(4, 4, 3, dtype=torch.bool)
    for config in (HOTConfig, SegmenterConfig, ClassifierConfig):
        model = make_model(config(**MODEL, positions="sincos", stem="conv")).double().eval()
        x = tensor(2, 3, 8, 4, 3, 1)
        for own in (x, x[0, 0], x[0, :0]):
            one, state = steps(model, own.narrow(-4, 0, 4), None, ones)
            two, _ = steps(model, own.narrow(-4, 4, 4), state)
            assert_close(two if config is ClassifierConfig else torch.cat([one, two], -4), model(own))
        with pytest.raises(ValueError, match="x must be .*; no mode may be empty"):
            steps(model, x[0, :0, :0], state)


@pytest.mark.parametrize("kind, kernel, strict", [*((kind, "softmax", False) for kind in EVERY),
                                                  pytest.param(K, "elu", True, marks=since("2.13"))])
def test_steps_are_exported(kind, kernel, strict):
    class Step(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, frame, state):
            return step(self.layer, frame, state)
    layer, x = make(kind, 2, kernel), tensor(2, 3, 3, DIM)
    _, state = step(layer, x[:, 0])
    _, state = step(layer, x[:, 1], state)
    y, after = torch.export.export(Step(layer), (x[:, 2], state), strict=strict).module()(x[:, 2], state)
    assert_close(y, layer(x)[:, 2])
    want = step(layer, x[:, 2], state)[1]
    assert isinstance(after, StreamState) and after.layer == want.layer and after.frame == want.frame
    assert all(a.equal(b) for a, b in zip(flat(after), flat(want), strict=True))


@since("2.13")
@pytest.mark.parametrize("model", [False, True], ids=["layer", "model"])
def test_compiled_steps_are_compiled_no_more_after_three(model):
    """Where the state does not grow for ever: of the first frame, of the second, which has a state, and of the third,
    where its number is an input; or as soon as the windows are full. All steps are one graph."""
    torch.compiler.reset()
    near = {0: dict(window=1, dilation=2, bias="learned", reach=3), 1: dict(bias="alibi")}
    layer = make(K, 2, "elu") if not model else make_model(SegmenterConfig(
        patch=(1, 2), dim=8, depth=2, heads=2, causal=(0,), attention="product+axial",
        attention_options={"by_mode": near})).double().eval()
    x = tensor(2, 8, 4, 1 if model else DIM)
    traced, mask, state, made = CompileCounter(), random_mask(2, 8, 4), None, []
    compiled = torch.compile(steps, backend=traced, fullgraph=True)
    with torch.no_grad():
        want = layer(x, mask)
        for t in range(8):
            y, state = compiled(layer, x[:, t:t + 1], state, mask[:, t:t + 1])
            assert_close(y, want[:, t:t + 1])
            made.append(traced.frame_count)
    assert made[-1] == made[4] <= (5 if model else 3)

"""Streams: steps give the numbers of the whole, whatever the layer, the cut, the mask, the start."""
import itertools

import pytest
import torch
from layers import DIM, HEADS, Axial, Divided, Full, Hot1, K, Multi, random_mask, stepped, tensor
from torch import testing

from hot_nbdev.axial import NoAttention
from hot_nbdev.fields import AxialTokenAttention
from hot_nbdev.kernels import PositiveRandomFeatures, elu_features
from hot_nbdev.model_config import ClassifierConfig, ForecasterConfig, HOTConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.positions import Rotary
from hot_nbdev.streaming import stream_steps
from hot_nbdev.streams import (
    load_state,
    prefix_means,
    restart_streams,
    save_state,
    select_streams,
    step,
    steps,
    sum_dtype,
)

GRIDS = [((5,), 0), ((5, 3), 0), ((3, 5), 1), ((2, 5, 3), 1)]
CUTS = [(1, 1, 1, 1, 1), (2, 3), (5,)]
KERNELS = {"softmax": None, "elu": lambda: elu_features,
           "random": lambda: PositiveRandomFeatures(DIM // HEADS, 6)}


def assert_close(a, b, rtol=0, atol=1e-12):
    testing.assert_close(a, b, rtol=rtol, atol=atol)


def make(kind, sizes, c, kernel=None, **options):
    torch.manual_seed(len(sizes))
    if kernel is not None:
        options["kernel"] = kernel()
    if kind is Multi:
        options["stride"] = tuple(1 if m == c else 2 for m in range(len(sizes)))
    return kind(DIM, HEADS, len(sizes), causal=(c,), **options).double().eval()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [Full, Axial, Divided, Multi])
def test_steps_of_rivals_equal_the_whole(kind, kernel, masked):
    for (sizes, c), cuts in itertools.product(GRIDS, CUTS):
        layer, x = make(kind, sizes, c, KERNELS[kernel]), tensor(2, *sizes, DIM)
        mask = random_mask(2, *sizes) if masked else None
        assert_close(stepped(layer, x, mask, c, cuts)[0], layer(x, mask))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("combine", ["product", "sum"])
def test_steps_of_kronecker_attention_equal_the_whole(combine, kernel, masked):
    for pool, project, norm, shared in [("mean", "before", True, True), ("sum", "after", False, False),
                                        ("rsqrt", "before", False, True), ("sum", "before", True, False)]:
        for i, ((sizes, c), cuts) in enumerate(itertools.product(GRIDS, CUTS)):
            layer = make(K, sizes, c, KERNELS[kernel], combine=combine, pool=pool, project=project,
                         qk_norm=norm, shared=shared, temperature=bool(i % 2),
                         rotary=Rotary(DIM // HEADS) if i % 3 else None)
            x, mask = tensor(2, 1, *sizes, DIM, seed=i), random_mask(2, 1, *sizes, seed=i) if masked else None
            assert_close(stepped(layer, x, mask, c, cuts)[0], layer(x, mask))


def test_one_frame_has_no_axis_of_time_and_gradients_pass_through_the_state():
    layer, x = make(K, (2, 5, 3), 1), tensor(4, 2, 5, 3, DIM).requires_grad_()
    state, total = None, 0
    for t in range(5):
        y, state = step(layer, x[:, :, t], state)
        assert y.shape == (4, 2, 3, DIM) and state.tensors["age"].tolist() == [t + 1] * 4 and state.frame == (4, 2, 3)
        total = total + y.square().sum()
    want = torch.autograd.grad(layer(x).square().sum(), x)[0]
    assert_close(torch.autograd.grad(total, x)[0], want)
    assert not state.detach().tensors["keys"].requires_grad


def test_half_precision_stays_near():
    layer = K(DIM, HEADS, 2, causal=(0,)).bfloat16()
    x = tensor(2, 5, 3, DIM, dtype=torch.bfloat16)
    y, _ = stepped(layer, x, None, 0, (1, 2, 2))
    assert y.dtype == torch.bfloat16
    assert_close(y, layer(x), atol=0.03, rtol=0.03)


@pytest.mark.parametrize("kind", [K, Full, Axial])
@pytest.mark.parametrize("kernel", KERNELS)
def test_streams_are_forked_dropped_and_restarted(kind, kernel):
    layer = make(kind, (5, 3), 0, KERNELS[kernel])
    x, new = tensor(3, 5, 3, DIM), tensor(3, 2, 3, DIM, seed=9)
    _, state = steps(layer, x)
    before = {n: t.clone() for n, t in state.tensors.items()}
    forked, _ = steps(layer, new, select_streams(state, [2, 0, 2]))
    assert_close(forked, layer(torch.cat([x[[2, 0, 2]], new], 1))[:, 5:])
    again, _ = steps(layer, new, restart_streams(state, [1]))
    assert_close(again[1:2], layer(new[1:2]))                               # it has forgotten
    assert_close(again[[0, 2]], layer(torch.cat([x, new], 1))[[0, 2], 5:])  # the others have not
    assert all(t.equal(before[n]) for n, t in state.tensors.items())        # a state is a value


def test_streams_that_start_late_are_streams_with_a_mask():
    for kind in (K, Full):
        turned = dict(rotary=Rotary(DIM // HEADS)) if kind is K else {}
        layer, x = make(kind, (6, 3), 0, **turned), tensor(2, 6, 3, DIM)
        mask = torch.ones(2, 6, 3, dtype=torch.bool)
        mask[1, :4] = False                                                 # the second begins with the fifth frame
        y, _ = stepped(layer, x, mask, 0, (1,) * 6)
        assert_close(y[1:, 4:], layer(x[1:, 4:], mask[1:, 4:]))
        x[1, :4] = torch.nan                                                # whatever stands where nothing is
        assert_close(stepped(layer, x, mask, 0, (1,) * 6)[0], y)


@pytest.mark.parametrize("kernel", ["elu", "random"])
@pytest.mark.parametrize("combine", ["product", "sum"])
def test_with_a_kernel_the_state_does_not_grow_and_with_the_softmax_it_does(combine, kernel):
    sizes = {}
    for name in (kernel, "softmax"):
        layer, state, found = make(K, (5, 3), 0, KERNELS[name], combine=combine), None, []
        for t in range(6):
            _, state = step(layer, tensor(2, 3, DIM, seed=t), state)
            found.append(state.nbytes)
        sizes[name] = found
    assert len(set(sizes[kernel])) == 1
    grows = {b - a for a, b in itertools.pairwise(sizes["softmax"])}
    assert len(grows) == 1 and min(grows) > 0


def test_ten_thousand_steps_do_not_drift():
    "In float32, against the same layer in float64: the error of the last frames is that of the first."
    torch.manual_seed(0)
    layer = K(DIM, HEADS, 2, causal=(0,), kernel=elu_features).eval()
    exact = K(DIM, HEADS, 2, causal=(0,), kernel=elu_features).double().eval()
    exact.load_state_dict(layer.state_dict())
    x, state, other, errors = torch.randn(10_000, 3, DIM), None, None, []
    with torch.no_grad():
        for part in x.split(250):
            y, state = steps(layer, part, state)
            want, other = steps(exact, part.double(), other)
            errors.append((y - want).abs().max().item())
    assert state.tensors["age"].item() == 10_000 and max(errors[-4:]) < 4 * max(errors[:4]) < 1e-5


def test_sums_go_on_where_float32_would_stop():
    many = torch.full((1, 1, 4), 2.0 ** 24, dtype=sum_dtype(torch.device("cpu")))
    means, counts, kept = prefix_means(torch.ones(1, 1, 1, 4), None, 0, {"sum1": many, "count1": many[..., :1]})
    assert kept["sum1"].unique().tolist() == kept["count1"].unique().tolist() == [2 ** 24 + 1]
    assert means[1].unique().tolist() == [1.0]


@pytest.mark.parametrize("combine", ["product", "sum"])
def test_with_a_mask_sharp_maps_leave_the_same_weight(combine):
    "In float32, where next to nothing would be left of some rows without the share that each row spreads evenly."
    torch.manual_seed(3)
    for _ in range(5):
        layer = Hot1(16, 2, 2, combine=combine, causal=(0,)).eval()
        x, mask = 30 * torch.randn(2, 8, 8, 16), torch.rand(2, 8, 8) < 0.5
        assert_close(stepped(layer, x, mask, 0, (1,) * 8)[0], layer(x, mask), atol=0.01, rtol=0.01)


def test_a_state_is_saved_and_goes_on(tmp_path):
    layer, x = make(Divided, (5, 3), 0), tensor(2, 7, 3, DIM)
    _, state = steps(layer, x[:, :5])
    save_state(state, tmp_path / "s.safetensors")
    y, _ = steps(layer, x[:, 5:], load_state(tmp_path / "s.safetensors"))
    assert_close(y, layer(x)[:, 5:])


def test_what_cannot_be_stepped_says_so():
    x = tensor(2, 5, 3, DIM)
    for layer, says in [(K(DIM, HEADS, 2), "runs along one causal mode, but causal is ()"),
                        (K(DIM, HEADS, 2, causal=(0, 1)), "causal is (0, 1)"),
                        (Full(DIM, HEADS, 2, causal=(0,), dropout=0.1), "call eval() first"),
                        (AxialTokenAttention(DIM, HEADS, 2), "causal is ()")]:
        with pytest.raises(ValueError, match="(?s).*") as error:
            steps(layer.double(), x)
        assert says in str(error.value) and type(layer).__name__ in str(error.value)
    layer = make(K, (5, 3), 0)
    _, state = steps(layer, x)
    with pytest.raises(ValueError, match=r"frames are \(4,\) in 2 streams, but the state is of frames \(3,\) in 2"):
        steps(layer, tensor(2, 1, 4, DIM), state)
    with pytest.raises(ValueError, match="the stream of this KroneckerAttention began without one"):
        steps(layer, x, state, random_mask(2, 5, 3))
    y, state = steps(layer, x, None, torch.ones(2, 5, 3, dtype=torch.bool))
    assert_close(steps(layer, x, state)[0], steps(layer, x, state, torch.ones(2, 5, 3, dtype=torch.bool))[0])


MODEL = dict(patch=(2, 2, 1), dim=16, depth=2, heads=2, causal=(0,), sizes=(8, 4, 3))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("attention", ["product", "sum", "hot1", "hot2", "full", "divided", "axial", "spatial", "none",
                                       "product+divided"])
def test_models_step_as_a_whole(attention, masked):
    for stem, positions in [("linear", "rotary"), ("conv", "sincos"), ("local", "learned"), ("conv", "none")]:
        if attention == "none" and positions == "rotary":
            positions = "none"
        for settings in (HOTConfig, SegmenterConfig, ClassifierConfig):
            torch.manual_seed(0)
            model = make_model(settings(**MODEL, attention=attention, stem=stem, positions=positions)).double().eval()
            x, mask = tensor(2, 8, 4, 3, 1), random_mask(2, 8, 4, 3) if masked else None
            state, found = None, []
            for at, n in [(0, 2), (2, 4), (6, 2)]:
                own = None if mask is None else mask[:, at:at + n]
                y, state = stream_steps(model, x[:, at:at + n], state, own)
                found.append(y)
            got = found[-1] if settings is ClassifierConfig else torch.cat(found, 1)
            assert_close(got, model(x, mask))


@pytest.mark.parametrize("masked", [False, True])
def test_forecasters_step_along_time(masked):
    for readout in ("mean", "flatten"):
        model = make_model(ForecasterConfig(patch=(4, 1), dim=16, depth=2, heads=2, causal=(0,), instance_norm=False,
                                            lookback=16, horizons=(5,), readout=readout)).double().eval()
        x, mask, state = tensor(2, 16, 3), random_mask(2, 16, 3) if masked else None, None
        for part in [slice(16)] if readout == "flatten" else [slice(8), slice(8, 16)]:
            y, state = stream_steps(model, x[:, part], state, None if mask is None else mask[:, part])
        assert_close(y, model(x, mask))
        y, _ = stream_steps(model, tensor(2, 4, 3, seed=5), state)
        assert y.shape == (2, 5, 3) and y.isfinite().all()


def test_models_that_cannot_be_stepped_say_so():
    x = tensor(2, 8, 4, 3, 1, dtype=torch.float32)
    learned = make_model(SegmenterConfig(**MODEL, positions="learned")).eval()
    _, state = stream_steps(learned, x)
    series = dict(patch=(4, 1), dim=16, heads=2, causal=(0,))
    for model, args, says in [
            (make_model(SegmenterConfig(**{**MODEL, "causal": ()})), (x,), "causal is ()"),
            (make_model(SegmenterConfig(**MODEL, dropout=0.1)), (x,), "call eval() first"),
            (learned, (x[:, :3],), "whole patches of 2 along mode 0"),
            (learned, (x, state), "positions are learned for 4 tokens along mode 0, and the stream has come to 8"),
            (make_model(ClassifierConfig(**MODEL, readout="flatten")).eval(), (x,), "choose readout='mean'"),
            (make_model(ForecasterConfig(**series)).eval(), (x[..., 0, 0],), "instance_norm=False"),
            (make_model(ForecasterConfig(**series, instance_norm=False)).eval(), (x[..., 0, 0],),
             "reads 96 steps, but the stream has 8 so far"),
            (torch.nn.Linear(2, 2), (x,), "Linear cannot be stepped")]:
        with pytest.raises(ValueError) as error:
            stream_steps(model, *args)
        assert says in str(error.value)


@pytest.mark.parametrize("positions", ["rotary", "none", "sincos", "learned"])
def test_models_restart_as_if_new_or_say_that_they_cannot(positions):
    model = make_model(SegmenterConfig(**MODEL, positions=positions, stem="conv")).double().eval()
    x, new = tensor(3, 4, 4, 3, 1), tensor(3, 2, 4, 3, 1, seed=9)
    _, state = stream_steps(model, x)
    everything, _ = stream_steps(model, new, restart_streams(state, [0, 1, 2]))
    assert_close(everything, stream_steps(model, new)[0])
    if positions in ("rotary", "none"):
        y, _ = stream_steps(model, new, restart_streams(state, [1]))
        assert_close(y[1:2], model(new[1:2]))
        assert_close(y[[0, 2]], model(torch.cat([x, new], 1))[[0, 2], 4:])
    else:
        with pytest.raises(ValueError, match=r"streams have had \[2, 0, 2\] tokens"):
            stream_steps(model, new, restart_streams(state, [1]))
    with pytest.raises(ValueError, match="there are 2 streams, but the state is of 3"):
        stream_steps(model, new[:2], state)
    y, _ = stream_steps(model, new[[2, 2]], select_streams(state, [2, 2]))
    assert_close(y, stream_steps(model, new, state)[0][[2, 2]])


def test_none_needs_no_past():
    layer = NoAttention(DIM, HEADS, 2, causal=(0,)).double()
    y, state = steps(layer, tensor(2, 5, 3, DIM))
    assert list(state.tensors) == ["age"] and y.equal(layer(tensor(2, 5, 3, DIM)))

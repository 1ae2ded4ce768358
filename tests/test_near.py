"""Windows, biases and dropout of single modes, beyond what the contracts of layers.py hold all layers to."""
import itertools
import json
import random

import pytest
import torch
from layers import DIM, HEADS, SquarePlus, random_mask, stepped, tensor
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from hot_nbdev.axial import AxialAttention, DividedAttention
from hot_nbdev.cost import count, peak_memory
from hot_nbdev.kernels import ElementwiseFeatures, PositiveRandomFeatures
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.mode_scores import ModeScores, alibi_slopes
from hot_nbdev.model_config import ClassifierConfig, HOTConfig, SegmenterConfig
from hot_nbdev.models import load_model, make_model
from hot_nbdev.positions import Rotary
from hot_nbdev.streaming import stream_steps
from hot_nbdev.streams import load_state, restart_streams, save_state, select_streams

CUTS = [(1,) * 7, (3, 4), (7,), (5, 1, 1)]
OPTIONS = [dict(window=2), dict(window=2, dilation=2, bias="alibi"), dict(window=0), dict(bias="learned", reach=2),
           dict(window=9, bias="learned", reach=9)]
KERNELS = {"softmax": lambda: None, "elu": lambda: ElementwiseFeatures("elu"),
           "random": lambda: PositiveRandomFeatures(DIM // HEADS, 6)}


def make(kind, order, seed=0, **options):
    torch.manual_seed(seed)
    layer = kind(DIM, HEADS, order, **options).double().eval()
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if "table" in name:
                p.normal_()
    return layer


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("combine", ["product", "sum"])
def test_steps_with_windows_and_biases_equal_the_whole(combine, kernel, masked):
    pools = [("mean", "before", True), ("sum", "after", False), ("rsqrt", "before", False)]
    for i, (own, cuts) in enumerate(itertools.product(OPTIONS, CUTS)):
        pool, project, norm = pools[i % 3]
        sizes, c = [((7, 3), 0), ((2, 7, 3), 1), ((7,), 0)][i % 3 if cuts != (7,) else 1]
        other = {} if len(sizes) == 1 else {-1: dict(window=1, bias="alibi")}
        layer = make(KroneckerAttention, len(sizes), i, combine=combine, kernel=KERNELS[kernel](), causal=(c,),
                     pool=pool, project=project, qk_norm=norm, shared=i % 2 == 0, temperature=i % 2 == 1,
                     rotary=Rotary(DIM // HEADS) if i % 3 else None, by_mode={c: own, **other})
        x, mask = tensor(2, 1, *sizes, DIM, seed=i), random_mask(2, 1, *sizes, seed=i) if masked else None
        assert_close(stepped(layer, x, mask, c, cuts)[0], layer(x, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [AxialAttention, DividedAttention])
def test_steps_along_one_axis_equal_the_whole(kind, kernel, masked):
    for i, (own, cuts) in enumerate(itertools.product(OPTIONS, CUTS)):
        layer = make(kind, 2, i, kernel=KERNELS[kernel](), causal=(0,), qk_norm=i % 2 == 0, groups=[0, 1],
                     rotary=Rotary(DIM // HEADS) if i % 3 else None, by_mode={0: own, 1: dict(bias="alibi")})
        x, mask = tensor(2, 7, 3, DIM, seed=i), random_mask(2, 7, 3, seed=i) if masked else None
        assert_close(stepped(layer, x, mask, 0, cuts)[0], layer(x, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [KroneckerAttention, AxialAttention])
def test_with_a_window_the_state_has_one_size_from_the_first_frame_on(kind, kernel):
    for window, dilation in [(2, 1), (2, 3), (0, 1)]:
        layer, state, found = make(kind, 2, causal=(0,), kernel=KERNELS[kernel](),
                                   by_mode={0: dict(window=window, dilation=dilation)}), None, set()
        for t in range(9):
            _, state = layer.steps(tensor(2, 1 + t % 3, 3, DIM, seed=t), state)
            found.add(state.nbytes)
            tensors = (state if kind is KroneckerAttention else state.inner[0]).tensors
            stored = tensors["values"].untyped_storage().nbytes()
            assert stored == tensors["values"].nbytes                     # and no longer tensor hides behind it
        assert len(found) == 1
        assert tensors["values"].shape[-3] == window * dilation
        if kind is KroneckerAttention:
            frames, D = window * dilation, DIM
            numbers = sum(t[0].numel() for n, t in tensors.items())
            assert numbers == frames * (D + 3 * D + 1) + 3 * (D + 1)      # keys, values, who took part; sums and counts


@pytest.mark.parametrize("kind", [KroneckerAttention, AxialAttention])
@pytest.mark.parametrize("own", OPTIONS)
def test_streams_with_a_window_are_forked_restarted_and_saved(kind, own, tmp_path):
    layer = make(kind, 2, causal=(0,), by_mode={0: own})
    x, new = tensor(3, 5, 3, DIM), tensor(3, 2, 3, DIM, seed=9)
    _, state = layer.steps(x)
    forked, _ = layer.steps(new, select_streams(state, [2, 0, 2]))
    assert_close(forked, layer(torch.cat([x[[2, 0, 2]], new], 1))[:, 5:], rtol=0, atol=1e-12)
    again, _ = layer.steps(new, restart_streams(state, [1]))
    assert_close(again[1:2], layer(new[1:2]), rtol=0, atol=1e-12)
    assert_close(again[[0, 2]], layer(torch.cat([x, new], 1))[[0, 2], 5:], rtol=0, atol=1e-12)
    save_state(state, tmp_path / "state.safetensors")
    assert torch.equal(layer.steps(new, load_state(tmp_path / "state.safetensors"))[0], layer.steps(new, state)[0])


def test_a_bias_handed_in_gets_true_positions():
    asked = []

    def bias(i, j):
        asked.append((i.flatten().tolist(), j.tolist()))
        return -0.1 * (i * i - 3 * j).abs()
    layer, x = make(KroneckerAttention, 2, causal=(0,), by_mode={0: dict(bias=bias, window=3)}), tensor(2, 7, 3, DIM)
    y, _ = stepped(layer, x, None, 0, (5, 2))
    assert asked[-1] == ([5, 6], [2, 3, 4, 5, 6])
    assert_close(y, layer(x), rtol=0, atol=1e-12)


def test_a_bias_with_parameters_is_part_of_the_layer():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(HEADS, 1, 1))

        def forward(self, i, j):
            return -self.weight * (i - j).abs()
    own = Own()
    layer = KroneckerAttention(DIM, HEADS, 2, by_mode={0: dict(bias=own)})
    layer(torch.randn(2, 4, 3, DIM)).square().sum().backward()
    assert "mode_scores.0.bias.weight" in layer.state_dict() and own.weight.grad.abs().min() > 0


@pytest.mark.parametrize("kind", [KroneckerAttention, AxialAttention, DividedAttention])
def test_models_with_windows_step_as_a_whole_and_are_saved(kind, tmp_path):
    name = {KroneckerAttention: "product", AxialAttention: "axial", DividedAttention: "divided"}[kind]
    options = {"by_mode": {0: dict(window=1, bias="learned", reach=2), -1: dict(bias="alibi")}}
    config = SegmenterConfig(in_channels=2, patch=(1, 2), dim=8, depth=2, heads=2, attention=name, causal=(0,),
                             attention_options=options, classes=3)
    torch.manual_seed(0)
    model = make_model(config).double().eval()
    x, state, found = tensor(2, 6, 4, 2), None, []
    for part in x.split((2, 1, 3), 1):
        y, state = stream_steps(model, part, state)
        found.append(y)
    assert_close(torch.cat(found, 1), model(x), rtol=0, atol=1e-12)
    model.save(tmp_path)
    again = load_model(tmp_path).double().eval()
    assert again.config == config and torch.equal(again(x), model(x))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind, options", [
    (KroneckerAttention, dict(window=2)), (KroneckerAttention, dict(window=1, dilation=2, bias="alibi")),
    (KroneckerAttention, dict(window=2, bias="learned", reach=3)), (AxialAttention, dict(window=2))],
    ids=["window", "alibi", "learned", "axial"])
def test_compiled_steps_with_windows_are_compiled_no_more_after_three(kind, options, masked):
    "Of the first frame, of the second, which has a state, and of the third, where its number is an input."
    torch.compiler.reset()
    layer = make(kind, 2, causal=(0,), rotary=Rotary(DIM // HEADS), by_mode={0: options})
    made = CompileCounterWithBackend("aot_eager")
    step, state, plain = torch.compile(layer.step, backend=made, fullgraph=True), None, None
    x, mask = tensor(2, 12, 3, DIM), random_mask(2, 12, 3) if masked else None
    with torch.no_grad():
        whole = layer(x, mask)
        for t in range(12):
            more = () if mask is None else (mask[:, t],)
            y, state = step(x[:, t], state, *more)
            want, plain = layer.step(x[:, t], plain, *more)
            assert_close(y, want, rtol=0, atol=1e-12)
            assert_close(y, whole[:, t], rtol=0, atol=1e-12)
            assert made.frame_count == min(t + 1, 3)


def test_compiled_steps_of_a_model_with_windows_are_compiled_no_more_after_three():
    torch.compiler.reset()
    options = {"by_mode": {0: dict(window=2)}}
    config = SegmenterConfig(in_channels=2, patch=(1, 2), dim=8, depth=2, heads=2, attention="product", causal=(0,),
                             attention_options=options, classes=3)
    model = make_model(config).double().eval()
    made = CompileCounterWithBackend("aot_eager")
    step, state, x = torch.compile(stream_steps, backend=made), None, tensor(2, 12, 4, 2)
    with torch.no_grad():
        whole = model(x)
        for t in range(12):
            y, state = step(model, x[:, t:t + 1], state)
            assert_close(y, whole[:, t:t + 1], rtol=0, atol=1e-12)
            if t == 2:
                few = made.frame_count
    assert made.frame_count == few


def test_settings_survive_json_and_older_ones_are_read():
    config = ClassifierConfig(attention_options={"by_mode": {0: dict(window=4), -1: dict(bias="learned", reach=3)}})
    text = json.loads(str(config))
    assert text["attention_options"]["by_mode"] == {"0": {"window": 4}, "-1": {"bias": "learned", "reach": 3}}
    assert HOTConfig.from_dict(text) == config and hash(HOTConfig.from_dict(text)) == hash(config)
    older = {"model": "classifier", "attention": "product", "attention_options": {"pool": "sum"}}
    model = make_model(HOTConfig.from_dict(older))
    assert not any("mode_scores" in n for n in model.state_dict())
    assert "by_mode={}" in repr(model) and "ModeScores" not in repr(model)


def test_options_that_do_not_fit_are_refused_by_the_layer():
    says = "KroneckerAttention: by_mode has 2, which is none of the 2 modes; .* from -2 to -1"
    with pytest.raises(ValueError, match=says):
        KroneckerAttention(DIM, HEADS, 2, by_mode={2: dict(window=1)})
    with pytest.raises(ValueError, match="KroneckerAttention: by_mode of mode 1: window is True, but must be"):
        KroneckerAttention(DIM, HEADS, 2, by_mode={-1: dict(window=True)})
    for kind in (AxialAttention, DividedAttention):
        with pytest.raises(ValueError, match=rf"{kind.__name__}: by_mode has mode 1, but alone in .* only \(0,\)"):
            kind(DIM, HEADS, 3, [0, (1, 2)], by_mode={1: dict(window=1)})


def any_layer(rng, kind):
    "A layer with random options of its modes, and sizes for it."
    k, heads, width = rng.randint(1, 3), rng.choice([1, 2, 4]), rng.choice([4, 8])
    causal = tuple(m for m in range(k) if rng.random() < 0.3)
    choices = [dict(window=2), dict(bias="alibi"), dict(bias="learned", reach=3, window=1, dilation=2),
               dict(dropout=0.1)]
    by_mode = {m: rng.choice(choices) for m in range(k) if rng.random() < 0.7}
    kernel = rng.choice([None, None, ElementwiseFeatures(), PositiveRandomFeatures(width, rng.randint(1, 6))])
    options = {}
    if kind is KroneckerAttention:
        options = dict(combine=rng.choice(["product", "sum"]), pool=rng.choice(["mean", "sum"]))
    sizes = [rng.randint(2, {1: 40, 2: 20, 3: 9}[k]) for _ in range(k)]
    return kind(heads * width, heads, k, causal=causal, kernel=kernel, by_mode=by_mode, **options), sizes


@pytest.mark.parametrize("kind", [KroneckerAttention, AxialAttention])
def test_the_cost_counts_what_is_computed(kind):
    "Multiply-adds and parameters exactly; the peak within a factor of 2, bytes moved within 3."
    rng = random.Random(3)
    torch.manual_seed(0)
    for masked in [False, True] * 40 if kind is KroneckerAttention else [False] * 80:
        layer, sizes = any_layer(rng, kind)
        layer, more = layer.eval(), (masked,) if kind is KroneckerAttention else ()
        x, mask = torch.randn(1, *sizes, layer.dim), torch.ones(1, *sizes, dtype=torch.bool) if masked else None
        with torch.no_grad():
            work, memory = count(layer, x, mask), peak_memory(layer, x, mask)
        cost = layer.cost(sizes, *more)
        assert (cost.multiply_adds, cost.parameters) == (work.multiply_adds, work.parameters), (layer, sizes)
        assert memory.peak / 2 <= cost.peak <= 2 * memory.peak, (layer, sizes, memory.peak, cost.peak)
        assert memory.moved / 3 <= cost.moved <= 3 * memory.moved, (layer, sizes)


def test_a_window_saves_no_products():
    plain, near = (KroneckerAttention(DIM, HEADS, 2, by_mode=own).cost((30, 4)) for own in (None, {0: dict(window=1)}))
    assert plain.multiply_adds == near.multiply_adds and plain.map_entries == near.map_entries


@pytest.mark.parametrize("combine", ["product", "sum"])
@pytest.mark.parametrize("masked", [False, True])
def test_mode_dropout_puts_the_identity_in_place_of_maps(combine, masked):
    layer = make(KroneckerAttention, 2, combine=combine, causal=(1,),
                 by_mode={0: dict(dropout=0.4), 1: dict(dropout=0.2, window=2)})
    x = tensor(300, 3, 5, DIM)
    mask = random_mask(300, 3, 5) if masked else None
    calm, again = layer.maps(x, mask), layer(x, mask)
    layer.train()
    for m, (S, T) in enumerate(zip(layer.maps(x, mask), calm, strict=True)):
        eye = torch.eye(S.shape[-1], dtype=S.dtype) * (T.sum(-1, keepdim=True) > 0)
        same = [(S == other).flatten(1).all(1) for other in (eye, T)]
        assert (same[0] | same[1]).all()
        share = (same[0] & ~same[1]).float().mean()
        assert (share - [0.4, 0.2][m]).abs() < 0.08, share
        assert_close(S.sum(-1), T.sum(-1), rtol=0, atol=1e-12)
    y = layer(x, mask)
    assert not torch.equal(y, again) and y.isfinite().all()
    assert torch.equal(layer.eval()(x, mask), again)


def test_mode_dropout_of_an_axis_draws_once_for_a_sample():
    for kernel in (None, SquarePlus()):
        layer = make(AxialAttention, 2, groups=[0], kernel=kernel, by_mode={0: dict(dropout=0.5)}).train()
        x, mask = tensor(40, 3, 4, DIM), random_mask(40, 3, 4)
        torch.manual_seed(5)
        y, [S] = layer(x, mask, return_maps=True)
        torch.manual_seed(5)
        assert_close(layer(x, mask), y)                                  # with the map formed and without
        T = S.unflatten(0, (40,)) if S.shape[0] != 40 else S
        rows = mask.movedim(2, 1)[:, None, :, :, None]
        alone = (T == torch.eye(3, dtype=T.dtype) * rows).flatten(2)     # heads, slices
        assert 8 < alone.flatten(1).all(1).sum() < 32
        assert_close(T.sum(-1), rows.squeeze(-1).expand(T.shape[:-1]).double())


def test_mode_dropout_has_the_expectation_that_is_said():
    "Independent draws: the mean of the joint map is the Kronecker product of (1 - p) S + p I."
    p = (0.3, 0.5)
    layer, x = make(KroneckerAttention, 2, by_mode={m: dict(dropout=p[m]) for m in (0, 1)}), tensor(2, 3, DIM)
    want = [(1 - p[m]) * S[0] + p[m] * torch.eye(len(S[0])) for m, S in enumerate(layer.maps(x))]
    layer.train()
    many = layer.maps(x.expand(20_000, 2, 3, DIM))
    found = torch.einsum("bij,bkl->ikjl", many[0][:, 0], many[1][:, 0]) / 20_000
    assert_close(found, torch.einsum("ij,kl->ikjl", *want), rtol=0, atol=0.02)


def test_steps_in_training_refuse_mode_dropout():
    layer = KroneckerAttention(DIM, HEADS, 2, causal=(0,), by_mode={1: dict(dropout=0.5)})
    with pytest.raises(ValueError, match="KroneckerAttention: with dropout=0.5 steps in training .*call eval"):
        layer.steps(torch.randn(2, 3, 4, DIM))
    layer.eval().steps(torch.randn(2, 3, 4, DIM))


def test_no_nan_where_a_window_holds_nothing_that_takes_part():
    for kind, own in itertools.product([KroneckerAttention, AxialAttention], OPTIONS):
        layer = make(kind, 2, by_mode={0: own, 1: dict(window=0)}).float()
        x = torch.randn(2, 9, 3, DIM, requires_grad=True)
        mask = torch.zeros(2, 9, 3, dtype=torch.bool)
        mask[0, 4, 1] = True                                             # nobody else is near, and nobody in sample 1
        y = layer(x, mask)
        assert_close(y[0, 4, 1], layer.to_out(layer.to_v(x[0, 4, 1])))   # it sees itself
        y.square().sum().backward()
        assert y.isfinite().all() and x.grad.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
        T = layer.dense_map(x, mask)
        assert T[0, :, 13].sum() == HEADS and T.sum() == HEADS


def test_large_biases_do_not_overflow_a_kernel():
    layer = make(KroneckerAttention, 1, kernel=SquarePlus(), by_mode={0: dict(bias="learned", reach=3)}).float()
    with torch.no_grad():
        layer.mode_scores["0"].table.fill_(500.0)
    bare = make(KroneckerAttention, 1, kernel=SquarePlus()).float()
    x = torch.randn(2, 6, DIM)
    assert_close(layer(x), bare(x))                                      # the same number everywhere changes nothing


def test_biases_of_a_larger_mode_contain_those_of_a_smaller_one():
    for options in (dict(bias="alibi"), dict(bias="learned", reach=3)):
        scores = ModeScores(2, **options)
        if scores.table is not None:
            nn.init.normal_(scores.table)
        small, large = (scores.score_bias(n, n) for n in (6, 20))
        for start in (0, 5, 14):
            assert torch.equal(large[:, start:start + 6, start:start + 6], small)
    assert torch.equal(large[:, :, 0][:, 3:], large[:, 3, 0][:, None].expand(2, 17))    # beyond the reach: all alike


def test_slopes_are_those_of_alibi():
    def published(n):
        if n & (n - 1) == 0:
            return [2 ** (-8 / n) ** 1 * 2 ** (-8 / n * i) for i in range(n)]
        low = 2 ** (n.bit_length() - 1)
        return published(low) + published(2 * low)[::2][:n - low]
    for n in range(1, 33):
        assert_close(alibi_slopes(n), torch.tensor(published(n)))

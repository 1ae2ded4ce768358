"""What `explain` prints is what the layer does: its words are executed, its multiply-adds are those of the cost."""
import re
from dataclasses import replace
from functools import partial
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import ATTENTION, DIM, GRIDS, HEADS, LINEAR, Attention, Grids, each, turn

from hot_nbdev import explain as from_the_top
from hot_nbdev.attention import FullAttention, feature_pair
from hot_nbdev.axial import AxialAttention, MultiscaleAttention, NoAttention
from hot_nbdev.cost import count, peak_memory
from hot_nbdev.explaining import explain
from hot_nbdev.kernels import PositiveRandomFeatures
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.layer import ACTIVATIONS
from hot_nbdev.mode_maps import kernel_factors
from hot_nbdev.mode_scores import scores_of
from hot_nbdev.model_config import ClassifierConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.windows import pool_windows, spread_windows

MODES = "ijklmnop"
RANDOM = partial(PositiveRandomFeatures, DIM // HEADS, seed=1)
WARM = partial(KroneckerAttention, order=2, pool="rsqrt", qk_act="silu", qk_norm=True, temperature=True, qk_gain=2.0)
AFTER = partial(KroneckerAttention, order=2, pool="sum", project="after", qk_act="gelu", rotary=turn)


def random_features(kind, features, **settings):
    "A layer whose kernel is a module with a product of its own."
    return lambda *a, dtype, **o: kind(*a, 2, kernel=RANDOM(features, dtype=dtype), dtype=dtype, **settings, **o)


MORE = [    # settings that the table of layers has no line for
    Attention("act, norm, temperature", WARM, 2, None),
    Attention("act after pooling by sums", AFTER, 2, None),
    Attention("random features", random_features(KroneckerAttention, 1), 2, None),
    Attention("random features, causal", random_features(FullAttention, 3, causal=(1,)), 2, None),
    Attention("three causal modes", partial(KroneckerAttention, order=3, causal=(0, 1, 2)), 3, None),
]
ALL = ATTENTION + MORE
CONTEXTS = GRIDS + [
    Grids("other grid, act after pooling by sums", AFTER, 2, None),
    Grids("other grid, random features", random_features(KroneckerAttention, 1), 2, None),
    Grids("other grid, two groups of all modes", partial(AxialAttention, order=2, groups=[(0, 1), (1, 0)]), 2, None),
    Grids("other grid, keys in windows", partial(MultiscaleAttention, order=2, stride=2, rotary=turn), 2, None),
]


class Machine:
    "Executes the steps of a report, one after the other: nothing but einsum and what `then` says."
    def __init__(self, report, layer):
        self.report, self.layer, self.sizes, self.count, self.named = report, layer, report.sizes, None, {}

    def run(self, x, context=None):
        self.named.update(x=x, **({} if context is None else {"context": context}))
        for step in self.report.steps:
            t, out = self.begin(step)
            for text in step.then if t is not None else ():
                t = self.then(step, text, t, out)
            self.named.update({step.makes: t} if t is not None else {})
        return t

    def get(self, name, letters):
        "A tensor by its name; a parameter is cut as the letters say."
        if name in self.named:
            return self.named[name]
        shape, x = [self.sizes[a] for a in letters], self.named["x"]
        return x.new_ones([len(x), *shape[1:]]) if name == "1" else self.layer.get_parameter(name).view(shape)

    def begin(self, step):
        if step.words:
            ins, out = step.words.split("->")
            tensors = [self.get(n, a) for n, a in zip(step.of, ins.split(","), strict=True)]
            if step.what.startswith("means of slices"):
                self.count = torch.einsum(step.words, torch.ones_like(tensors[0][..., :1]))
            return torch.einsum(step.words, *tensors), out
        tensors = [self.named[n] for n in step.of]
        if step.what.startswith("features") or "two factors" in step.what:
            made = kernel_factors(*tensors) if "two factors" in step.what else self.features(tensors)
            self.named.update(zip(step.makes.split(), made, strict=True))
            return None, ""
        return tensors, ""

    def features(self, tensors):
        flat = [t.flatten(2, -2) if isinstance(self.layer, FullAttention) else t for t in tensors]
        return [f.view(*t.shape[:-1], -1) for f, t in zip(feature_pair(self.one.kernel, *flat), tensors, strict=True)]

    def then(self, step, text, t, out):
        if isinstance(t, list):
            if text in ("mean", "sum"):
                return sum(t) / (len(t) if text == "mean" else 1)
            if text == "quotient":
                return t[0] / t[1][..., None]
            return self.then(step, text, t[0], "") if "window" in text or text.startswith("+") else self.fail(text)
        if found := re.fullmatch(r"running sum along (\w)", text):
            axis = out.index(found[1])
            if step.what.startswith("means of slices"):
                self.count = self.count.cumsum(axis)
            return t.cumsum(axis)
        if found := re.fullmatch(r"only (\w) ≤ (\w)", text):
            key, query = (out.index(a) for a in found.groups())
            shape = [n if axis in (key, query) else 1 for axis, n in enumerate(t.shape)]
            earlier = torch.ones(t.shape[query], t.shape[key], dtype=torch.bool).tril()
            earlier = (earlier if query < key else earlier.T).view(shape)
            return t.masked_fill(~earlier, float("-inf") if self.one.kernel is None else 0.0)
        if found := re.fullmatch(r"(plus|times the exponential of) the bias of mode (\d)", text):
            m, scores = int(found[2]), self.scores(int(found[2]))
            bias = scores.score_bias(self.sizes[MODES[m]], self.sizes[MODES[m]]).detach()
            query, key = out.index(MODES[m]), out.index(MODES[m].upper())
            at = [n if axis in (1, query, key) else 1 for axis, n in enumerate(t.shape)]
            bias = bias.expand(HEADS, *bias.shape[-2:])
            bias = (bias if query < key else bias.mT).reshape(at).to(t.dtype)
            return t + bias if found[1] == "plus" else t * bias.exp()
        if found := re.fullmatch(r"only \|(\w) - (\w)\| ≤ (\d+)|only where (\d+) divides (\w) - (\w)", text):
            query, key = (out.index(a) for a in (found[1] or found[5], found[2] or found[6]))
            i, j = (torch.arange(t.shape[a]).view([-1 if a == axis else 1 for axis in range(t.ndim)])
                    for a in (query, key))
            near = (i - j).abs() <= int(found[3]) if found[3] else (i - j) % int(found[4]) == 0
            return t.masked_fill(~near, float("-inf") if self.one.kernel is None else 0.0)
        if found := re.fullmatch(r"softmax over (\w+)|over the sum over (\w+)", text):
            n = -len(found[1] or found[2])
            flat = t.flatten(n)
            return (flat.softmax(-1) if found[1] else flat / flat.sum(-1, keepdim=True)).view(t.shape)
        return self.entries(step, text, t, out)

    def scores(self, m):
        "What a mode has of its own, in the layer or in one of its stages."
        found = (scores_of(one, m) for one in [self.layer, *getattr(self.layer, "stages", [])])
        return next(scores for scores in found if scores is not None)

    @property
    def one(self):
        "The layer itself, or the first of its stages, which are all alike."
        return self.layer.stages[0] if hasattr(self.layer, "stages") else self.layer

    def entries(self, step, text, t, out):
        f = None if self.count is None else self.count[:, None] if t.ndim > self.count.ndim else self.count
        if found := re.fullmatch(r"\+ (\S+)", text):
            bias = self.layer.get_parameter(found[1])
            return t + (bias.view(HEADS, *[1] * (t.ndim - 3), -1) if out[1] == "h" else bias)
        if found := re.fullmatch(r"less \(1 - 1/(√?)count\) of the bias", text):
            bias = self.layer.get_parameter(step.of[1].replace("weight", "bias")).view(HEADS, *[1] * (t.ndim - 3), -1)
            return t - (1 - 1 / (f.sqrt() if found[1] else f)) * bias
        if found := re.fullmatch(r"less the mean over (\w)", text):
            return t - t.mean(out.index(found[1]), keepdim=True)
        if found := re.fullmatch(r"turned along (\w+)", text):
            for letter in found[1]:
                axis = out.index(letter)
                m = (MODES if letter.lower() in MODES else "abcdefgh").index(letter.lower())
                t = self.one.rotary(t.movedim(axis, -2), m).movedim(-2, axis)
            return t
        if found := re.fullmatch(r"times exp\(logit_scale\[(\d)\]\)", text):
            return t * self.layer.logit_scale[int(found[1])].exp()
        if found := re.fullmatch(r"(weighted )?means over windows of (.+)", text):
            stride, side = [int(n) for n in found[2].split(" x ")], step.makes
            grid = [-(-n // s) for n, s in zip(t.shape[2:-1], stride, strict=True)]
            return pool_windows(t, None, stride, getattr(self.layer, f"pool_{side}")).unflatten(2, grid)
        if text == "each window to all of its positions":
            sizes = [self.sizes[a] for a in MODES[:self.layer.order]]
            return spread_windows(t.flatten(2, -2), sizes, self.layer.query_stride).unflatten(2, sizes)
        simple = {"over the count": lambda: t / self.count, "over √d": lambda: t / self.sizes["d"] ** 0.5,
                  "times the count": lambda: t * f, "times √count": lambda: t * f.sqrt(),
                  **{name: partial(act, t) for name, act in ACTIVATIONS.items()}}
        return simple[text]() if text in simple else self.layer.get_submodule(text)(t)

    def fail(self, text):
        raise AssertionError(f"a report says {text!r}, which nothing here can do")


def cost(layer, sizes, masked):
    "Only Kronecker attention does more with a mask."
    return layer.cost(sizes, masked=masked) if isinstance(layer, KroneckerAttention) else layer.cost(sizes)


@each(ALL)
def test_the_words_are_what_the_layer_does(case):
    "All words and all that is said besides, executed in float64, give the output of the layer."
    layer = case.layer()
    for sizes in (case.sizes, (4, 3, 2)[:case.order]):
        x = case.input(2, sizes=sizes)
        y = Machine(explain(layer, sizes), layer).run(x)
        torch.testing.assert_close(y, layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("old,new", [("bhiI,bhIJd->bhiJd", "bhIi,bhIJd->bhiJd"), ("over √d", "")])
def test_other_words_would_be_noticed(old, new):
    case = next(c for c in ATTENTION if c.name == "product")
    layer, x = case.layer(), case.input(2, sizes=(4, 4))
    report = explain(layer, (4, 4))
    assert any(old in (s.words, *s.then) for s in report.steps)
    report.steps = [replace(s, words=s.words.replace(old, new), then=tuple(t for t in s.then if t != old))
                    for s in report.steps]
    assert (Machine(report, layer).run(x) - layer(x)).abs().max() > 1e-6


@each(ALL)
@pytest.mark.parametrize("masked", [False, True])
def test_multiply_adds_are_those_of_the_cost_and_of_a_counter(case, masked):
    layer = case.layer()
    for sizes in (case.sizes, (5, 4, 3)[:case.order], (9, 1, 7)[:case.order], (1,) * case.order):
        report, x = explain(layer, sizes, masked), case.input(1, sizes=sizes)
        assert report.multiply_adds == cost(layer, sizes, masked).multiply_adds
        assert report.multiply_adds == sum(s.multiply_adds for s in report.steps)
        with torch.no_grad():
            mask = (torch.ones(1, *sizes, dtype=torch.bool),) if masked else ()
            assert report.multiply_adds == count(layer, x, *mask).multiply_adds
        for s in report.steps:
            if "," in s.words:
                assert s.multiply_adds == prod(report.sizes[a] for a in set(re.sub(r"[,>-]", "", s.words)))
        assert report.peak == cost(layer, sizes, masked).peak


def sizes_of(x, case):
    return tuple(x.shape[-case.order - 1:-1])


@each(CONTEXTS)
def test_a_context_has_a_grid_of_its_own(case):
    "Its words are what the layer does, and its multiply-adds those of the cost and of a counter."
    whole = case.layer()
    layer = whole.layer
    for sizes in (case.sizes, (5, 4, 3)[:case.order], (1,) * case.order):
        x = case.input(2, sizes=sizes)
        c = whole.pick(x, 1).flip(-1)
        report = explain(layer, sizes, context=sizes_of(c, case))
        y = Machine(report, layer).run(x, c)
        torch.testing.assert_close(y, layer(x, context=c), rtol=0, atol=1e-12)
        for masked in (False, True):
            report = explain(layer, sizes, masked, context=sizes_of(c, case))
            more = dict(masked=masked) if isinstance(layer, KroneckerAttention) else {}
            cost = layer.cost(sizes, context_sizes=sizes_of(c, case), **more)
            mask = (torch.ones(1, *sizes, dtype=torch.bool),) if masked else ()
            with torch.no_grad():
                counted = count(whole, x[:1], *mask).multiply_adds
            assert report.multiply_adds == cost.multiply_adds == counted and report.peak == cost.peak
            assert "of a context" in repr(report)


def test_the_map_of_a_mode_is_a_rectangle():
    report = explain(KroneckerAttention(8, 2, 2), (3, 4), context=(5, 6))
    made = {s.makes: [report.sizes[a] for a in s.words.split("->")[1]][1:] for s in report.steps if s.words}
    assert (made["S0"], made["S1"]) == ([2, 3, 5], [2, 4, 6])
    assert (made["x1"], made["context1"], made["v"]) == ([4, 8], [6, 8], [2, 5, 6, 4])


@settings(max_examples=40)
@given(st.data())
def test_random_kronecker_layers(data):
    "Any modes, causal or not, product or sum, softmax or a kernel of any width, with and without a mask."
    draw, k = data.draw, data.draw(st.integers(1, 4))
    sizes, masked = tuple(draw(st.lists(st.integers(1, 9), min_size=k, max_size=k))), draw(st.booleans())
    width = draw(st.sampled_from([None, 1, 3, 9]))
    layer = KroneckerAttention(8, 2, k, combine=draw(st.sampled_from(["product", "sum"])), shared=draw(st.booleans()),
                               causal=tuple(m for m in range(k) if draw(st.booleans())), dtype=torch.float64,
                               kernel=None if width is None else PositiveRandomFeatures(4, width)).eval()
    report = explain(layer, sizes, masked)
    assert report.multiply_adds == layer.cost(sizes, masked).multiply_adds
    if not masked and width is None:
        x = torch.randn(1, *sizes, 8, dtype=torch.float64)
        torch.testing.assert_close(Machine(report, layer).run(x), layer(x), rtol=0, atol=1e-12)


@each(LINEAR)
def test_linear_layers(case):
    layer, x = case.layer(), case.input(3)
    report = explain(layer, (3,))
    assert report.multiply_adds == count(layer, x).multiply_adds
    with torch.no_grad():
        assert report.peak == peak_memory(layer, x).peak
    named = {"x": x, **dict(layer.named_parameters())}
    for s in report.steps:
        t = torch.einsum(s.words, *(named[n] for n in s.of)) if s.words else named[s.of[0]]
        for text in s.then:
            if text == "+ the biases of all modes, as one tensor":
                t = t + layer(torch.zeros_like(x))
            elif layer.bias == "full":
                t = t + named[text[2:]]
            else:                                       # of one mode, whose number the name ends with
                t = t + named[text[2:]].view([-1, *[1] * (case.order - 1 - int(text[-1]))])
        named[s.makes] = t
    torch.testing.assert_close(t, layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [
    ClassifierConfig(patch=(2, 2), dim=16, depth=2, heads=2, attention="product+full"),
    SegmenterConfig(patch=(2, 2), dim=16, depth=1, heads=2, attention="axial", stem="conv", ff="ndlinear"),
])
def test_models(settings):
    "One line for each layer, which add up to what a counter sees."
    model, x = make_model(settings), torch.zeros(1, 8, 6, 1)
    report = explain(model, x)
    assert report.multiply_adds == count(model, x).multiply_adds
    names = [s.what for s in report.steps]
    assert "encoder.blocks.0.attention" in names and "head" in names and len(set(names)) == len(names)
    assert not any(p.is_meta for p in model.parameters())


def test_the_limit_and_the_text():
    assert from_the_top is explain
    layer = KroneckerAttention(64, heads=4, order=2)
    report = explain(layer, (16, 24), flops=2e11)
    assert report.limit == 2 * layer.cost((16, 24)).multiply_adds / 2e11
    lines = repr(report).splitlines()
    assert len(lines) == len(report.steps) + 3 and "b = 1" in lines[0] and f"{report.multiply_adds:,}" in lines[-1]
    assert sum(float(line["share"].split()[0]) for line in report if line["share"]) == pytest.approx(100, abs=1)
    assert report._repr_html_().count("<tr>") == len(report.steps) + 1


@pytest.mark.parametrize("arguments,says", [
    ((torch.nn.Linear(2, 2), (3,)), "a Linear has no plan for sizes; give an input"),
    ((FullAttention(8, 2, 2), (3,)), r"sizes is \(3,\) for 2 modes"),
    ((FullAttention(8, 2, 9), (1,) * 9), "no plan is known of FullAttention with 9 modes; give an input"),
    ((FullAttention(8, 2, 1), (3,), False, 0), "flops is 0, but must be a number"),
    ((FullAttention(8, 2, 2), (3, 4), False, None, (3,)), r"of the context: sizes is \(3,\) for 2 modes"),
    ((KroneckerAttention(8, 2, 1, causal=(0,)), (3,), False, None, (4,)), "mode 0 has size 3 in x and 4"),
    ((NoAttention(8, 2, 1), (3,), False, None, (4,)), "NoAttention: takes no context, since"),
    ((FullAttention(8, 2, 1), torch.zeros(1, 3, 8), False, None, (4,)), "goes with an attention layer and sizes"),
    ((torch.nn.Linear(2, 2), (3,), False, None, (4,)), "context is given for a Linear"),
])
def test_errors_say_what_was_wanted(arguments, says):
    with pytest.raises(ValueError, match=says):
        explain(*arguments)

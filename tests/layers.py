"""The layers that the contracts run over: all of them test_contracts.py, attention also its own.

A layer joins by one line in ATTENTION, GRIDS (queries on another grid) or LINEAR: name, constructor, number of modes,
slow loop of slow.py.
The constructor takes (dim, heads, **options) or (in_features, out_features, **options). Those of attention are makers
of names.py, whose settings are words and numbers; the slow loops read the same settings.
"""
import copy
from dataclasses import dataclass
from functools import partial
from inspect import signature

import pytest
import torch
from hypothesis import strategies as st
from slow import (
    slow_axial,
    slow_divided,
    slow_divided_output,
    slow_full,
    slow_kronecker,
    slow_multiscale,
    slow_nd_linear,
    slow_none,
)

from hot_nbdev import names
from hot_nbdev.attention import formed
from hot_nbdev.kernels import KernelMap
from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.streams import steps
from hot_nbdev.tied import MixedAttention

DIM, HEADS, SIZES, F64 = 8, 2, (3, 2, 4, 2), torch.float64
CPU_GPU = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"))])


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda c: c.name)


def tensor(*shape, seed=1, dtype=F64, device="cpu"):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=F64).to(device=device, dtype=dtype)


def random_mask(*shape, seed=2):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def draw_sizes(data, count, most=3):
    return tuple(data.draw(st.lists(st.integers(1, most), min_size=count, max_size=count)))


def stepped(layer, x, mask, c, cuts):
    "The results of all steps, put together, and the last state."
    found, state, axis = [], None, c - layer.order - 1
    for i, part in enumerate(x.split(cuts, axis)):
        own = None if mask is None else mask.split(cuts, axis + 1)[i]
        y, state = steps(layer, part, state, own)
        found.append(y)
    return torch.cat(found, axis), state


class Formed(torch.nn.Module):
    "A kernel's map that is formed and multiplied, in place of sums over its features."
    def __init__(self, weigh):
        super().__init__()
        self.weigh = weigh

    def forward(self, *given):
        return formed(self.weigh(*given))


def by_map(layer, x, mask=None, **more):
    "What a layer says, by its joint map, which is formed and multiplied with the values."
    layer = copy.deepcopy(layer)
    if isinstance(getattr(layer, "weigh", None), KernelMap):
        layer.weigh = Formed(layer.weigh)
    lead, sizes = x.shape[:-layer.order - 1], x.shape[-layer.order - 1:-1]
    context = more.get("context", x)
    v = layer.to_v(context).flatten(len(lead), -2).unflatten(-1, (layer.heads, -1)).movedim(-2, len(lead))
    y = (layer.dense_map(x, mask, **more) @ v).movedim(len(lead), -2).flatten(-2)
    return layer.to_out(y.unflatten(len(lead), sizes))


class SquarePlus(torch.nn.Module):
    "A positive feature map that is no softmax: relu(t)² + 0.1 and the same of -t."
    def forward(self, t):
        return torch.cat([t, -t], -1).relu() ** 2 + 0.1


class OneFeature(torch.nn.Module):
    "A feature map with a single feature, so that the maps of modes of size 3 and more are applied as pairs."
    def forward(self, t):
        return t.square().sum(-1, keepdim=True) + 0.1


def turn(t, mode):
    "A rotary embedding in miniature: scales the features by a wave along the mode."
    n, d = t.shape[-2:]
    angle = torch.arange(n).to(t)[:, None] * (mode + 1) / torch.arange(1, d + 1).to(t)
    return t * angle.cos() - t.roll(1, -1) * angle.sin()


SETTINGS = dict(combine="product", pool="mean", project="before", shared=True, qk_norm=False, qk_center=False,
                temperature=False, kernel=None, rotary=None, by_mode=None, power=None)


def settings_of(make, order):
    "Those of a maker, as the slow loops read them: what is given, else the default of the maker, else none of it."
    given = {}
    while isinstance(make, partial):
        make, given = make.func, {**make.keywords, **given}
    own = {n: p.default for n, p in signature(make).parameters.items() if n in SETTINGS}
    found = {**SETTINGS, **own, **{n: v for n, v in given.items() if n in SETTINGS}}
    if make is names.hot2:
        late = not found["qk_norm"] and found["pool"] != "mean" and given.get("bias", True)
        found.update(shared=False, project="after" if late else "before")
    return found | {"by_mode": {m % order: options for m, options in (found["by_mode"] or {}).items()}}


class SeenAs:
    "A layer together with the settings that it was made with, for loops that read both."
    def __init__(self, layer, settings):
        self.layer, self.settings = layer, settings

    def __getattr__(self, name):
        return self.settings[name] if name in self.settings else getattr(self.layer, name)


def same_weights(layer, make, device):
    """The layer on a device. Its weights were drawn on the CPU, whose generator draws others than a GPU's: so that a
    contract that holds here is asked of the same function there."""
    if device == "cpu":
        return layer
    there = make(device=device).eval()
    if torch.device(device).type != "meta":
        there.load_state_dict(layer.state_dict())
    return there


@dataclass
class Case:
    """What a contract needs to know of a layer; `sizes` are those of the modes of a sample.

    Besides, a kind of layer has
        layer(dtype, device, seed, sizes, **options)    the layer, for samples of these sizes
        input(*batch, seed, dtype, device, sizes)       an input for it
        arguments(x)                                    all ways to call it on x
        draw(data)                                      a layer and arguments that hypothesis draws
        answers(layer, *arguments)                      pairs: what the layer says, what the slow loop says
    """
    name: str
    make: object
    order: int          # number of modes
    slow: object
    twin: bool = False  # traces like another case: compilation and export to ONNX, which take long, skip it

    @property
    def sizes(self):
        return SIZES[:self.order]


@dataclass
class Attention(Case):
    output: object = None   # output(layer, x, mask) of a sample, where the joint map alone does not give it

    def told(self, layer):
        "The layer for a slow loop."
        return SeenAs(layer, settings_of(self.make, self.order))

    def layer(self, dtype=F64, device="cpu", seed=0, sizes=None, **options):
        "Norms and tables of biases all start alike: here they do not."
        torch.manual_seed(seed)
        make = partial(self.make, DIM, HEADS, dtype=dtype, **options)
        layer = make().eval()
        with torch.no_grad():
            for name, p in layer.named_parameters():
                if "norm" in name or "table" in name or "share" in name:
                    p += 0.3 * torch.randn_like(p)
        return same_weights(layer, make, device)

    def input(self, *batch, sizes=None, **options):
        return tensor(*batch, *(sizes or self.sizes), DIM, **options)

    def arguments(self, x):
        return [(x,), (x, random_mask(*x.shape[:-1]).to(x.device))]

    def draw(self, data):
        sizes, batch = draw_sizes(data, self.order), data.draw(st.sampled_from([(), (2,), (2, 1)]))
        x = self.input(*batch, sizes=sizes, seed=data.draw(st.integers(0, 99)))
        masks = [None, random_mask(*batch, *sizes, seed=len(sizes)), random_mask(*sizes)]
        return self.layer(), (x, data.draw(st.sampled_from(masks)))

    def answers(self, layer, x, mask=None):
        "Its result against the slow map times the values, projected; and its map."
        sizes = x.shape[-self.order - 1:-1]
        flat = x.reshape(-1, *sizes, DIM)
        masks = torch.ones(sizes, dtype=torch.bool) if mask is None else mask
        masks = masks.expand(*x.shape[:-1]).reshape(-1, *sizes)
        told = self.told(layer)
        S = torch.stack([self.slow(told, a, b) for a, b in zip(flat, masks, strict=True)])
        if self.output is None:
            v = layer.to_v(flat).flatten(1, -2).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
            y = layer.to_out((S @ v).transpose(1, 2).reshape(x.shape))
        else:
            y = torch.stack([self.output(told, a, b) for a, b in zip(flat, masks, strict=True)])
        y = y.reshape(x.shape)
        return [(layer(x, mask), y), (layer.dense_map(x, mask).reshape(S.shape), S)]


class OnOwnGrid(torch.nn.Module):
    """A layer as one of `x` alone, for the contracts of all layers: its context is made of x, on a grid of its own.

    Modes in `same` keep their size, in reverse where nothing is causal; others get one position more, and the features
    are reversed.
    """
    def __init__(self, layer, same):
        super().__init__()
        self.layer, self.same = layer, same

    def pick(self, t, features):
        "Entries of t, (*batch, n1, …, nk, …), for the positions of the context."
        for m in range(self.layer.order):
            axis = m - self.layer.order - features
            n = t.shape[axis]
            if m not in self.same:
                t = t.index_select(axis, torch.tensor([(2 * j + 1) % n for j in range(n + 1)], device=t.device))
            elif m not in self.layer.causal:
                t = t.flip(axis)
        return t

    def forward(self, x, mask=None):
        more = None if mask is None else self.pick(mask, 0)
        return self.layer(x, mask, context=self.pick(x, 1).flip(-1), context_mask=more)


@dataclass
class Grids(Attention):
    "Queries on another grid: a layer that takes a context, asked one that has the sizes of x along `same` modes."
    same: tuple = ()

    def plain(self, **options):
        return super().layer(**options)

    def layer(self, *args, **options):
        return OnOwnGrid(super().layer(*args, **options), self.same)

    def context_sizes(self, data, sizes):
        found = draw_sizes(data, self.order, 4)
        return tuple(n if m in self.same else other for m, (n, other) in enumerate(zip(sizes, found, strict=True)))

    def answers(self, layer, x, mask=None):
        "As with a layer that asks itself, but the values are those of the context."
        masks = torch.ones(x.shape[-self.order - 1:-1], dtype=torch.bool) if mask is None else mask
        found = self.crossed(layer.layer, x, masks, layer.pick(x, 1).flip(-1), layer.pick(masks, 0))
        return [(layer(x, mask), found[0][1]), *found]

    def crossed(self, layer, x, mask, c, c_mask):
        "What a layer says and what the slow loop says of x, context and both masks: results and joint maps."
        flat, there = (t.reshape(-1, *t.shape[-self.order - 1:]) for t in (x, c))
        masks, others = (t.expand(*own.shape[:-1]).reshape(-1, *own.shape[-self.order - 1:-1])
                         for t, own in ((mask, x), (c_mask, c)))
        told = self.told(layer)
        S = torch.stack([self.slow(told, *each) for each in zip(flat, masks, there, others, strict=True)])
        v = layer.to_v(there).flatten(1, -2).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        y = layer.to_out((S @ v).transpose(1, 2).reshape(x.shape))
        more = dict(context=c, context_mask=c_mask)
        return [(layer(x, mask, **more), y), (layer.dense_map(x, mask, **more).reshape(S.shape), S)]


@dataclass
class Linear(Case):
    def layer(self, dtype=F64, device="cpu", seed=0, sizes=None, out=None, **options):
        "Without `out`, sizes 1, 2, 3, 4 become 3, 1, 3, 1. Biases start at zero: here they do not."
        torch.manual_seed(seed)
        sizes = sizes or self.sizes
        make = partial(self.make, sizes, out or tuple(2 * n % 4 + 1 for n in sizes), dtype=dtype, **options)
        layer = make().eval()
        for b in layer.biases:
            torch.nn.init.normal_(b)
        return same_weights(layer, make, device)

    def input(self, *batch, sizes=None, **options):
        return tensor(*batch, *(sizes or self.sizes), **options)

    def arguments(self, x):
        return [(x,)]

    def draw(self, data):
        sizes, out = draw_sizes(data, self.order, 4), draw_sizes(data, self.order, 4)
        batch = data.draw(st.sampled_from([(), (2,), (2, 1), (1, 2, 2)]))
        return self.layer(sizes=sizes, out=out), (self.input(*batch, sizes=sizes),)

    def answers(self, layer, x):
        y = torch.stack([self.slow(layer, a) for a in x.reshape(-1, *x.shape[x.ndim - self.order:])])
        return [(layer(x), y.reshape(*x.shape[:x.ndim - self.order], *y.shape[1:]))]


K, plus, short = names.kronecker, SquarePlus(), OneFeature()
bare = partial(K, qk_norm=False)        # half of the cases have the norm, which is the default
Hot1, Hot2 = names.ATTENTIONS["hot1"], names.hot2
Full, Axial, Divided, Multi, Tied = names.full, names.axial, names.divided, names.multiscale, names.tied
ATTENTION = [
    Attention("full", partial(Full, order=2), 2, slow_full),
    Attention("full causal", partial(Full, order=2, causal=(0,), rotary=turn, qk_norm=True), 2,
              slow_full),
    Attention("full-linear", partial(Full, order=3, kernel=plus), 3, slow_full, True),
    Attention("full-linear causal", partial(Full, order=2, kernel=plus, causal=(-1,)), 2, slow_full),
    Attention("product", partial(K, order=2), 2, slow_kronecker),
    Attention("sum", partial(K, order=3, combine="sum"), 3, slow_kronecker),
    Attention("hot1", partial(Hot1, order=3), 3, slow_kronecker, True),
    Attention("hot1 kernel", partial(Hot1, order=2, kernel=plus), 2, slow_kronecker),
    Attention("hot2 product", partial(Hot2, order=2), 2, slow_kronecker),
    Attention("hot2 sum", partial(Hot2, order=2, combine="sum", qk_norm=False), 2, slow_kronecker, True),
    Attention("rsqrt after, shared", partial(bare, order=2, pool="rsqrt", project="after", qk_center=True), 2,
              slow_kronecker, True),
    Attention("sum pooling, qk_norm", partial(K, order=2, pool="sum", shared=False), 2, slow_kronecker, True),
    Attention("rotary, no bias", partial(bare, order=2, rotary=turn, bias=False), 2, slow_kronecker, True),
    Attention("causal product", partial(K, order=3, causal=(0,), qk_center=True), 3, slow_kronecker),
    Attention("causal sum", partial(bare, order=2, causal=(-1,), combine="sum"), 2, slow_kronecker, True),
    Attention("two causal modes", partial(Hot2, order=3, causal=(0, 2), qk_norm=False), 3, slow_kronecker),
    Attention("short kernel", partial(bare, order=2, kernel=short), 2, slow_kronecker),
    Attention("short kernel, causal sum", partial(K, order=2, kernel=short, causal=(0,), combine="sum"), 2,
              slow_kronecker, True),
    Attention("causal kernel", partial(bare, order=2, causal=(0, 1), kernel=plus, pool="rsqrt"), 2,
              slow_kronecker, True),
    Attention("tied product", partial(Tied, order=3), 3, slow_kronecker),
    Attention("tied sum", partial(Tied, order=2, combine="sum", power=1.0, qk_norm=False), 2, slow_kronecker,
              True),
    Attention("tied mix", partial(Tied, kind=MixedAttention, order=3, causal=(1,)), 3, slow_kronecker, True),
    Attention("tied causal, rotary", partial(Tied, order=3, causal=(0,), rotary=turn), 3, slow_kronecker),
    Attention("tied near, two causal modes", partial(Tied, order=3, causal=(0, 2), power=0.8, by_mode={
        0: dict(window=1, bias="alibi"), 1: dict(bias="learned", reach=1)}), 3, slow_kronecker),
    Attention("tied, one mode", partial(Tied, order=1, causal=(0,), combine="sum"), 1, slow_kronecker, True),
    Attention("one mode", partial(K, order=1, causal=(0,)), 1, slow_kronecker),
    Attention("near product", partial(bare, order=3, by_mode={
        0: dict(window=1, bias="alibi"), -1: dict(window=1, dilation=2, bias="learned", reach=1)}), 3, slow_kronecker),
    Attention("near causal sum", partial(K, order=2, causal=(0,), combine="sum", rotary=turn, by_mode={
        0: dict(window=1, bias="learned", reach=2), 1: dict(bias="alibi")}), 2, slow_kronecker),
    Attention("near hot2, two causal modes", partial(Hot2, order=3, causal=(0, 2), qk_center=True, by_mode={
        0: dict(window=0), 1: dict(bias="learned", reach=1), 2: dict(window=1, dilation=2, bias="alibi")}), 3,
              slow_kronecker, True),
    Attention("near causal kernel", partial(bare, order=2, causal=(1,), kernel=plus, pool="rsqrt", by_mode={
        0: dict(bias="learned", reach=1), 1: dict(window=1, bias="alibi")}), 2, slow_kronecker, True),
    Attention("near short kernel", partial(K, order=3, kernel=short, by_mode={0: dict(window=1)}), 3, slow_kronecker,
              True),
    Attention("near axial", partial(Axial, order=3, groups=[0, (1, 2), 2], by_mode={
        0: dict(window=1), -1: dict(window=1, dilation=2, bias="learned", reach=2)}), 3, slow_axial),
    Attention("near axial causal", partial(Axial, order=2, causal=(0,), qk_norm=True, rotary=turn, by_mode={
        0: dict(window=1, bias="alibi"), 1: dict(bias="learned", reach=1)}), 2, slow_axial, True),
    Attention("near axial kernel", partial(Axial, order=2, kernel=plus, causal=(1,), by_mode={
        0: dict(bias="alibi"), 1: dict(window=1, bias="learned", reach=1)}), 2, slow_axial, True),
    Attention("near divided", partial(Divided, order=3, by_mode={0: dict(window=1, bias="alibi")}), 3, slow_divided,
              True, output=slow_divided_output),
    Attention("axial", partial(Axial, order=3), 3, slow_axial),
    Attention("axial causal", partial(Axial, order=2, causal=(0,), qk_norm=True, rotary=turn), 2, slow_axial),
    Attention("axial kernel", partial(Axial, order=2, kernel=plus, causal=(1,)), 2, slow_axial, True),
    Attention("temporal", partial(Axial, order=2, groups=[0], bias=False), 2, slow_axial, True),
    Attention("spatial", partial(Axial, order=3, groups=[(1, 2)], rotary=turn, causal=(2,)), 3, slow_axial),
    Attention("axial groups, kernel", partial(Axial, order=3, groups=[(0, 2), 1], kernel=plus, causal=(0,)),
              3, slow_axial, True),
    Attention("divided kernel", partial(Divided, order=2, kernel=plus, causal=(1,)), 2, slow_divided, True,
              output=slow_divided_output),
    Attention("multiscale kernel, causal",
              partial(Multi, order=3, stride=(2, 1, 3), query_stride=(1, 1, 2), kernel=plus, causal=(1,)), 3,
              slow_multiscale, True),
    Attention("divided", partial(Divided, order=3), 3, slow_divided, output=slow_divided_output),
    Attention("divided causal", partial(Divided, order=2, causal=(0,)), 2, slow_divided, True,
              output=slow_divided_output),
    Attention("multiscale", partial(Multi, order=2), 2, slow_multiscale, True),
    Attention("multiscale queries", partial(Multi, order=3, stride=(2, 1, 3), query_stride=2), 3,
              slow_multiscale),
    Attention("multiscale queries, kernel", partial(Multi, order=2, query_stride=(1, 2), kernel=plus, rotary=turn), 2,
              slow_multiscale),
    Attention("multiscale causal", partial(Multi, order=2, stride=(1, 2), causal=(0,)), 2,
              slow_multiscale, True),
    Attention("no attention", partial(names.none, order=2), 2, slow_none),
]
GRIDS = [
    Grids("other grid, full", partial(Full, order=2, rotary=turn, qk_norm=True), 2, slow_full),
    Grids("other grid, full-linear causal", partial(Full, order=3, kernel=plus, causal=(1,)), 3, slow_full,
          True, same=(1,)),
    Grids("other grid, product", partial(K, order=2), 2, slow_kronecker),
    Grids("other grid, hot2 product", partial(Hot2, order=3, rotary=turn, qk_norm=False), 3, slow_kronecker, True),
    Grids("other grid, rsqrt, temperature",
          partial(bare, order=2, pool="rsqrt", temperature=True, qk_center=True), 2, slow_kronecker, True),
    Grids("other grid, causal", partial(bare, order=3, causal=(0,), temperature=True, pool="sum"), 3, slow_kronecker,
          same=(0,)),
    Grids("other grid, two causal modes", partial(K, order=3, causal=(0, 2), shared=False, qk_center=True), 3,
          slow_kronecker, True, same=(0, 2)),
    Grids("other grid, sum", partial(bare, order=2, combine="sum"), 2, slow_kronecker, True, same=(0, 1)),
    Grids("other grid, sum of one", partial(K, order=1, combine="sum", bias=False), 1, slow_kronecker, True),
    Grids("other grid, kernel", partial(bare, order=2, kernel=plus), 2, slow_kronecker, True),
    Grids("other grid, short kernel", partial(Hot1, order=2, kernel=short), 2, slow_kronecker),
    Grids("other grid, short kernel, sum", partial(K, order=2, kernel=short, combine="sum", causal=(0,)), 2,
          slow_kronecker, True, same=(0, 1)),
    Grids("other grid, tied", partial(Tied, order=2), 2, slow_kronecker, same=(0, 1)),
    Grids("other grid, tied of one", partial(Tied, order=1), 1, slow_kronecker, True),
    Grids("other grid, tied causal", partial(Tied, order=3, causal=(1,), qk_norm=False), 3, slow_kronecker, True,
          same=(0, 1, 2)),
    Grids("other grid, temporal", partial(Axial, order=2, groups=[0], rotary=turn), 2, slow_axial, True, same=(1,)),
    Grids("other grid, axial", partial(Axial, order=3, groups=[(0, 2), (1, 0)], kernel=plus, causal=(0,)), 3,
          slow_axial, True, same=(0, 1, 2)),
    Grids("other grid, multiscale", partial(Multi, order=2, stride=(1, 2), query_stride=(2, 1)), 2,
          slow_multiscale),
    Grids("other grid, multiscale causal", partial(Multi, order=3, causal=(1,), stride=(2, 1, 3), kernel=plus), 3,
          slow_multiscale, True, same=(1,)),
]
LINEAR = [
    Linear("linear one mode", NdLinear, 1, slow_nd_linear),
    Linear("linear two modes", NdLinear, 2, slow_nd_linear),
    Linear("linear three modes", NdLinear, 3, slow_nd_linear),
    Linear("linear four modes", NdLinear, 4, slow_nd_linear),
    Linear("linear order", partial(NdLinear, sequence=(2, 0, 1)), 3, slow_nd_linear),
    Linear("linear order, two modes", partial(NdLinear, sequence=(1, 0)), 2, slow_nd_linear),
    Linear("linear full bias", partial(NdLinear, bias="full"), 3, slow_nd_linear),
    Linear("linear full bias, order", partial(NdLinear, bias="full", sequence=(3, 1, 0, 2)), 4,
              slow_nd_linear, True),
    Linear("linear no bias", partial(NdLinear, bias=False), 3, slow_nd_linear),
    Linear("linear order, three modes", partial(NdLinear, sequence=(0, 2, 1)), 3, slow_nd_linear, True),
    Linear("linear full bias, two modes", partial(NdLinear, bias="full"), 2, slow_nd_linear, True),
    Linear("linear no bias, order", partial(NdLinear, bias=False, sequence=(1, 0)), 2, slow_nd_linear),
]
LAYERS = ATTENTION + GRIDS + LINEAR

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
import slow
import torch
from hypothesis import strategies as st

from hot_nbdev import names
from hot_nbdev.attention import formed
from hot_nbdev.kernels import KernelMap, PositiveRandomFeatures, elu_features
from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.streams import steps
from hot_nbdev.tied import MixedAttention


def since(version: str):
    "Of a test whose promise older versions of torch do not keep; which those are, the changelog says."
    old = tuple(map(int, torch.__version__.split(".")[:2])) < tuple(map(int, version.split(".")))
    return pytest.mark.skipif(old, reason=f"holds from torch {version} on")


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


def any_sizes(data, count, most=3):
    return tuple(data.draw(st.lists(st.integers(1, most), min_size=count, max_size=count)))


KERNELS = {"softmax": None, "elu": elu_features, "random": PositiveRandomFeatures(DIM // HEADS, 6)}
SPANS = [dict(window=2), dict(window=2, dilation=2, bias="alibi"), dict(window=0), dict(bias="learned", reach=2),
           dict(window=9, bias="learned", reach=9)]


def made(kind, order=2, kernel="softmax", **options):
    "A layer in float64, with a kernel by its name; tables, which begin as zeros, have numbers."
    torch.manual_seed(order)
    if KERNELS[kernel]:
        options["kernel"] = copy.deepcopy(KERNELS[kernel])
    if kind is Multi:
        options["stride"] = (1, 2, 2)[:order]
    layer = kind(DIM, HEADS, order, **options).double().eval()
    for name, p in layer.named_parameters():
        if "table" in name:
            torch.nn.init.normal_(p)
    return layer


def stepped(layer, x, mask, c, cuts):
    "The results of all steps, put together, and the last state."
    found, state, axis = [], None, c - layer.order - 1
    for i, part in enumerate(x.split(cuts, axis)):
        own = None if mask is None else mask.split(cuts, axis + 1)[i]
        y, state = steps(layer, part, state, own)
        found.append(y)
    return torch.cat(found, axis), state


def by_map(layer, x, mask=None, **more):
    "What a layer says, by its joint map, which is formed and multiplied with the values."
    layer = copy.deepcopy(layer)
    if isinstance(getattr(layer, "weigh", None), KernelMap):
        weigh = layer.weigh
        del layer.weigh
        layer.weigh = lambda *given: formed(weigh(*given))      # in place of sums over its features
    lead, sizes = x.shape[:-layer.order - 1], x.shape[-layer.order - 1:-1]
    context = more.get("context", x)
    v = layer.to_v(context).flatten(len(lead), -2).unflatten(-1, (layer.heads, -1)).movedim(-2, len(lead))
    y = (layer.dense_map(x, mask, **more) @ v).movedim(len(lead), -2).flatten(-2)
    return layer.to_out(y.unflatten(len(lead), sizes))


def plus(t):
    "A positive feature map that is no softmax: relu(t)² + 0.1 and the same of -t."
    return torch.cat([t, -t], -1).relu() ** 2 + 0.1


def short(t):
    "A feature map with a single feature, so that the maps of modes of size 3 and more are applied as pairs."
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


def told(layer, make, order):
    "A layer for a slow loop, with the settings of its maker."
    return SeenAs(layer, settings_of(make, order))


@dataclass
class Case:
    """What a contract needs to know of a layer; `sizes` are those of the modes of a sample.

    Besides, a kind of layer has
        maker(dtype, sizes, **options)                  a function of `device` that makes it, for samples of these sizes
        input(*batch, seed, dtype, device, sizes)       an input for it
        arguments(x)                                    all ways to call it on x
        draw(data)                                      a layer and arguments that hypothesis draws
        answers(layer, *arguments)                      pairs: what the layer says, what the slow loop says
    """
    name: str
    make: object
    order: int          # number of modes
    slow: object

    @property
    def sizes(self):
        return SIZES[:self.order]

    def layer(self, dtype=F64, device="cpu", seed=0, **options):
        """What all begins alike, as norms, biases and tables do, does not stay so. Weights are drawn on the CPU, whose
        generator draws others than a GPU's: so that what holds here is asked of the same function there."""
        torch.manual_seed(seed)
        make = self.maker(dtype, **options)
        layer = make().eval()
        with torch.no_grad():
            for p in layer.parameters():
                if p.requires_grad and (p == p.flatten()[0]).all():
                    p += 0.3 * torch.randn_like(p)
        if device == "cpu":
            return layer
        there = make(device=device).eval()
        if torch.device(device).type != "meta":
            there.load_state_dict(layer.state_dict())
        return there


@dataclass
class Attention(Case):
    output: object = None   # output(layer, x, mask) of a sample, where the joint map alone does not give it

    def maker(self, dtype=F64, sizes=None, **options):
        return partial(self.make, DIM, HEADS, dtype=dtype, **options)

    def input(self, *batch, sizes=None, **options):
        return tensor(*batch, *(sizes or self.sizes), DIM, **options)

    def arguments(self, x):
        return [(x,), (x, random_mask(*x.shape[:-1]).to(x.device))]

    def draw(self, data):
        sizes, batch = any_sizes(data, self.order), data.draw(st.sampled_from([(), (2,), (2, 1)]))
        x = self.input(*batch, sizes=sizes, seed=data.draw(st.integers(0, 99)))
        masks = [None, random_mask(*batch, *sizes, seed=len(sizes)), random_mask(*sizes)]
        return self.layer(), (x, data.draw(st.sampled_from(masks)))

    def answers(self, layer, x, mask=None, c=None, c_mask=None):
        "Its result against the slow map times the values, of a context if there is one, projected; and its map."
        def samples(t, mask):
            sizes = t.shape[-self.order - 1:-1]
            mask = torch.ones(sizes, dtype=torch.bool) if mask is None else mask
            return t.reshape(-1, *sizes, DIM), mask.expand(t.shape[:-1]).reshape(-1, *sizes)
        sides, more = [*samples(x, mask)], {}
        if c is not None:
            sides, more = [*sides, *samples(c, c_mask)], dict(context=c, context_mask=c_mask)
        known, each = told(layer, self.make, self.order), list(zip(*sides, strict=True))
        S = torch.stack([self.slow(known, *sample) for sample in each])
        if self.output is None:
            v = layer.to_v(sides[-2]).flatten(1, -2).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
            y = layer.to_out((S @ v).transpose(1, 2).reshape(x.shape))
        else:
            y = torch.stack([self.output(known, *sample) for sample in each]).reshape(x.shape)
        return [(layer(x, mask, **more), y), (layer.dense_map(x, mask, **more).reshape(S.shape), S)]


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

    def maker(self, *args, **options):
        make = super().maker(*args, **options)
        return lambda **new: OnOwnGrid(make(**new), self.same)

    def plain(self):
        return self.layer().layer

    def context_sizes(self, data, sizes):
        found = any_sizes(data, self.order, 4)
        return tuple(n if m in self.same else other for m, (n, other) in enumerate(zip(sizes, found, strict=True)))

    def answers(self, layer, x, mask=None, *context):
        "As with a layer that asks itself; a layer on its own grid has made its context."
        if context:
            return super().answers(layer, x, mask, *context)
        masks = None if mask is None else layer.pick(mask, 0)
        found = super().answers(layer.layer, x, mask, layer.pick(x, 1).flip(-1), masks)
        return [(layer(x, mask), found[0][1]), *found]


@dataclass
class Linear(Case):
    def maker(self, dtype=F64, sizes=None, out=None, **options):
        "Without `out`, sizes 1, 2, 3, 4 become 3, 1, 3, 1."
        sizes = sizes or self.sizes
        return partial(self.make, sizes, out or tuple(2 * n % 4 + 1 for n in sizes), dtype=dtype, **options)

    def input(self, *batch, sizes=None, **options):
        return tensor(*batch, *(sizes or self.sizes), **options)

    def arguments(self, x):
        return [(x,)]

    def draw(self, data):
        sizes, out = any_sizes(data, self.order, 4), any_sizes(data, self.order, 4)
        batch = data.draw(st.sampled_from([(), (2,), (2, 1), (1, 2, 2)]))
        return self.layer(sizes=sizes, out=out), (self.input(*batch, sizes=sizes),)

    def answers(self, layer, x):
        y = torch.stack([self.slow(layer, a) for a in x.reshape(-1, *x.shape[x.ndim - self.order:])])
        return [(layer(x), y.reshape(*x.shape[:x.ndim - self.order], *y.shape[1:]))]


K = names.kronecker
bare = partial(K, qk_norm=False)        # half of the cases have the norm, which is the default
Hot1, Hot2 = names.ATTENTIONS["hot1"], names.hot2
Full, Axial, Divided, Multi, Tied = names.full, names.axial, names.divided, names.multiscale, names.tied
SLOW = {Full: slow.slow_full, Axial: slow.slow_axial, Divided: lambda *given: slow.slow_divided(*given)[0],
        Multi: slow.slow_multiscale, names.none: slow.slow_none}


def attention(name, make, order=2, **options):
    output = (lambda *given: slow.slow_divided(*given)[1]) if make is Divided else None
    return Attention(name, partial(make, order=order, **options), order, SLOW.get(make, slow.slow_kronecker), output)


def any_attention(data):
    "A case of any kind with any settings."
    def one(*values):
        return data.draw(st.sampled_from(values))
    order, make = one(1, 2, 3), one(K, K, K, Tied, Full, Axial, Divided, Multi)
    options = dict(causal=tuple(m for m in range(order) if one(False, False, True)), rotary=one(None, turn),
                   **{name: one(False, True) for name in ("bias", "qk_norm")})
    if make is not Tied:
        options["kernel"] = one(None, None, plus, short)
    if make in (K, Tied):
        options["combine"] = one("product", "sum")
    if make is K:
        options |= {name: one(False, True) for name in ("shared", "qk_center", "temperature")}
        options["pool"] = one("mean", "sum", "rsqrt")
        options["project"] = one("before", "after" if options["pool"] != "mean" and options["bias"] and not
                                 options["qk_norm"] else "before")
    if make in (K, Tied, Axial):
        own = (NEAR, FAR, TABLE, dict(window=0), dict(bias="alibi"))
        options["by_mode"] = {m: one(*own) for m in range(order) if one(False, True)}
    if make is Multi:
        options["stride"] = tuple(1 if m in options["causal"] else one(1, 2, 3) for m in range(order))
    return attention("any", make, order, **options)


def other_grid(name, make, order=2, same=(), **options):
    loop = SLOW.get(make, slow.slow_kronecker)
    return Grids(f"other grid, {name}", partial(make, order=order, **options), order, loop, same=same)


def linear(name, order, **options):
    return Linear(f"linear {name}", partial(NdLinear, **options), order, slow.slow_nd_linear)


NEAR, FAR = dict(window=1, bias="alibi"), dict(window=1, dilation=2, bias="learned", reach=1)
TABLE = dict(bias="learned", reach=1)
ATTENTION = [
    attention("full", Full),
    attention("full causal", Full, causal=(0,), rotary=turn, qk_norm=True),
    attention("full-linear causal", Full, kernel=plus, causal=(-1,)),
    attention("product", K),
    attention("sum", K, 3, combine="sum"),
    attention("hot1", Hot1, 3),
    attention("hot1 kernel", Hot1, kernel=plus),
    attention("hot2 product", Hot2),
    attention("rsqrt after, shared", bare, 2, pool="rsqrt", project="after", qk_center=True),
    attention("causal product", K, 3, causal=(0,), qk_center=True, temperature=True),
    attention("short kernel", bare, kernel=short),
    attention("causal kernel", bare, 2, causal=(0, 1), kernel=plus, pool="rsqrt"),
    attention("tied product", Tied, 3),
    attention("tied mix", Tied, kind=MixedAttention, causal=(1,)),
    attention("tied near, two causal modes", Tied, 3, causal=(0, 2), power=0.8, by_mode={0: NEAR, 1: TABLE}),
    attention("one mode", K, 1, causal=(0,)),
    attention("near product", bare, 3, by_mode={0: NEAR, -1: FAR}),
    attention("near causal sum", K, causal=(0,), combine="sum", rotary=turn, by_mode={
        0: dict(window=1, bias="learned", reach=2), 1: dict(bias="alibi")}),
    attention("near axial", Axial, 3, groups=[0, (1, 2), 2], by_mode={0: dict(window=1), -1: FAR}),
    attention("near axial causal", Axial, 2, causal=(0,), qk_norm=True, rotary=turn, by_mode={0: NEAR, 1: TABLE}),
    attention("near divided", Divided, 3, by_mode={0: NEAR}),
    attention("axial", Axial, 3),
    attention("axial causal", Axial, causal=(0,), qk_norm=True, rotary=turn),
    attention("spatial", Axial, 3, groups=[(1, 2)], rotary=turn, causal=(2,), bias=False),
    attention("axial groups, kernel", Axial, 3, groups=[(0, 2), 1], kernel=plus, causal=(0,)),
    attention("divided", Divided, 3),
    attention("divided kernel", Divided, 2, kernel=plus, causal=(1,)),
    attention("multiscale windows", Multi, 3, stride=(2, 1, 3)),
    attention("multiscale kernel", Multi, kernel=plus, rotary=turn),
    attention("multiscale kernel, causal", Multi, 3, stride=(2, 1, 3), kernel=plus, causal=(1,)),
    attention("no attention", names.none),
]
GRIDS = [
    other_grid("full", Full, rotary=turn, qk_norm=True),
    other_grid("full-linear causal", Full, 3, (1,), kernel=plus, causal=(1,)),
    other_grid("product", K),
    other_grid("hot2 product", Hot2, 3, rotary=turn, qk_norm=False),
    other_grid("rsqrt, temperature", bare, 2, pool="rsqrt", temperature=True, qk_center=True),
    other_grid("causal", bare, 3, same=(0,), causal=(0,), temperature=True, pool="sum"),
    other_grid("two causal modes", K, 3, (0, 2), causal=(0, 2), shared=False, qk_center=True),
    other_grid("sum", bare, 2, (0, 1), combine="sum"),
    other_grid("short kernel, sum", K, 2, (0, 1), kernel=short, combine="sum", causal=(0,)),
    other_grid("tied", Tied, same=(0, 1)),
    other_grid("tied causal", Tied, 3, (0, 1, 2), causal=(1,), qk_norm=False),
    other_grid("axial", Axial, 3, (0, 1, 2), groups=[(0, 2), (1, 0)], kernel=plus, causal=(0,)),
    other_grid("multiscale causal", Multi, 3, (1,), causal=(1,), stride=(2, 1, 3), kernel=plus),
]
LINEAR = [
    linear("one mode", 1), linear("four modes", 4), linear("order", 3, sequence=(2, 0, 1)),
    linear("full bias", 3, bias="full"), linear("full bias, order", 4, bias="full", sequence=(3, 1, 0, 2)),
    linear("no bias, order", 2, bias=False, sequence=(1, 0)),
]
LAYERS = ATTENTION + GRIDS + LINEAR

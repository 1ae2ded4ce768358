"""The layers that stand in for a dense one, and models of equal size made with them.

A model is written once, as `build(linear, width)`: `linear(D, H)` or `linear(D, H, d, h)` makes each layer in
question, where d and h are the sizes of the modes of its input and output, and `width` is the number of hidden
units that may be narrowed. The models of a task:

dense        nn.Linear, full width
nd           NdLinear with a bias for each mode, full width
dense-equal  nn.Linear, as many hidden units as make the parameters of the whole model nearest to those of nd
dense-thin   nn.Linear in a Transformer that is narrower everywhere, see `thin`
low-rank     two matrices through a quarter of the width, the width found in the same way; if that is more than
             3 % off, through a third of it
kron         a sum of Kronecker products of one factor more, full width, their number found in the same way; if
             that is more than 3 % off, of 15, 14, 12 or 10 sixteenths of the width
tcl          NdLinear without biases
tt           a tensor train with the modes of nd, full width, its bond found in the same way
"""
from bisect import bisect_left
from functools import cache, partial
from math import prod

import torch
import torch.nn.functional as F
from torch import nn

from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.replacing import FlatNdLinear, nearest_square


def count(model):
    "Parameters that are trained, each once."
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def dense(D, H, d=None, h=None):
    return nn.Linear(D, H)


def _modes(D, H, d, h):
    return (nearest_square(D), nearest_square(H)) if d is None else (d, h)


def nd(D, H, d=None, h=None, bias="mode"):
    return FlatNdLinear(NdLinear(*_modes(D, H, d, h), bias))


def tcl(D, H, d=None, h=None):
    return nd(D, H, d, h, False)


def low_rank(rank):
    def make(D, H, d=None, h=None):
        return nn.Sequential(nn.Linear(D, rank, bias=False), nn.Linear(rank, H))
    return make


class KronSum(nn.Module):
    """A sum of NdLinears, as large as one of them at the start; the first has the biases.

    Terms that are as many as here are slow one by one. Where the dense matrix is small it is formed and multiplied,
    which costs what the dense layer costs.
    """
    SMALL = 2 ** 17

    def __init__(self, d, h, terms):
        super().__init__()
        self.terms = nn.ModuleList(FlatNdLinear(NdLinear(d, h, "mode" if r == 0 else False)) for r in range(terms))

    def forward(self, x):
        first, share = self.terms[0], len(self.terms) ** -0.5
        if first.in_features * first.out_features <= self.SMALL:
            return share * F.linear(x, sum(term.weight for term in self.terms), first.bias)
        return share * sum(term(x) for term in self.terms)


def kron(terms):
    "One mode more than nd has, so that a term is small: three in the place of two, or the first of three cut in two."
    def make(D, H, d=None, h=None):
        if d is None or len(d) < 3:
            return KronSum(nearest_square(D, 3), nearest_square(H, 3), terms)
        return KronSum((*nearest_square(d[0]), *d[1:]), (*nearest_square(h[0]), *h[1:]), terms)
    return make


class TensorTrain(nn.Module):
    "A matrix in tensor-train form, one core (r, H_m, D_m, r') for each mode, and one bias."
    def __init__(self, d, h, bond):
        super().__init__()
        bonds, self.sizes = [1, *[bond] * (len(d) - 1), 1], d
        self.cores = nn.ParameterList(
            torch.randn(r, out, into, s) * (into * s) ** -0.5
            for r, out, into, s in zip(bonds, h, d, bonds[1:], strict=False))
        self.bias = nn.Parameter(torch.zeros(prod(h)))

    def forward(self, x):
        shape, y = x.shape[:-1], x.reshape(-1, x.shape[-1], 1, 1)       # (B, inputs to come, bond, outputs so far)
        B = len(y)
        for G in reversed(list(self.cores)):
            _, _, D, s = G.shape
            y = torch.einsum("bxdso,rhds->bxrho", y.reshape(B, -1, D, s, y.shape[-1]), G).flatten(3)
        return y.reshape(*shape, -1) + self.bias


def tt(bond):
    def make(D, H, d=None, h=None):
        return TensorTrain(*_modes(D, H, d, h), bond)
    return make


def size(make):
    "Parameters of what a function makes, without making it."
    with torch.device("meta"):
        return count(make())


def nearest(makers, target, more=()):
    """The first of the models whose number of parameters is nearest to a target.

    `makers` is in ascending order of that number. `more`, lists in ascending order too, are tried if it is 3 % off.
    """
    def far(make):
        return abs(size(make) - target)

    def best(row):
        at = bisect_left(row, target, key=size)
        return min(row[max(at - 1, 0):at + 1] or row[-1:], key=far)
    found = best(makers)
    return min([found, *map(best, more)], key=far) if far(found) > 0.03 * target else found


@cache
def plan(build, kind, width):
    "A function that makes a model of this kind."
    whole = {"dense": dense, "nd": nd, "tcl": tcl}
    if kind in whole:
        return lambda: build(whole[kind], width)
    target, more = size(plan(build, "nd", width)), []
    if kind == "dense-equal":
        makers = [lambda w=w: build(dense, w) for w in range(1, width + 1)]
    elif kind == "low-rank":
        makers = [lambda w=w: build(low_rank(max(1, w // 4)), w) for w in range(1, width + 1)]
        more = [[lambda w=w: build(low_rank(max(1, w // 3)), w) for w in range(1, width + 1)]]
    elif kind in ("kron", "tt"):
        make = {"kron": kron, "tt": tt}[kind]
        makers = [lambda r=r: build(make(r), width) for r in range(1, 25)]
        more = [[lambda r=r, w=w: build(make(r), width * w // 16) for r in range(1, 25)] for w in (15, 14, 12, 10)]
    else:
        raise ValueError(f"plan: kind is {kind!r}; choose dense, nd, tcl, dense-equal, low-rank, kron or tt")
    return nearest(makers, target, more)


@cache
def thin(build, target):
    """A function that makes a dense Transformer that is narrower everywhere, by `build(dim, hidden)`.

    Of all widths with a hidden width between two and six times theirs that come within 2 % of a target, the one
    whose hidden width is nearest to four times.
    """
    found = []
    for dim in range(8, 129, 4):
        widths = range(2 * dim, 6 * dim + 1)
        at = bisect_left(widths, target, key=lambda h, dim=dim: size(partial(build, dim, h)))
        for h in widths[max(at - 1, 0):at + 1]:
            off = abs(size(partial(build, dim, h)) / target - 1)
            found += [(abs(h / dim - 4), off, dim, h)] if off < 0.02 else []
    _, _, dim, h = min(found)
    return partial(build, dim, h)


def models(build, width):
    "kind -> a function that makes the model, for the models that every system has."
    return {kind: plan(build, kind, width) for kind in RIVALS}


RIVALS = ("dense", "nd", "dense-equal", "low-rank", "kron")

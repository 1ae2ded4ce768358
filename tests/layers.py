"""The layers that the contracts of test_contracts.py run over, and a slow loop for each kind as their oracle.

A layer joins by one line in LAYERS: name, constructor, order, slow joint map. The constructor takes
(dim, heads, **options); the slow map takes (layer, x, mask) for one sample x of shape (n1, …, nk, dim) and
returns (heads, n, n).
"""
import itertools
from functools import partial
from math import prod
from typing import NamedTuple

import torch

from hot_nbdev.attention import (
    AxialAttention,
    DividedAttention,
    FullAttention,
    KroneckerAttention,
    MultiscaleAttention,
    NoAttention,
)


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


def positions(sizes):
    return list(itertools.product(*map(range, sizes)))


def may_see(layer, i, j):
    return all(j[c] <= i[c] for c in layer.causal)


def heads_of(layer, t):
    "(…, dim) to (heads, …, dim / heads)."
    return t.unflatten(-1, (layer.heads, -1)).movedim(-2, 0)


def slow_row(layer, q, keys, keep):
    "Weights of one query (d,) over those `keys` (N, d) which are kept, zero elsewhere."
    if layer.kernel is None:
        w = (keys @ q / len(q) ** 0.5)
        w = torch.where(keep, (w - w[keep].max()).exp(), 0)
    else:
        scaled = torch.cat([q[None], keys]) / len(q) ** 0.25
        w = torch.where(keep, layer.kernel(scaled[1:]) @ layer.kernel(scaled[:1])[0], 0)
    return w / w.sum()


def slow_full(layer, x, mask):
    "The joint map of FullAttention, entry by entry."
    where, n = positions(x.shape[:-1]), prod(x.shape[:-1])
    pairs = [(layer.to_q, layer.norm_q), (layer.to_k, layer.norm_k)]
    q, k = (norm(heads_of(layer, f(x))) for f, norm in pairs)
    if layer.rotary is not None:
        for m in range(layer.order):
            q, k = (layer.rotary(t.movedim(1 + m, -2), m).movedim(-2, 1 + m) for t in (q, k))
    q, k = q.reshape(layer.heads, n, -1), k.reshape(layer.heads, n, -1)
    S = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for h, (a, i) in itertools.product(range(layer.heads), enumerate(where)):
        keep = torch.tensor([bool(mask[j]) and may_see(layer, i, j) for j in where])
        if mask[i]:
            S[h, a] = slow_row(layer, q[h, a], k[h], keep)
    return S


def slow_pooled(layer, project, norm, m, x, mask, i):
    "Pooled queries or keys of mode m as the query at i sees them, (heads, n_m, d); which slices hold any."
    f = project if layer.shared else project[m]
    rows, counts = [], []
    for p in range(x.shape[m]):
        inside = [j for j in positions(x.shape[:-1]) if j[m] == p and mask[j]
                  and all(j[c] <= i[c] for c in layer.causal if c != m)]
        count = max(len(inside), 1)
        factor = dict(mean=1 / count, sum=1, rsqrt=count ** -0.5)[layer.pool]
        tokens = torch.stack([x[j] for j in inside]) if inside else torch.zeros(1, x.shape[-1], dtype=x.dtype)
        if layer.project == "before":
            pooled = f(tokens).sum(0) * factor
        else:
            pooled = f(tokens.sum(0) * factor)
        if layer.qk_norm:
            pooled = pooled / (factor * count)    # the norm forgets the factor of the pooling
        rows.append(pooled)
        counts.append(len(inside))
    t = norm(heads_of(layer, torch.stack(rows)))
    return (t if layer.rotary is None else layer.rotary(t, m)), torch.tensor(counts) > 0


def slow_kronecker(layer, x, mask):
    "The joint map of KroneckerAttention: for each query, pool what it may see, weigh the slices, combine."
    where, n, k = positions(x.shape[:-1]), prod(x.shape[:-1]), layer.order
    T = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for a, i in enumerate(where):
        if not mask[i]:
            continue
        rows = []
        for m in range(k):
            q, _ = slow_pooled(layer, layer.to_q, layer.norm_q, m, x, mask, i)
            keys, keep = slow_pooled(layer, layer.to_k, layer.norm_k, m, x, mask, i)
            if m in layer.causal:
                keep = keep & (torch.arange(len(keep)) <= i[m])
            rows.append([slow_row(layer, q[h, i[m]], keys[h], keep) for h in range(layer.heads)])
        for h, (b, j) in itertools.product(range(layer.heads), enumerate(where)):
            if layer.combine == "product":
                weight = prod(rows[m][h][j[m]] for m in range(k))
            else:
                weight = sum(rows[m][h][j[m]] for m in range(k)
                               if i[:m] + i[m + 1:] == j[:m] + j[m + 1:]) / k
            T[h, a, b] = weight * mask[j]
        T[:, a] /= T[:, a].sum(-1, keepdim=True)
    return T


def slow_axial(layer, x, mask):
    "The joint map of AxialAttention: for each query and group, weigh the keys that agree outside the group."
    where, n, sizes = positions(x.shape[:-1]), prod(x.shape[:-1]), x.shape[:-1]
    T = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for a, group in enumerate(layer.groups):
        q, k = (norm(heads_of(layer, f[a](x)))
                for f, norm in [(layer.to_q, layer.norm_q), (layer.to_k, layer.norm_k)])
        for m in group if layer.rotary is not None else ():
            q, k = (layer.rotary(t.movedim(1 + m, -2), m).movedim(-2, 1 + m) for t in (q, k))
        q, k = q.reshape(layer.heads, n, -1), k.reshape(layer.heads, n, -1)
        for h, (b, i) in itertools.product(range(layer.heads), enumerate(where)):
            fixed = [m for m in range(len(sizes)) if m not in group]
            keep = torch.tensor([bool(mask[j]) and may_see(layer, i, j) and all(i[m] == j[m] for m in fixed)
                                 for j in where])
            if mask[i]:
                T[h, b] += slow_row(layer, q[h, b], k[h], keep) / len(layer.groups)
    return T


def slow_divided(layer, x, mask):
    "The maps of all stages, multiplied."
    return slow_stages(layer, x, mask)[0]


def slow_divided_output(layer, x, mask):
    return slow_stages(layer, x, mask)[1]


def slow_stages(layer, x, mask):
    "The stages in turn: their joint maps multiplied, and what they add."
    path, added = None, 0
    for stage, norm in zip(layer.stages, layer.norms, strict=True):
        z = norm(x.masked_fill(~mask[..., None], 0) + added)
        S = slow_axial(stage, z, mask)
        v = heads_of(layer, stage.to_v(z)).flatten(1, -2)
        added = added + stage.to_out((S @ v).transpose(0, 1).reshape(x.shape))
        path = S if path is None else S @ path
    return path, added


def slow_multiscale(layer, x, mask):
    "The joint map of MultiscaleAttention: windows by their numbers, means over what takes part."
    where, n = positions(x.shape[:-1]), prod(x.shape[:-1])
    valid = mask.flatten()
    q, k = layer.norm_q(heads_of(layer, layer.to_q(x))), layer.norm_k(heads_of(layer, layer.to_k(x)))
    for m in range(layer.order if layer.rotary is not None else 0):
        q, k = (layer.rotary(t.movedim(1 + m, -2), m).movedim(-2, 1 + m) for t in (q, k))
    q, k = q.reshape(layer.heads, n, -1), k.reshape(layer.heads, n, -1)

    def pooling(stride, logits):
        "For each window that holds anything: its number, and its weights (heads, n)."
        found = {}
        for b, i in enumerate(where):
            inside = tuple(a % s for a, s in zip(i, stride, strict=True))
            number = sum(a * prod(stride[m + 1:]) for m, a in enumerate(inside))
            weight = torch.ones(layer.heads, dtype=x.dtype) if logits is None else logits[:, number].exp()
            row = found.setdefault(tuple(a // s for a, s in zip(i, stride, strict=True)),
                                   torch.zeros(layer.heads, n, dtype=x.dtype))
            if valid[b]:
                row[:, b] = weight
        return {w: row / row.sum(-1, keepdim=True) for w, row in found.items() if row.any()}

    queries = pooling(layer.query_stride, layer.pool_q)
    keys, values = pooling(layer.stride, layer.pool_k), pooling(layer.stride, layer.pool_v)
    T = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for b, i in enumerate(where):
        if not valid[b]:
            continue
        window = queries[tuple(a // s for a, s in zip(i, layer.query_stride, strict=True))]
        starts = [[a * s for a, s in zip(w, layer.stride, strict=True)] for w in keys]
        keep = torch.tensor([may_see(layer, i, start) for start in starts])
        for h in range(layer.heads):
            row = slow_row(layer, window[h] @ q[h], torch.stack([keys[w][h] @ k[h] for w in keys]), keep)
            T[h, b] = sum(r * values[w][h] for r, w in zip(row, keys, strict=True))
    return T


def slow_none(layer, x, mask):
    return mask.flatten().to(x.dtype).diag().expand(layer.heads, -1, -1)


class Case(NamedTuple):
    name: str
    make: object        # make(dim, heads, **options)
    order: int
    slow: object        # slow(layer, x, mask)
    twin: bool = False  # traces like another case: compilation and export to ONNX, which take long, skip it
    output: object = None   # output(layer, x, mask) of a sample, where the joint map alone does not give it


K, plus, short = KroneckerAttention, SquarePlus(), OneFeature()
Axial, Divided, Multi = AxialAttention, DividedAttention, MultiscaleAttention
LAYERS = [
    Case("full", partial(FullAttention, order=2), 2, slow_full),
    Case("full causal", partial(FullAttention, order=2, causal=(0,), rotary=turn, qk_norm=True), 2,
         slow_full),
    Case("full-linear", partial(FullAttention, order=3, kernel=plus), 3, slow_full, True),
    Case("full-linear causal", partial(FullAttention, order=2, kernel=plus, causal=(-1,)), 2, slow_full),
    Case("product", partial(K, order=2), 2, slow_kronecker),
    Case("sum", partial(K, order=3, combine="sum"), 3, slow_kronecker),
    Case("hot1", partial(K.hot1, order=3), 3, slow_kronecker, True),
    Case("hot1 kernel", partial(K.hot1, order=2, kernel=plus), 2, slow_kronecker),
    Case("hot2 product", partial(K.hot2, order=2), 2, slow_kronecker),
    Case("hot2 sum", partial(K.hot2, order=2, combine="sum"), 2, slow_kronecker, True),
    Case("rsqrt after, shared", partial(K, order=2, pool="rsqrt", project="after"), 2, slow_kronecker, True),
    Case("sum pooling, qk_norm", partial(K, order=2, pool="sum", shared=False, qk_norm=True), 2,
         slow_kronecker, True),
    Case("rotary, no bias", partial(K, order=2, rotary=turn, bias=False), 2, slow_kronecker, True),
    Case("causal product", partial(K, order=3, causal=(0,)), 3, slow_kronecker),
    Case("causal sum", partial(K, order=2, causal=(-1,), combine="sum"), 2, slow_kronecker),
    Case("two causal modes", partial(K.hot2, order=3, causal=(0, 2)), 3, slow_kronecker),
    Case("short kernel", partial(K, order=2, kernel=short), 2, slow_kronecker),
    Case("short kernel, causal sum", partial(K, order=2, kernel=short, causal=(0,), combine="sum"), 2,
         slow_kronecker, True),
    Case("causal kernel", partial(K, order=2, causal=(0, 1), kernel=plus, pool="rsqrt"), 2,
         slow_kronecker, True),
    Case("one mode", partial(K, order=1, causal=(0,)), 1, slow_kronecker),
    Case("axial", partial(Axial, order=3), 3, slow_axial),
    Case("axial causal", partial(Axial, order=2, causal=(0,), qk_norm=True, rotary=turn), 2, slow_axial),
    Case("axial kernel", partial(Axial, order=2, kernel=plus, causal=(1,)), 2, slow_axial, True),
    Case("temporal", partial(Axial, order=2, modes=[0], bias=False), 2, slow_axial, True),
    Case("spatial", partial(Axial, order=3, modes=[(1, 2)], rotary=turn, causal=(2,)), 3, slow_axial),
    Case("divided", partial(Divided, order=3), 3, slow_divided,
         output=slow_divided_output),
    Case("divided causal", partial(Divided, order=2, causal=(0,)), 2, slow_divided, True,
         output=slow_divided_output),
    Case("multiscale", partial(Multi, order=2), 2, slow_multiscale),
    Case("multiscale queries", partial(Multi, order=3, stride=(2, 1, 3), query_stride=2), 3,
         slow_multiscale),
    Case("multiscale learned",
         partial(Multi, order=2, query_stride=(1, 2), pool="learned", kernel=plus, rotary=turn), 2,
         slow_multiscale),
    Case("multiscale causal", partial(Multi, order=2, stride=(1, 2), causal=(0,)), 2,
         slow_multiscale, True),
    Case("no attention", partial(NoAttention, order=2), 2, slow_none),
]

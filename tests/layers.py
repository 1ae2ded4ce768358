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

from hot_nbdev.attention import FullAttention, KroneckerAttention


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
    angle = torch.arange(n, device=t.device, dtype=t.dtype)[:, None] * (mode + 1) / torch.arange(1, d + 1).to(t)
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
    q, k = (norm(heads_of(layer, f(x))) for f, norm in [(layer.to_q, layer.norm_q), (layer.to_k, layer.norm_k)])
    if layer.rotary is not None:
        for m in range(layer.order):
            q, k = (layer.rotary(t.movedim(1 + m, -2), m).movedim(-2, 1 + m) for t in (q, k))
    q, k = q.reshape(layer.heads, n, -1), k.reshape(layer.heads, n, -1)
    S = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for h, (a, i) in itertools.product(range(layer.heads), enumerate(where)):
        keep = torch.tensor([bool(mask[j]) and may_see(layer, i, j) for j in where])
        if mask[i]: S[h, a] = slow_row(layer, q[h, a], k[h], keep)
    return S


def slow_pooled(layer, project, norm, m, x, mask, i):
    "Pooled queries or keys of mode m as the query at i sees them, (heads, n_m, d), and which slices hold anything."
    f = project if layer.shared else project[m]
    rows, counts = [], []
    for p in range(x.shape[m]):
        inside = [j for j in positions(x.shape[:-1]) if j[m] == p and mask[j]
                  and all(j[c] <= i[c] for c in layer.causal if c != m)]
        count = max(len(inside), 1)
        factor = dict(mean=1 / count, sum=1, rsqrt=count ** -0.5)[layer.pool]
        tokens = torch.stack([x[j] for j in inside]) if inside else torch.zeros(1, x.shape[-1], dtype=x.dtype)
        if layer.project == "before": pooled = f(tokens).sum(0) * factor
        else: pooled = f(tokens.sum(0) * factor)
        if layer.qk_norm: pooled = pooled / (factor * count)    # the norm forgets the factor of the pooling
        rows.append(pooled)
        counts.append(len(inside))
    t = norm(heads_of(layer, torch.stack(rows)))
    return (t if layer.rotary is None else layer.rotary(t, m)), torch.tensor(counts) > 0


def slow_kronecker(layer, x, mask):
    "The joint map of KroneckerAttention: for each query, pool what it may see, weigh the slices, combine."
    where, n, k = positions(x.shape[:-1]), prod(x.shape[:-1]), layer.order
    T = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for a, i in enumerate(where):
        if not mask[i]: continue
        rows = []
        for m in range(k):
            q, _ = slow_pooled(layer, layer.to_q, layer.norm_q, m, x, mask, i)
            keys, keep = slow_pooled(layer, layer.to_k, layer.norm_k, m, x, mask, i)
            if m in layer.causal: keep = keep & (torch.arange(len(keep)) <= i[m])
            rows.append([slow_row(layer, q[h, i[m]], keys[h], keep) for h in range(layer.heads)])
        for h, (b, j) in itertools.product(range(layer.heads), enumerate(where)):
            if layer.combine == "product": weight = prod(rows[m][h][j[m]] for m in range(k))
            else: weight = sum(rows[m][h][j[m]] for m in range(k)
                               if all(i[l] == j[l] for l in range(k) if l != m)) / k
            T[h, a, b] = weight * mask[j]
        T[:, a] /= T[:, a].sum(-1, keepdim=True)
    return T


class Case(NamedTuple):
    name: str
    make: object        # make(dim, heads, **options)
    order: int
    slow: object        # slow(layer, x, mask)


K, plus, short = KroneckerAttention, SquarePlus(), OneFeature()
LAYERS = [
    Case("full", partial(FullAttention, order=2), 2, slow_full),
    Case("full causal", partial(FullAttention, order=2, causal=(0,), qk_norm=True, rotary=turn), 2, slow_full),
    Case("full-linear", partial(FullAttention, order=3, kernel=plus), 3, slow_full),
    Case("full-linear causal", partial(FullAttention, order=2, kernel=plus, causal=(-1,)), 2, slow_full),
    Case("product", partial(K, order=2), 2, slow_kronecker),
    Case("sum", partial(K, order=3, combine="sum"), 3, slow_kronecker),
    Case("hot1", partial(K.hot1, order=3), 3, slow_kronecker),
    Case("hot1 kernel", partial(K.hot1, order=2, kernel=plus), 2, slow_kronecker),
    Case("hot2 product", partial(K.hot2, order=2), 2, slow_kronecker),
    Case("hot2 sum", partial(K.hot2, order=2, combine="sum"), 2, slow_kronecker),
    Case("rsqrt after, shared", partial(K, order=2, pool="rsqrt", project="after"), 2, slow_kronecker),
    Case("sum pooling, qk_norm", partial(K, order=2, pool="sum", shared=False, qk_norm=True), 2, slow_kronecker),
    Case("rotary, no bias", partial(K, order=2, rotary=turn, bias=False), 2, slow_kronecker),
    Case("causal product", partial(K, order=3, causal=(0,)), 3, slow_kronecker),
    Case("causal sum", partial(K, order=2, causal=(-1,), combine="sum"), 2, slow_kronecker),
    Case("two causal modes", partial(K.hot2, order=3, causal=(0, 2)), 3, slow_kronecker),
    Case("short kernel", partial(K, order=2, kernel=short), 2, slow_kronecker),
    Case("short kernel, causal sum", partial(K, order=2, kernel=short, causal=(0,), combine="sum"), 2, slow_kronecker),
    Case("causal kernel", partial(K, order=2, causal=(0, 1), kernel=plus, pool="rsqrt"), 2, slow_kronecker),
    Case("one mode", partial(K, order=1, causal=(0,)), 1, slow_kronecker),
]

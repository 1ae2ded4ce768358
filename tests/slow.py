"""Slow loops, the oracles of the contracts: each kind of layer written out index by index.

None uses a function of the library. An attention loop takes (layer, x, mask) for one sample x of shape
(n1, …, nk, dim) and returns the joint map, (heads, n, n); a linear loop takes (layer, x) for one sample and
returns the result.
"""
import itertools
from math import prod

import torch


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
        if layer.qk_act is not None:
            pooled = slow_activation(layer.qk_act, pooled)
        elif layer.qk_norm:
            pooled = pooled / (factor * count)    # by definition the norm stands in place of the factor
        rows.append(pooled)
        counts.append(len(inside))
    t = norm(heads_of(layer, torch.stack(rows)))
    return (t if layer.rotary is None else layer.rotary(t, m)), torch.tensor(counts) > 0


def slow_activation(name, t):
    "The nonlinearities from their formulas."
    normal = (1 + torch.erf(t / 2 ** 0.5)) / 2
    return {"relu": t * (t > 0), "gelu": t * normal, "silu": t / (1 + (-t).exp())}[name]


def slow_share(layer, dtype):
    "What a mask takes of each row and spreads evenly; nothing with one mode."
    number = torch.finfo(dtype)
    if layer.order == 1:
        return 0
    return number.eps if layer.combine == "sum" else max(number.eps, number.tiny ** (2 / (3 * layer.order)))


def slow_kronecker(layer, x, mask, share=None):
    """The joint map of KroneckerAttention: for each query, pool what it may see, weigh the slices, combine.

    Without a mask no share is taken; where all positions take part, and in float64, that makes no difference.
    """
    share = slow_share(layer, x.dtype) if share is None else share
    where, n, k = positions(x.shape[:-1]), prod(x.shape[:-1]), layer.order
    T = torch.zeros(layer.heads, n, n, dtype=x.dtype)
    for a, i in enumerate(where):
        if not mask[i]:
            continue
        rows = []
        for m in range(k):
            q, _ = slow_pooled(layer, layer.to_q, layer.norm_q, m, x, mask, i)
            q = q * layer.logit_scale[m].exp() if layer.temperature else q
            keys, keep = slow_pooled(layer, layer.to_k, layer.norm_k, m, x, mask, i)
            if m in layer.causal:
                keep = keep & (torch.arange(len(keep)) <= i[m])
            rows.append([(1 - share) * slow_row(layer, q[h, i[m]], keys[h], keep) + share * keep / keep.sum()
                         for h in range(layer.heads)])
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


def slow_nd_linear(layer, x):
    "Algorithm 1 of NdLinear in Python numbers; a full bias comes last."
    y, sizes = dict(zip(positions(x.shape), x.flatten().tolist(), strict=True)), list(x.shape)
    for k in layer.sequence:
        W = layer.weights[k].tolist()
        b = layer.biases[k].tolist() if layer.bias == "mode" else [0] * len(W)
        sizes[k] = len(W)
        y = {i: sum(w * y[i[:k] + (j,) + i[k + 1:]] for j, w in enumerate(W[i[k]])) + b[i[k]]
             for i in positions(sizes)}
    y = torch.tensor(list(y.values()), dtype=x.dtype).reshape(sizes)
    return y + layer.biases[0] if layer.bias == "full" else y

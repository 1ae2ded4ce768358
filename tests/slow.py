"""Slow loops, the oracles of the contracts: each kind of layer written out index by index.

None uses a function of the library. An attention loop takes (layer, x, mask) for one sample x of shape
(n1, …, nk, dim) and returns the joint map, (heads, n, n); four of them also take a context (m1, …, mk, dim) and
its mask, and return (heads, n, m). The layer of such a loop has beside its weights the settings that it was made with
(`told` of layers.py). A linear loop takes (layer, x) for one sample and returns the result.
"""
import itertools
from math import prod

import torch


def positions(sizes):
    return list(itertools.product(*map(range, sizes)))


def may_see(layer, i, j):
    return all(j[c] <= i[c] for c in layer.causal)


def at(t, j):
    "Of all heads, what stands at position j."
    return t[(slice(None), *j)]


def heads_of(layer, t):
    "(…, dim) to (heads, …, dim / heads)."
    return t.unflatten(-1, (layer.heads, -1)).movedim(-2, 0)


def slow_row(layer, q, keys, keep, bias=0):
    "Weights of one query (d,) over those `keys` (N, d) which are kept, zero elsewhere; `bias` adds to scores."
    if layer.kernel is None:
        w = keys @ q / len(q) ** 0.5 + bias
        w = torch.where(keep, (w - w[keep].max()).exp(), 0)
    else:
        scaled = torch.cat([q[None], keys]) / len(q) ** 0.25
        factor = torch.as_tensor(bias, dtype=q.dtype).exp()
        w = torch.where(keep, factor * (layer.kernel(scaled[1:]) @ layer.kernel(scaled[:1])[0]), 0)
    return w / w.sum()


def in_window(layer, m, i, j):
    "May position i of mode m see position j, as far as the window of the mode goes?"
    options = layer.by_mode.get(m, {})
    if options.get("window") is None:
        return True
    steps, rest = divmod(abs(i - j), options.get("dilation") or 1)
    return rest == 0 and steps <= options["window"]


def slow_bias(layer, m, h, i, j, map_number=None):
    """What is added to the score of positions i and j of mode m in head h; as many heads as a power of 2.

    The map of mode m is the m-th of the layer, or that of another number."""
    options = layer.by_mode.get(m, {})
    if options.get("bias") == "alibi":
        return -abs(i - j) / 2 ** (8 * (h + 1) / layer.heads)
    if options.get("bias") == "learned":
        bias = layer.weigh[m if map_number is None else map_number].score_mod
        table, reach, d = bias.table[h], options["reach"], i - j
        d = max(-reach, min(reach, d))
        return (table[max(d, 0)] if m in layer.causal else table[reach + d]).detach().item()
    return 0.0


def queries_and_keys(layer, x, c, to_q, to_k, modes):
    "Projected, normalized, turned along some modes: (heads, n1, …, nk, d) of x, and those of the context."
    q, k = (norm(heads_of(layer, f(t))) for f, norm, t in ((to_q, layer.norm_q, x), (to_k, layer.norm_k, c)))
    for m in modes if layer.rotary is not None else ():
        q, k = (layer.rotary(t.movedim(1 + m, -2), m).movedim(-2, 1 + m) for t in (q, k))
    return q, k


def slow_pooled(layer, project, norm, m, x, mask, i):
    "Pooled queries or keys of mode m as the query at i sees them, (heads, n_m, d); which slices hold any."
    f = project if layer.shared else project[m]
    rows, factors, counts = [], [], []
    for p in range(x.shape[m]):
        inside = [j for j in positions(x.shape[:-1]) if j[m] == p and mask[j]
                  and all(j[c] <= i[c] for c in layer.causal if c != m)]
        count = max(len(inside), 1)
        factor = dict(mean=1 / count, sum=1, rsqrt=count ** -0.5)[layer.pool]
        tokens = torch.stack([x[j] for j in inside]) if inside else torch.zeros(1, x.shape[-1], dtype=x.dtype)
        pooled = f(tokens).sum(0) * factor if layer.project == "before" else f(tokens.sum(0) * factor)
        rows.append(pooled / (factor * count))
        factors.append(factor * count)
        counts.append(len(inside))
    some = torch.tensor(counts) > 0
    if layer.qk_center and m not in layer.causal and some.any():
        common = sum(t for t, s in zip(rows, some, strict=True) if s) / some.sum()
        rows = [t - common for t in rows]
    for p, factor in enumerate(factors):
        if not layer.qk_norm:
            rows[p] = factor * rows[p]      # by definition the norm stands in place of the factor
    t = norm(heads_of(layer, torch.stack(rows)))
    return (t if layer.rotary is None else layer.rotary(t, m)), some


def slow_tied(layer, m, x, mask, c, c_mask, i):
    """Tied scores of slice i[m] and all slices of the context as the query at i sees them, (heads, n'_m); which slices
    hold any."""
    q, k = queries_and_keys(layer, x, c, layer.to_q, layer.to_k, [m])
    places = [j for j in positions(x.shape[:-1]) if j[m] == i[m]
              and all(j[a] <= i[a] for a in layer.causal if a != m)]
    asked = [j for j in places if mask[j]]
    scores, keep = torch.zeros(layer.heads, c.shape[m], dtype=x.dtype), torch.zeros(c.shape[m], dtype=torch.bool)
    for p in range(c.shape[m]):
        there = {j: j[:m] + (p,) + j[m + 1:] for j in places}
        taken = [j for j in places if c_mask[there[j]]]
        both = [j for j in asked if j in taken]
        for j in both:
            scores[:, p] += (at(q, j) * at(k, there[j])).sum(-1)
        if hasattr(layer.layer, "share") and asked and taken:       # of the covariance: the rest is a score of means
            a, b = sum(at(q, j) for j in asked), sum(at(k, there[j]) for j in taken)
            means = (a * b).sum(-1) / len(asked) / len(taken) * len(both)
            scores[:, p] = torch.lerp(means, scores[:, p], layer.layer.share.sigmoid())
        scores[:, p] /= q.shape[-1] ** 0.5 * max(len(both), 1) ** layer.power
        keep[p] = len(taken) > 0
    return scores, keep


def slow_share(layer, dtype):
    "What a mask takes of each row and spreads evenly; nothing with one mode."
    number = torch.finfo(dtype)
    return 0 if layer.order == 1 else max(number.eps, number.tiny ** (2 / (3 * layer.order)))


def slow_kronecker(layer, x, mask, c=None, c_mask=None, share=None):
    """The joint map of KroneckerAttention: for each query, pool what it may see, weigh the slices, combine.

    Without a mask no share is taken; where all positions take part, and in float64, that makes no difference.
    """
    share = slow_share(layer, x.dtype) if share is None else share
    c, c_mask = (x, mask) if c is None else (c, c_mask)
    where, there, k = positions(x.shape[:-1]), positions(c.shape[:-1]), layer.order
    T = torch.zeros(layer.heads, len(where), len(there), dtype=x.dtype)
    for a, i in enumerate(where):
        if not mask[i] or not any(c_mask[j] and may_see(layer, i, j) for j in there):
            continue
        rows = []
        for m in range(k):
            if layer.power is None:
                q = slow_pooled(layer, layer.to_q, layer.norm_q, m, x, mask, i)[0][:, i[m]]
                q = q * layer.logit_scale[m].exp() if layer.temperature else q
                keys, keep = slow_pooled(layer, layer.to_k, layer.norm_k, m, c, c_mask, i)
            else:
                scores, keep = slow_tied(layer, m, x, mask, c, c_mask, i)
                q, keys = scores.new_ones(layer.heads, 1), scores[..., None]
            if m in layer.causal:
                keep = keep & (torch.arange(len(keep)) <= i[m])
            keep = keep & torch.tensor([in_window(layer, m, i[m], p) for p in range(len(keep))])
            bias = [torch.tensor([slow_bias(layer, m, h, i[m], p) for p in range(len(keep))], dtype=x.dtype)
                    for h in range(layer.heads)]
            rows.append([(1 - share) * slow_row(layer, q[h], keys[h], keep, bias[h]) + share * keep / keep.sum()
                         for h in range(layer.heads)])
        for h, (b, j) in itertools.product(range(layer.heads), enumerate(there)):
            alone = [rows[m][h][j[m]] for m in range(k) if i[:m] + i[m + 1:] == j[:m] + j[m + 1:]]
            weight = prod(rows[m][h][j[m]] for m in range(k)) if layer.combine == "product" else sum(alone) / k
            T[h, a, b] = weight * c_mask[j]
        total = T[:, a].sum(-1, keepdim=True)
        T[:, a] /= torch.where(total > 0, total, 1)
    return T


def slow_full(layer, x, mask, c=None, c_mask=None):
    "The joint map of FullAttention: one group of all modes."
    return slow_groups(layer, x, mask, c, c_mask, [(range(layer.order), layer.to_q, layer.to_k)])


def slow_axial(layer, x, mask, c=None, c_mask=None):
    "The joint map of AxialAttention."
    return slow_groups(layer, x, mask, c, c_mask, zip(layer.groups, layer.to_q, layer.to_k, strict=True))


def slow_groups(layer, x, mask, c, c_mask, groups):
    "The joint map, entry by entry: for each query and group, weigh the keys that agree outside the group."
    c, c_mask = (x, mask) if c is None else (c, c_mask)
    where, there, sizes = positions(x.shape[:-1]), positions(c.shape[:-1]), x.shape[:-1]
    T = torch.zeros(layer.heads, len(where), len(there), dtype=x.dtype)
    for a, (group, to_q, to_k) in enumerate(groups):
        q, k = queries_and_keys(layer, x, c, to_q, to_k, group)
        q, k = q.reshape(layer.heads, len(where), -1), k.reshape(layer.heads, len(there), -1)
        for h, (b, i) in itertools.product(range(layer.heads), enumerate(where)):
            fixed = [m for m in range(len(sizes)) if m not in group]
            near = [len(group) > 1 or in_window(layer, group[0], i[group[0]], j[group[0]]) for j in there]
            keep = torch.tensor([bool(c_mask[j]) and may_see(layer, i, j) and all(i[m] == j[m] for m in fixed)
                                 for j in there]) & torch.tensor(near)
            bias = 0 if len(group) > 1 else torch.tensor(
                [slow_bias(layer, group[0], h, i[group[0]], j[group[0]], a) for j in there], dtype=x.dtype)
            if mask[i] and keep.any():
                T[h, b] += slow_row(layer, q[h, b], k[h], keep, bias)
    return T / T.sum(-1, keepdim=True).clamp(min=1)


def slow_divided(layer, x, mask):
    "The stages in turn: their joint maps multiplied, and what they add."
    path, added = None, 0
    for stage, norm in zip(layer.stages, layer.norms, strict=True):
        stage = type(layer)(stage, layer.settings)
        z = norm(x.masked_fill(~mask[..., None], 0) + added)
        S = slow_axial(stage, z, mask)
        v = heads_of(layer, stage.to_v(z)).flatten(1, -2)
        added = added + stage.to_out((S @ v).transpose(0, 1).reshape(x.shape))
        path = S if path is None else S @ path
    return path, added


def slow_multiscale(layer, x, mask, c=None, c_mask=None):
    "The joint map of MultiscaleAttention: windows by their numbers, means over what takes part."
    c, c_mask = (x, mask) if c is None else (c, c_mask)
    q, k = (t.flatten(1, -2) for t in queries_and_keys(layer, x, c, layer.to_q, layer.to_k, range(layer.order)))

    keys = {}       # for each window that holds anything: its number, and its weights (n',)
    for b, i in enumerate(positions(c_mask.shape)):
        window = tuple(a // s for a, s in zip(i, layer.stride, strict=True))
        keys.setdefault(window, torch.zeros(c_mask.numel(), dtype=x.dtype))[b] = c_mask[i]
    keys = {w: row / row.sum() for w, row in keys.items() if row.any()}
    T = torch.zeros(layer.heads, mask.numel(), c_mask.numel(), dtype=x.dtype)
    for b, i in enumerate(positions(mask.shape)):
        starts = [[a * s for a, s in zip(w, layer.stride, strict=True)] for w in keys]
        keep = torch.tensor([may_see(layer, i, start) for start in starts], dtype=torch.bool)
        if not mask[i] or not keep.any():
            continue
        for h in range(layer.heads):
            row = slow_row(layer, q[h, b], torch.stack([own @ k[h] for own in keys.values()]), keep)
            T[h, b] = sum(r * own for r, own in zip(row, keys.values(), strict=True))
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

"""Parts of networks that several systems share."""
from torch import nn

from hot_nbdev.attention import FullAttention
from hot_nbdev.transformer import Block


def feed_forward(linear, dim, hidden, dropout=0.0):
    "The feed-forward half of a block, with the layer in question in the place of both matrices."
    return nn.Sequential(linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), linear(hidden, dim))


def blocks(linear, dim, hidden, depth, heads=4, causal=(), dropout=0.0):
    return nn.ModuleList(Block(FullAttention(dim, heads, 1, causal=causal), feed_forward(linear, dim, hidden, dropout),
                               dropout) for _ in range(depth))


def masked_mean(x, mask):
    "(B, n, dim) and (B, n) bool or None to (B, dim)."
    if mask is None:
        return x.mean(1)
    w = mask[..., None].to(x.dtype)
    return (x * w).sum(1) / w.sum(1)

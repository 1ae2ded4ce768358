"""Where the time of Kronecker attention goes: its parts, each timed in turns with the floor.

    python bench/parts.py            the six shapes of bench/attention.py; a minute or two
    python bench/parts.py --quick    few rounds

The parts of a forward pass without a gradient: values and results are the two projections of the floor; the maps are
made from pooled queries and keys; one copy brings the heads' values together, each mode is multiplied, and a second
copy puts the heads side by side again. What the whole takes beyond their sum is the time between them. The layer whose
parts these are has no norm on pooled queries and keys, as in bench/attention.py; the whole is timed with it too.
"""
from math import prod

import torch
from attention import HEADS, SHAPES
from timing import decimals, in_turns, options, over, progress, spread, write
from torch import nn

from hot_nbdev.attention import merge, split
from hot_nbdev.kronecker_attention import KroneckerAttention

HEAD = ["batch", "sizes", "dim", "what", "over_floor", "least", "most"]


def copied(v):
    "(B, heads, n1, …, nk, f) as the layer copies it: (B, heads, f, n1, …, nk)."
    return v.movedim(-1, 2).contiguous()


def multiplied(maps, v):
    "The modes of what `copied` gave, the last one first, each put in front."
    shape = v.shape
    for S in reversed(maps):
        n = S.shape[-1]
        v = S @ v.view(*shape[:2], prod(shape[2:]) // n, n).mT
    return v


def parts(layer, x):
    "name -> call, in the order in which the layer does them; and what they give together."
    maps, v = layer.maps(x), split(layer.to_v(x), layer.heads)
    turned = copied(v)
    y = multiplied(maps, turned).view(v.shape)
    flat = merge(y)
    calls = {"maps": lambda: layer.maps(x), "values": lambda: layer.to_v(x),
             "first copy": lambda: copied(v), "mode products": lambda: multiplied(maps, turned),
             "second copy": lambda: merge(y), "results": lambda: layer.to_out(flat)}
    return calls, layer.to_out(flat)


def measure(batch, sizes, dim, args):
    "Rows of one shape."
    x = torch.randn(batch, *sizes, dim, device=args.device)
    layer, normed = (KroneckerAttention(dim, HEADS, len(sizes), norm=norm).to(args.device)
                     for norm in (nn.Identity, nn.LayerNorm))
    floor = nn.Sequential(nn.Linear(dim, dim), nn.Linear(dim, dim)).to(args.device)
    with torch.inference_mode():
        calls, y = parts(layer, x)
        torch.testing.assert_close(y, layer(x))
        wholes = {"floor": lambda: floor(x), "whole": lambda: layer(x), "with norm": lambda: normed(x)}
        times = in_turns({**wholes, **calls}, args)
    for name in ("whole", "with norm", *calls):
        yield [batch, "x".join(map(str, sizes)), dim, name, *decimals(spread(over(times[name], times["floor"])))]


def rows(args):
    for shape in SHAPES:
        progress(f"{shape[0]} x {shape[1]}")
        yield from measure(*shape, args)


if __name__ == "__main__":
    args = options(__doc__, "parts", rounds=50, least=0.01)
    write(args, HEAD, rows(args))

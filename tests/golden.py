"""What the layers answered before the library was rebuilt: settings, weights, inputs and outputs, to be met ever after.

`golden.json` holds the settings, as plain JSON; `golden.safetensors` the weights and inputs (stored in float32, used in
float64) and the outputs (float64). Neither is written again when the library changes. If names or signatures change,
BUILD does, which translates settings into today's library, or `former`, which translates names of weights.

A record has a `name`, a `family` (a key of BUILD), `settings` for its builder, `calls` (keys of CALLS, with outputs
"name/=call"), what calls are `given` besides tensors (cuts and axis of a stream, modes of rotary positions), and names
and shapes of `weights`, which lie one after the other in "name/weights"; its inputs are "name/x", "name/mask" and so
on.
"""
import json
import re
from functools import partial
from math import prod
from pathlib import Path

import torch
from safetensors.torch import load_file

from hot_nbdev.adapters import add_adapters, merge
from hot_nbdev.model_config import ModelConfig
from hot_nbdev.models import make_model
from hot_nbdev.names import make_attention, make_kernel
from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.patches import PatchEmbed
from hot_nbdev.positions import AxialRotary, LearnedPositions, Rotary, SineCosinePositions
from hot_nbdev.replacing import FlatNdLinear
from hot_nbdev.streams import steps
from hot_nbdev.transformer import Block, FeedForward

HERE = Path(__file__).parent
F64 = dict(dtype=torch.float64)


def rotary(head_dim, order, *, axial=False, **more):
    return AxialRotary(head_dim, order, **more) if axial else Rotary(head_dim, **more)


def attention(kind, dim, heads, order, *, kernel=None, turned=None, **options):
    "`kernel`: name, features and seed of a feature function; `turned`: axial, modes and base of rotary positions."
    if kernel is not None:
        options["kernel"] = make_kernel(head_dim=dim // heads, **kernel, **F64)
    if turned is not None:
        options["rotary"] = rotary(dim // heads, order, **turned)
    return make_attention(kind, dim, heads, order, **options, **F64)


def linear(*, init=None, plan=None, **settings):
    "How weights began and in which order factors were applied was once a setting; neither changes what they give."
    return NdLinear(**settings, **F64)


def adapter(widths, kind, **options):
    "Adapters of linear layers, a GELU between them."
    layers = [torch.nn.Linear(n, m, **F64) for n, m in zip(widths, widths[1:], strict=False)]
    parts = [part for layer in layers for part in (layer, torch.nn.GELU())][:-1]
    return add_adapters(torch.nn.Sequential(*parts), "*", kind, **options)


def block(around, ff, context=False):
    "`around`: settings of its attention."
    return Block(attention(**around), FeedForward(around["dim"], **ff, **F64), context=context, **F64)


BUILD = {
    "attention": attention, "linear": linear, "adapter": adapter, "rotary": rotary, "block": block,
    "flat": lambda **settings: FlatNdLinear(linear(**settings)),
    "positions": lambda kind, **settings: dict(learned=LearnedPositions, sincos=SineCosinePositions)[kind](
        **settings, **F64),
    "patches": partial(PatchEmbed, **F64),
    "feed_forward": partial(FeedForward, **F64),
    "model": lambda **settings: make_model(ModelConfig.from_dict(settings), **F64),
}


def stream(layer, i, mask=None):
    "What steps of some lengths along an axis give, put together."
    found, state, cuts, axis = [], None, i["cuts"], i["axis"]
    masks = [None] * len(cuts) if mask is None else mask.split(cuts, axis)
    for part, known in zip(i["x"].split(cuts, axis), masks, strict=True):
        y, state = steps(layer, part, state, known)
        found.append(y)
    return torch.cat(found, axis) if found[0].ndim > 2 else torch.stack(found)      # a classifier has one answer a step


CALLS = {
    "plain": lambda layer, i: layer(i["x"]),
    "masked": lambda layer, i: layer(i["x"], i["mask"]),
    "context": lambda layer, i: layer(i["x"], context=i["context"]),
    "context, masked there": lambda layer, i: layer(i["x"], context=i["context"], context_mask=i["context_mask"]),
    "context, masked": lambda layer, i: layer(i["x"], i["mask"], context=i["context"], context_mask=i["context_mask"]),
    "stream": stream,
    "masked stream": lambda layer, i: stream(layer, i, i["mask"]),
    "merged": lambda layer, i: merge(layer.eval())(i["x"]),
    "modes": lambda layer, i: torch.stack([layer(i["x"], m) for m in i["modes"]]),
    "places": lambda layer, i: torch.stack([layer(i["x"], m, i["places"]) for m in i["modes"]]),
    "horizons": lambda layer, i: torch.cat([*layer(i["x"], horizon="all").values()], 1),
}


FORMER = [(r"weigh\.(\d+)\.(.*\.)?table$", r"mode_scores.\1.table"), (r"weigh\.(.*\.)?omega$", "kernel.omega"),
          (r"(^|\.)weight(\d+)$", r"\1weights.\2"), (r"(^|\.)bias(\d+)$", r"\1biases.\2"),     # NdLinear
          (r"(^|\.)grid$", r"\1tables.0"), (r"(^|\.)table(\d+)$", r"\1tables.\2")]             # learned positions


def former(name: str, there) -> str:
    "What a weight of today is called in the file, which has the names `there`."
    for pattern, before in FORMER:
        name = re.sub(pattern, before, name)
    if name not in there:       # a table was numbered by its place, and a stem of one layer had no list of layers
        name = re.sub(r"tables\.\d+$", "tables.0", name).replace("proj.layers.0.", "proj.conv.")
    return name


def read() -> tuple:
    "Records, and all tensors; floating ones in float64."
    tensors = load_file(HERE / "golden.safetensors")
    return (json.loads((HERE / "golden.json").read_text())["records"],
            {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()})


def part(tensors: dict, start: str) -> dict:
    "Tensors whose names begin so, by the rest of their names."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def rebuilt(record: dict, tensors: dict) -> torch.nn.Module:
    "The layer of a record with its weights."
    layer = BUILD[record["family"]](**record["settings"]).eval()
    names, shapes = record["weights"].keys(), record["weights"].values()
    flat = tensors[f"{record['name']}/weights"].split([prod(s) for s in shapes]) if names else ()
    there = {n: t.view(s) for n, s, t in zip(names, shapes, flat, strict=True)}
    own = layer.state_dict()
    layer.load_state_dict({n: there[former(n, there)].reshape(t.shape) for n, t in own.items()})
    assert {former(n, there) for n in own} == set(there)
    return layer


def answers(record: dict, layer: torch.nn.Module, tensors: dict) -> dict:
    "All outputs of a layer, by their names in the file."
    inputs = part(tensors, f"{record['name']}/") | record["given"]
    with torch.no_grad():
        return {f"{record['name']}/={call}": CALLS[call](layer, inputs) for call in record["calls"]}

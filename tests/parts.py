"""Modules that are no layers, for the contracts of all modules: positions, stems, networks, models, adapters.

A module joins by one line in PARTS: name, constructor of (device, dtype), shape of a sample, axes that its mask has.
"""
from dataclasses import dataclass
from functools import partial

from layers import DIM, F64, HEADS, Case, random_mask, tensor
from torch import nn

from hot_nbdev.adapters import add_adapters, merge
from hot_nbdev.attention import FullAttention
from hot_nbdev.grids import Latents
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.model_config import ClassifierConfig, ForecasterConfig, HOTConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.patches import PatchEmbed
from hot_nbdev.positions import AxialRotary, LearnedPositions, Rotary, SineCosinePositions
from hot_nbdev.replacing import NdFeedForward, replace_linear
from hot_nbdev.transformer import Block, FeedForward
from hot_nbdev.variants import Centred, LateBias, OwnMatrices, Pooled, Tempered, combined

Everything = combined(Tempered, Pooled, Centred, LateBias, OwnMatrices, KroneckerAttention)


@dataclass
class Part(Case):
    "`masked` is how many axes of a sample its mask has; 0: it takes none. The sizes of a sample are always the same."
    sizes: tuple = ()
    masked: int = 0

    def maker(self, dtype=F64, sizes=None):
        return partial(self.make, dtype=dtype)

    def input(self, *batch, sizes=None, **options):
        return tensor(*batch, *self.sizes, **options)

    def arguments(self, x):
        end = x.ndim - len(self.sizes) + self.masked
        return [(x,), (x, random_mask(*x.shape[:end]).to(x.device))] if self.masked else [(x,)]

    def answers(self, layer, x):
        return []


class Turns(nn.Module):
    "Rotary positions, which turn one mode at a time."
    def __init__(self):
        super().__init__()
        self.rotary, self.axial = Rotary(DIM), AxialRotary(DIM, order=2)

    def forward(self, x):
        return self.rotary(x, 1) + self.axial(x.transpose(-3, -2), 0).transpose(-3, -2)


def of_config(config, **settings):
    settings = {**dict(dim=DIM, heads=HEADS, depth=1), **settings}
    return lambda device=None, dtype=None: make_model(config(**settings), device=device, dtype=dtype)


def changed(change):
    "A network of linear layers, changed by what has no device of its own."
    def make(device=None, dtype=None):
        network = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 6)).to(dtype=dtype)
        return change(network).to(device=device)
    return make


def merged(network, kind):
    network = add_adapters(network, kind=kind)
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)
    return merge(network.eval())


def latents(**new):
    return Latents((2, 3), lambda context: Block(
        FullAttention(DIM, HEADS, 2, **new), FeedForward(DIM, **new), context=context, **new), **new)


def stem(*patch, **options):
    return lambda **new: PatchEmbed(2, DIM, patch, **options, **new)


def part(name, make, *shape, masked=0):
    return Part(name, make, len(shape), None, sizes=shape, masked=masked)


PICTURE = dict(patch=(2, 3))
FULL = dict(attention="full")       # traced in less time than the default
POSITIONS = [
    part("positions by mode", lambda **new: LearnedPositions((5, 3), DIM, **new), 7, 4, DIM),
    part("positions of one mode", lambda **new: LearnedPositions((5, 3), DIM, modes=(-1,), **new), 7, 4, DIM),
    part("positions of a grid", lambda **new: LearnedPositions((5, 3), DIM, full=True, **new), 7, 4, DIM),
    part("waves", lambda **new: SineCosinePositions(DIM, order=2, **new), 7, 4, DIM),
    part("turns", lambda **new: Turns(), 7, 4, DIM),
]
STEMS = [
    part("patches", stem(2, 3), 5, 7, 2, masked=2),
    part("convolutions", stem(2, 3, stem="conv", width=5, act="relu", norm=True), 5, 7, 2, masked=2),
    part("local stem", stem(2, 3, stem="local", width=5), 5, 7, 2, masked=2),
]
MODELS = [
    part("encoder", of_config(HOTConfig, **PICTURE, **FULL, positions="learned", sizes=(6, 9), position_modes=None),
         6, 9, 1, masked=2),
    part("classifier", of_config(ClassifierConfig, **PICTURE, classes=5), 6, 9, 1, masked=2),
    part("flattening classifier", of_config(ClassifierConfig, **PICTURE, **FULL, sizes=(6, 9), readout="flatten"),
         6, 9, 1, masked=2),
    part("forecaster", of_config(ForecasterConfig, lookback=12, horizons=(3,)), 12, 5, masked=2),
    part("forecaster, mean", of_config(ForecasterConfig, **FULL, lookback=12, horizons=(3,), readout="mean"),
         12, 5, masked=2),
    part("segmenter", of_config(SegmenterConfig, **PICTURE, **FULL, in_channels=3, classes=4), 5, 7, 3, masked=2),
    part("segmenter, axial-token", of_config(SegmenterConfig, **PICTURE, in_channels=3, attention="axial-token"),
         5, 7, 3, masked=2),
]
ADAPTED = [
    part("replaced", changed(lambda m: replace_linear(m, how="fresh")[0]), 12),
    part("lora", changed(partial(add_adapters, kind="lora")), 12),
    part("ndlora", changed(partial(add_adapters, kind="ndlora")), 12),
]
MERGED = [part(f"{kind}, merged", changed(partial(merged, kind=kind)), 12) for kind in ("lora", "ndlora")]
PARTS = [
    *POSITIONS, *STEMS, *MODELS, *ADAPTED,
    part("everything", lambda **new: Everything(DIM, HEADS, 2, power=0.5, gain=2.0, **new), 3, 4, DIM, masked=2),
    part("network", lambda **new: FeedForward(DIM, kind="swiglu", **new), DIM),
    part("network of NdLinear", lambda **new: NdFeedForward(DIM, **new), DIM),
    part("latents", latents, 4, 3, DIM, masked=2),
]

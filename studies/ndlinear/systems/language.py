"""A language model of characters, and its adapters on another domain."""
import copy
import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hot_nbdev.adapters import add_adapters

from . import sources
from .blocks import blocks
from .layers import RIVALS, dense, models, nd, nearest, size, thin
from .system import System
from .training import Task

DIM, HIDDEN, DEPTH, WINDOW, BATCH, LOOK, STEPS, ADAPT = 64, 256, 2, 64, 32, 256, 3000, 600


class Speaker(nn.Module):
    "A causal Transformer that guesses the next character."
    def __init__(self, linear, hidden, dim=DIM):
        super().__init__()
        self.embed, self.place = nn.Embedding(sources.SYMBOLS, dim), nn.Parameter(0.02 * torch.randn(WINDOW, dim))
        self.blocks, self.norm = blocks(linear, dim, hidden, DEPTH, causal=(0,)), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, sources.SYMBOLS)

    def forward(self, x):
        x = self.embed(x) + self.place[:x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def speaker(linear, width):
    return Speaker(linear, width)


def thinner(dim, hidden):
    return Speaker(dense, hidden, dim)


@cache
def large(target):
    "NdLinear in a wider model, as large as the dense one: what is saved is spent on width."
    return nearest([lambda d=d: Speaker(nd, 4 * d, d) for d in range(DIM, 2 * DIM + 1, 4)], target)


def windows(text, most=None):
    "(n, WINDOW + 1): windows side by side, each with the character that follows it; `most` of them, evenly spaced."
    n = (len(text) - 1) // WINDOW
    at = torch.arange(n) * WINDOW
    if most and n > most:
        at = at[torch.arange(most) * n // most]
    return text[at[:, None] + torch.arange(WINDOW + 1)]


def loss(model, x):
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


@torch.no_grad()
def bits(model, x):
    "Bits per character."
    parts = x.split(256)
    return sum(loss(model, p).item() * len(p) for p in parts) / len(x) / math.log(2)


def random_windows(text, batch):
    def batches(g, steps=50):
        for _ in range(steps):
            at = torch.randint(len(text) - WINDOW, (batch, 1), generator=g)
            yield (text[at + torch.arange(WINDOW + 1)],)
    return batches


def task(data, seed):
    (a, b, c), sha = sources.text(data)
    make = models(speaker, HIDDEN)
    make |= {"dense-thin": thin(thinner, size(make["nd"])), "nd-large": large(size(make["dense"]))}

    def report(model, x):
        found = bits(model, x)
        return found, 2 ** found
    return Task(make, ((a,), (windows(b, LOOK),), (windows(c),)), loss, bits, report, sha, random_windows(a, BATCH))


BASES = {}          # (data, seed) -> dense model of prose; the runner fills it


def _krona(model):
    "One Kronecker product with a first factor of 4 x 4, for all layers of a size at a time."
    sizes = {(m.in_features, m.out_features) for m in model.blocks.modules() if isinstance(m, nn.Linear)}
    for D, H in sorted(sizes):
        def chosen(name, module, D=D, H=H):
            return name.startswith("blocks.") and (module.in_features, module.out_features) == (D, H)
        add_adapters(model, chosen, kind="ndlora", in_features=(4, D // 4), out_features=(4, H // 4))
    return model


def adapted(base, kind):
    "A copy of a model whose layers in blocks are adapted; `full` trains all parameters, `head` the last layer."
    model = copy.deepcopy(base)
    how, _, number = kind.partition("-")
    if how == "lora":
        return add_adapters(model, "blocks.*", kind="lora", rank=int(number))
    if how == "ndlora":
        return add_adapters(model, "blocks.*", kind="ndlora", terms=int(number))
    if how == "krona":
        return _krona(model)
    model.requires_grad_(how == "full")
    if how == "head":
        model.head.requires_grad_(True)
    return model


ADAPTERS = ("ndlora-1", "ndlora-2", "ndlora-4", "lora-1", "lora-2", "lora-4", "krona", "full", "head")


def adapt_task(data, seed):
    "The metric is that of the new domain; beside it stands what is left of the old one."
    (a, b, c), sha = sources.text("code")
    (_, _, old), old_sha = sources.text("prose")
    base = BASES[data, seed]
    make = {kind: (lambda kind=kind: adapted(base, kind)) for kind in (*ADAPTERS, "none")}

    def report(model, x):
        return bits(model, x), bits(model, windows(old))
    return Task(make, ((a,), (windows(b, LOOK),), (windows(c),)), loss, bits, report,
                sources.digest(sha, old_sha), random_windows(a, BATCH))


SYSTEMS = [
    System("language", ("code", "prose"), task, "bits per character", "perplexity", False, steps=STEPS, seconds=100,
           models=(*RIVALS, "dense-thin", "nd-large"), only=(("prose", ("dense", "nd", "dense-thin")),)),
    System("adapters", ("prose to code",), adapt_task, "bits per character of code", "bits per character of prose",
           False, steps=ADAPT, models=(*ADAPTERS, "none"), untrained=("none",),
           needs=("language", "prose", "dense"), store=BASES),
]

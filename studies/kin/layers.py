"""The layers that compete, from 5 x 5 x 200 to 400 numbers, and what each of them takes.

    python -m studies.kin.layers        writes studies/kin/kin_counts.csv: parameters, multiply-adds, bytes in training

The forms are those of nbs/15_kin.ipynb; here their dials are turned to about as many parameters as an NdLinear has.
"""
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hot_nbdev.cost import count
from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.train.results import write_csv

OUT = Path(__file__).resolve().parent / "kin_counts.csv"


class Kin(nn.Module):
    "A form of the chapter as a layer, with a bias."
    def __init__(self, form, inputs, *shapes, outputs=400):
        super().__init__()
        self.form, self.inputs = form, inputs         # sizes in which the form takes x
        self.factors = nn.ParameterList(torch.randn(shape) / fan_in ** 0.5 for shape, fan_in in shapes)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return self.form(x.reshape(len(x), *self.inputs), *self.factors).flatten(1) + self.bias


def on_modes(forms, kind, *dials):
    "A layer that keeps the modes of a 5 x 5 x 200 input: a form, and shape and fan-in of each factor."
    form, shapes = {
        "Kronecker sum": lambda R: (
            forms["kron_terms"], [((R, 4, 5), 5 * R), ((R, 4, 5), 5), ((R, 25, 200), 200)]),
        "tensor train": lambda r: (
            forms["tensor_train"], [((1, 4, 5, r), 5), ((r, 4, 5, r), 5 * r), ((r, 25, 200, 1), 200 * r)]),
        "TRL, CP": lambda R: (
            forms["trl_cp"], [((400, R), R), ((R, 5), 5), ((R, 5), 5), ((R, 200), 200)]),
        "TRL, Tucker": lambda a, b, c, s: (
            forms["trl_tucker"], [((400, s), s), ((s, a, b, c), a * b * c), ((a, 5), 5), ((b, 5), 5), ((c, 200), 200)]),
        "separable conv": lambda size, out, stride: (
            partial(forms["separable_conv"], stride=stride), [((200, 1, size, size), size ** 2), ((out, 200), 200)]),
    }[kind](*dials)
    return partial(Kin, form, (5, 5, 200), *shapes)


def on_vectors(forms, kind, *dials):
    "A layer that reads its 5000 inputs as a vector, or as a table of D1 x D2."
    form, inputs, *shapes = {
        "dense": lambda: (forms["dense"], (5000,), ((400, 5000), 5000)),
        "low rank": lambda r: (forms["low_rank"], (5000,), ((400, r), r), ((r, 5000), 5000)),
        "Monarch": lambda D1, D2, H1, H2: (
            forms["monarch"], (D1, D2), ((D1, H2, D2), D2), ((H2, H1, D1), D1)),
        "LoKr, no W0": lambda: (forms["kron_terms"], (25, 200), ((1, 4, 25), 25), ((1, 100, 200), 200)),
    }[kind](*dials)
    return partial(Kin, form, inputs, *shapes)


def contenders(forms):
    "(name, setting, budget, a function that makes the layer); `forms` are the functions of the chapter by name."
    modes, vectors = partial(on_modes, forms), partial(on_vectors, forms)
    wide = partial(NdLinear, (5, 5, 200), (2, 2, 100))
    large = [("NdLinear", "out 2x2x100", wide),
             ("TCL", "out 2x2x100", partial(wide, bias=False)),
             ("LoKr, no W0", "25x200 to 4x100", vectors("LoKr, no W0")),
             ("Kronecker sum", "4 terms, out 4x4x25", modes("Kronecker sum", 4)),
             ("tensor train", "bond 4, out 4x4x25", modes("tensor train", 4)),
             ("low rank", "rank 4", vectors("low rank", 4)),
             ("Monarch", "25x200 to 200x2", vectors("Monarch", 25, 200, 200, 2)),
             ("TRL, Tucker", "ranks 4, 4, 16; 27", modes("TRL, Tucker", 4, 4, 16, 27)),
             ("TRL, CP", "34 terms", modes("TRL, CP", 34)),
             ("separable conv", "3x3, stride 2, out 2x2x100", modes("separable conv", 3, 100, 2))]
    small = [("NdLinear", "out 4x4x25", partial(NdLinear, (5, 5, 200), (4, 4, 25))),
             ("low rank", "rank 1", vectors("low rank", 1)),
             ("Monarch", "2x2500 to 400x1", vectors("Monarch", 2, 2500, 400, 1)),
             ("TRL, Tucker", "ranks 2, 2, 8; 8", modes("TRL, Tucker", 2, 2, 8, 8)),
             ("TRL, CP", "8 terms", modes("TRL, CP", 8)),
             ("separable conv", "2x2, out 4x4x25", modes("separable conv", 2, 25, 1))]
    return [("dense", "5000 to 400", "dense", vectors("dense")),
            *((name, setting, budget, make) for budget, layers in (("large", large), ("small", small))
              for name, setting, make in layers)]


def counted(forms):
    "A row for each layer: multiply-adds of one sample, and the most bytes alive in a forward and backward pass of 64."
    x = torch.randn(64, 5, 5, 200)
    for name, setting, budget, make in contenders(forms):
        layer = make()
        work = count(layer, x[:1])
        peak = count(lambda x, layer=layer: layer(x).sum().backward(), x).peak
        yield {"layer": name, "setting": setting, "budget": budget, "parameters": str(work.parameters),
               "multiply_adds": str(work.multiply_adds), "bytes_in_training": str(peak)}


if __name__ == "__main__":
    from studies.kin.kin import forms
    rows = list(counted(forms()))
    write_csv(OUT, list(rows[0]), rows)

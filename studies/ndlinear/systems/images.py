"""Images: the last hidden layer of a CNN, a distilled ViT, and the time of a diffusion Transformer."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from . import sources
from .blocks import blocks
from .layers import RIVALS, dense, low_rank, models, nearest, plan, size, thin
from .measures import accuracy, auc, balanced, entropy, entropy_of_all, frechet, in_parts
from .system import System
from .training import Task


class CNN(nn.Module):
    "Two convolutions, a hidden layer over (channel, row, column), and a head."
    def __init__(self, linear, hidden, channels, planes, side, classes):
        super().__init__()
        half, n = -(-channels // 2), -(-side // 4)
        self.body = nn.Sequential(nn.Conv2d(planes, half, 3, 2, 1), nn.GELU(),
                                  nn.Conv2d(half, channels, 3, 2, 1), nn.GELU(), nn.Flatten())
        modes = ((channels, n, n), (16, 4, 4)) if (channels, hidden) == (32, 256) else (None, None)
        self.hidden = linear(channels * n * n, hidden, *modes)
        self.head = nn.Sequential(nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.head(self.hidden(self.body(x)))


_BUILDERS = {}


def cnn_models(*sizes):
    """The models of a CNN.

    Dense layers of the size of NdLinear need a narrower body too: all pairs (channels, hidden units) with
    hidden units between two and four times the channels are candidates. So do layers of low rank, a quarter of
    the hidden units.
    """
    build = _BUILDERS.setdefault(sizes, lambda linear, width: CNN(linear, width, 32, *sizes))
    make = {kind: plan(build, kind, 256) for kind in ("dense", "nd", "tcl", "kron", "tt")}
    if ("narrow", sizes) not in _BUILDERS:
        def narrow(linear):
            rows = [[lambda c=c, w=w: CNN(linear(w), w, c, *sizes) for w in range(2 * c, 4 * c + 1)]
                    for c in range(2, 33)]
            return min((nearest(row, size(make["nd"])) for row in rows), key=lambda f: abs(size(f) - size(make["nd"])))
        _BUILDERS["narrow", sizes] = {"dense-equal": narrow(lambda w: dense),
                                      "low-rank": narrow(lambda w: low_rank(max(1, w // 4)))}
    return make | _BUILDERS["narrow", sizes]


def cnn_task(data, seed):
    if data == "digits":
        x, y, classes, sha = sources.table(data)
        x = x.unflatten(1, (1, 8, 8)) / 16
        parts = tuple((x[p], y[p]) for p in sources.split(y, seed))

        def report(model, x, y):
            return accuracy(model(x), y), balanced(model(x), y)
        return Task(cnn_models(1, 8, classes), parts, entropy, entropy_of_all, report, sha)
    found, sha = sources.slices(data)
    return Task(cnn_models(3, 28, 2), tuple(found.values()), entropy, entropy_of_all, two_classes, sha)


def two_classes(model, x, y):
    scores = in_parts(model, x)
    return auc(scores, y), balanced(scores, y)


def patches(x, n):
    "(B, C, n a, n b) to (B, a b, n n C)."
    return x.unflatten(3, (-1, n)).unflatten(2, (-1, n)).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


class ViT(nn.Module):
    def __init__(self, linear, hidden, dim, depth, patch=7, side=28, planes=3, classes=2):
        super().__init__()
        self.n, self.enter = patch, nn.Linear(patch * patch * planes, dim)
        self.place = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, dim))
        self.blocks, self.norm = blocks(linear, dim, hidden, depth, dropout=0.1), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.enter(patches(x, self.n)) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def teacher():
    return ViT(dense, 256, 64, 3)


def student(linear, width):
    return ViT(linear, width, 32, 2)


def thinner(dim, hidden):
    return ViT(dense, hidden, dim, 2)


TEACHERS = {}       # (data, seed) -> trained teacher; the runner fills it, by a run of the model `teacher`


def distill_task(data, seed):
    "Half the loss is that of the labels, half that of the teacher's softened scores (temperature 2)."
    found, sha = sources.slices(data)

    def wise(x):
        with torch.no_grad():
            return in_parts(TEACHERS[data, seed], x)

    def loss(model, x, y, z):
        s = model(x)
        soft = F.kl_div((s / 2).log_softmax(-1), (z / 2).log_softmax(-1), reduction="batchmean", log_target=True)
        return F.cross_entropy(s, y) / 2 + 2 * soft

    def score(model, x, y, z):
        return entropy_of_all(model, x, y)

    def report(model, x, y, z):
        return two_classes(model, x, y)
    parts = tuple((x, y, wise(x)) for x, y in found.values())
    make = models(student, 128)
    make["dense-thin"] = thin(thinner, size(make["nd"]))
    return Task(make, parts, loss, score, report, sha)


def teacher_task(data, seed):
    found, sha = sources.slices(data)
    return Task({"teacher": teacher, "student alone": lambda: student(dense, 128)}, tuple(found.values()), entropy,
                entropy_of_all, two_classes, sha)


class Denoiser(nn.Module):
    "A Transformer over patches that guesses the noise; the time is added to each token."
    def __init__(self, linear, width, dim=32, depth=2, patch=4, side=28):
        super().__init__()
        self.n, self.enter, self.out = patch, nn.Linear(patch ** 2, dim), nn.Linear(dim, patch ** 2)
        self.place = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, dim))
        self.time = nn.Sequential(linear(64, width), nn.SiLU(), linear(width, dim))
        self.blocks, self.norm = blocks(dense, dim, 64, depth), nn.LayerNorm(dim)

    def forward(self, x, t):            # (B, 28, 28), (B,) in [0, 1]
        angle = t[:, None] * torch.exp(torch.linspace(0, math.log(1000), 32))
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        n, grid = self.n, x.shape[1] // self.n
        x = self.enter(patches(x[:, None], n)) + self.place + time[:, None]
        for block in self.blocks:
            x = block(x)
        x = self.out(self.norm(x)).unflatten(2, (n, n)).unflatten(1, (grid, grid))
        return x.transpose(2, 3).flatten(3).flatten(1, 2)


def denoiser(linear, width):
    return Denoiser(linear, width)


def signal(t):
    return (t * math.pi / 2).cos()


def noisy(x, g):
    t, noise = torch.rand(len(x), generator=g), torch.randn(x.shape, generator=g)
    s = signal(t)[:, None, None]
    return s * x + (1 - s ** 2).sqrt() * noise, t, noise


@torch.no_grad()
def sample(model, n, seed, steps=50):
    "Images from noise, by deterministic steps."
    x = torch.randn(n, 28, 28, generator=torch.Generator().manual_seed(seed))
    times = torch.linspace(0.99, 0.0, steps + 1)
    for t, s in zip(times, times[1:], strict=False):
        noise = model(x, t.expand(n))
        clean = ((x - (1 - signal(t) ** 2).sqrt() * noise) / signal(t)).clip(-1, 1)
        x = signal(s) * clean + (1 - signal(s) ** 2).sqrt() * noise
    return x


DRAWN = 500         # images for the Fréchet distance


def diffusion_task(data, seed):
    "Noise and times of training are those of the seed; those of validation and test are the same for all models."
    found, sha = sources.slices(data)
    parts = tuple((2 * x.flatten(0, 1) - 1,) for x, _ in found.values())
    training = torch.Generator().manual_seed(seed)

    def loss(model, x):
        x, t, noise = noisy(x, training)
        return F.mse_loss(model(x, t), noise)

    def fixed(model, x):
        x, t, noise = noisy(x, torch.Generator().manual_seed(1000 + seed))
        return F.mse_loss(in_parts(model, x, t), noise).item()

    def report(model, x):
        made, real = (F.avg_pool2d(z[:, None], 4).flatten(1) for z in (sample(model, DRAWN, seed), x))
        return fixed(model, x), frechet(made, real)
    return Task(models(denoiser, 256), parts, loss, fixed, report, sha)


SYSTEMS = [
    System("cnn", ("digits",), cnn_task, "accuracy", "balanced accuracy", True, cap=100,
           models=(*RIVALS, "tcl", "tt")),
    System("cnn-slices", ("vessel", "adrenal"), cnn_task, "AUC", "balanced accuracy", True, cap=100,
           models=(*RIVALS, "tcl", "tt")),
    System("teacher", ("vessel",), teacher_task, "AUC", "balanced accuracy", True, cap=100,
           models=("teacher", "student alone"), start=(-8, -7, -6)),
    System("distill", ("vessel",), distill_task, "AUC", "balanced accuracy", True, cap=100,
           models=(*RIVALS, "dense-thin"), needs=("teacher", "vessel", "teacher"), store=TEACHERS),
    System("diffusion", ("vessel",), diffusion_task, "MSE of the noise", "Fréchet distance of 7 x 7 means", False,
           cap=60),
]

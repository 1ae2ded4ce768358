"""Models with dense layers, with NdLinear in their place, and dense again of the same size, side by side.

    python bench/ndlinear_models.py                     all tasks, seeds 0 to 4
    python bench/ndlinear_models.py --tasks rnn cnn     some of them
    python bench/ndlinear_models.py --quick             one seed and few epochs, printed and not written

Data are scikit-learn's digits (1,797 images of 8 x 8), TensorLy's COVID-19 serology (438 people, 6 antigens,
11 receptors, 5 classes) and series that are made here. Each seed has its own split into 60, 20 and 20
percent, the same for all models. Each model is trained with each learning rate of LRS, adapters with those
of ADAPT_LRS; epoch and rate are those with the best validation score, and the test score is read there. Rows
that are in the file already are not run again.

Models of a task: `dense`; `nd`, the same with fresh NdLinear layers; `dense-equal`, dense layers in a
narrower model whose number of parameters is as near to that of `nd` as widths allow. For `adapt-...`: what
is trained of a dense model.
"""
import argparse
import copy
import math
import sys
import time
from bisect import bisect_left
from functools import cache
from pathlib import Path

import sklearn
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from tensorly.datasets import load_covid19_serology
from torch import nn

from hot_nbdev.adapters import add_adapters
from hot_nbdev.attention import FullAttention
from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import HOTClassifier
from hot_nbdev.replacing import replace_linear
from hot_nbdev.results import append_row, read_rows
from hot_nbdev.transformer import Block, FeedForward

LRS = (3e-3, 1e-2, 3e-2)
ADAPT_LRS = (1e-2, 3e-2, 1e-1)
MODELS = ("dense", "nd", "dense-equal")
HEAD = ["task", "data", "model", "seed", "parameters", "metric", "validation", "test", "also", "also_test",
        "lr", "epoch", "epochs", "seconds", "hardware", "torch", "scikit_learn"]


def split(n, seed, groups=None):
    "Indices of training, validation and test: 60, 20 and 20 percent, of each group alike."
    g = torch.Generator().manual_seed(seed)
    groups = torch.zeros(n) if groups is None else groups
    parts = [[], [], []]
    for c in groups.unique():
        where = (groups == c).nonzero().flatten()
        where = where[torch.randperm(len(where), generator=g)]
        a, b = round(0.6 * len(where)), round(0.8 * len(where))
        for part, some in zip(parts, (where[:a], where[a:b], where[b:]), strict=True):
            part.append(some)
    return [torch.cat(part) for part in parts]


@cache
def digits():
    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32)[..., None] / 16, torch.tensor(data.target)


@cache
def serology():
    data = load_covid19_serology()
    names = sorted(set(data.ticks[0]))
    y = torch.tensor([names.index(t) for t in data.ticks[0]])
    return torch.tensor(data.tensor, dtype=torch.float32).flatten(1), y


def series(seed, steps=1600, channels=7):
    "Two periods, mixed differently in each channel, and noise that remembers."
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(steps)[:, None]
    waves = 0
    for period in (24.0, 7.3):
        size, phase = torch.randn(channels, generator=g), torch.rand(channels, generator=g)
        waves = waves + size * (2 * math.pi * (t / period + phase)).sin()
    noise, now = [], torch.zeros(channels)
    mix = 0.8 * torch.linalg.qr(torch.randn(channels, channels, generator=g))[0]
    for _ in range(steps):
        now = mix @ now + 0.3 * torch.randn(channels, generator=g)
        noise.append(now)
    x = waves + torch.stack(noise)
    return (x - x[:960].mean(0)) / x[:960].std(0)


def windows(x, first, last, past=24, ahead=12):
    at = range(first, last - past - ahead + 1)
    return torch.stack([x[i:i + past] for i in at]), torch.stack([x[i + past:i + past + ahead] for i in at])


def count(model):
    return sum(p.numel() for p in model.parameters())


def near(build, target):
    "The model whose width makes its number of parameters nearest to `target`."
    @cache
    def size(width):
        with torch.device("meta"):
            return count(build(width))
    low = bisect_left(range(1, 257), target, key=size)         # the number grows with the width
    return build(min((max(low, 1), low + 1), key=lambda width: abs(size(width) - target)))


def three(kind, build, width, twin=None, **replace):
    "The dense model, the one with NdLinear, or the dense one of its size."
    if kind == "dense":
        return build(width)
    nd, _ = replace_linear(build(width), how="fresh", **replace)
    return nd if kind == "nd" else near(twin or build, count(nd))


def train(model, loss, score, data, lr, epochs, batch=128):
    "Best validation score (larger is better), its epoch, and the parameters there."
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr, weight_decay=0.01)
    steps = epochs * -(-len(data[0]) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * s / steps)))
    best = (-math.inf, 0, None)
    for epoch in range(epochs):
        model.train()
        for at in torch.randperm(len(data[0])).split(batch):
            opt.zero_grad()
            loss(model, *(d[at] for d in data)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            found = score(model)
        if found > best[0]:
            best = (found, epoch + 1, copy.deepcopy(model.state_dict()))
    return best


def search(make, loss, score, data, epochs, batch=128, rates=LRS):
    "Train with each learning rate; the best model by validation, with its score, rate and epoch."
    tried = []
    for lr in rates:
        model = make()
        found, epoch, state = train(model, loss, score, data, lr, epochs, batch)
        tried.append((found, lr, epoch, state))
    found, lr, epoch, state = max(tried, key=lambda t: t[0])
    model.load_state_dict(state)
    return model.eval(), found, lr, epoch


def accuracy(model, x, y):
    return (model(x).argmax(-1) == y).float().mean().item()


def balanced(model, x, y):
    right = (model(x).argmax(-1) == y).float()
    return torch.stack([right[y == c].mean() for c in y.unique()]).mean().item()


def entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def classify(name, make, x, y, parts, epochs, batch=128, rates=LRS):
    a, b, c = parts
    def score(model):
        return accuracy(model, x[b], y[b])
    model, found, lr, epoch = search(make, entropy, score, (x[a], y[a]), epochs, batch, rates)
    with torch.no_grad():
        return dict(data=name, model_=model, metric="accuracy", validation=found,
                    test=accuracy(model, x[c], y[c]), also="balanced accuracy",
                    also_test=balanced(model, x[c], y[c]), lr=lr, epoch=epoch)


def vit(dim, hidden, depth):
    return HOTClassifier(ClassifierConfig(patch=(2, 2), dim=dim, depth=depth, heads=4, attention="full",
                                          positions="learned", sizes=(8, 8), ff_hidden=hidden, classes=10))


def transformer(kind, seed, epochs):
    "Feed-forward networks of a Transformer."
    x, y = digits()
    def make():
        torch.manual_seed(seed)
        return three(kind, lambda w: vit(32, w, 2), 128, select="*.ff.*")
    return classify("digits", make, x, y, split(len(y), seed, y), epochs)


class RNN(nn.Module):
    "A recurrent network, and a linear head on all its states or on the last."
    def __init__(self, width, states=24, channels=7, ahead=12):
        super().__init__()
        self.rnn, self.states, self.out = nn.RNN(channels, width, batch_first=True), states, (ahead, channels)
        self.head = nn.Linear(states * width, ahead * channels)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -self.states:].flatten(1)).unflatten(1, self.out)


def rnn(kind, seed, epochs):
    "The head of a recurrent network for forecasts."
    x = series(seed)
    a, b, c = (windows(x, *ends) for ends in ((0, 960), (960, 1280), (1280, 1600)))
    def make():
        torch.manual_seed(seed)
        return three(kind, RNN, 32, lambda w: RNN(w, states=1), select="head",
                     in_features=(24, 32), out_features=(12, 7))
    def error(model, x, y):
        return F.mse_loss(model(x), y)
    model, found, lr, epoch = search(make, error, lambda m: -error(m, *b).item(), a, epochs)
    with torch.no_grad():
        return dict(data="synthetic series", model_=model, metric="MSE", validation=-found,
                    test=error(model, *c).item(), also="MAE",
                    also_test=F.l1_loss(model(c[0]), c[1]).item(), lr=lr, epoch=epoch)


def tabular(kind, seed, epochs):
    "The two hidden layers of an MLP on a table with two modes."
    x, y = serology()
    parts = split(len(y), seed, y)
    x = (x - x[parts[0]].mean(0)) / x[parts[0]].std(0)
    def build(w):
        return nn.Sequential(nn.Linear(66, w), nn.GELU(), nn.Dropout(0.1),
                             nn.Linear(w, w), nn.GELU(), nn.Dropout(0.1), nn.Linear(w, 5))
    def rows_columns(name, linear):
        return (6, 11) if name == "0" else (8, 8)
    def make():
        torch.manual_seed(seed)
        return three(kind, build, 64, select=["0", "3"], in_features=rows_columns, out_features=(8, 8))
    return classify("serology", make, x, y, parts, epochs, 64)


def cnn(kind, seed, epochs):
    "The last hidden layer of a convolutional network."
    x, y = digits()
    x = x.movedim(-1, 1)
    def build(c, hidden=64):
        return nn.Sequential(nn.Conv2d(1, -(-c // 2), 3, padding=1), nn.GELU(),
                             nn.Conv2d(-(-c // 2), c, 3, 2, padding=1), nn.GELU(), nn.Flatten(),
                             nn.Linear(16 * c, hidden), nn.GELU(), nn.Linear(hidden, 10))
    def make():
        torch.manual_seed(seed)
        return three(kind, build, 32, lambda c: build(c, 32), select="5",
                     in_features=(32, 4, 4), out_features=(16, 2, 2))
    return classify("digits", make, x, y, split(len(y), seed, y), epochs)


@cache
def teacher(seed, epochs):
    x, y = digits()
    def make():
        torch.manual_seed(seed)
        return vit(48, 192, 3)
    return classify("digits", make, x, y, split(len(y), seed, y), epochs, rates=(1e-2,))["model_"]


def distill(kind, seed, epochs):
    "Feed-forward networks of a small Transformer that learns from a larger one."
    x, y = digits()
    parts, wise = split(len(y), seed, y), teacher(seed, epochs)
    with torch.no_grad():
        z = wise(x)
    def make():
        torch.manual_seed(seed + 100)
        return three(kind, lambda w: vit(24, w, 2), 96, select="*.ff.*")
    def loss(model, x, y, z):
        s = model(x)
        soft = F.kl_div(*((t / 2).log_softmax(-1) for t in (s, z)), reduction="batchmean", log_target=True)
        return F.cross_entropy(s, y) / 2 + 2 * soft
    a, b, c = parts
    def score(model):
        return accuracy(model, x[b], y[b])
    model, found, lr, epoch = search(make, loss, score, (x[a], y[a], z[a]), epochs)
    with torch.no_grad():
        return dict(data="digits", model_=model, metric="accuracy", validation=found,
                    test=accuracy(model, x[c], y[c]), also="agreement with the teacher",
                    also_test=accuracy(model, x[c], z[c].argmax(-1)), lr=lr, epoch=epoch)


class Denoiser(nn.Module):
    "A Transformer over patches that guesses the noise; the time is added to each token."
    def __init__(self, width, dim=32, depth=2):
        super().__init__()
        self.patch, self.out = nn.Linear(4, dim), nn.Linear(dim, 4)
        self.place = nn.Parameter(0.02 * torch.randn(4, 4, dim))
        self.time = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, dim))
        self.blocks = nn.ModuleList(Block(FullAttention(dim, 4, 2), FeedForward(dim, 64))
                                    for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, t):            # (B, 8, 8), (B,) in [0, 1]
        x = x.unflatten(2, (4, 2)).unflatten(1, (4, 2)).transpose(2, 3).flatten(3)
        angle = t[:, None] * torch.exp(torch.linspace(0, math.log(1000), 32))
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        x = self.patch(x) + self.place + time[:, None, None]
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x)).unflatten(3, (2, 2)).transpose(2, 3).flatten(3).flatten(1, 2)


def frechet(a, b):
    "Fréchet distance of the normal distributions with the means and covariances of two sets of images."
    a, b = a.flatten(1).double(), b.flatten(1).double()
    ca, cb = a.T.cov(), b.T.cov()
    cross = torch.linalg.eigvals(ca @ cb).real.clip(0).sqrt().sum()
    return ((a.mean(0) - b.mean(0)).square().sum() + ca.trace() + cb.trace() - 2 * cross).item()


def signal(t):
    return (t * math.pi / 2).cos()


def sample(model, n, seed, steps=50):
    "Images from noise, by deterministic steps."
    x = torch.randn(n, 8, 8, generator=torch.Generator().manual_seed(seed))
    times = torch.linspace(0.99, 0.0, steps + 1)
    for t, s in zip(times, times[1:], strict=False):
        noise = model(x, t.expand(n))
        clean = ((x - (1 - signal(t) ** 2).sqrt() * noise) / signal(t)).clip(-1, 1)
        x = signal(s) * clean + (1 - signal(s) ** 2).sqrt() * noise
    return x


def diffusion(kind, seed, epochs):
    "The embedding of time in a small diffusion Transformer."
    x, y = digits()
    x = 2 * x[..., 0] - 1
    a, b, c = split(len(y), seed, y)
    def make():
        torch.manual_seed(seed)
        return three(kind, Denoiser, 256, select="time.*")
    def loss(model, x, g=None):
        t = torch.rand(len(x), generator=g)
        noise, s = torch.randn(x.shape, generator=g), signal(t)[:, None, None]
        return F.mse_loss(model(s * x + (1 - s ** 2).sqrt() * noise, t), noise)
    def fixed(model, x):                # the same times and noises for every model
        return loss(model, x.repeat(4, 1, 1), torch.Generator().manual_seed(seed)).item()
    model, found, lr, epoch = search(make, loss, lambda m: -fixed(m, x[b]), (x[a],), epochs)
    with torch.no_grad():
        return dict(data="digits", model_=model, metric="MSE of the noise", validation=-found,
                    test=fixed(model, x[c]), also="Fréchet distance of pixels",
                    also_test=frechet(sample(model, 500, seed), x[c]), lr=lr, epoch=epoch)


@cache
def upright(seed, epochs):
    x, y = digits()
    def make():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(),
                             nn.Linear(128, 10))
    return classify("digits", make, x, y, split(len(y), seed, y), epochs)["model_"]


def adapt(kind, seed, epochs, data, change):
    "A dense network that knows upright digits learns changed ones."
    x, y = digits()
    base = upright(seed, 30)
    def make():
        torch.manual_seed(seed + 100)
        model = copy.deepcopy(base)
        if kind.startswith("lora"):
            return add_adapters(model, kind="lora", rank=int(kind[5:]))
        return add_adapters(model, kind="ndlora") if kind == "ndlora" else model
    return classify(data, make, change(x), y, split(len(y), seed, y), epochs, rates=ADAPT_LRS)


def turned(kind, seed, epochs):
    return adapt(kind, seed, epochs, "digits lying on their side", lambda x: x.rot90(1, (1, 2)))


def scrambled(kind, seed, epochs):
    order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))
    return adapt(kind, seed, epochs, "digits with scrambled pixels",
                 lambda x: x.flatten(1)[:, order].unflatten(1, (8, 8, 1)))


ADAPT = ("full", "lora-1", "lora-4", "lora-8", "ndlora")


TASKS = {       # function, models, epochs
    "transformer": (transformer, MODELS, 20), "rnn": (rnn, MODELS, 30), "tabular": (tabular, MODELS, 60),
    "cnn": (cnn, MODELS, 30), "distill": (distill, MODELS, 20), "diffusion": (diffusion, MODELS, 20),
    "adapt-turned": (turned, ADAPT, 40), "adapt-scrambled": (scrambled, ADAPT, 40),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--quick", action="store_true", help="seed 0 and few epochs; printed, not written")
    parser.add_argument("--out", type=Path,
                        default=Path(__file__).parents[1] / "results" / "ndlinear_models.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds, rows = ([0], []) if args.quick else (args.seeds, read_rows(args.out))
    done = {(r["task"], r["model"], int(r["seed"])) for r in rows}
    about = [f"CPU {torch.backends.cpu.get_cpu_capability()} 1 thread", torch.__version__.split("+")[0],
             sklearn.__version__]
    for task in args.tasks:
        run, models, epochs = TASKS[task]
        epochs = 3 if args.quick else epochs
        for seed in seeds:
            for kind in models:
                if (task, kind, seed) in done:
                    continue
                print(f"{task} {kind} seed {seed} …", file=sys.stderr, flush=True)
                start = time.perf_counter()
                r = run(kind, seed, epochs)
                model = r.pop("model_")
                size = sum(p.numel() for p in model.parameters() if p.requires_grad)
                row = [task, r["data"], kind, seed, size, r["metric"], f"{r['validation']:.5f}",
                       f"{r['test']:.5f}", r["also"], f"{r['also_test']:.5f}", r["lr"], r["epoch"], epochs,
                       f"{time.perf_counter() - start:.1f}", *about]
                if args.quick:
                    print(*row, sep=",", flush=True)
                else:
                    append_row(args.out, dict(zip(HEAD, row, strict=True)))


if __name__ == "__main__":
    main()

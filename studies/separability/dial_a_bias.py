"""Targets between separable and entangled, learned by NdLinear networks and by dense ones (NdLinear eq. 3).

    python -m studies.separability.dial_a_bias                 all studies; an hour on one core
    python -m studies.separability.dial_a_bias --study dial    one of dial, piece, samples
    python -m studies.separability.dial_a_bias --quick         a look at every kind of run; nothing is written

studies/separability/README.md says what is run and why. X is 32 x 32 with independent uniform entries, and the target
is (1 - alpha) f_sep(X) + alpha f_ent(X). The pieces of which f_sep and f_ent are made are defined here, since the
paper gives none; each has mean 0 and variance 1, by formulas that chapter 14 derives. Networks have two hidden
layers and ReLU, see z = (X - 1/2) sqrt(12), and are trained by Adam with a cosine schedule, all for the same
number of steps. The epoch with the least validation error counts.

dial: alpha from 0 to 1. piece: each piece alone. samples: error against the number of training samples. The
learning rate of each network is searched for each target and number of samples, on a seed that no other run uses
(rows of the study `rate`; the rule is in studies/rates.py). One row is written for each run, and a run that has its
row already is not made again. The dial has five seeds, piece and samples have three.
"""
import argparse
import copy
import sys
import time
from functools import lru_cache
from itertools import product
from math import log, prod
from pathlib import Path

import torch
from torch import nn

from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows
from studies.paired import table
from studies.rates import choose

n, VALID, TEST, BATCH, EPOCHS, STEPS, RATE_SEED = 32, 2000, 4000, 256, 40, 1600, 99
STUDIES = ["dial", "piece", "samples"]
ALPHAS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
i = torch.arange(n)
ramp = (i - (n - 1) / 2) / (n * (n ** 2 - 1) / 12) ** 0.5                # length 1, sum 0
sign = (-1.0) ** i                                                      # + - + - …
half = torch.where(i < n // 2, 1.0, -1.0)
hadamard = torch.tensor([[(-1.0) ** bin(p & q).count("1") for q in range(n)] for p in range(n)])
MODELS = ("nd 16x16", "nd 32x32", "dense 256", "dense 2")
KEY = ["study", "separable", "entangled", "alpha", "model", "samples", "seed", "rate"]
HEAD = [*KEY, "epochs", "best_epoch", "test_mse", "valid_mse", "train_mse", "target_variance", "parameters",
        "cpu_seconds", "batch", "hardware", "torch", "processor", "threads", "commit"]


def row_variance(fourth, n=n):
    "Variance of the (biased) variance of n independent numbers of mean 0, variance 1 and this 4th moment."
    return (n - 1) / n ** 3 * ((n - 1) * fourth - (n - 3))


def means(z):
    "Center of mass of the row means, and of the column means."
    return (z.sum(2) @ ramp + z.sum(1) @ ramp) / (2 * n) ** 0.5


def variances(z):
    "Variance of the row means plus variance of the column means."
    R, C = z.sum(2) / n ** 0.5, z.sum(1) / n ** 0.5
    spread = R.var(1, unbiased=False) + C.var(1, unbiased=False)
    return (spread - 2 * (1 - 1 / n)) / (2 * row_variance(3 - 1.2 / n) - 2.4 * (n - 1) ** 2 / n ** 4) ** 0.5


def within(z):
    "Mean of the variances within the rows."
    return (z.var(2, unbiased=False).mean(1) - (1 - 1 / n)) / (row_variance(9 / 5) / n) ** 0.5


PIECES = {
    "means": means, "variances": variances, "within": within,
    "checkerboard": lambda z: z @ sign @ sign / n,
    "xor": lambda z: (z.sum(2) @ half).sign() * (z.sum(1) @ half).sign(),
    "hadamard": lambda z: (z * hadamard).sum((1, 2)) / n,
}


def part(names, z):
    "A sum of pieces, divided by the root of their number: 'means+variances', say."
    names = names.split("+")
    return sum(PIECES[name](z) for name in names) / len(names) ** 0.5


@lru_cache(2)
def draw(samples, seed):
    "Inputs of mean 0 and variance 1, and the state of the generator after them."
    torch.manual_seed(seed)
    return 12 ** 0.5 * (torch.rand(samples, n, n) - 0.5), torch.get_rng_state()


def target(z, separable, entangled, alpha):
    y = (1 - alpha) * part(separable, z)
    return y + alpha * part(entangled, z) if alpha else y


def network(name):
    "Two hidden layers: 'dense 256' has 256 units in each, and so has 'nd 16x16'."
    kind, width = name.split()
    if kind == "dense":
        w = int(width)
        return nn.Sequential(nn.Flatten(), nn.Linear(n * n, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(),
                             nn.Linear(w, 1))
    h = tuple(map(int, width.split("x")))
    return nn.Sequential(NdLinear((n, n), h), nn.ReLU(), NdLinear(h, h), nn.ReLU(), nn.Flatten(),
                         nn.Linear(prod(h), 1))


@torch.no_grad()
def error(net, z, y):
    "Mean squared error."
    return (torch.cat([net(part) for part in z.split(1000)]).squeeze(1) - y).square().mean().item()


def trained(net, train, valid, rate, epochs, batch):
    "(least validation error, its epoch): Adam with a cosine to zero; the weights of that epoch stay in the network."
    steps, (x, y) = -(-len(train[0]) // batch), train
    opt = torch.optim.Adam(net.parameters(), rate)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * steps)
    best, at, state = float("inf"), 0, copy.deepcopy(net.state_dict())     # stays if the loss is never finite
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(x)).split(batch):
            loss = (net(x[rows]).squeeze(1) - y[rows]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            plan.step()
        if (now := error(net, *valid)) < best:
            best, at, state = now, epoch, copy.deepcopy(net.state_dict())
    net.load_state_dict(state)
    return best, at


def place():
    "Columns that say where a run was made, and at which commit."
    threads = torch.get_num_threads()
    return [f"CPU {torch.backends.cpu.get_cpu_capability()} {threads} threads", torch.__version__.split("+")[0],
            processor(), threads, library_commit()]


def run(study, separable, entangled, alpha, model, samples, seed, rate, quick=False):
    "Train once and return the row."
    z, state = draw(VALID + TEST + samples, seed)
    torch.set_rng_state(state)
    y = target(z, separable, entangled, alpha)
    valid, test, train = ((a, b) for a, b in zip(z.split([VALID, TEST, samples]),
                                                 y.split([VALID, TEST, samples]), strict=True))
    net, steps = network(model), -(-samples // BATCH)
    epochs = 1 if quick else max(EPOCHS, STEPS // steps)            # few samples: more epochs, as many steps
    start = time.process_time()
    least, at = trained(net, train, valid, rate, epochs, BATCH)
    return [study, separable, entangled, alpha, model, samples, seed, rate, epochs, at,
            f"{error(net, *test):.4g}", f"{least:.4g}", f"{error(net, *train):.4g}",
            f"{test[1].var().item():.4f}", sum(p.numel() for p in net.parameters()),
            f"{time.process_time() - start:.1f}", BATCH, *place()]


def plans(study):
    "The runs of a study, as values of KEY without the rate."
    template, named = ("means", "hadamard"), ("means+variances", "checkerboard+xor")
    nets, more = ["nd 16x16", "dense 256"], ["nd 32x32", "dense 2"]
    for seed in range(5):                                               # a seed is complete before the next
        tasks = []
        if study == "dial":
            tasks += product([template], ALPHAS, nets, [10_000])
            tasks += product([template], (0.0, 1.0), more, [10_000])
        if study == "dial" and seed < 3:
            tasks += product([named], (0.0, 0.5, 1.0), nets, [10_000])
        if study == "piece" and seed < 3:
            tasks += product([("variances", ""), ("within", "")], [0.0], [*nets, "nd 32x32"], [10_000])
            tasks += product([("checkerboard", ""), ("xor", "")], [0.0], nets, [10_000])
        if study == "samples" and seed < 3:
            tasks += product([template], (0.1, 0.9), nets, (1000, 4000, 16_000))
        for pair, alpha, model, samples in tasks:
            yield study, *pair, alpha, model, samples, seed


def todo(studies=STUDIES):
    return [plan for study in studies for plan in plans(study)]


def following(plan, rows):
    "The runs that a plan still needs and that are known already: those of its search, or itself, or none."
    searched = ("rate", *plan[1:-1], RATE_SEED)
    keys = {tuple(r[k] for k in KEY): r for r in rows}
    there = {key: r for key, r in keys.items() if key[:-1] == tuple(map(str, searched))}
    what, *answer = choose({float(r["rate"]): [float(r["valid_mse"])] for r in there.values()})
    if what == "try":
        return [(*searched, rate) for rate in answer[0]]
    run = (*plan, answer[0])
    return [] if tuple(map(str, run)) in keys else [run]


def summary(rows):
    "Lines of text: differences of the logarithm of the test error, paired by seed."
    scores = {}
    for r in rows:
        if r["study"] != "rate":
            place = tuple(r[k] for k in ("study", "separable", "entangled", "alpha", "samples"))
            scores.setdefault(place, {}).setdefault(r["model"], {})[int(r["seed"])] = log(float(r["test_mse"]))
    return table(scores, [("nd 16x16", "dense 256"), ("nd 16x16", "dense 2")])


def make(left, following, run, head, out):
    "All runs of these plans that have no row; `following` gives those that a plan still needs."
    rows = read_rows(out)
    for at, plan in enumerate(left, 1):
        while runs := following(plan, rows):
            for key in runs:
                print(f"\r{at} of {len(left)}: {' '.join(map(str, key))}      ", end="", file=sys.stderr, flush=True)
                append_row(out, dict(zip(head, run(*key), strict=True)))
            rows = read_rows(out)
    print(file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--study", nargs="*", default=STUDIES, choices=STUDIES)
    parser.add_argument("--quick", action="store_true", help="one epoch, few runs, nothing written")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("dial_a_bias.csv"))
    parser.add_argument("--summary", action="store_true", help="print comparisons from the rows; nothing is run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.summary:
        print("\n".join(summary(read_rows(args.out))))
        return
    if args.quick:
        print(",".join(HEAD))
        for plan in todo(args.study)[::29]:
            print(*run(*plan, 3e-3, quick=True), sep=",")
        return
    make(todo(args.study), following, run, HEAD, args.out)


if __name__ == "__main__":
    main()

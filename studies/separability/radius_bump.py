"""A bump over the radius of a 4 x 4 matrix: biases, and the entropy of representations.

    python -m studies.separability.radius_bump            an hour on one core
    python -m studies.separability.radius_bump --quick    a look at every kind of run; nothing is written

studies/separability/README.md says what is run and why. The NdLinear paper names a task "Radius Bump" and defines it in
an appendix that is not published. This one is ours: x = r u with u uniform on the unit sphere of 4 x 4 matrices
and r uniform on [0, 2], and the target is exp(-(r - 1)^2 / (2 s^2)). Networks have two hidden layers and ReLU;
'nd 32 mode' has hidden tensors 4 x 32 and a bias for each mode, 'full' one bias tensor for each layer, 'none' no
bias but the last, 'dense 29' two hidden layers of 29 units. Dense widths are those with nearest to as many
parameters as 'mode'.

The learning rate of each network is searched for each width and s, by the median validation error of three seeds
that no other run uses (the rule is in studies/rates.py). The entropy is that of the density matrix
Z^T Z / tr(Z^T Z), where the rows of Z are what the last hidden layer makes of the test samples. One row for each
run; a run that has its row already is not made again.
"""
import argparse
import math
import time
from itertools import product
from pathlib import Path

import torch
from torch import nn

from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.train.results import read_rows
from studies.paired import table
from studies.rates import choose
from studies.separability.dial_a_bias import error, make, place, trained

TRAIN, VALID, TEST, BATCH, EPOCHS = 4000, 1000, 4000, 100, 120
RATE_SEEDS = (97, 98, 99)
KEY = ["model", "width", "s", "seed", "rate"]
HEAD = [*KEY, "best_epoch", "test_mse", "valid_mse", "target_variance", "entropy", "units", "parameters",
        "cpu_seconds", "epochs", "samples", "hardware", "torch", "processor", "threads", "commit"]


def bump(samples, s):
    "Samples x, (samples, 4, 4), and their targets."
    u, r = torch.randn(samples, 4, 4), 2 * torch.rand(samples)
    x = u * (r / u.flatten(1).norm(dim=1))[:, None, None]
    return x, torch.exp(-(r - 1) ** 2 / (2 * s ** 2))


def network(model, width):
    "Body, which gives the representation, and head."
    if model == "dense":
        w = round((-19 + math.sqrt(361 + 4 * (parameters(network("mode", width)) - 1))) / 2)
        body, units = [nn.Flatten(), nn.Linear(16, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU()], w
    else:
        bias, h = False if model == "none" else model, (4, width)
        body = [NdLinear((4, 4), h, bias), nn.ReLU(), NdLinear(h, h, bias), nn.ReLU(), nn.Flatten()]
        units = 4 * width
    return nn.Sequential(nn.Sequential(*body), nn.Linear(units, 1))


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def entropy(Z):
    "Von Neumann entropy of Z^T Z / tr(Z^T Z), in nats."
    p = torch.linalg.svdvals(Z.double()).square()
    return torch.special.entr(p / p.sum()).sum().item()


def run(model, width, s, seed, rate, epochs=EPOCHS):
    "Train once and return the row."
    torch.manual_seed(seed)
    x, y = bump(TRAIN + VALID + TEST, s)
    (xa, xb, xc), (ya, yb, yc) = (t.split([TRAIN, VALID, TEST]) for t in (x, y))
    net, start = network(model, width), time.process_time()
    least, at = trained(net, (xa, ya), (xb, yb), rate, epochs, BATCH)
    with torch.no_grad():
        Z = net[0](xc)
    return [model, width, s, seed, rate, at, f"{error(net, xc, yc):.4g}", f"{least:.4g}", f"{yc.var().item():.4g}",
            f"{entropy(Z):.4f}", Z.shape[1], parameters(net), f"{time.process_time() - start:.1f}", epochs, TRAIN,
            *place()]


def todo():
    "All runs but those of the searches, as values of KEY without the rate."
    return [*product(["mode", "dense", "full", "none"], (32, 128), (0.2,), range(10)),
            *product(["mode", "dense"], (32, 128), (0.4, 0.1), range(5))]


def following(plan, rows):
    "The runs that a plan still needs and that are known already: those of its search, or itself, or none."
    keys, tried = {tuple(r[k] for k in KEY): r for r in rows}, {}
    for (*where, seed, rate), r in keys.items():
        if where == list(map(str, plan[:3])) and seed in map(str, RATE_SEEDS):
            tried.setdefault(float(rate), {})[int(seed)] = float(r["valid_mse"])
    half = [(*plan[:3], seed, rate) for rate, found in tried.items() for seed in RATE_SEEDS if seed not in found]
    if half:
        return half
    what, *answer = choose({rate: list(found.values()) for rate, found in tried.items()})
    if what == "try":
        return list(product(*([v] for v in plan[:3]), RATE_SEEDS, answer[0]))
    run = (*plan, answer[0])
    return [] if tuple(map(str, run)) in keys else [run]


def summary(rows):
    "Lines of text: differences of the logarithm of the test error, then of the entropy, paired by seed."
    for what, value in (("test_mse", math.log), ("entropy", float)):
        scores = {}
        for r in rows:
            if int(r["seed"]) not in RATE_SEEDS:
                place = scores.setdefault((what, "width", r["width"], "s", r["s"]), {})
                place.setdefault(r["model"], {})[int(r["seed"])] = value(float(r[what]))
        yield from table(scores, [("mode", "dense"), ("mode", "full"), ("mode", "none")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two epochs, one seed, nothing written")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("radius_bump.csv"))
    parser.add_argument("--summary", action="store_true", help="print comparisons from the rows; nothing is run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.summary:
        print("\n".join(summary(read_rows(args.out))))
        return
    if args.quick:
        print(",".join(HEAD))
        for plan in (plan for plan in todo() if plan[3] == 0):
            print(*run(*plan, 1e-2, epochs=2), sep=",")
        return
    make(todo(), following, run, HEAD, args.out)


if __name__ == "__main__":
    main()

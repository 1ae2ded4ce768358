"""The rivals that the motion study lacked: a correlation layer, soft assignment, and a rate that does not fall.

    python -m studies.motion.motion_rivals            what is not in the rows yet, on one thread; some 20 minutes
    python -m studies.motion.motion_rivals --only shifts orders learning noisy

The plan stands in studies/motion/README.md, 27 November 2026. A run adds its rows when it is finished, so the script
goes on where it was stopped.
"""
import argparse
import itertools
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from hot_nbdev.cli.fields import MotionJob
from hot_nbdev.cli.jobs import build
from hot_nbdev.cli.tables import planned, read_tables
from hot_nbdev.data.moved import motion_data
from hot_nbdev.train.loop import schedule
from hot_nbdev.train.results import processor, read_rows
from hot_nbdev.train.tasks import Fields
from studies.motion.motion_simple import matched
from studies.rows import put

CONDITIONS = {"clean": (0.0, 0.0), "noise 0.3": (0.3, 0.0), "noise 0.6": (0.6, 0.0), "a fifth missing": (0.0, 0.2)}


def features(u, width=16):
    "(B, n1, n2) -> (B, width, n1, n2): untrained features of a 5 x 5 neighborhood on the torus, less their mean."
    mix = torch.randn(width, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    x = F.conv2d(F.pad(u[:, None], (2, 2, 2, 2), mode="circular"), mix).tanh()
    return x - x.mean((-2, -1), keepdim=True)


def correlation_layer(u0, u1, tau=50.0):
    "Frame 2 of fields (B, n1, n2) that move as a whole, by a softmax over all shifts; nothing is trained."
    f0, f1 = features(u0), features(u1)
    a, b = torch.fft.rfft2(f0), torch.fft.rfft2(f1)
    scores = torch.fft.irfft2((b * a.conj()).sum(1), s=u0.shape[1:])           # (B, n1, n2): one for each shift
    lengths = f0.flatten(1).norm(dim=1) * f1.flatten(1).norm(dim=1)
    weights = (tau * scores / lengths[:, None, None]).flatten(1).softmax(1).view_as(scores)
    return torch.fft.irfft2(torch.fft.rfft2(weights) * torch.fft.rfft2(u1), s=u0.shape[1:])


def spoiled(table, noise, missing, generator=None):
    "The table with noise, and 0 where an entry is missing."
    table = table + noise * torch.randn(table.shape, generator=generator)
    return table * (torch.rand(table.shape, generator=generator) >= missing)


def sinkhorn(scores, rounds=20):
    "A doubly stochastic matrix for each matrix of scores (…, n, n)."
    for _ in range(rounds):
        scores = scores.log_softmax(-1).log_softmax(-2)
    return scores.log_softmax(-1).exp()


def unit_rows(x):
    x = x - x.mean(-1, keepdim=True)
    return F.normalize(x, dim=-1)


def soft_assignment(a, b, rounds=30, tau=(2.0, 40.0)):
    "Soft orders (B, n1, n1) and (B, n2, n2) that bring tables a (B, n1, n2) into the order of b: modes in turn."
    p, q = (sinkhorn(-4 * torch.cdist(*(t.sort(-1).values for t in (y, x)))) for x, y in ((a, b), (a.mT, b.mT)))
    for step in range(rounds):
        sharp = tau[0] * (tau[1] / tau[0]) ** (step / (rounds - 1))
        p = sinkhorn(sharp * unit_rows(b) @ unit_rows(a @ q.mT).mT)
        q = sinkhorn(sharp * unit_rows(b.mT) @ unit_rows((p @ a).mT).mT)
    return p, q


def hungarian(a, b, sheet):
    "The sheets in the order of b, by rows and columns that are matched by their sorted entries."
    orders = [torch.meshgrid(*matched(x, y), indexing="ij") for x, y in zip(a, b, strict=True)]
    return torch.stack([s[order] for s, order in zip(sheet, orders, strict=True)])


def nmse(guess, y):
    task = Fields()
    return task.metrics([task.collect(guess.reshape(y.shape), y)])["nmse"]


def shifts(seed):
    for n in (16, 32, 64):
        x, y = (part := motion_data("white", (n, n), seed=seed).test)[torch.arange(len(part))]
        yield {"size": n, "condition": "clean", "method": "correlation layer",
               "test_nmse": nmse(correlation_layer(*x.unbind(-1)), y)}


def spoiled_tests(seed, condition):
    "Tables, spoiled copies, sheets and targets of the test part."
    part = motion_data("white", (16, 16), seed=seed, move="align").test
    x, y = part[torch.arange(len(part))]
    a, b, sheet = x.unbind(-1)
    return a, spoiled(b, *CONDITIONS[condition], torch.Generator().manual_seed(seed)), sheet, y


def orders(seed):
    for condition in CONDITIONS:
        a, b, sheet, y = spoiled_tests(seed, condition)
        p, q = soft_assignment(a, b)
        for method, guess in {"Hungarian": hungarian(a, b, sheet), "soft assignment": p @ sheet @ q.mT}.items():
            yield {"size": "16 x 16 in another order", "condition": condition, "method": method,
                   "test_nmse": nmse(guess, y)}


def job_of(table, row, seed):
    "The run of a table of hot_reproduce."
    (plan,) = planned(table, read_tables()[table], [row], seeds=[seed])
    return MotionJob.from_dict(plan.settings)


def updates(job, rate, spoil=lambda x: x):
    "The model after each update, and the processor seconds so far; rate: the learning rate of an update."
    torch.manual_seed(job.seed)
    parts, task = job.parts(), Fields()
    model, _ = build(job, parts)
    optimizer, spent, step = torch.optim.AdamW(model.parameters(), 1e-3), 0.0, 0
    while True:
        start = time.process_time()
        optimizer.param_groups[0]["lr"] = rate(step)
        x, y = parts.train.fresh(*parts.train[torch.arange(32)])
        (task.loss(model(spoil(x)), y) / task.weight(y)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spent, step = spent + time.process_time() - start, step + 1
        yield model, spent


@torch.no_grad()
def tested(model, x, y):
    model.eval()
    guess = torch.cat([model(part) for part in x.split(64)])
    model.train()
    return nmse(guess, y)


def noisy(seed):
    "Product attention that is trained and tested on spoiled tables."
    job = job_of("motion-align", "product", seed)
    for condition, how in list(CONDITIONS.items())[1:]:        # clean: the rows of motion-align
        def spoil(x, how=how):
            a, b, sheet = x.unbind(-1)
            return torch.stack([a, spoiled(b, *how), sheet], -1)
        last = 50 * job.epochs
        rate = [job.rate * schedule(s, last, last // 20) for s in range(last)]
        *_, (model, _) = itertools.islice(updates(job, rate.__getitem__, spoil), last)
        a, b, sheet, y = spoiled_tests(seed, condition)
        yield {"size": "16 x 16 in another order", "condition": condition, "method": "product, trained",
               "test_nmse": tested(model, torch.stack([a, b, sheet], -1), y)}


def learning(seed):
    "Error against updates and seconds at a constant rate of 0.01."
    x, y = (part := motion_data("white", (16, 16), seed=seed).test)[torch.arange(len(part))]
    for name in ("product", "full"):
        for step, (model, spent) in enumerate(updates(job_of("motion-16", name, seed), lambda s: 0.01), 1):
            if step % 25 == 0:
                yield {"model": name, "rate": 0.01, "updates": step, "seconds": f"{spent:.2f}",
                       "test_nmse": tested(model, x, y)}
            if step == 600:
                break


RUNS = {"shifts": (shifts, 5, "motion_rivals"), "orders": (orders, 5, "motion_rivals"),
        "learning": (learning, 3, "motion_learning"), "noisy": (noisy, 3, "motion_rivals")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the rows")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.only:
        run, seeds, table = RUNS[name]
        path = args.out / f"{table}.csv"
        done = {(r["run"], r["seed"]) for r in read_rows(path)}
        for seed in (s for s in range(seeds) if (name, str(s)) not in done):
            about = {"processor": processor(), "torch": torch.__version__.split("+")[0]}
            put(path, [{"run": name, "seed": seed, **row, "test_nmse": f"{row['test_nmse']:.4g}", **about}
                       for row in run(seed)], "run", "seed")
            print(name, seed, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""How many updates of each model of the motion study fit into a budget of processor time.

    python -m studies.motion.motion_pace              every size and model; ten minutes on one core
    python -m studies.motion.motion_pace --size 16    one size; the rows of others stay
    python -m studies.motion.motion_pace --growth     the models that are compared on white fields of four sizes, into
                                                      studies/motion/motion_growth_pace.csv; ten minutes
    python -m studies.motion.motion_pace --cases      the tables of real tensors as they are run, with their own frames,
                                                      and zeros beyond their ends, into
                                                      studies/motion/motion_pace_cases.csv; minutes

Each model is timed on one thread, in turns with the others, and its fastest round counts. Processor seconds of
the process are taken, so that what else runs on the machine counts as little as possible. The tables motion-…
of the library hold the numbers of epochs that follow: budget / (seconds per update) / (updates per epoch).

Tensors of 128 x 128 have 64 MB, which glibc takes from the system and gives back at each operation. For --growth, and
for the runs that follow from it, it was told to keep them:

    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592
"""
import argparse
import sys
import time
from math import prod
from pathlib import Path

import torch

from hot_nbdev.cli.fields import MotionJob
from hot_nbdev.cli.jobs import build
from hot_nbdev.train.parts import Sampled
from hot_nbdev.train.results import processor
from studies.rows import put

NORM = {"attention_options": {"qk_norm": True}}
DRAWN = {"attention_options": {"qk_norm": True, "qk_gain": 1.0}}     # as the study was written, whatever the default is
MODELS = {
    "product": DRAWN,
    "product, no norm": {"attention_options": {"qk_norm": False}},
    "sum": {"attention": "sum", **DRAWN},
    "full": {"attention": "full", **NORM},
    "axial": {"attention": "axial", **NORM},
    "axial + token": {"attention": "axial-token", **NORM},
    "divided": {"attention": "divided", **NORM},
    "none": {"attention": "none"},
    "dilated": {"model": "dilated", "model_option": {"width": 32, "dilations": [1, 2, 4, 8, 16]}},
    "fourier": {"model": "fourier", "model_option": {"width": 16, "frequencies": 17}},
    "unet": {"model": "unet", "model_option": {"width": 16}},
}
BUDGETS = {(16, "align"): 40, (16, "shift"): 20, (32, "shift"): 60, (64, "shift"): 240, (128, "shift"): 960,
           (10, "shift"): 60}
MODES = {10: 3}                          # of a frame, where they are not two
GROWTH = {16: ("product", "full", "axial + token", "dilated", "fourier"),
          **dict.fromkeys((32, 64), ("product", "full", "axial + token", "dilated", "fourier", "unet")),
          128: ("product", "axial + token", "dilated", "unet")}
ROUNDS, UPDATES, EVERY = 3, 6, 50        # updates of a round, updates of an epoch


def frame(size):
    "Sizes of a frame."
    return [size] * MODES.get(size, 2)


def settings(name, sizes, move):
    "Of one model at one size: no convolution reads tables, and each reach fits its torus."
    own = {"data": "white", "size": list(sizes), "move": move, **MODELS[name]}
    if name == "dilated":
        reach = [d for d in (1, 2, 4, 8, 16, 32, 64) if d <= max(sizes) // 2]
        own["model_option"] = {**own["model_option"], "dilations": reach}
    elif name == "fourier":
        own["model_option"] = {**own["model_option"], "frequencies": max(sizes) // 2 + 1}
    if move == "align" and "model" not in own:
        own["stem"] = "linear"
    return own


def fits(name, size, move):
    "Is this model run there?"
    if move == "align":
        return name not in ("fourier", "unet")
    if name == "unet":
        return size >= 32                   # it halves four times; two modes
    return size <= 64 or name not in ("full", "fourier")    # a few updates would take all of the time


def updater(job, called=lambda model: model):
    "A function that makes one update of a run, the number of weights, and of updates in an epoch."
    parts = job.parts()
    train = Sampled(parts.train, job.draws) if job.draws else parts.train
    model, _ = build(job, parts)
    task, opt, change = job.task(parts), torch.optim.AdamW(model.parameters(), 1e-3), job.augmentation(parts)
    f = called(model)

    def update():
        drawn = train[torch.arange(job.batch_size)]
        *inputs, y = change(*drawn) if change else drawn
        (task.loss(task.train_output(f, inputs), y) / task.weight(y)).backward()
        opt.step()
        opt.zero_grad()
    return update, sum(p.numel() for p in model.parameters()), -(-len(train) // job.batch_size)


def timed(update, updates):
    "Processor seconds of one update."
    start = time.process_time()
    for _ in range(updates):
        update()
    return (time.process_time() - start) / updates


def best_of(jobs, positions, rounds, updates):
    "name -> (seconds of an update, weights), in turns."
    found = {name: updater(job) for name, job in jobs.items()}
    updates = max(1, updates * 1024 // max(1024, positions))
    for update, *_ in found.values():
        update()
    best = dict.fromkeys(found, float("inf"))
    for _ in range(rounds):
        for name, (update, *_) in found.items():
            best[name] = min(best[name], timed(update, updates))
    return {name: (seconds, found[name][1]) for name, seconds in best.items()}


def place():
    return {"hardware": processor(), "threads": 1, "torch": torch.__version__.split("+")[0]}


def pace(size, move, rounds=ROUNDS, updates=UPDATES, models=tuple(MODELS)):
    "A row for each model."
    jobs = {name: MotionJob.from_dict({**settings(name, frame(size), move), "samples": 64})
            for name in models if fits(name, size, move)}
    budget = BUDGETS[size, move]
    return [{"size": size, "move": move, "model": name, "parameters": weights,
             "seconds_per_update": f"{seconds:.5f}", "budget": budget,
             "epochs": max(1, round(budget / seconds / EVERY)), **place()}
            for name, (seconds, weights) in best_of(jobs, prod(frame(size)), rounds, updates).items()]


def pace_of_cases(rounds=ROUNDS, updates=UPDATES):
    "A row for each model of each table of real tensors."
    from studies.motion.motion_tables import CASES, common

    for case in CASES:
        data = next(iter(case.data.values()))
        if data == "white":
            continue
        jobs = {name: MotionJob.from_dict({**settings(name, case.size, case.move), **common(case), "data": data})
                for name in case.models}
        for name, (seconds, weights) in best_of(jobs, prod(case.size), rounds, updates).items():
            yield {"case": case.name, "model": name, "parameters": weights, "padding": jobs[name].padding(),
                   "seconds_per_update": f"{seconds:.5f}", **place()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sizes = sorted({size for size, _ in BUDGETS})
    parser.add_argument("--size", type=int, nargs="+", choices=sizes, default=sizes, help="default: all")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("motion_pace.csv"))
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--growth", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.cases:
        return put(args.out.with_name("motion_pace_cases.csv"), list(pace_of_cases()), "case")
    if args.growth:
        rows = [row for size, models in GROWTH.items() for row in pace(size, "shift", models=models)]
        return put(args.out.with_name("motion_growth_pace.csv"), rows, "size")
    for size, move in (case for case in BUDGETS if case[0] in args.size):
        print(f"{size} {move}", file=sys.stderr, flush=True)
        put(args.out, rows := pace(size, move), "size", "move")
        for row in rows:
            print(*(row[k] for k in ("model", "parameters", "seconds_per_update", "epochs")), sep="\t")


if __name__ == "__main__":
    main()

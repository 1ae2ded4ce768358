"""One loop for all systems: train until validation turns, or for a number of steps that is given."""
import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

CLIP, DECAY, WARM, PATIENCE, DROPS, FACTOR, LEAST = 1.0, 0.01, 20, 5, 2, 0.2, 1e-4


@dataclass
class Task:
    "Data of one seed, and what is done with them; each number of `score` and `report` is an error or a named metric."
    make: dict                  # kind -> function that makes the model
    parts: tuple                # training, validation, test: tuples of tensors with equal first sizes
    loss: Callable              # loss(model, *batch): what is minimized
    score: Callable             # score(model, *validation): error by which rate and epoch are chosen
    report: Callable            # report(model, *test): the metric of the system, and another one
    data_sha: str               # of the data as read
    batches: Callable | None = None     # batches(generator): one epoch; default: all samples in random order


@dataclass
class Run:
    "What training found."
    best: float
    best_epoch: int
    epochs: int
    steps: int
    stopped: str                # 'turned', 'cap', 'budget' or 'diverged'
    cpu_seconds: float
    model: nn.Module


def shuffled(task, batch, g):
    "One epoch: all samples in random order; of few samples, as often as makes at least WARM steps."
    n = len(task.parts[0][0])
    for _ in range(math.ceil(WARM / math.ceil(n / batch))):
        for rows in torch.randperm(n, generator=g).split(batch):
            yield [t[rows] for t in task.parts[0]]


@torch.no_grad()
def validate(task, model):
    model.eval()
    found = float(task.score(model, *task.parts[1]))
    model.train()
    return found if math.isfinite(found) else math.inf


def _optimizer(model, rate):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate, weight_decay=DECAY)


def _step(task, model, optimizer, batch):
    optimizer.zero_grad()
    loss = task.loss(model, *batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    return math.isfinite(loss.item())


def until_it_turns(task, model, rate, seed, cap, batch):
    """Train until validation turns for good.

    The rate rises over WARM steps and stays. When validation has not improved for PATIENCE epochs, by more than a
    thousandth of itself and LEAST (else an error that falls towards zero would keep it going), training goes back
    to the best weights and on with FACTOR times the rate; after DROPS such drops it ends. `cap` bounds the epochs,
    and a run that ends there says so.
    """
    g, optimizer, start = torch.Generator().manual_seed(seed), _optimizer(model, rate), time.process_time()
    best, mark, best_epoch, state = math.inf, math.inf, 0, copy.deepcopy(model.state_dict())
    steps = since = drops = 0
    stopped, level = "cap", rate
    for epoch in range(1, cap + 1):
        for part in task.batches(g) if task.batches else shuffled(task, batch, g):
            steps += 1
            for group in optimizer.param_groups:
                group["lr"] = level * min(1, steps / WARM)
            if not _step(task, model, optimizer, part):
                return Run(math.inf, epoch, epoch, steps, "diverged", time.process_time() - start, model)
        now = validate(task, model)
        since = 0 if now < mark else since + 1
        mark = min(mark, now - 1e-3 * abs(now) - LEAST) if since == 0 else mark
        if now < best:
            best, best_epoch, state = now, epoch, copy.deepcopy(model.state_dict())
        if since == PATIENCE:
            if drops == DROPS:
                stopped = "turned"
                break
            drops, since, level = drops + 1, 0, level * FACTOR
            model.load_state_dict(state)
    model.load_state_dict(state)
    return Run(best, best_epoch, epoch, steps, stopped, time.process_time() - start, model.eval())


def for_steps(task, model, rate, seed, steps, checks=10):
    "Train for a number of steps with a cosine to zero; validation is looked at `checks` times, and the best one kept."
    g, optimizer, start = torch.Generator().manual_seed(seed), _optimizer(model, rate), time.process_time()
    best, best_epoch, state, done, epoch = math.inf, 0, copy.deepcopy(model.state_dict()), 0, 0
    marks = {round(steps * k / checks): k for k in range(1, checks + 1)}
    while done < steps:
        for part in task.batches(g):
            done += 1
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1, done / WARM) * (0.5 + 0.5 * math.cos(math.pi * (done - 1) / steps))
            if not _step(task, model, optimizer, part):
                return Run(math.inf, epoch, epoch, done, "diverged", time.process_time() - start, model)
            if done in marks:
                epoch, now = marks[done], validate(task, model)
                if now < best:
                    best, best_epoch, state = now, epoch, copy.deepcopy(model.state_dict())
            if done == steps:
                break
    model.load_state_dict(state)
    return Run(best, best_epoch, epoch, done, "budget", time.process_time() - start, model.eval())


def steps_for(task, make, seconds, seed=0, tries=20):
    "How many steps fit into processor seconds: the median time of `tries` steps after three that warm up."
    torch.manual_seed(seed)
    model, g, times = make(), torch.Generator().manual_seed(seed), []
    optimizer = _optimizer(model, 1e-4)
    while len(times) < tries + 3:
        for part in task.batches(g):
            start = time.process_time()
            _step(task, model, optimizer, part)
            times.append(time.process_time() - start)
            if len(times) == tries + 3:
                break
    return max(10, round(seconds / sorted(times[3:])[tries // 2]))

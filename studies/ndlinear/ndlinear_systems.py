"""The systems of the NdLinear paper on real data, with rivals of equal size, budget and care.

    python -m studies.ndlinear.ndlinear_systems                        all systems, seeds 0 to 4
    python -m studies.ndlinear.ndlinear_systems --systems rnn waves    some of them
    python -m studies.ndlinear.ndlinear_systems --quick                a look at every kind of run; nothing is written
    python -m studies.ndlinear.ndlinear_systems --summary              differences from the rows, and what is missing

studies/ndlinear/README.md says what is run and why. For each system, data and model the learning rate is searched on
seed 99 (study `rate`, studies/rates.py), then seeds 0 to 4 are trained with it (study `main`); the language model
is also trained for equal processor time (study `time`). One row is written for each run, and a run that has its
row is not made again. Data that are not on this machine are named and left out. Teachers and models that are
adapted are trained as their own rows say, and kept in the folder --keep.
"""
import argparse
import platform
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from hot_nbdev.storage import atomic_write
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows
from studies.ndlinear.systems import SYSTEMS
from studies.ndlinear.systems.layers import count
from studies.ndlinear.systems.sources import Absent
from studies.ndlinear.systems.training import Run, for_steps, steps_for, until_it_turns, validate
from studies.ndlinear.systems.verdicts import summary
from studies.rates import choose

HERE = Path(__file__).resolve().parent
SEEDS, RATE_SEED = range(5), 99
KEY = ["study", "system", "data", "data_sha", "model", "seed", "rate"]
HEAD = [*KEY, "parameters", "metric", "validation", "test", "also", "also_test", "epochs", "best_epoch", "cap", "steps",
        "stopped", "cpu_seconds", "processor", "threads", "python", "torch", "scikit_learn", "commit"]


def about():
    "Columns that say where a run was made."
    import sklearn
    return {"processor": processor(), "threads": torch.get_num_threads(), "python": platform.python_version(),
            "torch": torch.__version__.split("+")[0], "scikit_learn": sklearn.__version__,
            "commit": library_commit()}


class Bench:
    "Runs with their rows."
    def __init__(self, out, keep, quick=False):
        self.out, self.keep, self.quick = out, keep, quick
        self.rows = [] if quick else read_rows(out)
        self.about = about()

    def train(self, system, task, model, seed, rate, study):
        "Train as the study says."
        torch.manual_seed(seed)
        net = task.make[model]()
        if model in system.untrained:
            return Run(validate(task, net), 0, 0, 0, "untrained", 0.0, net.eval())
        if system.steps:
            steps = steps_for(task, task.make[model], system.seconds) if study == "time" else system.steps
            return for_steps(task, net, rate, seed, 20 if self.quick else steps)
        return until_it_turns(task, net, rate, seed, 1 if self.quick else system.cap, system.batch)

    def run(self, study, system, data, model, seed, rate):
        "Make one run and its row."
        self.prepare(system, data, seed)
        print(f"{study} {system.name} {data} {model} seed {seed} rate {rate} …", file=sys.stderr, flush=True)
        task = system.task(data, seed)
        found = self.train(system, task, model, seed, rate, study)
        with torch.no_grad():
            test, also = system_report(task, found)
        cap = 0 if study == "time" else system.steps or system.cap
        row = dict(zip(HEAD, [study, system.name, data, task.data_sha, model, seed, rate, count(found.model),
                              system.metric, f"{found.best:.6g}", test, system.also, also, found.epochs,
                              found.best_epoch, cap, found.steps, found.stopped, f"{found.cpu_seconds:.1f}"],
                       strict=False)) | self.about
        row = {k: str(v) for k, v in row.items()}
        self.rows.append(row)
        if self.quick:
            print(",".join(row.values()), flush=True)
        else:
            append_row(self.out, row)
        return row, found.model

    def find(self, **where):
        return [r for r in self.rows if all(r[k] == str(v) for k, v in where.items())]

    def rate(self, system, data, model, sha):
        "The learning rate that the search ends with; it makes the runs that are missing."
        if model in system.untrained:
            return 0.0
        where = dict(study="rate", system=system.name, data=data, data_sha=sha, model=model, seed=RATE_SEED)
        while True:
            tried = {float(r["rate"]): [float(r["validation"])] for r in self.find(**where)}
            what, *answer = choose(tried, system.start)
            if what == "use" or self.quick and tried:
                return answer[0] if what == "use" else next(iter(tried))
            for rate in answer[0]:
                self.run("rate", system, data, model, RATE_SEED, rate)
                if self.quick:
                    break

    def prepare(self, system, data, seed):
        "Train, or read, the model that a system begins with."
        if not system.needs or (data, seed) in system.store:
            return
        first, its_data, model = system.needs
        first = SYSTEMS[first]
        task = first.task(its_data, seed)
        rate = self.rate(first, its_data, model, task.data_sha)
        name = "-".join(map(str, [first.name, its_data, model, seed, rate, task.data_sha, self.about["commit"]]))
        path = self.keep / f"{name}.safetensors"
        torch.manual_seed(seed)
        net = task.make[model]()
        if path.exists() and not self.quick:
            net.load_state_dict(load_file(path))
        else:
            net = self.train(first, task, model, seed, rate, "main").model
            if not self.quick:
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, partial(save_file, net.state_dict()))
        system.store[data, seed] = net.eval()

    def all(self, system, seeds):
        "All runs of a system."
        for data in system.data:
            try:
                self.prepare(system, data, RATE_SEED)
                sha = system.task(data, RATE_SEED).data_sha
            except Absent as e:
                print(f"{system.name} {data} is left out: {e}", file=sys.stderr)
                continue
            rates = {model: self.rate(system, data, model, sha) for model in system.kinds(data)}
            timed = ["time"] if system.seconds and data == system.data[0] else []
            for study in ["main", *timed]:
                for seed in seeds:                                  # a seed is complete before the next
                    for model, rate in rates.items():
                        key = dict(zip(KEY, [study, system.name, data, sha, model, seed, rate], strict=True))
                        if not self.find(**key):
                            self.run(study, system, data, model, seed, rate)


def system_report(task, found):
    "The two metrics on the test part, as text; empty for a run that diverged."
    if found.stopped == "diverged":
        return "", ""
    return [f"{value:.6g}" for value in task.report(found.model, *task.parts[2])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--data", nargs="+", help="these data in place of a system's own, such as ETTm1, with --out")
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--quick", action="store_true", help="one epoch or 20 steps and one rate; nothing is written")
    parser.add_argument("--summary", action="store_true", help="print differences from the rows; nothing is run")
    parser.add_argument("--out", type=Path, default=HERE / "ndlinear_systems.csv")
    parser.add_argument("--keep", type=Path, default=HERE.parents[1] / "runs" / "ndlinear_systems",
                        help="folder of models that others begin with")
    args = parser.parse_args()
    if args.data and args.out == HERE / "ndlinear_systems.csv" and not (args.quick or args.summary):
        parser.error("--data needs a file of its own: give it by --out")
    torch.set_num_threads(1)
    changed = {"data": tuple(args.data)} if args.data else {}
    systems = {name: replace(SYSTEMS[name], **changed) for name in args.systems}
    if args.summary:
        print("\n".join(summary(read_rows(args.out), systems)))
        return
    bench = Bench(args.out, args.keep, args.quick)
    for system in systems.values():
        bench.all(system, [0] if args.quick else args.seeds)


if __name__ == "__main__":
    main()

"""Kronecker adapters beside LoRA and LoKr, through PEFT, on digits that are turned.

    nice -n 10 python -m studies.peft.peft_task    the searches of rates, then seeds 0 to 4
    python -m studies.peft.peft_task --quick       20 steps of each model, printed; nothing is written
    python -m studies.peft.peft_task --summary     differences from the rows

studies/peft/README.md says what is run and why. For each task and model the learning rate is searched on seed 99 (study
`rate`, studies/rates.py), then seeds 0 to 4 are run with it (study `main`). One row is written for each run, and a
run that has its row is not made again. Every adapter is saved and loaded by PEFT, and merged, before its row is
written.
"""
import argparse
import copy
import hashlib
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import make_model
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows
from studies.ndlinear.systems.training import Task, for_steps
from studies.paired import table
from studies.rates import choose

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples"))       # the method; it hides a torchvision PEFT cannot use
import peft_method  # noqa: E402

SEEDS, RATE_SEED, STEPS, BASE_STEPS, BASE_RATE, BATCH = range(5), 99, 200, 600, 3e-3, 64
SHIFTS = {"turned": lambda x: x.rot90(1, (1, 2))}
LOKR = {1: dict(r=4), 2: dict(r=4, decompose_factor=2), 4: dict(r=8, decompose_factor=2)}
MODELS = [f"{kind}-{n}" for n in LOKR for kind in ("lora", "ndlora", "lokr")] + ["head", "full", "none"]
PAIRS = [(f"ndlora-{n}", f"{kind}-{n}") for n in LOKR for kind in ("lora", "lokr")]
WHERE = r".*blocks\..*\.(to_q|to_k|to_v|to_out|up|down)"
KEY = ["study", "task", "data_sha", "model", "seed", "rate"]
ABOUT = ["processor", "threads", "python", "torch", "peft", "scikit_learn", "commit"]
HEAD = [*KEY, "parameters", "base", "metric", "validation", "test", "also", "also_test", "reload_gap", "merge_gap",
        "file_bytes", "best_check", "steps", "stopped", "cpu_seconds", *ABOUT]


def about():
    "Columns that say where a run was made."
    import peft
    import sklearn
    versions = [platform.python_version(), torch.__version__.split("+")[0], peft.__version__, sklearn.__version__]
    return dict(zip(ABOUT, [processor(), torch.get_num_threads(), *versions, library_commit()], strict=True))


@cache
def digits():
    "Images with entries from 0 to 1, their labels, and 12 digits of their sha256."
    data = load_digits()
    sha = hashlib.sha256(data.images.tobytes() + data.target.tobytes()).hexdigest()[:12]
    return torch.tensor(data.images, dtype=torch.float32)[..., None] / 16, torch.tensor(data.target), sha


def split(y, seed):
    "Rows for the base, for adapting, for validation and for the test: 40, 20, 20, 20 %, of each class alike."
    g, parts = torch.Generator().manual_seed(seed), [[], [], [], []]
    for c in y.unique():
        rows = (y == c).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=g)]
        ends = [round(share * len(rows)) for share in (0.4, 0.6, 0.8)]
        for part, some in zip(parts, rows.tensor_split(ends), strict=True):
            part.append(some)
    return [torch.cat(part) for part in parts]


def new_base():
    return make_model(ClassifierConfig(patch=(2, 2), dim=32, depth=1, heads=4, attention="full", positions="learned",
                                       sizes=(8, 8), classes=10))


def entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def report(model, x, y):
    scores = model(x)
    return (scores.argmax(-1) == y).float().mean().item(), F.cross_entropy(scores, y).item()


def task(parts):
    "Training, validation and test as the loop takes them; epochs are in random order."
    x, y = parts[0]

    def batches(g):
        for rows in torch.randperm(len(x), generator=g).split(BATCH):
            yield x[rows], y[rows]
    return Task({}, tuple(parts), entropy, entropy, report, digits()[2], batches)


@cache
def base(seed, steps):
    "A model that knows upright digits, and its accuracy on upright test images."
    x, y, _ = digits()
    rows = split(y, seed)
    torch.manual_seed(seed)
    found = for_steps(task([(x[r], y[r]) for r in (rows[0], rows[2])]), new_base(), BASE_RATE, seed, steps)
    with torch.no_grad():
        return found.model, report(found.model, x[rows[3]], y[rows[3]])[0]


def settings(name):
    "What PEFT is given for a model; None where it has no part."
    from peft import LoKrConfig, LoraConfig
    kind, _, n = name.partition("-")
    if not n:
        return None
    n, more = int(n), dict(target_modules=WHERE)
    if kind == "lora":
        return LoraConfig(r=n, lora_alpha=n, **more)
    if kind == "lokr":
        return LoKrConfig(**LOKR[n], alpha=LOKR[n]["r"], **more)
    return peft_method.NdLoraConfig(terms=n, alpha=n, **more)


def adapted(name, start):
    "A copy of the base in which only what the model's name says is trained."
    from peft import get_peft_model
    model, config = copy.deepcopy(start), settings(name)
    if config is not None:
        return get_peft_model(model, config)
    for parameter, p in model.named_parameters():
        p.requires_grad_(name == "full" or name == "head" and parameter.startswith("head."))
    return model


@torch.no_grad()
def saved_and_merged(model, start, x):
    "Largest differences of the scores after PEFT has saved and loaded, and merged; bytes of the file of weights."
    from peft import PeftModel
    want = model(x)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        size = sum(f.stat().st_size for f in Path(folder).glob("*.safetensors"))
        again = PeftModel.from_pretrained(copy.deepcopy(start), folder, is_trainable=True).eval()     # as it was saved
    reload_gap = (again(x) - want).abs().max().item()
    merge_gap = ((again.merge_and_unload()(x) - want).abs().max() / want.abs().max()).item()
    if reload_gap != 0 or not merge_gap < 1e-3:
        raise RuntimeError(f"after loading scores differ by {reload_gap}, after merging by {merge_gap} of the largest")
    return f"{reload_gap:g}", f"{merge_gap:.1e}", size


def measure(shift, name, seed, rate, quick=False):
    "The columns of one run from `parameters` to `cpu_seconds`."
    x, y, _ = digits()
    parts = [(SHIFTS[shift](x[r]), y[r]) for r in split(y, seed)[1:]]
    start, upright = base(seed, 20 if quick else BASE_STEPS)
    torch.manual_seed(seed)
    model = adapted(name, start)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if name == "none":
        best, check, steps, stopped, seconds = entropy(start, *parts[1]).item(), 0, 0, "untrained", 0.0
    else:
        run = for_steps(task(parts), model, rate, seed, 20 if quick else STEPS)
        model, best, check, steps, stopped, seconds = (run.model, run.best, run.best_epoch, run.steps, run.stopped,
                                                       run.cpu_seconds)
    fine, peft_has_it = stopped != "diverged", settings(name) is not None
    with torch.no_grad():
        test = [f"{v:.6g}" for v in report(model.eval(), *parts[2])] if fine else ["", ""]
    gaps = saved_and_merged(model, start, parts[2][0]) if fine and peft_has_it else ("", "", "")
    return [trained, f"{upright:.6g}", "accuracy", f"{best:.6g}", test[0], "cross-entropy", test[1], *gaps, check,
            steps, stopped, f"{seconds:.2f}"]


class Bench:
    "Runs with their rows."
    def __init__(self, out, quick=False):
        self.out, self.quick, self.about = out, quick, about()
        self.rows = [] if quick else read_rows(out)

    def run(self, study, shift, name, seed, rate):
        "One run, unless its row is there."
        row = dict(zip(KEY, map(str, [study, shift, digits()[2], name, seed, rate]), strict=True))
        if any(all(r[k] == row[k] for k in KEY) for r in self.rows):
            return
        found = measure(shift, name, seed, rate, self.quick)
        row = {k: str(v) for k, v in {**dict(zip(HEAD, [*row.values(), *found], strict=False)), **self.about}.items()}
        self.rows.append(row)
        print(",".join(row.values())) if self.quick else append_row(self.out, row)

    def rate(self, shift, name):
        "The rate that the search ends with; it makes the runs that are missing."
        if name == "none":
            return 0.0
        while True:
            tried = searched(self.rows).get((shift, name), {})
            what, *answer = choose({r: [v] for r, v in tried.items()})
            if what == "use" or self.quick and tried:
                return answer[0] if what == "use" else next(iter(tried))
            for rate in answer[0][:1 if self.quick else None]:
                self.run("rate", shift, name, RATE_SEED, rate)

    def all(self, shifts, models, seeds):
        for shift in shifts:
            rates = {name: self.rate(shift, name) for name in models}
            for seed in seeds:                                      # a seed is complete before the next
                for name, rate in rates.items():
                    self.run("main", shift, name, seed, rate)


def searched(rows):
    "(task, model) -> rate -> validation of the searches."
    found = {}
    for r in rows:
        if r["study"] == "rate":
            found.setdefault((r["task"], r["model"]), {})[float(r["rate"])] = float(r["validation"])
    return found


def summary(rows):
    "Lines of text: means, each comparison, and what would weaken it."
    scores = {}
    for r in rows:
        if r["study"] == "main" and r["test"]:
            scores.setdefault((r["task"],), {}).setdefault(r["model"], {})[r["seed"]] = float(r["test"])
    for place, models in scores.items():
        for name, each in models.items():
            yield f"{place[0]} {name}: {sum(each.values()) / len(each):.4f} over {len(each)} seeds"
    yield from table(scores, PAIRS)
    for key, tried in searched(rows).items():
        if min(tried, key=lambda r: (tried[r], r)) in (min(tried), max(tried)):
            yield "best rate at an edge: " + " ".join(key)
    yield f"runs that diverged: {sum(r['stopped'] == 'diverged' for r in rows)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=SHIFTS, default=list(SHIFTS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--quick", action="store_true", help="20 steps, one rate and one seed; nothing is written")
    parser.add_argument("--summary", action="store_true", help="print differences from the rows; nothing is run")
    parser.add_argument("--out", type=Path, default=HERE / "peft.csv")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.summary:
        return print("\n".join(summary(read_rows(args.out))))
    Bench(args.out, args.quick).all(args.tasks, args.models, [0] if args.quick else args.seeds)


if __name__ == "__main__":
    main()

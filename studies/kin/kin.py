"""One small network on Indian Pines whose large layer is replaced by each of its kin.

    python -m studies.kin.kin              the search of rates and ten deals; half an hour on one core
    python -m studies.kin.kin --quick      a look at every network; nothing is written
    python -m studies.kin.kin --summary    comparisons from the rows, and what would weaken them

studies/kin/README.md says what is run and why. The forms are read from nbs/15_kin.ipynb, the parts of the scene and
the patches from nbs/kin_rows.ipynb, so what runs here is what the text shows; studies/kin/layers.py turns their dials.
The rate of each layer and size is searched on deals that no other run uses (study `rate`, whose rows have no test
score; studies/rates.py), then ten deals are run with it (study `main`). A seed sets the deal, the weights and the order
of the samples. One row is written for each run, and a run that has its row is not made again. Simple methods without
training stand beside them.
"""
import argparse
import ast
import hashlib
import json
import platform
import sys
import time
from functools import lru_cache
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid
from torch import nn

from hot_nbdev.cost import count
from hot_nbdev.train.results import append_row, library_commit, processor, read_rows
from studies.kin.layers import contenders
from studies.ndlinear.systems import training
from studies.paired import table
from studies.rates import choose, finite

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
SEEDS, RATE_SEEDS, BATCH, CAP = range(10), (97, 98, 99), 64, 200
NAMES = {"dense", "low_rank", "kron_terms", "tensor_train", "monarch", "separable_conv", "trl_tucker",
         "trl_cp", "lokr", "parts", "samples"}
KEY = ["study", "layer", "setting", "budget", "seed", "rate"]
HEAD = [*KEY, "parameters", "network", "multiply_adds", "val", "train", "test", "test_classes", "epochs", "best_epoch",
        "steps", "stopped", "cpu_seconds", "samples", "settings", "data_sha", "processor", "threads", "python", "torch",
        "commit"]
SETTINGS = (f"batch={BATCH} cap={CAP} decay={training.DECAY} clip={training.CLIP} warm={training.WARM} "
            f"patience={training.PATIENCE} drops={training.DROPS} factor={training.FACTOR}")
LARGER = [("Kronecker sum", "large"), ("tensor train", "large"), ("dense", "dense")]     # they contain NdLinear (small)


def definitions(pages=("15_kin", "kin_rows")):
    "Source code of the chapter, and of the page of its results, that is used here."
    cells = [c for page in pages for c in json.loads((ROOT / "nbs" / f"{page}.ipynb").read_text())["cells"]]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    return "\n".join(ast.get_source_segment(source, n) for source in code for n in ast.parse(source).body
                     if isinstance(n, (ast.Import, ast.ImportFrom)) or getattr(n, "name", None) in NAMES)


def forms():
    "These definitions, by name."
    space = {}
    exec(compile(definitions(), "15_kin.ipynb", "exec"), space)
    return {name: space[name] for name in NAMES}


def about():
    "Columns that say where a run was made, and at which commit."
    return {"settings": SETTINGS, "processor": processor(), "threads": torch.get_num_threads(),
            "python": platform.python_version(), "torch": torch.__version__.split("+")[0], "commit": library_commit()}


class Middle(nn.Module):
    "The spectrum of the pixel in the middle of a patch."
    def forward(self, x):
        return x[:, x.shape[1] // 2, x.shape[2] // 2]


def networks(forms, classes):
    "(layer, setting, budget, a function that makes the network); the layer is its first child."
    def network(make):
        return nn.Sequential(make(), nn.Flatten(), nn.ReLU(), nn.Linear(400, classes))
    for name, setting, budget, make in contenders(forms):
        yield name, setting, budget, lambda make=make: network(make)
    yield "logistic", "all pixels", "none", lambda: nn.Sequential(nn.Flatten(), nn.Linear(5000, classes))
    yield "logistic", "middle pixel", "none", lambda: nn.Sequential(Middle(), nn.Linear(200, classes))


def simple():
    "(name, what it sees, a method of scikit-learn, features of patches): nothing is trained or chosen."
    yield "nearest class mean", "all pixels", NearestCentroid(), lambda x: x.flatten(1)
    yield "discriminant", "middle pixel", LinearDiscriminantAnalysis(), Middle()
    yield "discriminant", "mean of pixels", LinearDiscriminantAnalysis(), lambda x: x.mean((1, 2))


@lru_cache(1)
def scene_of():
    "The scene, its labels and 12 digits of their sha256."
    from tensorly.datasets import load_indian_pines
    pines = load_indian_pines()
    scene, labels = torch.from_numpy(pines.tensor), torch.from_numpy(pines.ticks[0]).long()
    both = scene.numpy().tobytes() + labels.numpy().tobytes()
    return scene, labels, hashlib.sha256(both).hexdigest()[:12]


@lru_cache(4)
def deal(seed):
    "The three parts, the number of classes, and the columns of the rows that say so."
    scene, labels, sha = scene_of()
    data, classes = forms()["samples"](scene, labels, seed)
    return data, classes, {"samples": "/".join(str(len(x)) for x, _ in data), "data_sha": sha}


def scores(guess, data):
    "Shares of right answers of the training and test part, and those of each class of the test part."
    (train, test) = ((guess(x) == y).float() for x, y in (data[0], data[2]))
    by_class = [test[data[2][1] == c].mean().item() for c in data[2][1].unique()]
    return {"train": f"{train.mean():.4f}", "test": f"{test.mean():.4f}",
            "test_classes": ";".join(f"{v:.3f}" for v in by_class)}


def wrong(net, x, y):
    return (net(x).argmax(1) != y).float().mean()


def run(key, make, cap=CAP):
    "Train once and return the columns of the row that the run itself gives; test scores in the study `main` only."
    study, name, _, _, seed, rate = key
    data, _, told = deal(seed)
    torch.manual_seed(seed)
    net = make()
    layer = net if name == "logistic" else net[0]
    sizes = [sum(p.numel() for p in m.parameters()) for m in (layer, net)]
    task = training.Task({}, data, lambda m, x, y: F.cross_entropy(m(x), y), wrong, None, "")
    found = training.until_it_turns(task, net, rate, seed, cap, BATCH)
    with torch.no_grad():
        more = scores(lambda x: net(x).argmax(1), data) if study == "main" else {}
        work = count(layer, data[0][0][:1]).multiply_adds
    return {"parameters": sizes[0], "network": sizes[1], "multiply_adds": work, "val": f"{1 - found.best:.4f}", **more,
            "epochs": found.epochs, "best_epoch": found.best_epoch, "steps": found.steps, "stopped": found.stopped,
            "cpu_seconds": f"{found.cpu_seconds:.2f}", **told}


def fitted(seed, method, features):
    "The columns of a simple method."
    data, _, told = deal(seed)
    start = time.process_time()
    method.fit(features(data[0][0]).numpy(), data[0][1].numpy())

    def guess(x):
        return torch.from_numpy(method.predict(features(x).numpy()))
    val = (guess(data[1][0]) == data[1][1]).float().mean()
    return {"val": f"{val:.4f}", **scores(guess, data), "cpu_seconds": f"{time.process_time() - start:.2f}", **told}


def following(layer, rows):
    "Keys of the runs that a layer (name, setting, budget) still needs and that are known already, or none."
    there = {tuple(r[k] for k in KEY): r for r in rows}
    errors = {}
    for (study, *found, _, rate), r in there.items():
        if study == "rate" and tuple(found) == layer:
            errors.setdefault(float(rate), []).append(finite(1 - float(r["val"])))
    missing = [("rate", *layer, seed, rate) for rate, e in errors.items() if len(e) < len(RATE_SEEDS)
               for seed in RATE_SEEDS]
    if not missing:
        what, *answer = choose({rate: [mean(e)] for rate, e in errors.items()})
        missing = ([("rate", *layer, seed, rate) for rate in answer[0] for seed in RATE_SEEDS] if what == "try" else
                   [("main", *layer, seed, answer[0]) for seed in SEEDS])
    return [key for key in missing if tuple(map(str, key)) not in there]


def families(rows, column="test"):
    "The three families of the study: name -> (layer of NdLinear, the others, layer -> seed -> points)."
    points = {}
    for r in rows:
        if r["study"] == "main":
            points.setdefault((r["layer"], r["setting"], r["budget"]), {})[int(r["seed"])] = 100 * float(r[column])
    of = {budget: [layer for layer in points if layer[2] == budget] for budget in ("large", "small", "dense", "none")}
    own = {budget: next(layer for layer in of[budget] if layer[0] == "NdLinear") for budget in ("large", "small")}
    others = {budget: [layer for layer in of[budget] if layer != own[budget]] for budget in own}
    larger = [layer for layer in points if (layer[0], layer[2]) in LARGER]
    return {"large": (own["large"], others["large"] + of["dense"], points),
            "small": (own["small"], others["small"] + larger, points),
            "references": (own["large"], of["none"], points)}


def summary(rows):
    "Lines of text: the comparisons, each family corrected by itself, then what would weaken them."
    for name, (own, others, points) in families(rows).items():
        called = {layer: f"{layer[0]} ({layer[1]})" for layer in (own, *others)}
        place = {(name,): {called[layer]: points[layer] for layer in called}}
        yield from table(place, [(called[layer], called[own]) for layer in others])
    tried = {}
    for r in rows:
        tried.setdefault((r["layer"], r["setting"], r["budget"]), {}).setdefault(r["study"], []).append(r)
    for layer, found in tried.items():
        if "rate" in found:
            searched = {float(r["rate"]) for r in found["rate"]}
            if {float(r["rate"]) for r in found["main"]} & {min(searched), max(searched)}:
                yield f"best rate at an edge: {layer}"
        capped = sum(r["stopped"] == "cap" for r in found["main"])
        if 10 * capped > len(found["main"]):
            yield f"{capped} of {len(found['main'])} runs ended at the cap: {layer}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one epoch of each network, nothing written")
    parser.add_argument("--out", default=HERE / "kin.csv", type=Path)
    parser.add_argument("--summary", action="store_true", help="print comparisons from the rows; nothing is run")
    args = parser.parse_args()
    if args.summary:
        print("\n".join(summary(read_rows(args.out))))
        return
    torch.set_num_threads(1)
    where, classes = about(), deal(0)[1]

    def write(key, found):
        print(*key, found["val"], file=sys.stderr, flush=True)
        if not args.quick:
            row = dict(zip(KEY, key, strict=True)) | found | where
            append_row(args.out, {column: row.get(column, "") for column in HEAD})

    for name, setting, budget, make in networks(forms(), classes):
        if args.quick:
            key = ("main", name, setting, budget, 0, 0.001)
            write(key, run(key, make, cap=1))
            continue
        while keys := following((name, setting, budget), read_rows(args.out)):
            for key in sorted(keys, key=lambda key: key[4]):
                write(key, run(key, make))
    there = {tuple(r[k] for k in KEY) for r in read_rows(args.out)}
    for name, setting, method, features in simple():
        for seed in SEEDS:
            key = ("main", name, setting, "none", seed, "")
            if args.quick or tuple(map(str, key)) not in there:
                write(key, fitted(seed, method, features))
    print("done", file=sys.stderr)


if __name__ == "__main__":
    main()

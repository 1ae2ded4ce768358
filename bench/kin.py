"""One small network on Indian Pines whose large layer is replaced by each of its kin.

The layers, the parts of the scene and the patches are read from nbs/15_kin.ipynb, so what runs here is what
the text shows. Each run is one layer, one seed (which sets the parts, the weights and the order of the
samples) and one learning rate; it adds one row to results/kin.csv. Runs whose rows are there are skipped, so
an interrupted bench goes on where it stopped. Nothing is chosen here: the chapter picks the rate by the
validation part.
"""
import argparse
import ast
import csv
import json
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn

from hot_nbdev.cost import count, peak_memory
from hot_nbdev.results import append_row, read_rows

ROOT = Path(__file__).parents[1]
RATES, SEEDS, EPOCHS, BATCH = (0.0003, 0.001, 0.003, 0.01, 0.03), range(5), 10, 64
NAMES = {"dense", "low_rank", "kron_terms", "tensor_train", "monarch", "separable_conv", "trl_tucker",
         "trl_cp", "lokr", "Kin", "on_modes", "on_vectors", "large", "small", "contenders", "parts", "samples"}
HEAD = ["layer", "setting", "budget", "seed", "rate", "parameters", "network", "flops", "peak_forward",
        "peak_train", "forward_ratio", "train_ratio", "train", "val", "test", "val_mean", "test_mean",
        "test_classes", "epochs", "samples", "hardware", "torch"]


def chapter(path=ROOT / "nbs" / "15_kin.ipynb"):
    "The definitions of the chapter that are used here, by name."
    code = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    nodes = [n for source in code for n in ast.parse(source).body
             if isinstance(n, (ast.Import, ast.ImportFrom)) or getattr(n, "name", None) in NAMES]
    space = {}
    exec(compile(ast.Module(nodes, []), path.name, "exec"), space)
    return {name: space[name] for name in NAMES}


class Middle(nn.Module):
    "The spectrum of the pixel in the middle of a patch."
    def forward(self, x):
        return x[:, x.shape[1] // 2, x.shape[2] // 2]


def networks(kin, classes):
    "(layer, setting, budget, a function that makes the network); the layer is its first child."
    def network(make):
        return nn.Sequential(make(), nn.Flatten(), nn.ReLU(), nn.Linear(400, classes))
    for name, setting, budget, make in kin["contenders"]():
        yield name, setting, budget, lambda make=make: network(make)
    yield "logistic", "all pixels", "none", lambda: nn.Sequential(nn.Flatten(), nn.Linear(5000, classes))
    yield "logistic", "middle pixel", "none", lambda: nn.Sequential(Middle(), nn.Linear(200, classes))


def fit(net, x, y, rate, epochs):
    "Adam with a cosine to zero, the same for all."
    optimizer = torch.optim.Adam(net.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(x) // BATCH))
    for _ in range(epochs):
        for at in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(net(x[at]), y[at]).backward()
            optimizer.step()
            schedule.step()


@torch.inference_mode()
def by_class(net, x, y):
    "Share of right answers over all samples, and for each class."
    right = (net(x).argmax(1) == y).float()
    return right.mean().item(), [right[y == c].mean().item() for c in y.unique()]


def seconds(call, layer, x, times):
    start = time.perf_counter()
    for _ in range(times):
        call(layer, x)
    return (time.perf_counter() - start) / times


def backward(layer, x):
    layer(x).sum().backward()


@torch.inference_mode()
def forward(layer, x):
    layer(x)


def ratios(layer, dense, x, rounds):
    "Time of one call over that of the dense layer, in turns: forward, and forward with backward."
    found = []
    for call in (forward, backward):
        call(layer, x), call(dense, x)                                      # warm up
        turns = [seconds(call, layer, x, 3) / seconds(call, dense, x, 1) for _ in range(rounds)]
        found.append(f"{median(turns):.3f}")
    return found


def measure(make, name, data, seed, rate, epochs, dense):
    "The columns of one run from `parameters` to `test_classes`."
    torch.manual_seed(seed)
    net, (x, y) = make(), data[0]
    layer = net[0] if name != "logistic" else net
    sizes = [sum(p.numel() for p in m.parameters()) for m in (layer, net)]
    with torch.no_grad():
        flops, quiet = 2 * count(layer, x[:1]).multiply_adds, peak_memory(layer, x[:BATCH]).peak
    loud = peak_memory(backward, layer, x[:BATCH]).peak
    times = ratios(layer, dense, x[:BATCH], 5) if name != "logistic" else ["", ""]
    torch.manual_seed(seed)
    fit(net, x, y, rate, epochs)
    (train, _), (val, vals), (test, tests) = (by_class(net, *part) for part in data)
    means = [sum(each) / len(each) for each in (vals, tests)]
    return [*sizes, flops, quiet, loud, *times, *(f"{v:.4f}" for v in (train, val, test, *means)),
            ";".join(f"{v:.3f}" for v in tests)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, rate and epoch, to the screen only")
    parser.add_argument("--out", default=ROOT / "results" / "kin.csv", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="seeds to run; default: 0 to 4")
    parser.add_argument("--threads", type=int, default=1, help="threads of the CPU")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    from tensorly.datasets import load_indian_pines
    pines = load_indian_pines()
    scene, labels = torch.from_numpy(pines.tensor), torch.from_numpy(pines.ticks[0]).long()
    kin, rates, seeds, epochs = chapter(), RATES, args.seeds, EPOCHS
    if args.quick:
        rates, seeds, epochs = RATES[2:3], args.seeds[:1], 1
    there = {tuple(r[k] for k in HEAD[:5]) for r in ([] if args.quick else read_rows(args.out))}
    cpu = f"CPU {torch.backends.cpu.get_cpu_capability()} {args.threads} threads"
    about = [cpu, torch.__version__.split("+")[0]]
    dense = kin["Kin"](kin["dense"], (5000,), ((400, 5000), 5000))

    def write(row):
        if args.quick:
            return csv.writer(sys.stdout, lineterminator="\n").writerow(row)
        append_row(args.out, dict(zip(HEAD, row, strict=True)))

    for seed in seeds:
        data, classes = kin["samples"](scene, labels, seed)
        number = "/".join(str(len(x)) for x, _ in data)
        for name, setting, budget, make in networks(kin, classes):
            for rate in rates:
                key = [name, setting, budget, seed, rate]
                if tuple(map(str, key)) in there:
                    continue
                print(f"seed {seed}, rate {rate}: {name} ({setting}) …", file=sys.stderr, flush=True)
                write([*key, *measure(make, name, data, seed, rate, epochs, dense), epochs, number, *about])
    print("done", file=sys.stderr)


if __name__ == "__main__":
    main()

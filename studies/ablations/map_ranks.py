"""The maps of small forecasters on exchange_rate while they are trained: their ranks, and how they look.

    HOT_DATA=/path/to/files python -m studies.ablations.map_ranks            two minutes on one core
    HOT_DATA=/path/to/files python -m studies.ablations.map_ranks --quick    one epoch; nothing is written

One model for each kind of attention, all else equal: product and sum with pooling by the mean; both as the
text of the second paper has them, with pooling by the sum (hot2, hot2-sum); full attention. None has a norm on
queries and keys.
Before the first update and after every 40 of them, the maps of the same 8 windows of the validation part,
spread over all of it, give one row for each block and mode and one for each joint map (`map_rows`): stable
rank, the bound of equation 12 for the sum, distance from rank one; each is the mean over heads and windows.
`averaging` is what an average over windows hides of a product: the distance from the mean of the joint maps
to the product of the mean maps, over the norm of the former. The mean maps of each mode, before and after
training, go to maps.npz: one array for each kind and mode, (before and after, blocks, heads, N, N),
float32.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from hot_nbdev.data import forecast_data
from hot_nbdev.kronecker import kron
from hot_nbdev.maps import map_rows, model_maps
from hot_nbdev.model_config import ForecasterConfig
from hot_nbdev.models import HOTForecaster
from hot_nbdev.train.loop import TrainConfig, fit
from hot_nbdev.train.results import library_commit, write_csv
from hot_nbdev.train.runs import Checkpoints
from hot_nbdev.train.tasks import Forecasting

HERE = Path(__file__).parent
EVERY, WINDOWS, LOOKBACK = 40, 8, 96
# name here -> name of the attention, its options, how its maps are combined, its modes
BARE = {"qk_norm": False}
KINDS = {"product": ("product", BARE, "product", ["time", "series"]),
         "sum": ("sum", BARE, "sum", ["time", "series"]),
         "hot2": ("hot2", BARE, "product", ["time", "series"]),
         "hot2-sum": ("hot2", {**BARE, "combine": "sum"}, "sum", ["time", "series"]),
         "full": ("full", {}, "product", [])}


def model_of(kind):
    "The forecaster, with weights drawn from seed 0."
    attention, options, _, _ = KINDS[kind]
    torch.manual_seed(0)
    return HOTForecaster(ForecasterConfig(patch=(8, 1), dim=32, depth=2, heads=4, attention=attention,
                                          attention_options=options, lookback=LOOKBACK, horizons=(96,)))


@torch.no_grad()
def maps_of(model, weights, x):
    "For each block its maps, (windows, heads, N, N)."
    model.load_state_dict(weights)
    return model_maps(model.eval(), x)


def averaging(block):
    "What the product of mean maps misses of the mean of the products, relative; mean over heads."
    mean = kron(*block).mean(0)
    gap = torch.linalg.matrix_norm(mean - kron(*(S.mean(0) for S in block)))
    return (gap / torch.linalg.matrix_norm(mean)).mean().item()


def measure(kind, step, maps):
    "The rows of one model at one step."
    _, _, combine, modes = KINDS[kind]
    rows = map_rows(maps, combine, attention=kind, seed=0, step=step)
    for row in rows:
        product_of_modes = row["mode"] == "joint" and modes and combine == "product"
        row["averaging"] = averaging(maps[row["block"]]) if product_of_modes else None
        row["mode"] = row["mode"] if row["mode"] == "joint" else modes[row["mode"]]
    return rows


def run(kind, data, epochs=3):
    "Train one model; its rows, and its mean maps before and after."
    x, _ = data.val[torch.linspace(0, len(data.val) - 1, WINDOWS).long()]
    model = model_of(kind)
    first = {name: t.clone() for name, t in model.state_dict().items()}
    maps = maps_of(model, first, x)
    rows, ends = measure(kind, 0, maps), [maps]
    with tempfile.TemporaryDirectory() as folder:
        fit(model, data.train, data.val, Forecasting(), TrainConfig(epochs=epochs, rate=1e-3), folder,
            keep=10_000, save_every=EVERY)
        for path in Checkpoints(folder).paths():
            tensors, step = load_file(path), int(path.stem.split("-")[1])           # checkpoint-000000040
            weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
            maps = maps_of(model, weights, x)
            rows += measure(kind, step, maps)
    ends.append(maps)
    means = {name: torch.stack([torch.stack([block[m].mean(0) for block in maps]) for maps in ends])
             for m, name in enumerate(KINDS[kind][3])}
    return rows, means


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one epoch, nothing written")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for map_ranks.csv and maps.npz")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data, rows, arrays = forecast_data("exchange_rate", LOOKBACK, 96, download=False), [], {}
    about = {"commit": library_commit()}
    for kind in KINDS:
        print(kind, file=sys.stderr)
        found, means = run(kind, data, 1 if args.quick else 3)
        rows += [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in (row | about).items()} for row in found]
        arrays |= {f"{kind}_{name}": t.numpy() for name, t in means.items()}
    if args.quick:
        print(*rows[-3:], sep="\n")
    else:
        args.out.mkdir(parents=True, exist_ok=True)
        write_csv(args.out / "map_ranks.csv", list(rows[0]), rows)
        np.savez_compressed(args.out / "maps.npz", **dict(sorted(arrays.items())))


if __name__ == "__main__":
    main()

"""How far the simplest forecasts and the best linear one get on the official files that are at hand.

    HOT_DATA=folder python bench/simple_forecasts.py

Repeats the last value, the mean of the window and the last period, fits a linear forecast by least squares,
with and without instance normalization, and scores all on the validation and test parts of the papers'
protocol: lookback 96, horizons 96, 192, 336 and 720. Writes results/simple_forecasts.csv. Files that are not
there are left out.
"""
import csv
from pathlib import Path

import torch

from hot_nbdev.data import forecast_data
from hot_nbdev.linear import LinearConfig, least_squares, simple_forecaster
from hot_nbdev.results import library_commit
from hot_nbdev.tasks import Forecasting
from hot_nbdev.training import evaluate

OUT = Path(__file__).parents[1] / "results" / "simple_forecasts.csv"
PERIODS = {"exchange_rate": 7, "ETTh1": 24, "ETTm1": 96, "weather": 144}     # a day; for daily rates a week
HORIZONS, LOOKBACK = (96, 192, 336, 720), 96


def models(data, lookback, horizon, parts):
    "Name, model and parts of each method. A day of weather may exceed the lookback; its repeat sees more."
    for name in ("last", "mean"):
        yield name, simple_forecaster(name, lookback, (horizon,)), parts
    back = max(lookback, PERIODS[data])
    yield "seasonal", simple_forecaster("seasonal", back, (horizon,), PERIODS[data]), (
        parts if back == lookback else forecast_data(data, back, horizon, download=False))
    for name, norm in [("least squares", False), ("least squares, normalized", True)]:
        yield name, least_squares(LinearConfig(lookback, (horizon,), instance_norm=norm), parts.train), parts


def scores(model, part):
    found = evaluate(model, part, Forecasting(), 256)
    return {key: f"{found[key]:.6f}" for key in ("mse", "mae", "smape")}


def rows(data, horizons=HORIZONS, lookback=LOOKBACK):
    for horizon in horizons:
        parts = forecast_data(data, lookback, horizon, download=False)
        for name, model, used in models(data, lookback, horizon, parts):
            both = {f"{of}_{key}": value for of in ("val", "test")
                    for key, value in scores(model, getattr(used, of)).items()}
            yield {"data": data, "md5": parts.about["md5"], "method": name, "lookback": model.config.lookback,
                   "horizon": horizon, **both, "torch": torch.__version__.split("+")[0], "commit": library_commit()}


if __name__ == "__main__":
    found = []
    for data in PERIODS:
        try:
            found += rows(data)
        except FileNotFoundError as e:
            print(f"{data} is left out: {e}")
    with OUT.open("w", newline="") as f:
        writer = csv.DictWriter(f, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{len(found)} rows in {OUT.name}")

"""How far the simplest forecasts and the best linear one get on the official files that are at hand.

    HOT_DATA=folder python -m studies.forecasts.simple_forecasts

Repeats the last value, the mean of the window and the last period, fits a linear forecast by least squares, one
matrix for all series and one for each, with and without instance normalization, and scores all on the validation and
test parts of the papers' protocol: lookback 96, horizons 96, 192, 336 and 720. Writes
studies/forecasts/simple_forecasts.csv; rows of files that are not there stay as they are. Of Weather the errors of
each variable at 96 steps go into studies/forecasts/simple_by_variable.csv, from the file as it is and with its
sentinels mended.
"""
from itertools import product
from pathlib import Path

import torch

from hot_nbdev.data import forecast_data
from hot_nbdev.rivals.linear import LinearConfig, least_squares, simple_forecaster
from hot_nbdev.train.loop import evaluate
from hot_nbdev.train.results import library_commit
from hot_nbdev.train.tasks import Forecasting
from studies.rows import put

OUT = Path(__file__).with_name("simple_forecasts.csv")
PERIODS = {"exchange_rate": 7, "ETTh1": 24, "ETTm1": 96, "weather": 144}     # a day; for daily rates a week
HORIZONS, LOOKBACK = (96, 192, 336, 720), 96


def models(data, lookback, horizon, parts):
    "Name, model and parts of each method. A day of weather may exceed the lookback; its repeat sees more."
    for name in ("last", "mean"):
        yield name, simple_forecaster(name, lookback, (horizon,)), parts
    back = max(lookback, PERIODS[data])
    yield "seasonal", simple_forecaster("seasonal", back, (horizon,), PERIODS[data]), (
        parts if back == lookback else forecast_data(data, back, horizon, download=False))
    for (name, each), norm in product((("least squares", False), ("own matrices", True)), (False, True)):
        yield name + ", normalized" * norm, fitted(parts, lookback, horizon, each, norm), parts


def fitted(parts, lookback, horizon, each, norm=False):
    "The best matrix for all series, or the best ones for each."
    count = parts.train[torch.arange(1)][0].shape[-1] if each else None
    return least_squares(LinearConfig(lookback, (horizon,), series=count, instance_norm=norm), parts.train)


class Together:
    "A part whose series follow one another in one, so that one matrix reads all of them and forecasts all."
    def __init__(self, part):
        self.part = part

    def __len__(self):
        return len(self.part)

    def __getitem__(self, indices):
        return tuple(values.flatten(1) for values in self.part[indices])


def from_all(data, lookback, horizon, ridges=(0.1, 1.0, 10.0)):
    "The row of a matrix that reads all series; its penalty is best on the validation part, inside those tried."
    parts = forecast_data(data, lookback, horizon, download=False)
    train, val, test = (Together(part) for part in (parts.train, parts.val, parts.test))
    steps, ahead = (values.shape[1] for values in train[torch.arange(1)])
    config, tried, more = LinearConfig(steps, (ahead,), order=1, instance_norm=False), {}, list(ridges)
    while more:
        for ridge in more:
            model = least_squares(config, train, ridge)
            tried[ridge] = model, scores(model, val)
        best = min(tried, key=lambda ridge: float(tried[ridge][1]["mse"]))
        more = {min(tried): [best / 10], max(tried): [best * 10]}.get(best, [])
        if len(tried) > 9:
            raise ValueError(f"all series of {data}: no penalty from {min(tried):g} to {max(tried):g} is better than "
                             "its neighbors")
    model, found = tried[best]
    return {**row_of(data, parts, "all series", lookback, horizon, found, scores(model, test)), "ridge": best}


def scores(model, part):
    found = evaluate(model, part, Forecasting(), 256)
    return {key: f"{found[key]:.6f}" for key in ("mse", "mae", "smape")}


def row_of(data, parts, name, lookback, horizon, val, test):
    both = {f"{part}_{key}": value for part, found in (("val", val), ("test", test)) for key, value in found.items()}
    return {"data": data, "md5": parts.about["md5"], "method": name, "lookback": lookback, "horizon": horizon, **both,
            "torch": torch.__version__.split("+")[0], "commit": library_commit()}


def rows(data, horizons=HORIZONS, lookback=LOOKBACK):
    for horizon in horizons:
        parts = forecast_data(data, lookback, horizon, download=False)
        for name, model, used in models(data, lookback, horizon, parts):
            both = [scores(model, part) for part in (used.val, used.test)]
            yield row_of(data, parts, name, model.config.lookback, horizon, *both)


def by_variable(data, horizon=96, lookback=LOOKBACK):
    "For each variable the squared error of one matrix for all and of its own, on the test part."
    names = forecast_data(data, lookback, horizon, download=False, mend=True).about["names"]    # with their units
    for mended in (False, True):
        parts = forecast_data(data, lookback, horizon, download=False, mend=mended)
        errors = {name: of_each(fitted(parts, lookback, horizon, each), parts.test)
                  for name, each in (("least squares", False), ("own matrices", True))}
        for i, variable in enumerate(names):
            own = {name: f"{found[i]:.6f}" for name, found in errors.items()}
            yield {"data": data, "md5": parts.about["md5"], "mended": int(mended), "lookback": lookback,
                   "horizon": horizon, "variable": variable, **own,
                   "torch": torch.__version__.split("+")[0], "commit": library_commit()}


def of_each(model, part):
    "The mean squared error of each variable."
    with torch.no_grad():
        sums = [(model(x) - y).double().square().mean(1).sum(0)
                for x, y in (part[i] for i in torch.arange(len(part)).split(256))]
    return (sum(sums) / len(part)).tolist()


if __name__ == "__main__":
    found = []
    for data in PERIODS:
        try:
            found += rows(data)
        except FileNotFoundError as e:
            print(f"{data} is left out: {e}")
    put(OUT, found, "data")
    if any(row["data"] == "weather" for row in found):
        put(OUT.with_name("simple_by_variable.csv"), list(by_variable("weather")), "data")

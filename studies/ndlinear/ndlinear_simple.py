"""Plain answers to the systems of ndlinear_systems.py: same data, same parts, same metrics, and no network.

    python -m studies.ndlinear.ndlinear_simple    all systems whose data are here; some minutes

constant    what needs no input: the shares of the classes, the mean, the last value again, how often each character
            comes, no noise
linear      logistic regression, ridge regression, for lines of code on counts of words or of up to three characters;
            one linear map from hours to hours for all series, or one from all to all; the best linear guess of the
            noise, by mean and covariance of the training images; for text how often a character follows another
other       the classes, or the mean, of the nearest neighbours in standardized features; for text Witten and Bell's
            interpolation of counts up to an order, which sees no more than the windows show

Fitted on the training part; strength, number of neighbours, features and order are chosen on validation. Series that
are classified are given by mean and deviation of each channel. Seeds are those of the study where they change the
split or the noise; else there is one. The columns are those of studies/ndlinear/ndlinear_systems.csv, with a study
`plain`.
"""
import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hot_nbdev.train.results import read_rows
from studies.ndlinear.systems import SYSTEMS, images, sources
from studies.ndlinear.systems.sources import Absent
from studies.rows import put

STRENGTHS, NEAREST, ORDERS = [10.0 ** k for k in range(-4, 5)], (1, 3, 5, 9, 15, 31), range(1, 10)
SEEDS = {"sentence": 5, "waves": 5, "table": 5, "table-number": 5, "diffusion": 5, "language": 1, "rnn": 1,
         "cnn-slices": 1}
# systems that have the parts of others
TWINS = {("rnn", "ETTh1"): "transformer", ("table", "digits"): "cnn", ("cnn-slices", "vessel"): "distill"}
TEXTS = {"words": partial(CountVectorizer, token_pattern=r"\w+|[^\w\s]"),
         "characters": partial(CountVectorizer, analyzer="char", ngram_range=(1, 3), lowercase=False)}


def numbers(system, *x):
    "Features (n, D) of samples: pixels, columns, or mean and deviation of each channel where its series is known."
    if system != "waves":
        return x[0].flatten(1).double().numpy()
    known, x = x[1][..., None], x[0]
    n = known.sum(1)
    center = (x * known).sum(1) / n
    spread = ((x - center[:, None]).square() * known).sum(1) / n
    return torch.cat([center, spread.sqrt()], 1).double().numpy()


def lines(x):
    "The characters of `systems.sources.characters` as text; what is no ASCII is one sign."
    return ["".join("\n" if c == 0 else chr(c + 31) for c in line) for line in x.tolist()]


def shares(model, of):
    "A fitted classifier as a function to logarithms of shares."
    return lambda *x: torch.tensor(np.log(np.clip(model.predict_proba(of(*x)), 1e-9, 1)), dtype=torch.float32)


def values(model, of):
    return lambda *x: torch.tensor(model.predict(of(*x)), dtype=torch.float32)[:, None]


def best(task, fitted, error):
    "The setting and model with the least error on validation, the first of equals; `fitted` gives pairs."
    return min(fitted, key=lambda pair: error(task, pair[1]))


def by_score(task, model):
    return float(task.score(model, *task.parts[1]))


def by_metric(system):
    "The system's metric on validation, as an error: shares of few neighbours may be 0, which cross-entropy forbids."
    sign = -1 if SYSTEMS[system].larger else 1
    return lambda task, model: sign * task.report(model, *task.parts[1])[0]


def classifiers(task, system):
    "model -> (setting, model), for classes."
    *x, y = task.parts[0]
    share = torch.bincount(y) / len(y)
    found = {"constant": ("", lambda *x: share.log().expand(len(x[0]), -1))}
    if system == "sentence":
        inputs = {name: (text := make(), text.fit_transform(lines(*x))) for name, make in TEXTS.items()}
        models = ((f"{name}, C = {C:g}", shares(LogisticRegression(C=C, max_iter=2000).fit(counts, y),
                                                lambda x, text=text: text.transform(lines(x))))
                  for name, (text, counts) in inputs.items() for C in STRENGTHS)
        return found | {"linear": best(task, models, by_score)}
    of = partial(numbers, system)
    models = ((f"C = {C:g}", shares(make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=2000))
                                    .fit(of(*x), y), of)) for C in STRENGTHS)
    near = ((f"{k} neighbours", shares(make_pipeline(StandardScaler(), KNeighborsClassifier(k)).fit(of(*x), y), of))
            for k in NEAREST if k <= len(y))
    return found | {"linear": best(task, models, by_score), "other": best(task, near, by_metric(system))}


def regressors(task, system):
    "model -> (setting, model), for a number whose mean is 0."
    x, y = task.parts[0]
    of = partial(numbers, system)
    models = ((f"ridge {a:g}", values(Ridge(a).fit(of(x), y), of)) for a in STRENGTHS)
    near = ((f"{k} neighbours", values(KNeighborsRegressor(k).fit(of(x), y), of)) for k in NEAREST if k <= len(y))
    return {"constant": ("", lambda x: torch.zeros(len(x), 1)), "linear": best(task, models, by_score),
            "other": best(task, near, by_score)}


def hours(x, whole):
    "What a linear forecast sees, less the last value: all series at once, or each on its own."
    x = x - x[:, -1:]
    return (x.flatten(1) if whole else x.mT.flatten(0, 1)).double().numpy()


def forecasts(task, system):
    "model -> (setting, model): the last value, and least squares on what changes since then."
    x, y = task.parts[0]

    def ahead(model, whole, x):
        made = torch.tensor(model.predict(hours(x, whole)), dtype=torch.float32)
        made = made.unflatten(1, y.shape[1:]) if whole else made.unflatten(0, (len(x), -1)).mT
        return made + x[:, -1:]

    def fitted():
        change = (y - x[:, -1:]).double()
        for whole, name in [(False, "each series"), (True, "all series")]:
            to = change.flatten(1) if whole else change.mT.flatten(0, 1)
            for a in STRENGTHS:
                model = Ridge(a, solver="cholesky").fit(hours(x, whole), to.numpy())
                yield f"{name}, ridge {a:g}", partial(ahead, model, whole)
    return {"constant": ("", lambda x: x[:, -1:].expand(-1, *y.shape[1:])), "linear": best(task, fitted(), by_score)}


def denoisers(task, system):
    "model -> (setting, model): no noise, and the best linear guess, that of normal images of the same covariance."
    x = task.parts[0][0].flatten(1).double()
    center, (strength, axes) = x.mean(0), torch.linalg.eigh(x.T.cov())

    def linear(ridge, x, t):
        s = images.signal(t.double())[:, None]
        noise = 1 - s ** 2
        along = (x.flatten(1).double() - s * center) @ axes
        return (noise.sqrt() * along / (s ** 2 * (strength.clip(0) + ridge) + noise) @ axes.T).view_as(x).float()
    models = ((f"ridge {a:g}", partial(linear, a)) for a in STRENGTHS if a <= 1)
    return {"constant": ("", lambda x, t: torch.zeros_like(x)), "linear": best(task, models, by_score)}


class Counts:
    "How often each sequence of up to `order` characters occurs in a text."
    def __init__(self, text, order):
        text = text.numpy()
        self.grams, self.contexts = [], []
        for k in range(1, order + 1):
            whole = sum(text[i:len(text) - k + 1 + i] * sources.SYMBOLS ** (k - 1 - i) for i in range(k))
            gram, n = np.unique(whole, return_counts=True)
            context, first = np.unique(gram // sources.SYMBOLS, return_index=True)
            self.grams.append((gram, n))
            # how often a context is followed by anything, and by how many different characters
            self.contexts.append((context, np.add.reduceat(n, first), np.diff(np.append(first, len(gram)))))

    @staticmethod
    def look(keys, known, *numbers):
        at = np.searchsorted(known, keys).clip(max=len(known) - 1)
        return [np.where(known[at] == keys, n[at], 0) for n in numbers]

    def bits(self, x):
        "Bits per character of windows (n, w + 1), for each order: a character has those before it in its window."
        x, found = x.numpy(), []
        p = np.full(x[:, 1:].shape, 1 / sources.SYMBOLS)
        for k, ((gram, n), (context, *told)) in enumerate(zip(self.grams, self.contexts, strict=True), 1):
            first = max(k - 1, 1)               # the first place with k - 1 characters before it
            key = sum(x[:, first - k + 1 + i:x.shape[1] - k + 1 + i] * sources.SYMBOLS ** (k - 1 - i)
                      for i in range(k))
            (seen,), (often, kinds) = self.look(key, gram, n), self.look(key // sources.SYMBOLS, context, *told)
            lower = p[:, first - 1:]
            p[:, first - 1:] = np.where(often > 0, (seen + kinds * lower) / np.maximum(often + kinds, 1), lower)
            found.append(float(-np.log2(p).mean()))
        return found


def texts(task):
    "model -> (setting, bits of validation, bits of the test)."
    counts = Counts(task.parts[0][0], max(ORDERS))
    valid, test = (counts.bits(part[0]) for part in task.parts[1:])
    order = 1 + int(np.argmin(valid))
    return {name: (f"order {k}", valid[k - 1], test[k - 1])
            for name, k in [("constant", 1), ("linear", 2), ("other", order)]}


ANSWERS = {"rnn": forecasts, "table-number": regressors, "diffusion": denoisers}


def answers(system, data, seed):
    "Rows of a system, its data and a seed."
    task = SYSTEMS[system].task(data, seed)
    if system == "language":
        found = texts(task)
    else:
        found = {name: (setting, *(task.report(model, *part)[0] for part in task.parts[1:]))
                 for name, (setting, model) in ANSWERS.get(system, classifiers)(task, system).items()}
    for model, (setting, valid, test) in found.items():
        row = {"study": "plain", "system": system, "data": data, "data_sha": task.data_sha, "model": model,
               "seed": seed, "setting": setting, "validation": f"{valid:.5g}", "test": f"{test:.5g}"}
        yield row
        if (system, data) in TWINS:
            yield row | {"system": TWINS[system, data]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--systems", nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("ndlinear_simple.csv"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = {(r["system"], r["data"], r["data_sha"], r["seed"]) for r in read_rows(args.out)}
    for system in args.systems:
        for data in SYSTEMS[system].data:
            for seed in range(SEEDS[system]):
                try:
                    sha = SYSTEMS[system].task(data, seed).data_sha
                except Absent as e:
                    print(f"{system} {data} is left out: {e}", file=sys.stderr)
                    break
                if (system, data, sha, str(seed)) not in done:
                    print(system, data, seed, file=sys.stderr)
                    put(args.out, list(answers(system, data, seed)), "system", "data", "data_sha", "seed")


if __name__ == "__main__":
    main()

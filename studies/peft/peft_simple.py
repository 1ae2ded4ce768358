"""Plain answers to the task of peft_task.py: turned digits learned from the same parts, without any model before.

    python -m studies.peft.peft_simple    some seconds; writes studies/peft/peft_simple.csv

linear      logistic regression on the 64 pixels
nearest     the classes of the nearest images

Fitted on the part for adapting; strength and number of neighbours are chosen on the validation part, by accuracy.
"""
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from hot_nbdev.train.results import write_csv
from studies.peft.peft_task import SEEDS, SHIFTS, digits, split

OUT = Path(__file__).with_name("peft_simple.csv")
TRIED = {"linear": [(c, LogisticRegression(C=c, max_iter=5000)) for c in (0.01, 0.1, 1.0, 10.0, 100.0)],
         "nearest": [(n, KNeighborsClassifier(n)) for n in (1, 3, 5, 9, 15)]}


def rows():
    x, y, sha = digits()
    for task, shift in SHIFTS.items():
        pixels, labels = shift(x).flatten(1).double().numpy(), y.numpy()
        for seed in SEEDS:
            train, val, test = (part.numpy() for part in split(y, seed)[1:])
            for model, tried in TRIED.items():
                found = [(one.fit(pixels[train], labels[train]).score(pixels[val], labels[val]), setting,
                          one.score(pixels[test], labels[test])) for setting, one in tried]
                validation, setting, score = max(found, key=lambda one: one[0])
                yield {"task": task, "data_sha": sha, "model": model, "seed": seed, "setting": setting,
                       "validation": round(validation, 6), "test": round(score, 6)}


def main(out=OUT):
    found = list(rows())
    write_csv(out, list(found[0]), found)


if __name__ == "__main__":
    main()

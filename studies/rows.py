"""Rows of a study that are made anew, while those of data that are not at hand stay, and its texts."""
from pathlib import Path

from filelock import FileLock

from hot_nbdev.storage import atomic_write
from hot_nbdev.train.results import read_rows, write_csv


def put_text(path, text):
    "Write a file as a whole, such as tables.json, or leave it as it was."
    atomic_write(path, lambda part: part.write_text(text, encoding="utf-8"))


def put(path, rows, *key):
    "Write rows, all or none, in the place of those with the same values in the columns `key`; all other rows stay."
    def named(row):
        return tuple(str(row[k]) for k in key)
    path = Path(path)
    if not rows:
        return
    with FileLock(path.with_name(f".{path.name}.lock")):
        old, here = read_rows(path), {named(row) for row in rows}
        order = list(dict.fromkeys(map(named, [*old, *rows])))
        every = [*(row for row in old if named(row) not in here), *rows]
        head = list(dict.fromkeys(column for row in [*rows, *every] for column in row))
        write_csv(path, head, sorted(every, key=lambda row: order.index(named(row))))

"""Gather the scores of new runs in the archive of their study.

    python -m studies.pack studies/marks/rows    the files of scores/ beside these rows, into scores.npz

The arrays of a run are named RUN/ARRAY and stand in the order of their names, so that the same numbers give the same
bytes. The files are removed when the archive holds all of them.
"""
import sys
from pathlib import Path

import numpy as np

from hot_nbdev.storage import atomic_write


def pack(folder):
    "How many runs were added to the archive in this folder."
    folder, arrays = Path(folder), {}
    files, archive = sorted((folder / "scores").glob("*.npz")), folder / "scores.npz"
    for path, prefix in [(archive, ""), *((path, f"{path.stem}/") for path in files)]:
        if path.exists():
            with np.load(path, allow_pickle=False) as kept:
                arrays |= {prefix + name: kept[name] for name in kept.files}

    def write(part):
        with open(part, "wb") as f:
            np.savez_compressed(f, **dict(sorted(arrays.items())))
    if files:
        atomic_write(archive, write)
    for path in files:
        path.unlink()
    return len(files)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if not Path(name).is_dir():
            sys.exit(f"there is no folder {name}")
        print(f"{name}: {pack(name)} runs added")

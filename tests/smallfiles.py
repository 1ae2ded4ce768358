"""Small files of data, and commands run in this process: what the tests of commands share."""
import numpy as np
import pytest

TINY = "--dim 16 --depth 1 --heads 2 --patch 4 --epochs 1 --batch-size 32 --rate 0.01 --cpu".split()
SERIES = ["--lookback", "24", "--horizon", "12", *TINY]


def fails(capsys, command, *words, status=1):
    "What a command says on stderr when it ends with this status; never a traceback."
    with pytest.raises(SystemExit) as end:
        command([str(w) for w in words])
    said = capsys.readouterr().err
    assert end.value.code == status, said
    assert "Traceback" not in said and (status != 1
                                        or said.splitlines()[-1].startswith(command.__name__ + ": "))
    return said


def write_rows(path, rows, header="date,a,b"):
    path.write_text("\n".join([header, *rows] if header else rows), encoding="utf-8")
    return path


def dates(rows):
    return np.datetime64("2024-01-01", "s") + 3600 * np.arange(rows)


def write_lines(path, stamps, values):
    "A series in the layout of the official files; values may be words."
    lines = [f"{str(t).replace('T', ' ')},{','.join(str(v) for v in row)}" for t,
             row in zip(stamps, values, strict=True)]
    with open(path, "w") as f:
        f.write("\n".join(["date," + ",".join("abcdefg"[:len(values[0])]), *lines]) + "\n")


def waves(rows=240, shift=0.0):
    return np.sin(np.arange(rows)[:, None] / [3, 5]).round(4) + shift


def write_series(path="waves.csv", rows=240, shift=0.0):
    write_lines(path, dates(rows), waves(rows, shift))


def write_scene(dates=None):
    "Two fields with different colors; unlabeled pixels at the border."
    chance = np.random.default_rng(0)
    labels = np.ones((24, 24), np.uint8)
    labels[:, 12:] = 3
    scene = chance.normal(size=(24, 24, 3)).astype("float32") + labels[..., None]
    labels[0] = 0
    if dates:
        scene = np.stack([scene + t for t in range(dates)])
    np.save("scene.npy", scene)
    np.save("mask.npy", labels)


def write_volumes(path="own.npz", size=8, masks=False, seed=0, order=3, channels=()):
    "Bright and dark cubes, or squares, in the layout of MedMNIST."
    chance, arrays = np.random.default_rng(seed), {}
    for split, n in (("train", 16), ("val", 8), ("test", 8)):
        arrays[f"{split}_labels"] = (np.arange(n) % 2).astype(np.uint8)[:, None]
        shape = (n, *order * [size], *channels)
        bright = 80 * arrays[f"{split}_labels"].reshape(n, *[1] * (len(shape) - 1))
        arrays[f"{split}_images"] = (chance.integers(0, 90, shape) + bright).astype(np.uint8)
        if masks:
            arrays[f"{split}_masks"] = chance.random(shape[:order + 1]) < 0.7
    np.savez(path, **arrays)
    return arrays

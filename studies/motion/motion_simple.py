"""Answers to the motion study that need no training: the last frame, a classical method, and the true move.

    python -m studies.motion.motion_simple    every data set and seed; some minutes

Phase correlation knows that the move is a shift: it finds the peak of the correlation of both frames by the
Fourier transform and moves the second frame by it once more. In windows of a scene, what comes in from the
sides does not count, and a Hann window keeps the borders out of the correlation. There the best overlap stands beside
it: of all shifts that can be, the one for which both frames agree best where both are known.

Where the rows and columns of a table come in another order, matching knows that. Sorted, a row holds the same numbers
in both tables, so rows are matched by the distance of the sorted ones (`linear_sum_assignment`), columns likewise.
Real tensors are those of `studies/motion/motion_fields.py`, read from the folder motion_fields.
"""
import argparse
import sys
from itertools import product
from pathlib import Path

import torch
from scipy.optimize import linear_sum_assignment

from hot_nbdev.data.moved import Aligned, motion_data
from hot_nbdev.train.results import read_rows
from hot_nbdev.train.tasks import Fields
from studies.rows import put

SHIFTS = [("white", 16, None), ("white", 32, None), ("white", 64, None), ("white", 128, None), ("sentinel2", 32, 8),
          ("indian_pines", 32, 8), ("a1b", (16, 16), (8, 8)), ("ostia", (8, 32), (4, 16)),
          ("pictures", (16, 16), (8, 8)), ("mri", (10, 10, 10), (3, 3, 3)), ("kinetic", (12, 16), (0, 8))]
FOLDER = Path("motion_fields")
ORDERS = [("white", (16, 16)), ("covid", (16, 11))]
FEWER = {64: 3, 128: 2}     # seeds; otherwise five


def move(frame, shifts):
    "Each frame (B, n1, …, nk) moved on the torus by its own shift (B, k)."
    return torch.stack([f.roll(tuple(s), tuple(range(f.ndim))) for f, s in zip(frame, shifts.tolist(), strict=True)])


def phase_correlation(a, b, torus=True):
    "The shift (B, k) that takes a to b, between minus half and half of each size."
    modes = list(range(1, a.ndim))
    if not torus:
        for m, n in enumerate(a.shape[1:]):
            hann = torch.hann_window(n, periodic=False).view(-1, *[1] * (a.ndim - 2 - m))
            a, b = a * hann, b * hann
    cross = torch.fft.fftn(b, dim=modes) * torch.fft.fftn(a, dim=modes).conj()
    peak = torch.fft.ifftn(cross / cross.abs().clamp(min=1e-12), dim=modes).real.flatten(1).argmax(1)
    found = torch.stack(torch.unravel_index(peak, a.shape[1:]), 1)
    sizes = torch.tensor(a.shape[1:])
    return (found + sizes // 2) % sizes - sizes // 2


def best_overlap(a, b, reach):
    "The shift (B, k) up to `reach` for which b is most like a where both are known, in mean squares."
    best, found = torch.full((len(a),), torch.inf), torch.zeros(len(a), a.ndim - 1, dtype=torch.long)
    for shift in product(*(range(-r, r + 1) for r in reach)):
        here = [slice(max(s, 0), n + min(s, 0)) for s, n in zip(shift, a.shape[1:], strict=True)]
        there = [slice(max(-s, 0), n + min(-s, 0)) for s, n in zip(shift, a.shape[1:], strict=True)]
        apart = (b[(slice(None), *here)] - a[(slice(None), *there)]).square()
        error = apart.flatten(1).nanmean(1).nan_to_num(torch.inf)
        found[error < best] = torch.tensor(shift)
        best = torch.minimum(best, error)
    return found


def matched(a, b):
    "For each mode of two tables, which place of a stands at each place of b: by their sorted entries."
    found = []
    for m in range(a.ndim):
        rows = [t.movedim(m, 0).flatten(1).sort(1).values for t in (b, a)]
        found.append(torch.tensor(linear_sum_assignment(torch.cdist(*rows))[1]))
    return found


def moved_answers(part):
    "name -> predictions (S, n1, …, nk), with the targets: fields that move."
    x, *_, y = part[torch.arange(len(part))]
    (a, b), told = x.unbind(-1), part.draws[:, 1 + len(part.sizes):]
    found = {"last frame": b, "phase correlation": move(b, phase_correlation(a, b, part.torus))}
    if not part.torus:
        known = [t if part.hidden is False else t.masked_fill(t == 0, torch.nan) for t in (a, b)]
        found["best overlap"] = move(b, best_overlap(*known, part.reach))
    return {**found, "true shift": move(b, told)}, y


def ordered_answers(part):
    "name -> predictions (S, n1, …, nk), with the targets: tables in another order."
    x, y = part[torch.arange(len(part))]
    orders = [torch.meshgrid(*matched(a, b), indexing="ij") for a, b in zip(x[..., 0], x[..., 1], strict=True)]
    found = torch.stack([sheet[order] for sheet, order in zip(x[..., 2], orders, strict=True)])
    return {"sheet unchanged": x[..., 2], "matched rows and columns": found, "true order": y[..., 0]}, y


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("motion_simple.csv"))
    parser.add_argument("--data-dir", help="folder of the official files; default: HOT_DATA")
    args = parser.parse_args()
    done = {(r["data"], r["size"], r["seed"]) for r in read_rows(args.out)}
    cases = [("shift", *case) for case in SHIFTS] + [("align", *case, None) for case in ORDERS]
    for way, data, size, reach in cases:
        sizes, name = (size, str(size)) if isinstance(size, tuple) else ((size, size), str(size))
        if isinstance(size, tuple):
            name = " x ".join(map(str, size)) + (" in another order" if way == "align" else "")
        path = FOLDER / f"{data}.npy"
        if data not in ("white", "sentinel2", "indian_pines") and not path.exists():
            print(f"{data}: {path} is not there; studies/motion/motion_fields.py makes it", file=sys.stderr)
            continue
        for seed in range(FEWER.get(size, 5)):
            if (data, name, str(seed)) in done:
                continue
            source = str(path) if path.exists() else data
            more = {} if data == "white" else dict(folder=args.data_dir, download=False)
            if reach is not None:
                more["reach"] = reach if isinstance(reach, tuple) else (reach, reach)
            part, task = motion_data(source, sizes, seed=seed, move=way, **more).test, Fields()
            found, y = (ordered_answers if isinstance(part, Aligned) else moved_answers)(part)
            nmse = {m: task.metrics([task.collect(guess[..., None], y)])["nmse"] for m, guess in found.items()}
            put(args.out, [{"data": data, "size": name, "seed": seed, "method": m, "test_nmse": f"{error:.4g}"}
                           for m, error in nmse.items()], "data", "size", "seed")
            print(data, name, seed, file=sys.stderr)


if __name__ == "__main__":
    main()

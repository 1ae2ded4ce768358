"""Answers to the motion study that need no training: the last frame, phase correlation, and the true move.

    python bench/motion_simple.py            every data set and seed; a minute

Phase correlation knows that the move is a shift: it finds the peak of the correlation of both frames by the
Fourier transform and moves the second frame by it once more. In windows of a scene, what comes in from the
sides does not count, and a Hann window keeps the borders out of the correlation.
"""
import argparse
import sys
from pathlib import Path

import torch

from hot_nbdev.moved import Shifted, motion_data
from hot_nbdev.results import append_row, read_rows
from hot_nbdev.tasks import Fields

CASES = [("white", 16, None), ("white", 32, None), ("white", 64, None), ("white", 128, None), ("sentinel2", 32, 8),
         ("indian_pines", 32, 8)]
SEEDS = {16: range(5), 32: range(5), 64: range(3), 128: range(2)}


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


def answers(part: Shifted):
    "name -> predictions (S, n1, …, nk, 1), with the targets."
    x, y = part[torch.arange(len(part))]
    a, b = x.unbind(-1)
    k = len(part.sizes)
    told = part.draws[:, 1 + k:]
    found = phase_correlation(a, b, part.torus)
    return {"last frame": b, "phase correlation": move(b, found), "true shift": move(b, told)}, y


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "motion_simple.csv")
    parser.add_argument("--data-dir", help="folder of the official files; default: HOT_DATA")
    args = parser.parse_args()
    done = {(r["data"], r["size"], r["seed"]) for r in read_rows(args.out)}
    for data, size, reach in CASES:
        for seed in SEEDS[size]:
            if (data, str(size), str(seed)) in done:
                continue
            more = {} if data == "white" else dict(reach=(reach, reach), folder=args.data_dir, download=False)
            parts, task = motion_data(data, (size, size), seed=seed, **more), Fields()
            found, y = answers(parts.test)
            for name, guess in found.items():
                nmse = task.metrics([task.collect(guess[..., None], y)])["nmse"]
                append_row(args.out, {"data": data, "size": size, "seed": seed, "method": name,
                                      "test_nmse": f"{nmse:.4g}"})
            print(data, size, seed, file=sys.stderr)


if __name__ == "__main__":
    main()

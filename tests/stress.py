"""The long part of the tests: what is tried a few times at each commit is tried thousands of times here.

    python tests/stress.py                  every part, in an hour or two on two cores
    python tests/stress.py kills disk       some parts
    python tests/stress.py --share 0.01     a hundredth of each, to see that it works; nothing is written

Each part returns how many times it tried and what went wrong. Whole runs are written to bench/rows/stress.csv, which
the page "What we promise" shows. Random numbers come from a seed, moments of kills from the clock.
"""
import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")]

import forks  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from hot_nbdev.train.results import append_row, read_rows, write_csv  # noqa: E402


class Found(NamedTuple):
    tried: int
    wrong: list     # of texts
    what: str       # was tried, in words


def start(work, *args):
    "Some work as a process of its own, whose words go nowhere, and which ends with 0 if all went well."
    return forks.start(forks.spoken, os.devnull, work, *args)


def train(folder):
    from test_training import run
    run(folder, save_every=1)


def bits(folder):
    "All that a run leaves: the last checkpoint, the best model, the numbers of each epoch."
    from hot_nbdev.train.runs import Checkpoints
    _, tensors, state = Checkpoints(folder).last()
    log = [{k: v for k, v in r.items() if k != "seconds"} for r in read_rows(folder / "log.csv")]
    return {**{f"{k} of the checkpoint": t.numpy().tobytes() for k, t in tensors.items()}, "updates": state["step"],
            "the best model": (folder / "model.safetensors").read_bytes(), "the log": log}


def kills(folder, count):
    "Kill training at random moments, start it again until it has finished, and compare what it leaves."
    train(folder / "warm")      # loads what is loaded on first use, so that children need not
    before = time.perf_counter()
    start(train, folder / "whole").join()
    longest, want = time.perf_counter() - before, bits(folder / "whole")
    done, wrong = 0, []
    while done < count:
        place = folder / f"killed{done}"
        for left in range(min(5, count - done), -1, -1):
            child = start(train, place)
            child.join(random.uniform(0.1, 1) * longest / 2 if left else None)
            if child.is_alive():
                child.kill()
                child.join()
                done += 1
            else:
                break
        found = bits(place)
        if child.exitcode or found != want:
            others = [key for key in want if found.get(key) != want[key]]
            wrong.append(f"{place.name}: exit {child.exitcode}, another {' and '.join(others) or 'checkpoint'}")
        wrong += [f"{p} is left over" for p in place.glob("*.part")]
    return Found(done, wrong, "kills of a process that trains, at random moments; compared to the bit")


def shapes(folder, count):
    "Every kind of layer at random shapes and masks against its loop over indices."
    from layers import LAYERS, LINEAR, random_mask
    chance, wrong, seen = random.Random(0), [], set()
    for i in range(count):
        case = LAYERS[i % len(LAYERS)]
        sizes = tuple(chance.randint(1, {1: 40, 2: 7, 3: 4, 4: 3}[case.order]) for _ in range(case.order))
        batch = chance.choice([(), (1,), (2,), (2, 1)])
        x, kind, options = case.input(*batch, sizes=sizes, seed=i), chance.choice(["no", "own", "one"]), {}
        masks = {"no": None, "own": random_mask(*batch, *sizes, seed=i), "one": random_mask(*sizes, seed=i)}
        arguments = x, masks[kind]
        if case in LINEAR:
            kind, options, arguments = "", {"out": tuple(chance.randint(1, 4) for _ in sizes)}, (x,)
        drawn = f"{case.name} {sizes} {batch} {kind}{options}"
        seen.add(drawn)
        with torch.no_grad():
            for found, want in case.answers(case.layer(sizes=sizes, **options), *arguments):
                if not torch.allclose(found, want, rtol=0, atol=1e-10):
                    wrong.append(f"{drawn}: {(found - want).abs().max():.1e}")
    return Found(count, wrong, f"draws of layer, shape and mask against a loop, {len(seen):,} of them different")


def append(path, who, count):
    for i in range(count):
        append_row(path, {"who": who, "i": i, f"column{i % 7}": i} if i % 5 else {"who": who, "i": i})


def appends(folder, count):
    "Eight processes, of which four know it by a link, append rows with columns of their own to one file."
    path, link, each = folder / "rows.csv", folder / "link.csv", max(1, count // 8)
    link.symlink_to(path)
    for process in [start(append, (path, link)[who % 2], who, each) for who in range(8)]:
        process.join()
    found = sorted((int(r["who"]), int(r["i"])) for r in read_rows(path))
    columns = all(r[f"column{int(r['i']) % 7}"] == r["i"] for r in read_rows(path) if int(r["i"]) % 5)
    wrong = [] if found == [(w, i) for w in range(8) for i in range(each)] and columns else ["rows are lost or torn"]
    return Found(8 * each, wrong, "rows appended to one file by eight processes at once")


def kinds():
    "name -> (writes a good file, reads one); the file's name ends as its kind wants."
    from test_damage import KINDS

    from hot_nbdev.config import read_settings
    from hot_nbdev.data.files import load_array
    from hot_nbdev.data.series import load_series
    array = np.arange(60.).reshape(5, 12)
    line = "date,a,b\n" + "".join(f"2020-01-{d:02} 00:00:00,{d}.5,{-d}\n" for d in range(1, 29))
    return {
        **{name: (partial(write, seed=0), read) for name, (write, read) in KINDS.items()},
        "rows.csv": (lambda p: append_row(p, {"a": 1, "b": "x"}), read_rows),
        "settings.json": (lambda p: p.write_text('{"epochs": 3, "rate": 0.001}'), read_settings),
        "settings.toml": (lambda p: p.write_text('epochs = 3\nrate = 0.001\n'), read_settings),
        "array.npy": (lambda p: np.save(p, array), load_array),
        "array.npz": (lambda p: np.savez_compressed(p, x=array), load_array),
        "series.csv": (lambda p: p.write_text(line), load_series),
    }


def damaged(content, chance):
    "The content cut off, with bytes changed, with a hole, or with something in between."
    at, some = chance.randrange(len(content)), chance.randbytes(chance.randint(1, 40))
    hole = min(chance.randint(8, 400), len(content) - at)
    return chance.choice([content[:at], content[:at] + some[:4] + content[at + len(some[:4]):],
                          content[:at] + bytes(hole) + content[at + hole:], content[:at] + some + content[at:]])


def files(folder, count):
    "Damaged files are read or refused in one line that names the file; nothing else may happen."
    chance, wrong, refused, known = random.Random(0), [], 0, kinds()
    good = {}
    for name, (write, _) in known.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder / name)
        good[name] = (folder / name).read_bytes()
    for i in range(count):
        name = list(known)[i % len(known)]
        (folder / name).write_bytes(damaged(good[name], chance))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                known[name][1](folder / name)
        except (ValueError, OSError) as e:
            refused += 1
            if Path(name).name not in str(e) and str((folder / name).parent) not in str(e):
                wrong.append(f"{name} {i}: the error names no file: {e}")
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            wrong.append(f"{name} {i}: {type(e).__name__}: {e}")
        (folder / name).write_bytes(good[name])
    return Found(count, wrong, f"damaged files of {len(known)} kinds, {refused:,} of them refused by name")


def limited(work, path, most):
    "Work while no file may grow beyond `most` bytes: what a full disk does, without filling one."
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        work(path)
    except OSError:
        return
    except Exception as e:
        if "file too large" in str(e).lower():      # how other libraries pass it on
            return
        raise
    raise SystemExit(3)     # it was written whole


def disk(folder, count):
    "Writing fails in the middle; the former file is still there to the bit, and writing again works."
    chance, wrong, failed = random.Random(0), [], 0
    ours = {n: w for n, (w, _) in kinds().items() if n.endswith((".safetensors", "config.json", "rows.csv"))}
    for i in range(count):
        name = list(ours)[i % len(ours)]
        path = folder / str(i) / name
        path.parent.mkdir(parents=True)
        ours[name](path)
        before = path.read_bytes()
        child = start(limited, ours[name], path, chance.randrange(len(before)))
        child.join()
        failed += child.exitcode == 0
        if child.exitcode not in (0, 3) or (child.exitcode == 0 and path.read_bytes() != before):
            wrong.append(f"{name} {i}: exit {child.exitcode}, or the former file has changed")
        wrong += [f"{name} {i}: {p.name} is left over" for p in path.parent.glob(".*.part")]
        ours[name](path)
        shutil.rmtree(folder / str(i))
    return Found(count, wrong, f"writes onto a disk that is full, {failed} of them stopped in the middle")


def properties(folder, count):
    "Every property that hypothesis draws examples for."
    words = [sys.executable, "-m", "pytest", "tests", "-q", "-m", "hypothesis", "-n", "2", "-p", "no:cacheprovider",
             "--hypothesis-show-statistics"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {
        "EXAMPLES": str(count), "OMP_NUM_THREADS": "1"})
    wrong = re.findall(r"^FAILED (\S+)", done.stdout, re.M)
    if done.returncode and not wrong:
        wrong = [done.stdout[-2000:]]
    return Found(sum(map(int, re.findall(r"(\d+) passing", done.stdout))), wrong,
                 f"examples of properties and contracts, at most {count:,} for each")


def mutants(folder, count):
    "Small changes of the library, each of which a test has to notice."
    done = subprocess.run([sys.executable, "tools/mutants.py"], cwd=ROOT, capture_output=True, text=True)
    wrong = re.findall("^survived.*", done.stdout, re.M)
    tried, noticed = re.search(r"(\d+) of \d+ mutants: (\d+) noticed", done.stdout).groups()
    return Found(int(tried), wrong, f"small changes of the library, {noticed} noticed")


PARTS = dict(properties=(properties, 2000), shapes=(shapes, 10_000), kills=(kills, 1000), appends=(appends, 2000),
             files=(files, 5000), disk=(disk, 200), mutants=(mutants, 1))


def run(part, share=1.0):
    "One part in an empty folder of its own."
    work, count = PARTS[part]
    with tempfile.TemporaryDirectory() as folder:
        try:
            return work(Path(folder), max(1, int(count * share)))
        except Exception:
            return Found(0, [traceback.format_exc()], "broken off")


def write(part, found):
    "Put the row of a part in the place of its former one."
    path = ROOT / "bench" / "rows" / "stress.csv"
    rows = [r for r in (read_rows(path) if path.exists() else []) if r["part"] != part]
    new = {"part": part, "tried": found.tried, "wrong": len(found.wrong), "what": found.what,
           "python": sys.version.split()[0], "torch": version("torch").split("+")[0]}
    write_csv(path, list(new), sorted([*rows, new], key=lambda r: list(PARTS).index(r["part"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the number of tries; below 1 nothing is written")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    failed = False
    for part in args.parts or PARTS:
        before = time.perf_counter()
        found = run(part, args.share)
        failed |= bool(found.wrong)
        print(f"{part:10} {found.tried:8,} {found.what}: {len(found.wrong)} wrong  "
              f"({time.perf_counter() - before:.0f} s)", *found.wrong[:20], sep="\n    ", flush=True)
        if args.share == 1:
            write(part, found)
    sys.exit(failed)


if __name__ == "__main__":
    main()

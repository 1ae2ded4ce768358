"""The data of the systems, each with its sha256; what is not there raises Absent with the way to get it.

Text: the standard library's own modules of the Python that runs, and the Markdown of the book as it was at one
commit. Series and volumes: official files in the folder HOT_DATA. Waves: files that the packages aeon and sktime
ship. Tables: those of scikit-learn. Nothing is downloaded.
"""
import hashlib
import importlib.util
import json
import math
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

import numpy as np
import torch

from hot_nbdev.data.files import data_folder

CHECKOUT = Path(__file__).parents[3]
EDITION = "1b9d3c2f6ffcc5c68687f302b5205fb0dd6a15fd"    # of the book, since each new sentence would outdate all rows
# modules of the standard library, in this order; each is one file, Lib/<name>.py, from Python 3.10 on
CODE = """typing inspect argparse subprocess optparse tarfile mailbox doctest pydoc difflib ast statistics
    fractions random pickle pickletools logging/__init__ unittest/mock asyncio/base_events http/client configparser
    enum dataclasses functools collections/__init__ threading os shutil socket ssl tokenize tempfile
    urllib/request smtplib ipaddress""".split()
# modules whose lines the sentence classifier tells apart
ORIGINS = """_pydecimal turtle tarfile argparse typing inspect pickletools unittest/mock ssl ipaddress mailbox
    urllib/request""".split()


class Absent(FileNotFoundError):
    "Data that a system needs are not on this machine."


def digest(*things):
    "sha256 of texts, bytes and arrays, its first 12 digits."
    h = hashlib.sha256()
    for thing in things:
        h.update(thing.encode() if isinstance(thing, str) else thing if isinstance(thing, bytes) else
                 np.ascontiguousarray(thing).tobytes())
    return h.hexdigest()[:12]


def module_text(name):
    "Source of a module of the standard library."
    path = Path(sysconfig.get_path("stdlib")) / f"{name}.py"
    if not path.is_file():
        raise Absent(f"{path.name}: this Python has no source of the module {name}; use one that ships its library")
    return path.read_text(encoding="utf-8", errors="replace")


def code_text():
    return "\n".join(map(module_text, CODE))


def notebooks(edition=EDITION):
    "Texts of the notebooks at a commit, in the order of their names."
    def git(*words):
        try:
            return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, check=True).stdout.decode()
        except (OSError, subprocess.CalledProcessError) as e:
            raise Absent(f"the book at commit {edition[:7]} is not here; a whole clone has it, "
                         "and git fetch --unshallow makes a shallow one whole") from e
    names = git("ls-tree", "--name-only", edition, "nbs/").split()
    return [git("show", f"{edition}:{name}") for name in sorted(names) if name.endswith(".ipynb")]


def prose_text():
    "The Markdown of all notebooks."
    cells = [cell for text in notebooks() for cell in json.loads(text)["cells"]]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def characters(text):
    "Text as numbers: line feed 0, the 95 printable ASCII characters 1 to 95, anything else 96."
    codes = torch.tensor(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32).astype(np.int64))
    return torch.where(codes == 10, 0, torch.where((codes >= 32) & (codes < 127), codes - 31, 96))


SYMBOLS, CHUNK = 97, 20_000


@cache
def text(name):
    "Training, validation and test characters: of each 10 chunks of 20,000 the last but one and the last are held out."
    whole = {"code": code_text, "prose": prose_text}[name]()
    chunks = characters(whole).split(CHUNK)
    chunks = [c for c in chunks if len(c) == CHUNK]
    place = [{8: 1, 9: 2}.get(k % 10, 0) for k in range(len(chunks))]
    return tuple(torch.cat([c for c, p in zip(chunks, place, strict=True) if p == part]) for part in range(3)), \
        digest(whole)


@cache
def lines():
    "Lines of modules with the number of their module, 20 characters at least, none that occurs twice."
    every, sources = {}, [module_text(name) for name in ORIGINS]
    for label, source in enumerate(sources):
        for line in source.splitlines():
            every.setdefault(" ".join(line.split()), []).append(label)
    once = [(line, labels[0]) for line, labels in every.items() if len(labels) == 1 and len(line) >= 20]
    return [line for line, _ in once], torch.tensor([label for _, label in once]), digest(*sources)


def _file(name):
    try:
        path = data_folder() / name
    except FileNotFoundError as e:
        raise Absent(str(e)) from e
    if not path.is_file():
        raise Absent(f"{name} is not in the folder of HOT_DATA; put the official file there")
    return path


@cache
def series(name):
    "(T, N) float32 in the order of the file."
    path = _file(f"{name}.csv")
    values = np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(1, 8), dtype=np.float64)
    return torch.tensor(values, dtype=torch.float32), digest(path.read_bytes())


@cache
def slices(name):
    "part -> (n, 3, 28, 28) float32, the middle slice along each axis, and (n,) labels."
    path = _file(f"{name}mnist3d.npz")
    with np.load(path, allow_pickle=False) as f:
        arrays = {key: f[key] for key in f.files}
    found = {}
    for part in ("train", "val", "test"):
        x = torch.tensor(arrays[f"{part}_images"]).float() / 255
        m = x.shape[1] // 2
        found[part] = (torch.stack([x[:, m], x[:, :, m], x[:, :, :, m]], 1),
                       torch.tensor(arrays[f"{part}_labels"].astype(np.int64)).flatten())
    return found, digest(path.read_bytes())


def wave_file(name, part):
    "A file of the packages that ship it; the package is not imported."
    for package in ("aeon", "sktime"):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            path = Path(folder) / "datasets" / "data" / name / f"{name}_{part}.ts"
            if path.is_file():
                return path
    raise Absent(f'{name}: neither aeon nor sktime is installed; pip install --no-deps aeon brings its files')


def read_waves(path):
    "Series (n, longest, channels) with zeros behind their ends, their mask, and names of classes, from a .ts file."
    rows, labels, begun = [], [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if begun and line:
            *channels, label = line.split(":")
            rows.append(torch.tensor([[float(v) for v in c.split(",")] for c in channels]).T)
            labels.append(label.strip())
        begun = begun or line.lower() == "@data"
    return rows, labels


@cache
def waves(name):
    "part -> (x, mask, y); values are standardized by those of the training part."
    paths = {part: wave_file(name, part) for part in ("TRAIN", "TEST")}
    read = {part: read_waves(path) for part, path in paths.items()}
    every = torch.cat(read["TRAIN"][0])
    center, spread = every.mean(0), every.std(0)
    longest = max(len(r) for rows, _ in read.values() for r in rows)
    names, found = sorted(set(read["TRAIN"][1])), {}
    for part, (rows, labels) in read.items():
        x = torch.stack([torch.cat([(r - center) / spread, r.new_zeros(longest - len(r), r.shape[1])]) for r in rows])
        mask = torch.arange(longest) < torch.tensor([len(r) for r in rows])[:, None]
        found[part] = x, mask, torch.tensor([names.index(label) for label in labels])
    return found, len(names), digest(*(p.read_bytes() for p in paths.values()))


@cache
def table(name):
    "Columns, targets and the number of classes; 0 classes for a number to be estimated."
    from sklearn import datasets
    data = {"breast cancer": datasets.load_breast_cancer, "wine": datasets.load_wine,
            "diabetes": datasets.load_diabetes, "digits": datasets.load_digits}[name]()
    x, classes = torch.tensor(data.data, dtype=torch.float32), len(getattr(data, "target_names", ()))
    y = torch.tensor(data.target, dtype=torch.long if classes else torch.float32)
    return x, y, classes, digest(np.asarray(data.data), np.asarray(data.target))


def split(y, seed, shares=(0.6, 0.8)):
    "Indices of training, validation and test, of each class alike; of all alike where y is a number."
    g = torch.Generator().manual_seed(seed)
    groups = y if y.dtype == torch.long else torch.zeros(len(y), dtype=torch.long)
    parts = [[], [], []]
    for c in groups.unique():
        where = (groups == c).nonzero().flatten()
        where = where[torch.randperm(len(where), generator=g)]
        a, b = (math.floor(s * len(where) + 0.5) for s in shares)
        for part, some in zip(parts, (where[:a], where[a:b], where[b:]), strict=True):
            part.append(some)
    return [torch.cat(part) for part in parts]

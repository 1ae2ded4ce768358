"""Files of models, adapters and streams: damaged ones are one line that names the file, and none is half written."""
import pickle

import pytest
import torch
from safetensors.torch import save
from torch import nn

from hot_nbdev.adapter_files import load_adapters, save_adapters
from hot_nbdev.adapters import add_adapters
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import load_model, make_model
from hot_nbdev.streaming import load_state, save_state
from hot_nbdev.streams import steps


def model(seed):
    torch.manual_seed(seed)
    return make_model(ClassifierConfig(patch=(2, 3), dim=16, heads=2, depth=1 + seed % 2, classes=5))


def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20))


def adapted(seed):
    return add_adapters(dense(), kind="lora", rank=2 + seed)


def state(seed):
    layer = KroneckerAttention(8, 2, 2, causal=(0,)).eval()
    return steps(layer, torch.full((1, 2, 3, 8), float(seed)), None, torch.ones(1, 2, 3, dtype=torch.bool))[1]


KINDS = {   # file: how one is written, by a seed; how it is read
    "model.safetensors": (lambda path, seed: model(seed).save(path.parent), lambda path: load_model(path.parent)),
    "config.json": (lambda path, seed: model(seed).save(path.parent), lambda path: load_model(path.parent)),
    "adapters.safetensors": (lambda path, seed: save_adapters(adapted(seed), path),
                             lambda path: load_adapters(dense(), path)),
    "state.safetensors": (lambda path, seed: save_state(state(seed), path), load_state)}
kinds = pytest.mark.parametrize("kind", KINDS)


def refused(read, path, error=ValueError):
    with pytest.raises(error) as e:
        read(path)
    assert str(path) in str(e.value) and "\n" not in str(e.value), str(e.value)


@kinds
def test_cut_damaged_foreign_and_missing_files_are_one_line_with_the_name(kind, tmp_path):
    (write, read), path = KINDS[kind], tmp_path / kind
    write(path, 0)
    read(path)
    whole, weights = path.read_bytes(), {"weight": torch.ones(3)}
    foreign = [b"", whole[:1], whole[:4], whole[:100], whole[:-3], b"\xff" * 8 + whole[8:], pickle.dumps(weights),
               b"<!doctype html>" * 9, b"[1]", b"null", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff"]
    if kind != "config.json":
        foreign += [whole + b"0", whole[:8] + b"[" + whole[9:], save(weights), save(weights, {"digest": "a" * 64})]
    for content in foreign:
        path.write_bytes(content)
        refused(read, path)
    path.unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=kind):
        read(path)
    path.mkdir()
    with pytest.raises((ValueError, OSError), match=kind):
        read(path)


@kinds
@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.write_text"])
def test_a_save_that_fails_leaves_what_was_there(kind, where, tmp_path, monkeypatch):
    "Where the disk is full when a file shall be kept; or already when settings are written, which a model has."
    write, path = KINDS[kind][0], tmp_path / kind
    write(path, 0)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*_, **__):
        raise OSError("no space left on device")
    monkeypatch.setattr(where if len(before) > 1 else "os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write(path, 1)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before

"""The library answers as it did when golden.safetensors was written."""
import shutil

import pytest
import torch
from golden import HERE, add, answers, part, read, rebuilt

RECORDS, TENSORS = read()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["name"])
def test_answers_are_those_of_before(record):
    found, want = answers(record, rebuilt(record, TENSORS), TENSORS), part(TENSORS, f"{record['name']}/=")
    assert len(found) == len(want) >= len(record["calls"])
    for name, y in found.items():
        assert y.shape == TENSORS[name].shape and (y - TENSORS[name]).abs().max() <= 1e-10, name


def test_a_record_is_added_behind_the_others(tmp_path):
    for kind in ("json", "safetensors"):
        shutil.copy(HERE / f"golden.{kind}", tmp_path)
    settings = dict(kind="tied", dim=8, heads=2, order=2)
    case = dict(name="tied", family="attention", settings=settings, calls=["plain"], given={})
    add(case, {"x": torch.randn(2, 3, 2, 8)}, tmp_path)
    (*records, record), tensors = read(tmp_path)
    assert records == RECORDS and tensors.keys() > TENSORS.keys()
    (name, y), = answers(record, rebuilt(record, tensors), tensors).items()
    assert (y - tensors[name]).abs().max() <= 1e-10


def test_the_files_are_small_and_whole():
    assert (HERE / "golden.safetensors").stat().st_size < 400_000
    names = [r["name"] for r in RECORDS]
    assert len(set(names)) == len(names) >= 60
    assert {n.split("/")[0] for n in TENSORS} == set(names)

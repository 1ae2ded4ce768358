"""The library answers as it did when golden.safetensors was written."""
import pytest
from golden import HERE, answers, part, read, rebuilt

RECORDS, TENSORS = read()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["name"])
def test_answers_are_those_of_before(record):
    found, want = answers(record, rebuilt(record, TENSORS), TENSORS), part(TENSORS, f"{record['name']}/=")
    assert len(found) == len(want) >= len(record["calls"])
    for name, y in found.items():
        assert y.shape == TENSORS[name].shape and (y - TENSORS[name]).abs().max() <= 1e-10, name


def test_the_files_are_small_and_whole():
    assert (HERE / "golden.safetensors").stat().st_size < 400_000
    names = [r["name"] for r in RECORDS]
    assert len(set(names)) == len(names) >= 60
    assert {n.split("/")[0] for n in TENSORS} == set(names)

"""One tensor on several processes: the numbers of one, the bytes of the formula, and errors where nobody waits."""
import itertools
import multiprocessing

import pytest
import sharded
import torch
from coverage import Coverage
from torch import distributed
from torch.multiprocessing import start_processes

from hot_nbdev.sharding import part_sizes

PROCESSES = 4
GLOO = distributed.is_available() and distributed.is_gloo_available()
pytestmark = pytest.mark.skipif(not GLOO, reason="needs gloo")


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    "What four processes wrote down: what was compared -> how far each was off."
    folder = str(tmp_path_factory.mktemp("processes"))
    measured = Coverage.current()
    lines = measured and measured.get_data().base_filename()
    multiprocessing.set_forkserver_preload(["hot_nbdev.models", "torch.distributed.tensor"])   # once for all processes
    start_processes(sharded.work, (folder, PROCESSES, lines), nprocs=PROCESSES, start_method="forkserver")
    found = [torch.load(f"{folder}/{rank}.pt", weights_only=True) for rank in range(PROCESSES)]
    lost, = {*map(tuple, (note.pop("lost") for note in found if "lost" in note))}
    assert not lost and len({tuple(note) for note in found}) == 1
    return {name: max(note[name] for note in found) for name in found[0]}


def off(notes, *begin):
    "What is off by more than rounding, among notes that begin like this."
    chosen = {name: far for name, far in notes.items() if name.startswith(begin)}
    assert chosen
    return {name: far for name, far in chosen.items() if not far < 1e-12}


def test_parts_give_the_numbers_and_gradients_of_the_whole_and_send_what_the_formula_says_to_the_byte(notes):
    assert sum(name.startswith("(") for name in notes) == len([*sharded.cases()])
    assert off(notes, "(") == off(notes, "bytes") == {}


def test_models_parts_of_any_size_gradients_of_gradients_and_errors(notes):
    for begin in ("model", "block", "learned", "uneven", "together", "empty", "linear", "twice", "half", "DTensor",
                  "maps", "DDP", "FSDP", "error"):
        assert off(notes, begin) == {}


def test_parts_are_as_equal_as_can_be():
    for n, p in itertools.product(range(12), range(1, 6)):
        sizes = part_sizes(n, p)
        assert sum(sizes) == n and max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
        for multiple in (2, 3):
            sizes = part_sizes(n, p, multiple)
            full = [s for s in sizes if s][:-1]
            assert sum(sizes) == n and all(s % multiple == 0 for s in full) and len(sizes) == p and min(sizes) >= 0

"""Profiling: tables, rows, options, errors and interruption on tiny shapes; no time is asserted."""
import pytest
import torch
from scripts import load
from torch.testing import assert_close

from hot_nbdev import kronecker_attention
from hot_nbdev.cost import count
from hot_nbdev.kronecker_attention import KroneckerAttention, mean
from hot_nbdev.train.results import read_rows

profiling = load("profiling")
profile, rivals = profiling.profile, profiling.rivals

SMALL = "--sizes 3 2 --dim 8 --heads 2 --repeats 1 --device cpu".split()
QUICK = dict(repeats=2, least=0.0)


@pytest.fixture(autouse=True)
def small_square(monkeypatch):
    monkeypatch.setattr(profiling.timing, "SQUARE", 16)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("sizes", [(3, 1), (2, 1, 2, 2)])
def test_each_rival_has_a_row(sizes, train):
    found = profile(sizes, 8, 2, 2, train=train, **QUICK)
    rows = {row["what"]: row for row in found}
    assert list(rows)[0] == "floor" and rows["floor"]["over_floor"] == rows["floor"]["most"] == 1.0
    for name, row in rows.items():
        assert row["rounds"] in (0, 2) and (row["rounds"] == 2) == (row["seconds"] is not None), name
        assert row["sizes"] == "x".join(map(str, sizes)) and row["threads"] and row["processor"] and row["torch"]
        assert row["pass"] == ("train" if train else "forward") and row["dtype"] == "float32"
        assert not row["rounds"] or row["least"] <= row["most"]
    assert {"Kronecker attention", "sum", "full", "axial", "SDPA, flattened"} <= {n for n in rows if rows[n]["rounds"]}
    noted = [row["what"] for row in found if row["note"] == "what the layer does"]
    assert noted == ([] if train else ["plan: turned"]) and not rows["FlexAttention"]["rounds"]
    assert "% of limit" in repr(profiling.table(found))


def test_rivals_compute_what_they_say():
    "The plans give the layer's numbers, and the multiply-adds are those of the counter."
    torch.manual_seed(0)
    layer, x = KroneckerAttention(8, 2, 3), torch.randn(1, 3, 4, 2, 8)
    with torch.no_grad():
        want = layer(x)
        for name, (make, _) in rivals(layer, (3, 4, 2)).items():
            if name.startswith(("Kronecker", "plan")):
                assert_close(make()(x), want)
    for name, (make, work) in rivals(layer, (3, 4, 2)).items():
        if name in ("floor", "Kronecker attention", "sum", "full", "axial", "SDPA, flattened"):
            with torch.set_grad_enabled(name.startswith("SDPA")):
                assert count(make(), x).multiply_adds == work, name


def test_the_plan_that_is_named_is_the_plan_that_is_followed(monkeypatch):
    "In place means that modes are multiplied by `mode_dot`, turned that they are not."
    calls, once = [], kronecker_attention.mode_dot
    monkeypatch.setattr(kronecker_attention, "mode_dot", lambda *a, **k: calls.append(1) or once(*a, **k))
    for options in ({}, {"combine": mean}, {"causal": (0,)}):
        for train, sizes in [(False, (5, 4)), (True, (5, 4)), (False, (40, 40)), (True, (40, 40))]:
            layer = KroneckerAttention(8, 2, 2, **options)
            with torch.set_grad_enabled(train):
                calls.clear()
                layer(torch.randn(1, *sizes, 8))
            assert profiling.plan_taken(layer, train) == ("in place" if calls else "turned"), (options, train, sizes)


def test_the_command_adds_rows_to_a_table(capsys, tmp_path):
    file, threads = tmp_path / "new" / "mine.csv", torch.get_num_threads()
    profiling.main([*SMALL, "--out", str(file), "--threads", "1"])
    said = capsys.readouterr()
    assert "applies its maps turned" in said.out and "1 threads" in said.out and "1 rounds" in said.err
    assert "\r" not in said.out and torch.get_num_threads() == threads
    profiling.main([*SMALL, "--out", str(file), "--train", "--dtype", "float64"])
    assert "in place" in capsys.readouterr().out
    rows = read_rows(file)
    assert {r["pass"] for r in rows} == {"forward", "train"} and len({tuple(r) for r in rows}) == 1
    assert all((r["rounds"] == "1") == bool(r["seconds"]) == bool(r["over_floor"]) for r in rows)


@pytest.mark.parametrize("words, message", [
    ("--heads 3", "heads is 3, which does not divide dim 8"), ("--sizes 0 2", "whole numbers of at least 1"),
    ("--threads 0", "threads is 0"), ("--device nowhere", "device")])
def test_errors_are_one_line(capsys, words, message):
    with pytest.raises(SystemExit) as end:
        profiling.main([*SMALL, *words.split()])
    text = capsys.readouterr().err
    assert end.value.code == 1 and "Traceback" not in text
    assert text.splitlines()[-1].startswith("profiling: ") and message in text

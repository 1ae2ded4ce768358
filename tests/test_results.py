"""Tables of results: nothing is lost, what cannot be written is found early, rows say whence they come."""
import csv
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import hot_nbdev
from hot_nbdev.train import results
from hot_nbdev.train.loop import TrainConfig

ROOT = Path(__file__).resolve().parent.parent


def test_columns_stay_and_short_rows_are_filled(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("b,a\n")                                             # a header without rows
    results.append_row(path, {"a": 1, "c": 2})
    assert path.read_text() == "b,a,c\n,1,2\n"
    path.write_text("\ufeffa,b,c\n1\n\n2,\"x\n\u2028y\"\n", encoding="utf-8")
    results.append_row(path, {"d": 4, "b": 5})
    found = [list(r.values()) for r in results.read_rows(path)]
    assert found == [["1", "", "", ""], ["2", "x\n\u2028y", "", ""], ["", "5", "", "4"]]
    assert list(results.read_rows(path)[0]) == ["a", "b", "c", "d"]


NONE = "is no table of results"


@pytest.mark.parametrize("damage, says", [
    (bytes(range(256)), NONE), (b"a,b\n\xff\xfe,1\n", NONE), (b"a\0b,c\n", NONE), (b'a,"b' + b"x" * 200_000, NONE),
    (b"a,b,a\n1,2,3\n", "it has the column 'a' twice"), (b"a\n1\n1,2\n", "longer than its header, row 2")],
    ids=["binary", "not UTF-8", "zero byte", "endless field", "a column twice", "a long row"])
def test_a_file_that_is_no_table_is_found_before_training_and_stays(tmp_path, damage, says):
    path = tmp_path / "t.csv"
    path.write_bytes(damage)
    for work in (results.check_results, results.read_rows, lambda p: results.append_row(p, {"a": 1})):
        with pytest.raises(ValueError, match=says):
            work(path)
    assert path.read_bytes() == damage


def test_a_place_that_cannot_be_written_is_found_before_training(tmp_path):
    results.check_results(tmp_path / "new" / "folder" / "t.csv")
    assert list(tmp_path.iterdir()) == []                               # looked, and made nothing
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        results.check_results(tmp_path / "file" / "t.csv")
    with pytest.raises(ValueError, match="is no table of results .*directory"):
        results.check_results(tmp_path)


def test_write_csv_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "t.csv"
    results.write_csv(path, ["a"], [{"a": 1}])
    with pytest.raises(ValueError, match="not in fieldnames"):
        results.write_csv(path, ["a"], [{"a": 2}, {"b": 3}])
    assert path.read_text() == "a\n1\n" and [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_the_commit_is_that_of_the_library_or_empty(tmp_path):
    "Not that of a project in whose folder an environment with this library lies."
    own, settings = tmp_path / "hot_nbdev", tmp_path / "settings.ini"
    elsewhere = tmp_path / ".venv" / "lib" / "site-packages" / "hot_nbdev"
    for folder in (own, elsewhere):
        folder.mkdir(parents=True)
    (own / "tensor.py").write_text("")
    settings.write_text("")
    git = "git init -q && git add . && git -c user.name=x -c user.email=x@x commit -qm x"
    subprocess.run(git, cwd=tmp_path, shell=True, check=True)
    assert results.library_commit(elsewhere) == ""
    found = results.library_commit(own)
    assert len(found) == 12 and set(found) <= set("0123456789abcdef")
    settings.write_text("a row was added, say")
    assert results.library_commit(own) == found
    (own / "tensor.py").write_text("changed")
    assert results.library_commit(own) == found + "+"
    settings.unlink()                                       # somebody else's folder of that name
    assert results.library_commit(own) == ""
    assert results.library_commit() == results.library_commit(next(iter(hot_nbdev.__path__)))


def test_a_model_that_cannot_be_counted_leaves_the_column_empty():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * float(x.sum())      # needs numbers
    result = SimpleNamespace(epochs=2, stopped="finished", seconds=1.0, best={"epoch": 1, "loss": 0.5, "rate": 0.1})
    found = results.row(SimpleNamespace(name="own"), "d", "m", Own(3, 2), TrainConfig(), result, {}, torch.ones(1, 3))
    assert found["multiply_adds"] is None and found["parameters"] == 8 and list(found)[-1] == "commit"


def test_the_tables_of_the_book_are_still_read():
    for path in [*ROOT.glob("studies/**/*.csv"), *ROOT.glob("bench/rows/*.csv")]:
        rows = results.read_rows(path)
        with open(path, newline="") as f:
            assert rows == [{k: v or "" for k, v in r.items()} for r in csv.DictReader(f)] and rows, path.name


def test_scores_of_test_samples_stand_beside_the_rows_that_name_them():
    "All of them, but those that no comparison asks for: of the choice of defaults, and of the pair's search for rates."
    for archive in ROOT.glob("studies/**/scores.npz"):
        rows = [r for path in archive.parent.glob("*.csv") for r in results.read_rows(path)]
        named = {Path(r["scores"]).stem for r in rows if r.get("scores")}
        with np.load(archive, allow_pickle=False) as kept:
            there = {name.partition("/")[0] for name in kept.files}
            assert kept.files == sorted(kept.files)
        assert there <= named
        assert all("-seed99-" in name and "pair" in archive.parts for name in named - there), sorted(named - there)
    assert not list(ROOT.glob("studies/**/scores")), "python -m studies.pack FOLDER puts them into the archive"


def test_tables_of_rows_that_lack_something():
    rows = [{"data": "a<b>", "loss": "0.5", "model": '{"dim": 8}'},
            {"data": "a<b>", "loss": None, "model": "ridge"},
            {"data": "c", "loss": "nan"}, {"data": "c", "loss": "1.5"}]
    found = results.summarize(rows, "data", "loss")
    assert [line["runs"] for line in found] == [2, 2] and (found[0]["loss"], found[0]["loss_sd"]) == (0.5, None)
    assert math.isnan(found[1]["loss"]) and math.isnan(found[1]["loss_sd"])     # a run that diverged shows
    assert [results.setting(r, "dim") for r in rows] == [8, None, None, None]
    assert "<td>a&lt;b&gt;</td>" in found._repr_html_() and "<b>" not in found._repr_html_()
    assert results.summarize([], ["data"], ["loss"]) == [] and "<table>" in results.Table()._repr_html_()
    assert results.Table([{"a": 1}, {"a": 2, "b": 0.5}]).cells() == [["a", "b"], ["1", ""], ["2", "0.500"]]

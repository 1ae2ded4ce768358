"""The page of promises and the long tests behind it: names that lead to tests, parts that notice what goes wrong."""
import ast
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import stress

from hot_nbdev.book import results_file
from hot_nbdev.results import read_rows

ROWS = read_rows(stress.ROOT / "nbs" / "promises.csv")


def problems(rows):
    "What is wrong with the rows: a topic, a promise, its limits, tests as file::name, parts of tests/stress.py."
    named = {file: {getattr(node, "name", "") for node in ast.parse((stress.ROOT / "tests" / file).read_text()).body}
             for file in {t.partition("::")[0] for row in rows for t in row["tests"].split()}}
    for number, row in enumerate(rows, 2):
        yield from (f"line {number}: {key} is empty" for key in ("topic", "promise", "within", "tests") if not row[key])
        for file, _, name in (t.partition("::") for t in row["tests"].split()):
            if not name.startswith("test_") or name not in named[file]:
                yield f"line {number}: there is no test {name} in {file}"
        yield from (f"line {number}: there is no part {p} of tests/stress.py"
                    for p in row["stress"].split() if p not in stress.PARTS)


def test_every_promise_names_tests_that_are_there():
    assert list(problems(ROWS)) == []
    wrong = [{**ROWS[0], "tests": "test_contracts.py::test_no_such", "stress": "nothing", "within": ""}]
    assert [text.partition(": ")[2] for text in problems(wrong)] == [
        "within is empty", "there is no test test_no_such in test_contracts.py",
        "there is no part nothing of tests/stress.py"]


def test_parts_of_the_long_run_are_those_of_the_page_and_of_the_rows():
    rows = [row["part"] for row in read_rows(results_file("stress.csv"))]
    assert rows == [part for part in stress.PARTS if part in rows]
    page = (stress.ROOT / "nbs" / "promises.ipynb").read_text(encoding="utf-8")
    assert "PARTS = " + json.dumps(list(stress.PARTS)) in page.replace('\\"', '"')


@pytest.mark.parametrize("part, share", [("shapes", 0.006), ("kills", 0.003), ("appends", 0.02), ("files", 0.006),
                                         ("disk", 0.05)])
def test_parts_of_the_long_run_work(part, share):
    found = stress.run(part, share)
    assert found.tried >= int(stress.PARTS[part][1] * share) > 0 and found.wrong == [] and found.what


PROPERTIES = """
from hypothesis import given, strategies as st
from often import examples

@examples(3)
@given(st.booleans())
def test_first(b):
    raise AssertionError("it has a row")

@examples(3)
@given(st.integers())
def test_second(n):
    pass

@examples(3)
@given(st.integers())
def test_third(n):
    raise ValueError
"""


def test_examples_are_counted_and_go_on_where_they_were_broken_off(monkeypatch, tmp_path):
    (tmp_path / "test_some.py").write_text(PROPERTIES)
    table, run = tmp_path / ".stress_properties.csv", subprocess.run
    table.write_text("test,tried,wrong\ntest_some.py::test_first,2000,0\n")

    def few(words, cwd, env, **options):
        assert words[2:4] == ["pytest", "tests"] and (env["TALLY"], env["EXAMPLES"]) == (str(table), "2000")
        return run([*words[:3], ".", *words[4:]], cwd=tmp_path, env=env | {"EXAMPLES": "3"}, **options)
    monkeypatch.setattr(stress, "UNDER_WAY", tmp_path)
    monkeypatch.setattr(stress.subprocess, "run", few)
    found = stress.run("properties")
    assert found.tried >= 2001 and found.wrong == ["test_some.py::test_third"] and not table.exists()
    assert found.what == "examples of properties and contracts, at most 2,000 for each"
    stopped = SimpleNamespace(returncode=2, stdout="stopped")
    monkeypatch.setattr(stress.subprocess, "run", lambda *args, **options: stopped)
    table.write_text("test,tried,wrong\na,7,0\n")
    assert stress.run("properties").wrong == ["stopped"] and table.exists()


def test_shapes_notice_a_wrong_number(monkeypatch):
    import layers
    monkeypatch.setattr(layers.Linear, "answers", lambda self, layer, x: [(layer(x), layer(x) + 1e-6)])
    assert stress.run("shapes", (len(layers.LAYERS) + 1) / stress.PARTS["shapes"][1]).wrong


def test_kills_notice_another_result(tmp_path, monkeypatch):
    former = stress.bits
    monkeypatch.setattr(stress, "bits", lambda folder: {**former(folder), "updates": folder.name})
    assert "another updates" in stress.run("kills", 0.001).wrong[0]


def test_appends_notice_a_row_that_is_lost(monkeypatch):
    monkeypatch.setattr(stress, "append", lambda path, who, count: stress.append_row(path, {"who": who, "i": 0}))
    assert stress.run("appends", 0.02).wrong


def test_files_notice_errors_that_are_none_or_name_nothing(monkeypatch):
    def nameless(path):
        raise ValueError("something is wrong")
    rows = {"a.csv": (lambda p: p.write_text("a,b"), lambda p: {}[p]), "b.csv": (lambda p: p.write_text("a"), nameless)}
    monkeypatch.setattr(stress, "kinds", lambda: rows)
    assert len(stress.run("files", 0.002).wrong) == int(0.002 * stress.PARTS["files"][1])


def test_disk_notices_a_file_that_is_not_written_as_a_whole(monkeypatch):
    rows = {"rows.csv": (lambda p: Path(p).write_bytes(os.urandom(20_000)), None)}
    monkeypatch.setattr(stress, "kinds", lambda: rows)
    assert any("the former file has changed" in text for text in stress.run("disk", 0.02).wrong)


def test_a_part_that_breaks_off_is_wrong(monkeypatch):
    monkeypatch.setattr(stress, "kinds", lambda: 1 / 0)
    assert "ZeroDivisionError" in stress.run("files", 0.002).wrong[0]

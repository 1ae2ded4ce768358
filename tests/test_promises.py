"""The page of promises and the long tests behind it: names that lead to tests, parts that notice what goes wrong."""
import json
import os
from pathlib import Path

import promises
import pytest
import stress

from hot_nbdev.results import read_rows

ROWS = read_rows(promises.LEDGER)


def test_every_promise_names_tests_that_are_there_and_their_cases():
    cases = promises.collected([t for row in ROWS for t in row["tests"].split()])
    assert list(promises.problems(ROWS, stress.PARTS, cases)) == []
    wrong = [{**ROWS[0], "tests": "test_contracts.py::test_no_such", "stress": "nothing", "within": ""}]
    assert [text.partition(": ")[2].partition(":")[0] for text in promises.problems(wrong, stress.PARTS, cases)] == [
        "within is empty", "there is no test test_contracts.py", "there is no part nothing of tests/stress.py",
        f"its tests have 0 cases, not {ROWS[0]['cases']}"]


def test_parts_of_the_long_run_are_those_of_the_page_and_of_the_rows():
    rows = [row["part"] for row in read_rows(stress.ROOT / "results" / "stress.csv")]
    assert rows == [part for part in stress.PARTS if part in rows]
    page = (stress.ROOT / "nbs" / "promises.ipynb").read_text(encoding="utf-8")
    assert "PARTS = " + json.dumps(list(stress.PARTS)) in page.replace('\\"', '"')


@pytest.mark.parametrize("part, share", [("shapes", 0.006), ("kills", 0.003), ("appends", 0.02), ("files", 0.006),
                                         ("disk", 0.05)])
def test_parts_of_the_long_run_work(part, share):
    found = stress.run(part, share)
    assert found.tried >= int(stress.PARTS[part][1] * share) > 0 and found.wrong == [] and found.what


def test_examples_are_counted(monkeypatch):
    class Done:
        returncode, stdout = 0, "- 30 passing, 0 failing, and 6 invalid test cases\n- 12 passing examples, 0 failing"
    monkeypatch.setattr(stress.subprocess, "run", lambda *args, **options: Done)
    assert stress.run("properties") == (42, [], "examples of properties and contracts, at most 2,000 for each")


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

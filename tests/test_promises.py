"""The page of promises and the long tests behind it: names that lead to tests, parts that notice what goes wrong."""
import json
import os
import re
from pathlib import Path

import pytest
import stress

from hot_nbdev.book import results_file
from hot_nbdev.train.results import read_rows

ROWS = read_rows(stress.ROOT / "nbs" / "promises.csv")


def test_every_promise_names_tests_that_are_there():
    for number, row in enumerate(ROWS, 2):
        assert all(row[key] for key in ("topic", "promise", "within", "tests")), f"line {number}"
        assert set(row["stress"].split()) <= set(stress.PARTS), f"line {number}"
        for file, _, name in (test.partition("::") for test in row["tests"].split()):
            text = (stress.ROOT / "tests" / file).read_text()
            assert re.search(rf"^def {name}\(", text, re.M) and name.startswith("test_"), f"line {number}: {name}"


def test_the_page_shows_each_topic_of_the_ledger_once():
    cells = json.loads((stress.ROOT / "nbs" / "promises.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = re.findall(r'^shown\("(.+)"\)$', "\n".join("".join(cell["source"]) for cell in cells), re.M)
    assert sorted(shown) == sorted({row["topic"] for row in ROWS})


def test_parts_of_the_long_run_are_those_of_the_page_and_of_the_rows():
    rows = [row["part"] for row in read_rows(results_file("stress.csv"))]
    assert rows == [part for part in stress.PARTS if part in rows]
    page = (stress.ROOT / "nbs" / "promises.ipynb").read_text(encoding="utf-8")
    assert "PARTS = " + json.dumps(list(stress.PARTS)) in page.replace('\\"', '"')


@pytest.mark.parametrize("part, share", [("appends", 0.02), ("files", 0.006), ("disk", 0.05)])
def test_parts_of_the_long_run_work(part, share):
    found = stress.run(part, share)
    assert found.tried >= int(stress.PARTS[part][1] * share) > 0 and found.wrong == [] and found.what


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

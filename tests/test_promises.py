"""The page of promises and the long tests behind it: names that lead to tests, parts that notice what goes wrong."""
import ast
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import stress

from hot_nbdev.book import results_file
from hot_nbdev.train.results import read_rows

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


def test_the_page_shows_each_topic_of_the_ledger_once():
    cells = json.loads((stress.ROOT / "nbs" / "promises.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = re.findall(r'^shown\("(.+)"\)$', "\n".join("".join(cell["source"]) for cell in cells), re.M)
    assert sorted(shown) == sorted({row["topic"] for row in ROWS})


def test_parts_of_the_long_run_are_those_of_the_page_and_of_the_rows():
    rows = [row["part"] for row in read_rows(results_file("stress.csv"))]
    assert rows == [part for part in stress.PARTS if part in rows]
    page = (stress.ROOT / "nbs" / "promises.ipynb").read_text(encoding="utf-8")
    assert "PARTS = " + json.dumps(list(stress.PARTS)) in page.replace('\\"', '"')


@pytest.mark.parametrize("part, share", [("shapes", 0.001), ("kills", 0.001), ("appends", 0.02), ("files", 0.006),
                                         ("disk", 0.05)])
def test_parts_of_the_long_run_work(part, share):
    found = stress.run(part, share)
    assert found.tried >= int(stress.PARTS[part][1] * share) > 0 and found.wrong == [] and found.what


def test_examples_are_counted(monkeypatch):
    said = "    - 7 passing, 1 failing, and 0 invalid test cases\nFAILED tests/a.py::test_b - x\n"
    monkeypatch.setattr(stress.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stdout=2 * said))
    assert stress.run("properties")[:2] == (14, 2 * ["tests/a.py::test_b"])


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

"""A plugin of pytest that counts the examples of properties: `pytest -p tally`, with TALLY naming a table.

A property gets its row as soon as it ends, and one that has a row is not tried again. So hours of examples can be
broken off and gone on with.
"""
import os
import re
from pathlib import Path

import pytest

from hot_nbdev.results import append_row, read_rows


def table():
    return Path(os.environ["TALLY"])


def pytest_collection_modifyitems(config, items):
    done = {row["test"] for row in (read_rows(table()) if table().exists() else [])}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.tried = sum(map(int, re.findall(r"(\d+) passing", getattr(item, "hypothesis_statistics", ""))))


class Rows:
    "Hears of all tests in the first process; workers of pytest-xdist have a `workerinput`."
    def __init__(self):
        self.failed = set()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            wrong = int(report.nodeid in self.failed)
            append_row(table(), {"test": report.nodeid, "tried": report.tried, "wrong": wrong})


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Rows())

"""Open tables of names."""
import sys
from functools import partial

import pytest

from hot_nbdev.registry import Registry, choose


def test_an_entry_is_imported_when_it_is_asked_for():
    table = Registry("thing")
    sys.modules.pop("colorsys", None)                      # as in a fresh program
    table["a"] = "colorsys:rgb_to_hsv"
    assert "a" in table and list(table) == ["a"] and "colorsys" not in sys.modules
    assert table["a"] is table["a"] is sys.modules["colorsys"].rgb_to_hsv
    table["b"] = "hot_nbdev.nowhere:thing"
    with pytest.raises(ImportError, match="nowhere"):
        table["b"]


def test_a_name_that_is_taken_stays_taken():
    table = Registry("thing")
    table["a"] = partial(int, base=2)
    table["a"] = partial(int, base=2)
    for other in (partial(int, base=3), int, "math:sqrt"):
        with pytest.raises(ValueError, match="thing 'a' is taken by .*; choose another name"):
            table["a"] = other
    del table["a"]
    table["a"] = "math:sqrt"
    assert table["a"](4) == 2 and "a" in repr(table)


@pytest.mark.parametrize("name, entry, message", [
    ("", int, "a name is a word"), (3, int, "but 3 came"), ("a", "math", "no reference"),
    ("a", "a:b:c", "no reference")])
def test_what_cannot_be_an_entry(name, entry, message):
    with pytest.raises(ValueError, match=message):
        Registry("thing")[name] = entry
    with pytest.raises(KeyError):
        Registry("thing")["absent"]
    assert [] not in Registry("thing")


def test_choose():
    assert choose("f", "x", 1, (1, 2)) == 1
    with pytest.raises(ValueError, match=r"f: x is 3; choose one of \(1, 2\)"):
        choose("f", "x", 3, (1, 2))

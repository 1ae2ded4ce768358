"""The house: every module has one writer, arrows point to earlier rooms, none is too long; and faults are seen."""
import house
import pytest


def test_the_house_is_in_order():
    written, arrows = house.writers(), house.graph()
    lines = {n: len((house.PACKAGE / f"{n}.py").read_text().splitlines()) for n in arrows}
    private = {n: house.private_imports(house.PACKAGE / f"{n}.py") for n in arrows}
    assert house.faults(house.ROOMS, arrows, written, lines, private) == []


@pytest.mark.parametrize(("order", "arrows", "written", "lines", "private", "fault"), [
    (["a", "b"], {"a": {"b"}, "b": set()}, {"a": ["x"], "b": ["y"]}, {}, {}, "a imports b, which comes later"),
    (["a", "b"], {"a": {"b"}, "b": {"a"}}, {"a": ["x"], "b": ["y"]}, {}, {}, "a circle: a -> b -> a"),
    (["a"], {"a": set()}, {"a": ["x", "y"]}, {}, {}, "a: written by x, y"),
    ([], {"a": set()}, {}, {}, {}, "a: has no room in the plan"),
    (["a"], {"a": set()}, {"a": ["x"]}, {"a": 451}, {}, "a: 451 lines, more than 449"),
    (["a"], {"a": set()}, {"a": ["x"]}, {}, {"a": ["b._c"]}, "a: imports the private b._c"),
])
def test_a_fault_of_the_house_is_seen(order, arrows, written, lines, private, fault):
    assert fault in house.faults(order, arrows, written, lines, private)


def test_imports_within_functions_and_by_relative_names_count(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("from .tensor import unfold\nfrom . import kernels\nimport hot_nbdev.cost\nimport torch\n"
                    "def f():\n    from hot_nbdev.data import _x\n")
    assert house.imports(path) == {"tensor", "kernels", "cost", "data"}
    assert house.private_imports(path) == ["hot_nbdev.data._x"]

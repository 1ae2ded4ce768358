"""The house: every module has one writer, there is no circle, none is too long; and faults are seen."""
import house
import pytest


def test_the_house_is_in_order():
    written, arrows, files = house.writers(), house.graph(), house.modules()
    lines = {n: len(p.read_text().splitlines()) for n, p in files.items()}
    assert house.faults(arrows, written, lines, {n: house.private_imports(p, n) for n, p in files.items()}) == []


@pytest.mark.parametrize(("arrows", "written", "lines", "private", "fault"), [
    ({"a": {"b"}, "b": {"a"}}, {"a": ["x"], "b": ["y"]}, {}, {}, "a circle: a -> b -> a"),
    ({"a": set()}, {"a": ["x", "y"]}, {}, {}, "a: written by x, y"),
    ({"a": set()}, {}, {}, {}, "a: written by nobody"),
    ({"a": set()}, {"a": ["x"]}, {"a": 451}, {}, "a: 451 lines, more than 449"),
    ({"a": set()}, {"a": ["x"]}, {}, {"a": ["b._c"]}, "a: imports the private b._c"),
])
def test_a_fault_of_the_house_is_seen(arrows, written, lines, private, fault):
    assert fault in house.faults(arrows, written, lines, private)


def test_a_module_stands_one_floor_above_what_it_imports():
    assert house.floors({"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}) == {"a": 1, "b": 2, "c": 3, "d": 2}


def test_imports_within_functions_and_by_relative_names_count(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("tensor", "kernels", "cost"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "data" / "series.py").write_text("from ..tensor import unfold\nfrom .. import kernels\n")
    path = tmp_path / "a.py"
    path.write_text("from .tensor import unfold\nfrom . import kernels\nimport hot_nbdev.cost\nimport torch\n"
                    "def f():\n    from hot_nbdev.data.series import _x\n")
    assert house.graph(tmp_path) == {"tensor": set(), "kernels": set(), "cost": set(), "data.series": {"tensor", "kernels"},
                                     "a": {"tensor", "kernels", "cost", "data.series"}}
    assert house.private_imports(path, "a") == ["data.series._x"]

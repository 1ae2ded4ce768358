"""Faults of the house are seen, which `tools/house.py --check` looks for in all modules; and nothing is there twice."""
import ast
import re

import house
import pytest
from chapters import all_chapters, exported
from lab import is_solution


@pytest.mark.parametrize(("arrows", "written", "lines", "private", "fault"), [
    ({"a": {"b"}, "b": {"a"}}, {"a": ["x"], "b": ["y"]}, {}, {}, "a circle: a -> b -> a"),
    ({"a": set()}, {"a": ["x", "y"]}, {}, {}, "a: written by x, y"),
    ({"a": set()}, {}, {}, {}, "a: written by nobody"),
    ({"a": set()}, {"a": ["x"]}, {"a": 351}, {}, "a: 351 lines, more than 350"),
    ({"a": set()}, {"a": ["x"]}, {}, {"a": ["b._c"]}, "a: imports the private b._c"),
])
def test_a_fault_of_the_house_is_seen(arrows, written, lines, private, fault):
    assert fault in house.faults(arrows, written, lines, private)


def test_a_mistyped_option_is_refused(capsys):
    with pytest.raises(SystemExit):
        house.main(["--chek"])
    assert "unrecognized arguments: --chek" in capsys.readouterr().err


def test_imports_within_functions_and_by_relative_names_count(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("tensor", "kernels", "cost"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "data" / "series.py").write_text("from ..tensor import unfold\nfrom .. import kernels\n")
    path = tmp_path / "a.py"
    path.write_text("from .tensor import unfold\nfrom . import kernels\nimport hot_nbdev.cost\nimport torch\n"
                    "def f():\n    from hot_nbdev.data.series import _x\n")
    assert house.graph(tmp_path) == {"tensor": set(), "kernels": set(), "cost": set(),
                                     "data.series": {"tensor", "kernels"},
                                     "a": {"tensor", "kernels", "cost", "data.series"}}
    assert house.private_imports(path, "a") == ["data.series._x"]


RECIPES = {"00_modes": ["Follower"], "05_attention": ["InEncoder"], "23_streams": ["Step"],
           "23a_streaming": ["RunningMean"]}
# layers to be copied by who needs them, and models that show a thing: chapter 0 has its whole model before the reader


def bodies(text):
    "name -> what a function or class at the top of a module does: arguments and code, without notes and docstring."
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for part in ast.walk(node):
                if isinstance(part, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(part) is not None:
                    part.body = part.body[1:] or [ast.Pass()]
                if isinstance(part, ast.arg):
                    part.annotation = None
                if isinstance(part, ast.FunctionDef):
                    part.returns = None
            name, node.name = node.name, "_"
            found[name] = ast.dump(node).replace(f"id='{name}'", "id='_'")
    return found


def twins(modules):
    "Names in the modules (name -> text) that do the same thing, together."
    known = {}
    for module, text in modules.items():
        for name, body in bodies(text).items():
            known.setdefault(body, []).append(f"{module}.{name}")
    return [names for names in known.values() if len(names) > 1]


def lesson_layers(chapter):
    "Classes over nn.Module that a chapter defines, neither exported nor part of an exercise."
    found, exercise = [], False
    for cell in chapter.cells:
        if cell.cell_type == "markdown":
            for marks, title in re.findall(r"^(#{1,3}) (.+)$", cell.source, re.M):
                exercise = title.startswith("Exercise") or exercise and len(marks) > 2
        elif not (exercise or exported(cell) or is_solution(cell)):
            found += [node.name for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.ClassDef)
                      and any(ast.unparse(base).rpartition(".")[2] == "Module" for base in node.bases)]
    return found


def test_nothing_in_the_package_has_two_names():
    "What a chapter exports is nowhere else, under its own name or another."
    own = {c.module for c in all_chapters() if c.module}
    pairs = twins({n: p.read_text() for n, p in house.modules().items()})
    assert [names for names in pairs if own & {name.partition(".")[0] for name in names}] == []


@pytest.mark.parametrize("chapter", all_chapters(), ids=lambda c: c.path.stem)
def test_a_lesson_defines_no_layer_beside_those_of_the_package(chapter):
    assert lesson_layers(chapter) == RECIPES.get(chapter.path.stem, [])

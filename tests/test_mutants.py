"What `make mutants` changes, and how it tells a change that is noticed from one that is not."
import ast

import mutants


def count(module):
    return len(list(mutants.changes(ast.parse((mutants.ROOT / module).read_text()))))


def every(module):
    return [mutants.mutated(module, n) for n in range(count(module))]


def test_messages_and_annotations_are_left_alone(tmp_path, monkeypatch):
    text = ("def f(x: int | None = 3, *, y=1) -> int | None:\n    if x == y:\n"
            "        raise ValueError(f'{x + 1}' + 'a')\n    return g(x, k=not y) @ -x\n")
    (tmp_path / "m.py").write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    found = [text for *_, text in every("m.py")]
    assert all(ast.parse(t) for t in found) and len(found) == 6
    for part in ("x: int | None=4", "y=2", "x != y", "g(x)", "k=not not y", "@ --x"):
        assert sum(part in t for t in found) == 1, (part, found)


def test_a_case_of_each_test_is_tried_before_further_ones():
    found = mutants.in_turn([[3.0, "a.py::f"], [2.0, "a.py::g[y]"], [1.0, "a.py::g[x]"]])
    assert [test for _, test in found] == ["a.py::g[x]", "a.py::f", "a.py::g[y]"]


def test_a_change_is_noticed_by_a_test_that_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")       # none is needed, and they take seconds
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    for name, text in {"hot_nbdev/m.py": "def f(x):\n    return x + 1\n", "hot_nbdev/__init__.py": "",
                       "tests/test_m.py": "from hot_nbdev.m import f\n\ndef test_f():\n    assert f(1) == 2\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    changed, tests = next(text for *_, text in every("hot_nbdev/m.py")), [[1.0, "tests/test_m.py::test_f"]]
    assert mutants.noticed("hot_nbdev/m.py", changed, tests) == "test_f"
    assert mutants.noticed("hot_nbdev/m.py", changed, []) == ""
    assert mutants.noticed("hot_nbdev/m.py", changed, [[1.0, "tests/test_m.py::gone"]]) == "exit"


def test_a_change_that_no_test_tries_is_noticed_by_the_chapter_that_exports_it():
    text = (mutants.ROOT / "hot_nbdev" / "lines.py").read_text()
    assert mutants.noticed("hot_nbdev/lines.py", text, []) == ""
    assert mutants.noticed("hot_nbdev/lines.py", text.replace(" ± ", " + "), []) == "40a_lines.ipynb"

"""Tests of a file run every line of the modules that it is there for: with fewer cases, none is lost without a word."""
import inspect
import os
from types import CodeType

import pytest
from coverage import Coverage


def inside(code):
    "Lines of functions behind their first, in the code of a module; the others run where it is imported."
    own = {line for *_, line in code.co_lines() if code.co_flags & inspect.CO_OPTIMIZED and line != code.co_firstlineno}
    return own.union(*(inside(part) for part in code.co_consts if isinstance(part, CodeType)))


class Lines(Coverage):
    "Which lines of modules run, beside those of errors, and of parts that begin like `but`, which others try."
    def __init__(self, *modules, but=(), data_file=None, **options):
        super().__init__(data_file, source=["hot_nbdev"], **options)
        self.set_option("report:exclude_lines", [r"^\s*(raise|except)\b", *but])
        self.modules = modules

    def lost(self):
        return [f"{m.__name__}:{line}" for m in self.modules for line in sorted(
            inside(compile(inspect.getsource(m), m.__file__, "exec")).intersection(self.analysis2(m.__file__)[3]))]


def every_line(*modules, but=()):
    "A fixture for a file of tests, if all of them run in this process, all are green, and nobody else measures."
    @pytest.fixture(scope="module", autouse=True)
    def lines(request):
        node, session, lines = request.node, request.session, Lines(*modules, but=but)
        whole = len([*node.collect()]) == sum(item.path == node.path for item in session.items)
        apart = "PYTEST_XDIST_WORKER" in os.environ and not session.config.option.loadgroup
        if Coverage.current() or not whole or apart:
            yield
            return
        failed = session.testsfailed
        with lines.collect():
            yield
        assert session.testsfailed > failed or not lines.lost()
    return lines

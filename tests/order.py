"""Which tests share a worker, and which files begin first, where pytest-xdist spreads them over processes."""
import pytest

FIRST = ["test_site.py", "test_contracts.py", "test_streams.py", "test_ragged.py", "test_bench.py",
         "test_ndlinear_systems.py", "test_tables.py", "test_printed.py", "test_book.py"]
ALONE = "test_chapters.py"          # each of its tests goes to whoever is free


def unit(nodeid):
    "What a test is run together with: its file, or nothing but itself."
    path = nodeid.partition("::")[0]
    return nodeid if path.endswith(ALONE) else path


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    "The longest files begin, so that no worker waits for another one at the end."
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of a file share a worker and what is built there: sites, wheels, pages that a browser has visited.

    A mark `xdist_group` says the same, but xdist hands it on in a private attribute that pytest 9.2 no longer
    reads, and then every fixture of a module is built by every worker without a word.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit(nodeid)
    config.option.loadscopereorder = False      # the order is that of the collection
    return ByFile(config, log)

"""The README says what is so: its snippets run, its links lead somewhere."""
import re

import forks
import nbformat
from chapters import NBS, ROOT

from hot_nbdev.book import results_file
from hot_nbdev.train.results import read_rows

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SITE = "https://hot-nbdev.github.io/hot_nbdev/"


def test_the_snippets_run_in_one_go(tmp_path, monkeypatch):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S))
    monkeypatch.chdir(tmp_path)
    status, said = forks.run(tmp_path / "said.txt", exec, code, {"__name__": "__main__"})
    assert status == 0, said
    whole = re.search(r"whole model +(\d+) +(\d+)", said)
    assert "{:,} parameters become {:,}".format(*map(int, whole.groups())) in TEXT


def test_links_lead_to_files_and_to_pages_that_there_are():
    targets = re.findall(r"\]\(([^)\s]+)\)", TEXT)
    pages = [t.removeprefix(SITE) for t in targets if t.startswith(SITE)]
    assert [p for p in pages if p and not (ROOT / "nbs" / p.replace(".html", ".ipynb")).is_file()] == []
    assert [t for t in targets if "://" not in t and not (ROOT / t).exists()] == []


def test_what_it_says_of_a_gpu_is_a_row_whose_card_and_commit_its_page_names():
    most, full, own, card, commit = re.search(
        r"up to ([\d,]+) positions on a GPU.* faster: (\S+) ms against (\S+) ms forward on an (.+?) "
        r"\(one sample, eager; the layer of commit (\w+), since today's was not timed on a GPU\)", TEXT).groups()
    growth, last = results_file("bench_growth.csv"), int(most.replace(",", ""))
    times = {(int(r["positions"]), r["layer"]): float(r["seconds"]) for r in read_rows(growth)
             if r["seconds"] and r["processor"].startswith(card)
             and (r["grid"], r["pass"], r["commit"][:7]) == ("cube", "forward", commit)}
    ahead = {n: times[n, "full"] < times[n, "product"] for n, layer in times if layer == "full"}
    assert ahead and all(faster == (n <= last) for n, faster in ahead.items()) and ahead[last]
    assert [f"{1000 * times[last, layer]:.2f}" for layer in ("full", "product")] == [full, own]
    assert not read_rows(growth.with_name("bench_gpu.csv"))     # else today's layer is run, and the line has to say so
    page = nbformat.read(NBS / "choosing.ipynb", as_version=4).cells
    said = "\n".join(cell.source for cell in page if cell.cell_type == "markdown")
    assert card in said and commit in said


def test_it_stays_a_front_door():
    assert 60 <= len(TEXT.splitlines()) <= 115 and "@v" in TEXT

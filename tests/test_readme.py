"""The README says what is so: its snippets run, its links lead somewhere, its picture is what it says.

    python tests/test_readme.py     draws the picture again
"""
import re
import subprocess
import sys

import nbformat
import pytest
import torch
from chapters import NBS, ROOT

from hot_nbdev.book import results_file
from hot_nbdev.train.results import read_rows

README, PICTURE = ROOT / "README.md", ROOT / "nbs" / "looks.svg"
TEXT = README.read_text(encoding="utf-8")
SITE = "https://hot-nbdev.github.io/hot_nbdev/"


def rect(x0, row, column, how):
    return f'<rect x="{x0 + 22 * column}" y="{28 + 22 * row}" width="21" height="21" {how}/>'


def picture():
    "What one query of the first page looks at, on a grid of 7 x 7 positions, by full attention, product and sum."
    torch.manual_seed(5)
    q, k = torch.randn(2, 7, 7, 8)
    row, column = 2, 4
    full = (q[row, column] @ k.reshape(49, 8).T / 8 ** 0.5).softmax(-1).reshape(7, 7)
    rows, columns = ((q.mean(m) @ k.mean(m).T * 7 / 8 ** 0.5).softmax(-1) for m in (1, 0))
    a, b = rows[row], columns[column]
    cross = torch.zeros(7, 7)
    cross[:, column] += a / 2
    cross[row] += b / 2
    cells = []
    for i, (name, grid) in enumerate([("full attention", full), ("product", torch.outer(a, b)), ("sum", cross)]):
        x0, shades = 10 + 180 * i, (grid / grid.max() * 20).round() / 20
        cells.append(f'<text x="{x0 + 77}" y="18" text-anchor="middle">{name}</text>')
        cells += [rect(x0, m, n, f'fill-opacity="{shades[m, n]:.2f}"') for m in range(7) for n in range(7)]
        cells.append(rect(x0, row, column, 'class="query"'))
    style = ("rect{fill:#0072b2;stroke:#8888;stroke-width:.5}.query{fill:none;stroke:#d55e00;stroke-width:3}"
             "text{font:14px sans-serif;fill:#57606a}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 535 190" width="535"><style>{style}</style>\n'
            + "\n".join(cells) + "\n</svg>\n")


def numbers(svg):
    return [float(n) for n in re.findall(r'fill-opacity="([\d.]+)"', svg)]


def test_the_picture_shows_what_one_query_looks_at():
    stored = PICTURE.read_text(encoding="utf-8")
    assert re.sub(r"opacity=\S+", "", stored) == re.sub(r"opacity=\S+", "", picture())
    assert numbers(stored) == pytest.approx(numbers(picture()), abs=0.051)      # shades are rounded to twentieths


def test_the_snippets_run_in_one_go(tmp_path):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""})
    assert done.returncode == 0, done.stderr
    whole = re.search(r"whole model +(\d+) +(\d+)", done.stdout)
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


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

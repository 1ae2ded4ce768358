"""The site as its readers meet it: in a browser, with the network off."""
import ast
import contextlib
import functools
import gzip
import http.server
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import api
import axe
import book
import pytest
import smallbook
from browser import chromium
from forks import serving

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "tools" / "book.py"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
RAW = [":::", "@thm-", "@eq-", "@def-", "?@", "$$", "\\tag", "{#"]


def build(folder, *options):
    env = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, SITE, *options], cwd=folder, env=env,
                          capture_output=True, text=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    "The small book's site."
    root = smallbook.write_project(tmp_path_factory.mktemp("small"))
    for name in ("styles.css", "reading.js", "math.woff2", "preview.png"):
        shutil.copy2(ROOT / "nbs" / name, root / "nbs" / name)
    done = build(root)
    assert done.returncode == 0, done.stderr
    assert f"The site is in {root / '_docs'}" in done.stdout
    return root / "_docs"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    "This book's site: in _docs if it was rendered there, else rendered now."
    docs = ROOT / "_docs"
    if (docs / "pagefind").is_dir():
        return docs
    out = tmp_path_factory.mktemp("real") / "_docs"
    done = build(ROOT, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(params=["small", "real"])
def site(request):
    return request.getfixturevalue(request.param)


def pages(site):
    return sorted(path.name for path in site.glob("*.html") if path.name != "404.html")


def test_every_page_is_listed_with_its_notebook_here_or_in_the_repository(site):
    chapters = [name for name in pages(site) if name not in ("references.html", "workshop.html", "measured.html")]
    listed = re.findall(r"\]\((\S+)/(\S+\.ipynb)\)", (site / "llms.txt").read_text())
    assert {f"{book.page_of(name)}.html" for _, name in listed} == set(chapters)
    here = {name for place, name in listed if place.endswith("/notebooks")}
    assert here == {path.name for path in (site / "notebooks").glob("*.ipynb")}
    assert all("/raw/" in place for place, name in listed if name not in here)


def test_constructs_of_the_small_book(small):
    first = (small / "first.html").read_text(encoding="utf-8")
    second = (small / "second.html").read_text(encoding="utf-8")
    for part in ('id="thm-main"', 'id="eq-norm"', 'id="tbl-cost"', 'id="fig-dot"', 'id="fig-plot"', 'id="rem-inner"',
                 '<div class="book-proof', '<details class="callout note"><summary>', "Figure 1.2: A plot",
                 'alt="One dot."', 'alt="A line that rises."', "section 2)", "p.\u00a03)", "Table 1.1: Costs of",
                 '<h1 id="first-steps">1 First steps</h1>', "Part I · Beginnings", "2 Second, in short",
                 '<span class="book-number">(1.1)</span>', '<a href="#thm-main">Theorem 1.1</a>',
                 '<a href="second.html#def-second">Definition 2.1</a>'):
        assert part in first, part
    for part in ('<a href="first.html#thm-main">Theorem 1.1</a>', '<a href="first.html#sec-statements">Statements</a>',
                 '<details class="code"><summary>Solution</summary>', 'href="notebooks/02_second.ipynb" download',
                 'href="notebooks/with_answers.zip" download', 'href="first.html#lem-help"', ">Equation (1.1)</a>"):
        assert part in second, part
    assert "secret" not in second
    assert "Omranpour" in (small / "references.html").read_text(encoding="utf-8")


def test_sidebar_and_notebooks_must_agree(tmp_path):
    root = smallbook.write_project(tmp_path, **{"03_third": ["# Third"]})
    (root / "nbs" / "02_second.ipynb").unlink()
    smallbook.write_notebook(root / "nbs" / "01_first.ipynb", smallbook.INDEX)
    with pytest.raises(book.BookError) as said:
        book.Book(root)
    assert "_quarto.yml lists 02_second.ipynb, which is not there" in str(said.value)
    assert "03_third.ipynb is missing in the sidebar of _quarto.yml" in str(said.value)


def test_a_mistake_builds_no_site_and_leaves_the_old_one(tmp_path):
    "Here one that only pandoc knows; test_grammar.py has the others."
    root = smallbook.write_project(tmp_path, index=["# A", r"So $\nosuch x$."])
    (root / "_docs").mkdir()
    done = build(root)
    assert done.returncode == 1 and re.search(r"index.ipynb.*nosuch", done.stderr), done.stderr
    assert list((root / "_docs").iterdir()) == []


@pytest.mark.parametrize(("wrong", "says"), [
    ("<p>so ::: {.x} here</p>", "first.html: “.* so ::: {.x} here"), ('<p id="thm-main">', "#thm-main is there twice"),
    ('<a href="second.html#gone">', "first.html links to second.html#gone"), ('<img src="x.png">', "links to x.png")])
def test_marks_left_in_the_text_and_links_that_lead_nowhere_are_told_of_each_page(small, tmp_path, wrong, says):
    site = shutil.copytree(small, tmp_path / "site")
    page = (site / "first.html").read_text(encoding="utf-8")
    (site / "first.html").write_text(page.replace("</article>", f"{wrong}</article>"), encoding="utf-8")
    with pytest.raises(book.BookError, match=f"^[^\n]*{says}[^\n]*$"):
        book.check_pages(site)


@pytest.fixture(scope="module")
def browser():
    "Chromium that can reach this machine and nothing else."
    with chromium("the site is", [*FLAGS, "--window-size=1300,900"]) as driver:
        driver.set_script_timeout(30)
        yield driver


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    "Where a folder is served as long as these tests run."
    with contextlib.ExitStack() as open_:
        yield functools.cache(lambda site: open_.enter_context(serving(functools.partial(Quiet, directory=site))))


LOOK = """
const page = document.body.cloneNode(true);
page.querySelectorAll("pre, code, script, style, math").forEach(e => e.remove());
return {
  formulas: document.querySelectorAll("math").length,
  typeset: document.querySelectorAll("math:has(> *)").length,
  headings: [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(e => Number(e.tagName[1])),
  failed: [...document.querySelectorAll("merror")].map(e => e.textContent),
  text: page.textContent, all: document.body.textContent,
  loaded: performance.getEntriesByType("resource").map(e => e.name),
  waits: performance.getEntriesByType("resource").filter(e => e.renderBlockingStatus === "blocking").map(e => e.name),
};
"""


WIDTHS = {"phone": 390, "desk": 1366}
WIDE = "return document.documentElement.scrollWidth - window.innerWidth"
# Every formula that stands alone, and what of the formulas in the text is cut off.
FORMULAS = """
const boxes = [...document.querySelectorAll("div.math")].map(box => {
  const ink = box.querySelector("math").getBoundingClientRect();
  const last = (box.querySelector(".book-number") || box.querySelector("math"));
  const left = ink.left - box.getBoundingClientRect().left + box.scrollLeft, number = last.getBoundingClientRect();
  const beside = !box.querySelector(".book-number") ||
    (number.left >= ink.right - 1 && number.top < ink.bottom && number.bottom > ink.top);
  box.scrollLeft = 1e6;
  const end = last.getBoundingClientRect().right - box.getBoundingClientRect().right;
  const scrolled = box.scrollLeft;
  box.scrollLeft = 0;
  return {id: box.id, scrolls: getComputedStyle(box).overflowX, left, end, beside, wide: ink.width,
          scrolled, box: box.clientWidth, at: box.getBoundingClientRect().left, shown: box.checkVisibility()};
});
const cut = [...document.querySelectorAll('math:not([display="block"])')].filter(math => {
  if (math.closest("table, nav, details:not([open])")) return false;
  return math.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).map(math => math.textContent);
return {boxes, cut};
"""
CODE = """
return [...document.querySelectorAll(".cell div.code pre")]
  .filter(pre => pre.scrollWidth > pre.clientWidth + 1)
  .map(pre => pre.textContent.split("\\n").sort((a, b) => b.length - a.length)[0]);
"""
# How large code is, how many letters fit in a line of it, and which tables leave their box.
SIZES = """
const pre = document.querySelector(".cell > div.code pre");
if (!pre) return null;
const look = getComputedStyle(pre), probe = document.createElement("span");
probe.textContent = "x".repeat(100);
pre.append(probe);
const letter = probe.getBoundingClientRect().width / 100;
probe.remove();
return {size: parseFloat(look.fontSize),
        columns: (pre.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight)) / letter};
"""
TABLES = """
const page = document.querySelector("article");
return [...page.querySelectorAll("table")].filter(table => {
  let box = table;
  while (box !== page && getComputedStyle(box).overflowX === "visible") box = box.parentElement;
  return table.checkVisibility() && box === page
    && table.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).map(table => table.textContent.slice(0, 60));
"""
# What parameters mean, with a word or a letter in each line; shapes, as 2 x (14, 14, 14), on several lines.
CELLS = """
const lines = cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map(line => Math.round(line.top))).size;
};
const narrow = cell => {
  const look = getComputedStyle(cell), size = parseFloat(look.fontSize);
  const room = cell.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight);
  return room < 8 * size && lines(cell) > 2;          // some 16 letters
};
return [...document.querySelectorAll("table")].filter(table => table.checkVisibility()).flatMap(table => {
  const meant = table.querySelector("thead th:last-child")?.textContent.trim() === "Meaning";
  const shapes = [...table.querySelectorAll("tr > td:first-child")].filter(cell => !cell.children.length
    && cell.textContent.length < 24 && /^[\\d(][\\d\\s,.()x×]*$/.test(cell.textContent) && lines(cell) > 1);
  return [...(meant ? [...table.querySelectorAll("td:last-child")].filter(narrow) : []), ...shapes];
}).map(cell => cell.textContent.slice(0, 60));
"""


def resize(browser, device):
    "Lay the page out for this device; it stays like that."
    size = {"width": WIDTHS[device], "height": 800, "deviceScaleFactor": 1, "mobile": device == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


SCRIPTS = {"formulas": FORMULAS, "scrolling code": CODE, "code": SIZES, "wide": WIDE, "tables": TABLES, "cells": CELLS}


@functools.cache
def visit(browser, site, url):
    """What each page of a site does in the browser, on a phone and on a desk. Pages are loaded once, for all tests that
    ask; every other one begins on a phone, since the layout of many formulas takes seconds."""
    found, known, devices = {}, set(), list(WIDTHS)
    for name in pages(site):
        browser.get_log("browser")
        devices.reverse()
        resize(browser, devices[0])
        browser.get(f"{url}/{name}")
        seen = found[name] = browser.execute_script(LOOK)
        seen["errors"] = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        seen["elsewhere"] = [source for source in seen["loaded"] if not source.startswith((url, "data:"))]
        for device in devices:
            resize(browser, device)
            seen[device] = {key: browser.execute_script(script) for key, script in SCRIPTS.items()}
        seen["axe"] = axe.violations(browser, known) if axe.source() else []     # last: formulas are gone
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


@pytest.fixture
def visited(browser, site, address):
    return visit(browser, site, address(site))


def test_pages_in_a_browser(visited, site):
    for name, seen in visited.items():
        assert seen["errors"] == [], name
        assert [source.rpartition("/")[2] for source in seen["waits"]] == ["styles.css"], name     # and for no script
        assert 'data-theme="light"' in (site / name).read_text(encoding="utf-8"), name             # before one runs
        assert seen["typeset"] == seen["formulas"] and seen["failed"] == [], name
        assert [raw for raw in RAW if raw in seen["text"]] == [], name
        assert "<Figure size" not in seen["all"], name
        assert seen["elsewhere"] == [], name
        assert all(below - above <= 1 for above, below in itertools.pairwise(seen["headings"])), name
        for device in WIDTHS:
            assert seen[device]["wide"] <= 0, name          # the page, not a formula or table in it
            assert seen[device]["tables"] == [], name       # they scroll in their box
            assert seen[device]["cells"] == [], name        # sentences and shapes have room
            assert seen[device]["formulas"]["cut"] == [], name      # broken where TeX would
        assert seen["desk"]["scrolling code"] == [], name       # on a laptop longer lines go on below themselves
        if code := seen["desk"]["code"]:
            assert 13.5 <= code["size"] <= 14 and code["columns"] >= 88, (name, code)


@pytest.mark.parametrize("device", WIDTHS)
def test_every_equation_can_be_read_from_its_left_end_to_its_right(visited, device):
    "What is wider than the page must begin in sight: nothing scrolls further left than 0."
    found = [(name, e) for name, seen in visited.items() for e in seen[device]["formulas"]["boxes"]]
    assert found
    for name, e in found:
        if not e["shown"]:                               # in a fold that is shut
            continue
        assert e["wide"] > 0 and e["at"] >= 0 and e["left"] >= -0.5, (name, e)
        assert e["beside"] or device == "phone", (name, e)      # the number, to the right of its equation
        assert e["end"] <= 1, (name, e)                  # scrolled to the end, the number is in sight
        assert e["wide"] <= e["box"] + 0.5 or (e["scrolls"] == "auto" and e["scrolled"] > 0), (name, e)


def test_every_equation_with_a_name_is_on_a_page(visited, site):
    found = [e["id"] for seen in visited.values() for e in seen["desk"]["formulas"]["boxes"] if e["id"]]
    with zipfile.ZipFile(site / "notebooks" / "with_answers.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    texts = {p.name: p.read_text(encoding="utf-8") for p in (site / "notebooks").glob("*.ipynb")} | texts
    assert len(found) == len({*found}) == sum(text.count("\\\\tag{") for text in texts.values()) > 0


def wait(browser, script, *args):
    "The script's value, once it has one."
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda b: b.execute_script(script, *args))


def searched(browser, query):
    "Addresses of what the search finds, the best first."
    return browser.execute_async_script(
        "const [query, done] = arguments; bookSearch(query).then("
        "found => done(found.slice(0, 5).map(place => place.url)), error => done([String(error)]))", query)


FIRST = dict(line.split("\t") for line in (ROOT / "tests" / "words.tsv").read_text(encoding="utf-8").splitlines())


def test_what_readers_look_for_comes_first(browser, real, address):
    "The beginning of the address of the first result, for each word that readers type."
    browser.get(f"{address(real)}/index.html")
    found = {query: searched(browser, query) for query in FIRST}
    wrong = {query: (place, found[query]) for query, place in FIRST.items()
             if not any("".join(found[query][:1]).startswith(p) for p in place.split())}
    assert wrong == {}


def test_search_knows_sections_statements_and_names(browser, small, address):
    browser.get(f"{address(small)}/index.html")
    assert "first.html#thm-main" in searched(browser, "main one") and "first.html" in searched(browser, "zebrafish")
    assert searched(browser, "qqqqq") == []
    browser.execute_script("const q = document.querySelector('input[name=q]'); q.value = 'zebrafish';"
                           "q.dispatchEvent(new Event('input', {bubbles: true}))")
    assert wait(browser, "return [...document.querySelectorAll('#book-found a')]"
                         ".some(a => a.href.includes('first.html'))")


def test_a_link_to_a_statement_shows_it_at_a_glance_and_code_can_be_copied(browser, small, address):
    browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})  # of a window behind
    browser.get(f"{address(small)}/second.html")
    link = browser.execute_script(
        "const a = document.querySelector('article a[href$=\"#thm-main\"]'); a.focus(); return a")
    text = wait(browser, "return document.querySelector('.book-glance')?.textContent")
    assert "Theorem 1.1" in text and link.get_attribute("aria-describedby") == "book-glance"
    browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
    assert browser.execute_script("return document.querySelector('.book-glance') === null")
    assert browser.execute_script("return document.querySelectorAll('.cell div.code button.copy').length")


def test_what_a_site_has_beside_its_pages(site):
    assert {"404.html", "sitemap.xml", "llms.txt", "pagefind"} <= {path.name for path in site.iterdir()}
    lost = (site / "404.html").read_text(encoding="utf-8")
    assert 'href="https://' in lost
    listed = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    assert len(listed) == len(pages(site)) and all(place.startswith("http") for place in listed)
    for name in pages(site):
        text = (site / name).read_text(encoding="utf-8")
        assert 'rel="canonical"' in text and not re.search("<!--|&lt;function ", text), name
        assert text.count("<li") < 800 and 'aria-current="page"' in text, name
        if name not in ("references.html", "workshop.html", "measured.html"):
            assert len(re.findall('<meta name="description" content="[^"]{8,}"', text)) == 1, name
            assert 'property="og:title"' in text and "/edit/main/nbs/" in text, name


def test_the_sidebar_is_short_and_folds(real):
    "At most 55 entries; of the parts the one with the page is open."
    for name in pages(real):
        text = (real / name).read_text(encoding="utf-8")
        bar = re.search(r'<nav id="book-sidebar".*?</nav>', text, re.DOTALL)[0]
        assert bar.count("<a ") <= 55 and bar.count("<details") == 6, name
        assert bar.count("<details open") <= 1 or name == "index.html", name


def test_the_site_is_light(real):
    "15 MB with downloads and the index of the search; the longest page and its style are counted as sent."
    sizes = {path: path.stat().st_size for path in real.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 15e6
    assert 'property="og:image"' in (real / "index.html").read_text() and (real / "preview.png").exists()
    longest = max((real / name for name in pages(real)), key=lambda path: sizes[path])
    sent = [len(gzip.compress(path.read_bytes())) for path in (longest, real / "styles.css")]
    assert sent[0] < 80e3 and sent[1] < 8e3, (longest.name, sent)


def test_a_picture_with_a_palette_looks_the_same_and_is_smaller():
    from PIL import Image

    picture = Image.new("RGBA", (90, 60))
    picture.putdata([(2 * x + x * y * 7 % 9, 4 * y + x * y % 7, 90, 255 if x > 9 else 25 * x)
                     for y in range(60) for x in range(90)])                # smooth, with some noise
    out = io.BytesIO()
    picture.save(out, "PNG")
    made = book.with_palette(out.getvalue())
    assert len(made) < len(out.getvalue()) and made == book.with_palette(out.getvalue())
    shown = [Image.alpha_composite(Image.new("RGBA", (90, 60), "white"), p.convert("RGBA")).tobytes()
             for p in (picture, Image.open(io.BytesIO(made)))]
    apart = [abs(a - b) for a, b in zip(*shown, strict=True)]
    assert max(apart) < 40 and sum(apart) / len(apart) < 6


def test_nothing_hinders_readers_who_see_little_or_use_a_program(visited):
    "By the rules of axe-core, on every page, in light and dark."
    pytest.importorskip("axe_core_python", reason="pages not read by axe: the package axe-core-python is not here")
    assert {name: seen["axe"] for name, seen in visited.items() if seen["axe"]} == {}


def test_the_index_names_the_whole_library(real):
    text = (real / "api.html").read_text(encoding="utf-8")
    for path in (ROOT / "hot_nbdev").rglob("[a-z]*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)} & api.public(tree)
        assert [name for name in made if f">{name}</code>" not in text] == [], path.name


def test_the_switch_makes_pages_dark(browser, small, address):
    browser.get(f"{address(small)}/first.html")
    look = "return [document.documentElement.dataset.theme, getComputedStyle(document.documentElement).backgroundColor]"
    seen = {tuple(browser.execute_script(look))}
    browser.execute_script("document.querySelector('button.theme').click()")
    seen.add(tuple(browser.execute_script(look)))
    browser.refresh()
    assert tuple(browser.execute_script(look)) in seen
    browser.execute_script("document.querySelector('button.theme').click()")
    assert {theme for theme, _ in seen} == {"light", "dark"} and len({c for _, c in seen}) == 2


def test_on_a_phone_the_contents_open_at_a_touch(browser, small, address):
    resize(browser, "phone")
    browser.get(f"{address(small)}/first.html")
    shown = "return document.querySelector('#book-sidebar').checkVisibility()"
    states = [browser.execute_script(shown)]
    browser.find_element("css selector", "button.menu").click()
    states.append(browser.execute_script(shown))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert states == [False, True]

"""The site as its readers meet it: in a browser, with the network off."""
import ast
import functools
import gzip
import http.server
import importlib.util
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import apiindex
import axe
import crossref
import finish
import mathml
import pictures
import pytest
import sheets
import smallbook
from browser import chromium

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "tools" / "site.py"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
RAW = [":::", "@thm-", "@eq-", "@def-", "?@", "$$", "\\tag", "{cite", "{#", "{container}"]


def build(folder, *options, path=None):
    env = os.environ | {"PYTHONPATH": str(folder), "PATH": path or os.environ["PATH"]}
    return subprocess.run([sys.executable, SITE, *options], cwd=folder, env=env,
                          capture_output=True, text=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    "The small book's site."
    root = smallbook.write_project(tmp_path_factory.mktemp("small"))
    for name in ("styles.css", "reading.js", "math.woff2", "preview.png"):
        shutil.copy2(ROOT / "nbs" / name, root / "nbs" / name)
    done = build(root, "--sphinx")
    assert done.returncode == 0, done.stderr
    assert f"The site is in {root / '_docs'}" in done.stdout
    return root / "_docs"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    "This book's site: in _docs if Sphinx rendered it there, else rendered now."
    docs = ROOT / "_docs"
    if (docs / "_static").is_dir():
        return docs
    out = tmp_path_factory.mktemp("real") / "_docs"
    done = build(ROOT, "--sphinx", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def quarto():
    """A folder of pages that Quarto rendered: HOT_QUARTO_SITE, or _docs if Quarto rendered it there."""
    named = os.environ.get("HOT_QUARTO_SITE")
    docs = Path(named).resolve() if named else ROOT / "_docs"
    if (docs / "site_libs").is_dir():
        return docs
    if named:                               # whoever names a folder wants its pages checked
        pytest.fail(f"HOT_QUARTO_SITE is {named}, which has no site_libs: Quarto rendered no site there")
    pytest.skip("Quarto's pages not tested: no folder in HOT_QUARTO_SITE, and _docs is not by Quarto")


@pytest.fixture(params=["small", "real"])
def site(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["small", "real", pytest.param("quarto", id="by_quarto")])
def rendered(request):
    "A site of either renderer."
    return request.getfixturevalue(request.param)


def pages(site):
    return sorted(path.name for path in site.glob("*.html") if path.name not in ("search.html", "404.html"))


class Links(HTMLParser):
    "Anchors and addresses of a page."

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.sources = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag in ("script", "img", "iframe") and attrs.get("src"):
            self.sources.append(attrs["src"])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "icon"):
            self.sources.append(attrs["href"])


@pytest.mark.parametrize(("long", "short"), [
    # the theme finds folds by this mark: without it each folded cell shows a second, empty line
    ('<div class="cell tag_hide-input docutils container"><div class="cell_input docutils container">',
     '<div class="cell tag_hide-input docutils container"><div class="cell_input">'),
    ('<a class="reference internal" href="a.html"><span class="std std-doc">chapter 2</span></a>',
     '<a href="a.html">chapter 2</a>'),
    ('<a class="reference internal nav-link" href="#b">b</a>', ...),     # the theme looks for it
    ('<span class="std std-ref">a <span class="math">b</span></span>', ...),
    ('<p aria-level="2" class="caption" role="heading"><span class="caption-text">Part I</span></p>',
     '<p aria-level="2" class="caption" role="heading">Part I</p>'),
    ('<figcaption><p><span class="caption-text">A figure</span></p></figcaption>', ...),
    ('<p class="collapsed admonition-title">Test</p>\n<p class="expanded admonition-title">Test</p>',
     '<p class="admonition-title">Test</p>'),
    ('<p class="collapsed admonition-title">Show</p>\n<p class="expanded admonition-title">Hide</p>', ...),
])
def test_marks_that_no_style_asks_for_are_left_out(long, short):
    text = long
    for pattern, rest in finish.SHORTER:
        text = pattern.sub(rest, text)
    assert text == (long if short is ... else short)


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    found = {name: Links((site / name).read_text(encoding="utf-8")) for name in pages(site)}
    for name, page in found.items():
        for source in page.sources:
            assert not re.match(r"(https?:)?//", source), f"{name} loads {source}"
            assert (site / source.split("?")[0]).exists(), f"{name} lacks {source}"
        for link in page.links:
            if not re.match(r"[a-z]+:", link):
                path, _, fragment = link.partition("#")
                assert (site / (path or name)).exists(), f"{name} links to {link}"
                if fragment:
                    assert fragment in found[path or name].ids, f"{name} links to {link}"


def test_every_page_has_a_notebook_and_a_twin(site):
    chapters = [name for name in pages(site) if name not in ("references.html", "genindex.html")]
    listed = (site / "llms.txt").read_text()
    notebooks = {crossref.page_of(path.name) for path in (site / "notebooks").glob("*.ipynb")}
    assert {f"{name}.html" for name in notebooks} == set(chapters)
    for name in chapters:
        text = (site / f"{name}.md").read_text(encoding="utf-8")
        assert text.startswith("# ") and f"{name}.md)" in listed
        prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
        assert not re.search(r":::|@(thm|eq|def|sec)-|<Figure size", prose), name


def test_constructs_of_the_small_book(small):
    first = (small / "first.html").read_text(encoding="utf-8")
    second = (small / "second.html").read_text(encoding="utf-8")
    for part in ('id="thm-main"', 'id="eq-norm"', 'id="tbl-cost"', 'id="fig-dot"', 'id="fig-plot"',
                 'class="book-proof', '<details class="admonition note">', "Figure 1.2: A plot",
                 'alt="One dot."', 'alt="A line that rises."', "section 2]</span>", "Back matter",
                 "Table 1.1: Costs of", "1 First steps", "Part I · Beginnings", "2 Second, in short"):
        assert part in first, part
    for part in ('href="first.html#thm-main"', 'href="first.html#sec-statements"', "Solution",
                 'href="notebooks/02_second.ipynb" download', 'href="notebooks/with_answers.zip" download',
                 'href="first.html#lem-help"'):
        assert part in second, part
    assert "secret" not in second
    assert "Omranpour" in (small / "references.html").read_text(encoding="utf-8")


def test_a_mistake_builds_no_site_and_leaves_the_old_one(tmp_path):
    root = smallbook.write_project(tmp_path, index=["# A", "By @thm-gone."])
    (root / "_docs").mkdir()
    done = build(root, "--sphinx")
    assert done.returncode == 1
    assert "index.ipynb, cell 2, line 1: unknown label @thm-gone" in done.stderr
    assert list((root / "_docs").iterdir()) == []


def test_what_sphinx_warns_of_is_told_with_its_cell(tmp_path):
    root = smallbook.write_project(tmp_path, index=["# A", "Text.", "Of [a][b].\n\nA [^footnote]."])
    done = build(root, "--sphinx")
    assert done.returncode == 1
    assert re.search(r'index.ipynb, cell 3, near line \d: ERROR: .*"footnote"', done.stderr)


def test_sidebar_and_notebooks_must_agree(tmp_path):
    root = smallbook.write_project(tmp_path, **{"03_third": ["# Third"]})
    (root / "nbs" / "02_second.ipynb").unlink()
    first = [source for source in smallbook.INDEX]
    smallbook.write_notebook(root / "nbs" / "01_first.ipynb", first)
    done = build(root, "--sphinx")
    assert "_quarto.yml lists 02_second.ipynb, which is not there" in done.stderr
    assert "03_third.ipynb is missing in the sidebar of _quarto.yml" in done.stderr


def left_raw(text):
    "What tools/site.py finds in the text of a page; loaded by path: Python has a `site` of its own."
    spec = importlib.util.spec_from_file_location("booksite", SITE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.left_raw(text)


@pytest.mark.parametrize("text, found", [
    ("<p>Fine: x, $5 and #tag.</p>", 0), ("<p>a ::: b</p>", 1), ("<p>so $$x$$ here</p>", 2),
    ("<h2>Title {#sec-x}</h2>", 1), ("<p>see ?@thm-x</p>", 1), ("<p>{cite:p}`a`</p>", 1),
    ("<p>a<b>:</b>::</p>", 1), ("<p>:</p><p>::</p>", 0),
    ("<pre>::: {#a}\n$$</pre><code>$$</code><script>'$$' {#</script><style>a{#b}</style>", 0),
    ("<pre><span>::: <br> $$</span></pre><p>text</p>", 0), ("<pre>::: </pre><p>::: left</p>", 1),
    ("<span class='math display'>$$\\Bigl$$</span>", 2), ("<p title=':::'>x</p>", 0),
    ("<math><annotation>$$</annotation></math>", 0),
])
def test_marks_of_the_source_are_found_in_text_and_not_in_code(text, found):
    assert len(left_raw(f"<html><head><title>T</title></head><body>{text}</body></html>")) == found


def test_marks_left_in_the_text_build_no_site(tmp_path):
    html = [{"output_type": "display_data", "metadata": {}, "data": {"text/html": "<p>so ::: {.x} here</p>"}}]
    root = smallbook.write_project(tmp_path, index=["# A", smallbook.cell("show()", 9, html)])
    done = build(root, "--sphinx")
    assert done.returncode == 1 and not (root / "_docs").exists()
    assert re.search(r"index.html: “….* so ::: {.x} here", done.stderr), done.stderr


QUARTO = f"""#!/bin/sh
test "$1" = render || exit 1
{sys.executable} {crossref.__file__} || exit 1
mkdir -p _docs && echo "$BOOK_SAYS" >&2 && cp *.ipynb _docs/ && echo "<p>$BOOK_SHOWS</p>" > _docs/index.html
"""
PANDOC = ('<math display="{}" xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mi>?</mi>'
          '<annotation encoding="application/x-tex">{}</annotation></semantics></math>')


@pytest.mark.parametrize("says, shows", [
    ("all is well", "a page"), ("WARNING: Unable to resolve crossref @thm-x", "a page"),
    ("all is well", "left: {#thm-main}")])
def test_with_quarto(tmp_path, monkeypatch, says, shows):
    "A stand-in for Quarto: what it is given, that its warnings count, and that its pages are read."
    root = smallbook.write_project(tmp_path / "book")
    (root / "nbs" / "_quarto.yml").symlink_to("../_quarto.yml")
    quarto = tmp_path / "bin" / "quarto"
    quarto.parent.mkdir()
    quarto.write_text(QUARTO)
    quarto.chmod(quarto.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("BOOK_SAYS", says)
    monkeypatch.setenv("BOOK_SHOWS", shows)
    done = build(root, path=f"{quarto.parent}{os.pathsep}{os.environ['PATH']}")
    if "left" in shows:
        assert done.returncode == 1 and "index.html: “…left: {#thm-main}…”" in done.stderr, done.stderr
        return
    if "WARNING" in says:
        assert done.returncode == 1 and says in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    given = json.loads((root / "_docs" / "01_first.ipynb").read_text())
    text = "".join(line for cell in given["cells"] for line in cell["source"])
    assert "**Theorem 1.1** (The main one" in text and "title: 1 First steps" in text
    assert (root / "_docs" / "notebooks" / "02_second.ipynb").exists()
    assert "- [1 First steps](https://nobody.example.org/smallbook/first.html.md): " in (
        root / "_docs" / "llms.txt").read_text()


def test_formulas_of_quarto_are_made_anew():
    "Its own have accents beside their letters, and long ones leave the page of a phone."
    long = "a_1 + a_2 &lt; b_1 + b_2 + b_3 = c_1 + c_2"
    numbered, plain = PANDOC.format("block", "\nx \\qquad(3.12)\n"), PANDOC.format("block", r"y\qquad z")
    page = mathml.remade(f"<p>{PANDOC.format('inline', long)} and {numbered}{plain}</p><code>&lt;math></code>")
    assert "annotation" not in page and "?" not in page and page.endswith("</p><code>&lt;math></code>")
    assert f'<p>{mathml.inline(long.replace("&lt;", "<"))} and ' in page
    assert page.count("<wbr>") == 2 and page.count('<span class="math display"><math') == 2
    with pytest.raises(mathml.MathError, match=r"in x_\{"):
        mathml.remade(PANDOC.format("inline", "x_{"))
    assert page.count("book-number") == 1 and '<span class="book-number">(3.12)</span></span>' in page


@pytest.fixture(scope="module")
def browser():
    "Chromium that can reach this machine and nothing else."
    with chromium("the site is", [*FLAGS, "--window-size=1300,900"]) as driver:
        driver.set_script_timeout(30)
        yield driver


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def served_from(site):
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def served(site):
    with served_from(site) as url:
        yield url


LOOK = """
const page = document.body.cloneNode(true);
page.querySelectorAll("pre, code, script, style, math").forEach(e => e.remove());
return {
  formulas: document.querySelectorAll("math, .math:not(:has(> math))").length,
  typeset: document.querySelectorAll("math:has(> *)").length,
  failed: [...document.querySelectorAll("merror")].map(e => e.textContent),
  text: page.textContent, all: document.body.textContent,
  loaded: performance.getEntriesByType("resource").map(e => e.name),
  waits: performance.getEntriesByType("resource").filter(e => e.renderBlockingStatus === "blocking").map(e => e.name),
};
"""


WIDTHS = {"phone": 390, "desk": 1366}


# The scripts read the pages of both renderers: a formula that stands alone is a div for Sphinx, a span for Quarto.
WIDE = "return document.documentElement.scrollWidth - window.innerWidth"
# Every formula that stands alone, and what of the formulas in the text is cut off.
FORMULAS = """
const boxes = [...document.querySelectorAll("div.math, .math.display")].map(box => {
  const ink = box.querySelector("math").getBoundingClientRect();
  const last = (box.querySelector(".book-number") || box.querySelector("math"));
  const left = ink.left - box.getBoundingClientRect().left + box.scrollLeft;
  box.scrollLeft = 1e6;
  const end = last.getBoundingClientRect().right - box.getBoundingClientRect().right;
  const scrolled = box.scrollLeft;
  box.scrollLeft = 0;
  return {id: box.closest(".book-equation")?.id, scrolls: getComputedStyle(box).overflowX, left, end, wide: ink.width,
          scrolled, box: box.clientWidth, at: box.getBoundingClientRect().left, shown: box.checkVisibility()};
});
const cut = [...document.querySelectorAll('math:not([display="block"])')].filter(math => {
  if (math.closest("table, nav, .bd-sidebar-secondary, .sidebar, details:not([open])")) return false;
  return math.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).map(math => math.textContent);
return {boxes, cut};
"""
CODE = """
return [...document.querySelectorAll(".cell_input pre, div.sourceCode pre")]
  .filter(pre => pre.scrollWidth > pre.clientWidth + 1)
  .map(pre => pre.textContent.split("\\n").sort((a, b) => b.length - a.length)[0]);
"""
# How large code is, how many letters fit in a line of it, and which tables leave their box.
SIZES = """
const pre = document.querySelector(".cell_input pre");
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
const page = document.querySelector("article.bd-article, main#quarto-document-content");
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


@functools.cache
def visited(browser, site):
    "What each page of a site does in the browser. Pages are loaded once, for all tests that ask."
    found, known = {}, {device: (set(), set()) for device in WIDTHS}
    with served_from(site) as url:
        for number, name in enumerate(pages(site)):
            browser.get("about:blank")          # what scripts say of a page that axe took apart counts for none
            browser.get_log("browser")
            resize(browser, "desk")
            browser.get(f"{url}/{name}")
            seen = found[name] = browser.execute_script(LOOK)
            seen["errors"] = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
            seen["elsewhere"] = [source for source in seen["loaded"] if not source.startswith((url, "data:"))]
            seen["maths"] = {"desk": browser.execute_script(FORMULAS)}
            seen["scrolling code"], seen["code"] = browser.execute_script(CODE), browser.execute_script(SIZES)
            resize(browser, "phone")            # once for each page: the layout of many formulas takes seconds
            seen["wide"], seen["tables"] = browser.execute_script(WIDE), browser.execute_script(TABLES)
            seen["cells"] = browser.execute_script(CELLS)
            seen["maths"]["phone"] = browser.execute_script(FORMULAS)
            if axe.source():                    # last, since it takes pages apart; every other one on a desk
                browser.execute_script(axe.PREPARE)
                device = ("phone", "desk")[number % 2]
                if device == "desk":
                    resize(browser, device)
                seen["axe"] = axe.violations(browser, *known[device])
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


def test_pages_in_a_browser(browser, rendered):
    own = (rendered / "_static").is_dir()                # by Sphinx, with our own style sheet
    for name, seen in visited(browser, rendered).items():
        assert seen["errors"] == [], name
        assert seen["typeset"] == seen["formulas"] and seen["failed"] == [], name
        assert [raw for raw in RAW if raw in seen["text"]] == [], name
        assert "<Figure size" not in seen["all"], name
        assert seen["elsewhere"] == [], name
        assert seen["wide"] <= 0, name          # the page, not a formula or table in it
        assert seen["tables"] == [], name       # they scroll in their box
        assert seen["cells"] == [], name        # sentences and shapes have room
        assert seen["scrolling code"] == [], name       # on a laptop longer lines go on below themselves
        assert [maths["cut"] for maths in seen["maths"].values()] == [[], []], name     # broken where TeX would
        if own and seen["code"]:
            assert 13.5 <= seen["code"]["size"] <= 14 and seen["code"]["columns"] >= 88, (name, seen["code"])


@pytest.mark.parametrize("device", WIDTHS)
def test_every_equation_can_be_read_from_its_left_end_to_its_right(browser, rendered, device):
    "What is wider than the page must begin in sight: nothing scrolls further left than 0."
    found = [(name, e) for name, seen in visited(browser, rendered).items() for e in seen["maths"][device]["boxes"]]
    assert found
    for name, e in found:
        if not e["shown"]:                               # in a fold that is shut
            continue
        assert e["wide"] > 0 and e["at"] >= 0 and e["left"] >= -0.5, (name, e)
        assert e["end"] <= 1, (name, e)                  # scrolled to the end, the number is in sight
        assert e["wide"] <= e["box"] + 0.5 or (e["scrolls"] == "auto" and e["scrolled"] > 0), (name, e)


def test_every_equation_with_a_name_is_on_a_page(browser, site):
    found = [e["id"] for seen in visited(browser, site).values() for e in seen["maths"]["desk"]["boxes"] if e["id"]]
    with zipfile.ZipFile(site / "notebooks" / "with_answers.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    texts = {p.name: p.read_text(encoding="utf-8") for p in (site / "notebooks").glob("*.ipynb")} | texts
    assert len(found) == len({*found}) == sum(text.count("\\\\tag{") for text in texts.values()) > 0


def wait(browser, script, *args):
    "The script's value, once it has one."
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda b: b.execute_script(script, *args))


def test_search_finds_a_word_of_the_text(browser, served, site):
    page = [name for name in pages(site) if name not in ("references.html", "index.html")][0]
    browser.get(f"{served}/{page}")
    text = browser.execute_script("return document.querySelector('article p:not([class])').textContent")
    # a page is among the first for three words together, where one alone may stand on many
    words = ["zebrafish"] if "zebrafish" in text else sorted({*re.findall(r"[a-z]+", text)}, key=len)[-3:]
    browser.get(f"{served}/search.html?q={'+'.join(words)}")
    # results come in one by one, so wait for the one that is looked for
    assert wait(browser, "return [...document.querySelectorAll('#search-results li a')]"
                         ".some(a => a.href.includes(arguments[0]))", page), words


FIRST = {  # what readers look for, and where it is: the beginning of the address of the first result
    "row-stochastic": "stochastic", "row-stochastic matrices": "stochastic", "stable rank": "stochastic#",
    "Kronecker product": "kronecker", "kron_apply": "kronecker#", "nearest Kronecker product": "factorization",
    "KroneckerAttention": "kronecker_attention#kroneckerattention", "theorem 6.1": "stochastic#thm-",
    "FullAttention": "attention#fullattention", "softmax_map": "attention#softmax-map",
    "attend": "attention#attend", "NdLinear": "ndlinear", "mode_dot": "tensor#mode-dot",
    "mode product": "tensor", "unfold": "tensor", "vec": "tensor", "universality": "universality",
    "CP decomposition": "factorization", "Tucker": "factorization", "rotary": "positions", "positions": "positions",
    "cost": "cost", "forecasting": "forecasting", "hot_forecast": "commands#hot-forecast", "LoRA": "adapters",
    "separability": "separability", "notation": "notation", "verdicts": "verdicts", "tensor train": "kin",
    "pooling": "variants#pooled", "checkpoints": "runs", "ablations": "ablations",
}
RANKED = """
Search.output ||= document.createElement("ul");
const found = Search._performSearch(...Search._parseQuery(arguments[0]));
return found.reverse().slice(0, 5).map(([page, , anchor]) => page + anchor);
"""


def test_what_readers_look_for_comes_first(browser, real):
    with served_from(real) as url:
        browser.get(f"{url}/search.html?q=unfold")
        wait(browser, "return Search.hasIndex()")
        found = {query: browser.execute_script(RANKED, query) for query in FIRST}
    wrong = {query: found[query] for query, place in FIRST.items() if not "".join(found[query][:1]).startswith(place)}
    assert wrong == {}


def test_search_knows_sections_statements_and_names(browser, small):
    with served_from(small) as url:
        browser.get(f"{url}/search.html?q=theorem")
        places = wait(browser, "return Search._index && Search._index.places")
        nothing = browser.execute_script(RANKED, "qqqqq")
    assert {kind for _, _, kind, *_ in places} >= {"page", "section", "statement"}
    assert any(anchor == "thm-main" and title.startswith("Theorem 1.1 (") for _, anchor, _, title, _ in places)
    assert nothing == []


def test_a_link_to_a_statement_shows_it_at_a_glance(browser, small):
    with served_from(small) as url:
        browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})  # of a window behind
        browser.get(f"{url}/second.html")
        link = browser.execute_script(
            "const a = document.querySelector('article a[href$=\"#thm-main\"]'); a.focus(); return a")
        text = wait(browser, "return document.querySelector('.book-glance')?.textContent")
        assert "Theorem 1.1" in text and link.get_attribute("aria-describedby") == "book-glance"
        browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
        assert browser.execute_script("return document.querySelector('.book-glance') === null")


def test_code_can_be_copied(browser, small):
    with served_from(small) as url:
        browser.get(f"{url}/second.html")
        assert wait(browser, "return document.querySelectorAll('.cell_input button.copybtn').length")


SERVICES = {"404.html", "sitemap.xml", "llms.txt", "searchindex.js"}


def test_what_a_site_has_beside_its_pages(site):
    assert SERVICES <= {path.name for path in site.iterdir()}
    listed = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    assert len(listed) == len(pages(site)) and all(place.startswith("http") for place in listed)
    icons = (site / "_static" / "book.css").read_text(encoding="utf-8")
    for name in pages(site):
        text = (site / name).read_text(encoding="utf-8")
        entries = re.findall(r'<li class="toc-h2[^>]*><a[^>]*href="([^"]*)"', text)
        assert len(entries) == len(set(entries)), name          # the theme has them once more for printing
        used = set(re.findall(r'<i class="[^"]*\bfa-(?!solid|brands|regular|fw|lg)([a-z-]+)', text))
        assert used and all(f".fa-{icon}{{" in icons for icon in used), name
        assert "fontawesome.js" not in text and "athjax.js" not in text and 'rel="canonical"' in text
        if name not in ("references.html", "genindex.html"):
            assert len(re.findall('<meta name="description" content="[^"]{8,}"', text)) == 1, name
            assert 'property="og:title"' in text and "/edit/main/nbs/" in text, name


def test_a_lost_reader_is_shown_the_way(small):
    text = (small / "404.html").read_text()
    assert 'href="https://' in text and 'action="https://' in text and 'name="q"' in text


def test_the_site_is_light(real):
    "20 MiB with twins and downloads. What the longest page needs before it is shown is counted in bytes as sent."
    sizes = {path: path.stat().st_size for path in real.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 20 * 2 ** 20
    assert 'property="og:image"' in (real / "index.html").read_text() and (real / "preview.png").exists()
    longest = max((real / name for name in pages(real)), key=lambda path: sizes[path])
    sent = [len(gzip.compress(path.read_bytes())) for path in (longest, real / "_static" / "book.css")]
    assert sent[0] < 80e3 and sent[1] < 35e3, (longest.name, sent)


def test_a_page_waits_for_one_style_sheet_and_for_no_script(browser, site):
    for name, seen in visited(browser, site).items():
        assert [source.rpartition("/")[2] for source in seen["waits"]] == ["book.css"], name
        text = (site / name).read_text(encoding="utf-8")
        assert 'data-theme="light"' in text and "<!--" not in text, name       # it has colours before a script runs


def test_the_style_sheet_has_what_can_apply():
    sheet = """@charset "utf-8"; /* .gone { } */
        .a, .gone { color: red } .a:not(.gone) > b::before { content: "}" }
        @media print { .gone { color: red } } @media screen { #a .a-b{color:red} .gone{color:red} }
        @font-face { src: url("x.woff2") } html[data-mode="gone"] a { color: red } .md\\:a { color: red }"""
    assert sheets.slim(sheet, {"a", "a-b"}) == (
        '@charset "utf-8";.a{color: red}\n.a:not(.gone) > b::before{content: "}"}\n'
        '@media screen{#a .a-b{color:red}\n}\n@font-face{src: url("x.woff2")}\nhtml[data-mode="gone"] a{color: red}\n')


def test_a_picture_with_a_palette_looks_the_same_and_is_smaller():
    from PIL import Image

    picture = Image.new("RGBA", (90, 60))
    picture.putdata([(2 * x + x * y * 7 % 9, 4 * y + x * y % 7, 90, 255 if x > 9 else 25 * x)
                     for y in range(60) for x in range(90)])                # smooth, with some noise
    out = io.BytesIO()
    picture.save(out, "PNG")
    made = pictures.with_palette(out.getvalue())
    assert len(made) < len(out.getvalue()) and made == pictures.with_palette(out.getvalue())
    shown = [Image.alpha_composite(Image.new("RGBA", (90, 60), "white"), p.convert("RGBA")).tobytes()
             for p in (picture, Image.open(io.BytesIO(made)))]
    apart = [abs(a - b) for a, b in zip(*shown, strict=True)]
    assert max(apart) < 40 and sum(apart) / len(apart) < 6


def test_nothing_hinders_readers_who_see_little_or_use_a_program(browser, rendered):
    "By the rules of axe-core, on every page, in light and dark."
    pytest.importorskip("axe_core_python", reason="pages not read by axe: the package axe-core-python is not here")
    found = {name: seen["axe"] for name, seen in visited(browser, rendered).items() if seen["axe"]}
    assert found == {}


def test_the_index_names_the_whole_library(real):
    text = (real / "api.html").read_text(encoding="utf-8")
    for path in (ROOT / "hot_nbdev").rglob("[a-z]*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)} & apiindex.public(tree)
        assert [name for name in made if f'">{name}</code>' not in text] == [], path.name


@pytest.mark.parametrize("tex, marks", [
    (r"\Bigl[x\Bigr]_i^2", "minsize="), (r"\Big\|x\Big\|_F", "minsize="), (r"\biggl\lVert x\biggr\rVert^2", "minsize="),
    (r"\bigl(x\bigr)^\top", "stretchy="), (r"\bigl\lVert x\bigr\rVert^2", "stretchy=")])
def test_brackets_have_the_size_that_chromium_draws_right(tex, marks):
    "A large one with a script stands in a row of its own; one a little larger is not stretched."
    made = mathml.mathml(tex)
    if marks == "minsize=":
        assert re.search(r"<(msup|msub|msubsup)><mrow><mo [^>]*minsize=[^<]*</mo></mrow>", made), made
        assert not re.search(r"<(msup|msub|msubsup)><mo [^>]*minsize=", made), made
    else:
        assert made.count('stretchy="false" mathsize="1.2em"') == made.count("stretchy") == 2 and "minsize" not in made


@pytest.mark.parametrize("tex, parts", [
    ("x^2", 1), (r"A_1 \otimes A_2 \otimes A_3", 1), (r"a_1 + a_2 = b_1 + b_2 + b_3 = c_1 + c_2", 3),
    (r"f(x = y, z = w, u = v, s = t)", 1),
    (r"(x_{11}+x_{22})^2-(x_{11}-x_{22})^2-(x_{12}+x_{21})^2", 3)])
def test_long_formulas_break_at_relations_outside_of_brackets(tex, parts):
    made = mathml.inline(tex)
    assert made.count("<math>") == parts and made.count("<wbr>") == parts - 1
    assert mathml.text_of(made) == mathml.text_of(mathml.mathml(tex))


def test_a_numbered_formula_and_one_that_is_wrong():
    assert mathml.block(r"a = b \tag{3.1}").endswith('</math><span class="book-number">(3.1)</span>')
    with pytest.raises(mathml.MathError, match=r"nosuch.* in \\nosuch"):
        mathml.mathml(r"\nosuch")


def test_a_formula_that_is_wrong_builds_no_site(tmp_path):
    root = smallbook.write_project(tmp_path, index=["# A", r"So $\nosuch x$."])
    done = build(root, "--sphinx")
    assert done.returncode == 1 and re.search(r"index.ipynb, cell 2.*nosuch", done.stderr), done.stderr


def test_the_switch_makes_pages_dark(browser, served, site):
    browser.get(f"{served}/{pages(site)[0]}")
    look = "return [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]"
    seen = set()
    for mode in ("light", "dark", "auto"):  # a menu, or in older themes a button that goes round
        browser.execute_script(
            "(document.querySelector(`.theme-change-button[data-mode=${arguments[0]}]`)"
            " || document.querySelector('.theme-switch-button')).click()", mode)
        seen.add(tuple(browser.execute_script(look)))
    assert {theme for theme, _ in seen} == {"light", "dark"} and len({c for _, c in seen}) == 2


def test_solutions_and_folded_callouts_open_at_a_click(browser, small):
    browser.get((small / "second.html").as_uri())
    for page, selector in (("second", "details.hide"), ("first", "details.admonition")):
        browser.get((small / f"{page}.html").as_uri())
        states = browser.execute_script(
            f"const d = document.querySelector('{selector}'); const was = d.open;"
            "d.querySelector('summary').click(); return [was, d.open]")
        assert states == [False, True]

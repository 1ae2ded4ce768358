"""The book as one file: a small one, printed and packed, and what is refused."""
import os
import re
import subprocess
import sys
import zipfile
from contextlib import closing
from xml.etree import ElementTree

import book
import epub
import printed
import pytest
import smallbook
from browser import CHROMIUM, DRIVER

needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="not printed: no chromium and chromedriver here")

# what is wider than a page in each way: a formula, a formula in a line, a table, code
WIDE = [
    "# Wide things\n\n> Wider than a page.",
    "$$\n" + " + ".join(f"x_{{{n}}}y_{{{n}}}" for n in range(26)) + " = 0\n$$ {#eq-wide}",
    "In a line $" + "".join(f"\\alpha_{{{n}}}" for n in range(40)) + "$ it is long.",
    "Small: $\\tfrac{1}{2}\\begin{pmatrix} 1 & 2 \\end{pmatrix}$.",
    "| " + " | ".join(f"column{n}" for n in range(14)) + " |\n" + "|---" * 14 + "|\n"
    + "| " + " | ".join(["1234567"] * 14) + " |",
    smallbook.cell("x = [" + ", ".join(f"number_{n}" for n in range(40)) + ", last_of_all]",
                   smallbook.text_output("y" * 300)),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "A small book, rendered, with a chapter of wide things and a library."
    root = smallbook.write_project(
        tmp_path_factory.mktemp("printed"), ["03_wide.ipynb"], index=[*smallbook.INDEX, "It has [a tool](tool.ipynb)."],
        **{"03_wide": WIDE, "tool": ["# A tool\n\n> For use.", "See @thm-main."]})
    listed, more = root / "_quarto.yml", '      - section: "Workshop"\n        contents:\n          - tool.ipynb\n'
    listed.write_text(listed.read_text().replace("bibliography", f"{more}bibliography", 1))
    command, env = [sys.executable, book.__file__, "--out", "_docs"], os.environ | {"PYTHONPATH": str(root)}
    subprocess.run(command, cwd=root, env=env, check=True)
    return root


@pytest.fixture(scope="module")
def pdf(site):
    pypdf = pytest.importorskip("pypdf", reason="not printed: pypdf is not here")
    said = printed.make_pdf(site / "_docs", site, site / "book.pdf")
    return pypdf.PdfReader(site / "book.pdf"), said


def text_of(reader):
    return [" ".join(page.extract_text().split()) for page in reader.pages]


@needs_browser
def test_the_pdf_has_every_page_in_order_and_its_contents_name_them(pdf):
    reader, said = pdf
    pages = text_of(reader)
    assert said.startswith(f"2 + {len(pages) - 2} pages; ") and len(pages) == 10
    assert pages[0].startswith("A small book Every construct once.") and "Version 0.1.0" in pages[0]
    begins = {title: [n for n, text in enumerate(pages[2:], 1) if text.startswith(f"{title} {n} ")]
              for title in ("1 First steps", "2 Second steps", "3 Wide things", "References")}
    where = {title: numbers[0] for title, numbers in begins.items()}
    assert list(where.values()) == sorted(where.values())
    for title, number in where.items():
        assert re.search(rf"{title} {number}\b", pages[1]), (title, pages[1])
    assert pages[-1].startswith(f"{len(pages) - 2} Index of ") and f"Theorem 1.1 {where['1 First steps']}" in pages[-1]
    assert reader.page_labels[:4] == ["i", "ii", "1", "2"]
    titles = [entry.title for entry in reader.outline if not isinstance(entry, list)]
    assert titles[-3:] == ["Part I · Beginnings", "References", "Index of definitions and theorems"]


@needs_browser
def test_the_pdf_has_theorems_equations_figures_and_solutions_and_no_marks_of_the_source(pdf):
    text = " ".join(text_of(pdf[0]))
    for part in ("Theorem 1.1 (The main one", "(1.1)", "Definition 2.1", "Figure 1.2: A plot", "Table 1.1",
                 "Remark 1.1", "answer = 42", "Solution", "Omranpour, Soroush", "last_of_all", "y" * 40):
        assert part in text, part
    assert not re.search(r":::|\$\$|\{#|\?@|\\\(|\\\[|\\tag|\ufffd", text)
    assert sum(len(page.images) for page in pdf[0].pages)


@pytest.fixture(scope="module")
def press(site):
    with closing(printed.Press(site / "_docs")) as press:
        yield press


@needs_browser
def test_nothing_printed_has_a_bar_to_scroll_it_by(site, press):
    "On paper a box that scrolls is cut off, or shows its bar at the foot of the page."
    cell = '<div class="cell"><div class="output"><table><tr><td>1</td></tr></table></div></div>'
    body = cell + "".join(printed.article(site / "_docs", name) for name in ("first", "second", "wide"))
    scrolls = """return [...document.querySelectorAll("body *")]
        .filter(e => /auto|scroll/.test(getComputedStyle(e).overflow)).map(e => `${e.tagName}.${e.className}`)"""
    press.show("all", body)
    assert press.driver.execute_script("return document.querySelectorAll('.output td').length")
    assert press.driver.execute_script(scrolls) == []


@needs_browser
def test_links_of_the_pdf_lead_to_their_pages_and_those_to_the_library_to_the_site(pdf):
    reader = pdf[0]
    places = {name: reader.get_destination_page_number(place) for name, place in reader.named_destinations.items()}
    numbers = {page.indirect_reference.idnum: n for n, page in enumerate(reader.pages)}
    links = [link.get_object() for page in reader.pages for link in page.get("/Annots", [])]
    inside = {numbers[link["/Dest"][0].idnum] for link in links if "/Dest" in link}
    outside = [link["/A"]["/URI"] for link in links if "/A" in link]
    assert places["first#thm-main"] == places["first#top"] < places["second#def-second"]
    assert inside == {n for n in range(len(numbers)) if n not in (0, 1)}        # not cover and contents
    of_second = [link["/Dest"][0].idnum for link in (
        link.get_object() for link in reader.pages[places["second#top"]]["/Annots"]) if "/Dest" in link]
    assert numbers[of_second[0]] == places["first#thm-main"]
    assert "https://nobody.example.org/smallbook/tool.html" in outside
    assert not [address for address in outside if not address.startswith("https:")]


@needs_browser
def test_nothing_reaches_over_the_edge(pdf):
    reader, said = pdf
    assert int(re.search(r"; (\d+) formulas and tables", said)[1]) >= 2
    for number, page in enumerate(reader.pages, 1):
        places = []
        page.extract_text(visitor_text=lambda text, cm, tm, *_, to=places: to.append(
            (cm[0] * tm[4] + cm[4], text.strip())) if text.strip() else None)
        right = float(page.mediabox.width) - 72 * 0.75
        assert [item for item in places if item[0] > right] == [], number


@needs_browser
@pytest.mark.parametrize(("old", "new", "says"), [
    ("</article>", f"<table><tr>{30 * ('<td>' + 33 * 'x')}</tr></table></article>", "wider than the page: .*xxx"),
    ("_images/", "gone/", "did not come: .*gone")])
def test_what_cannot_be_printed_is_told(site, press, old, new, says):
    body = printed.article(site / "_docs", "first")
    with pytest.raises(printed.BookError, match=f"first: {says}"):
        press.show("first", body.replace(old, new, 1))


def test_the_epub_is_what_the_format_asks(site):
    command = [sys.executable, epub.__file__]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "smallbook.epub: 10 pages, 1 pictures, 0." in done.stdout
    with zipfile.ZipFile(site / "_build" / "smallbook.epub") as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type, archive.read(first)) == ("mimetype", 0, b"application/epub+zip")
        files = {name: archive.read(name).decode() for name in archive.namelist()
                 if name.endswith((".xhtml", ".opf", ".xml"))}
        pictures = [name for name in archive.namelist() if name.endswith(".png")]
    for text in files.values():
        ElementTree.fromstring(text.encode())
        assert "<script" not in text and "127.0.0.1" not in text
    text = "\n".join(files.values())
    assert len(pictures) == 1 and "secret" not in text and "A tool" not in text
    for part in ("Theorem 1.1", "<math", '<span class="book-number">(1.1)</span>', "answer", 'alt="A line that rises."',
                 "Figure 1.2", "https://nobody.example.org/smallbook/tool.html", "Part I · Beginnings", "Omranpour",
                 "Index of definitions", "#def-second", 'id="thm-main"'):
        assert part in text, part


def test_a_page_is_printed_open_without_scripts_and_what_is_no_page_of_the_site_is_refused(tmp_path):
    (tmp_path / "first.html").write_text(
        "<html><article><h1>T</h1><details class='code'><summary>S</summary></details><script>'#a'</script><button>x"
        "</button><pre>short</pre><pre>" + 14 * "long\n" + "</pre></article></html>")
    assert printed.article(tmp_path, "first").startswith(
        "<article id=\"top\"><h1>T</h1><details open class='code'><summary>S</summary></details>"
        '<pre class="short">short</pre><pre>long')
    (tmp_path / "second.html").write_text("<html><body>another</body></html>")
    with pytest.raises(printed.BookError, match="second.html is no page of the site"):
        printed.article(tmp_path, "second")


@pytest.mark.parametrize("text, says", [
    ("<p>", "is not XML"), ('<a href="b.xhtml#gone">x</a>', "a.xhtml links to b.xhtml#gone"),
    ('<img src="images/x.png" alt=""/>', "a.xhtml links to images/x.png"),
    ('<p id="i"/><p id="i"/>', "a.xhtml: #i is there twice")])
def test_an_epub_with_a_mistake_is_refused(tmp_path, text, says):
    with zipfile.ZipFile(tmp_path / "x.epub", "w") as archive:
        for name, body in (("a.xhtml", text), ("b.xhtml", "")):
            archive.writestr(name, f"<html><body>{body}</body></html>")
    with pytest.raises(book.BookError, match=re.escape(says)):
        epub.check(tmp_path / "x.epub")


def test_outputs_become_what_the_format_knows():
    made = str(epub.xhtml('<table border=1><tbody><tr><td>1<br>2<td>3<tr><td>4</tbody></table><script>x()</script>'
                          '<ul><li>a<ul><li>b</ul><li>c</ul><svg viewBox="0 0 1 1"><path d="M0"/></svg>'))
    assert "<td>1<br/>2</td><td>3</td></tr><tr><td>4</td></tr>" in made
    assert "<li>a<ul><li>b</li></ul></li><li>c</li></ul>" in made
    ElementTree.fromstring(f"<div>{made}</div>")
    assert "script" not in made and "border" not in made and "viewBox" in made

"""What a site needs beside its pages, whoever rendered them: a page for addresses that lead nowhere, the list of
its pages for search engines, and, of what Sphinx's theme brings along, only what a reader needs.
"""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import quote

import sheets

# Names have no colour of their own in this book, nor have operators: their marks are two thirds of a page's length.
# Nor have numbers and what Python has built in: one look for all of them costs a twelfth of the pages.
COLOURLESS = re.compile(r'<span class="(?:n|nn|nb|bp|mi|mf|p|w|o|ow)">([^<]*)</span>')
CODE = re.compile(r'(<div class="highlight"><pre>)(.*?)(</pre>)', re.DOTALL)
COLUMNS, MOST_IN = 88, 68      # letters in a line that need no care, and where a comment begins at the latest
ICON = re.compile(r'class="[^"]*?\b(fa-solid|fa-regular|fa-brands|fas|far|fab)(?: fa-(?:fw|lg))* fa-(?!fw|lg)([a-z-]+)')
OF_PACK = {"fas": "fa-solid", "far": "fa-regular", "fab": "fa-brands"}
PATHS = r'[,{{]"?{name}"?:\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]'
PACKS = re.compile(r'var \w+=\{(?="?[\w-]+"?:\[\d+,\d+,\[)')
LOADS_ICONS = re.compile(r'\s*<(?:script|link)\b[^>]*fontawesome[^>]*>(?:</script>)?')
SEARCHES = re.compile(r'\s*<script\b[^>]*\bsrc="(?:searchindex|_static/(?:searchtools|language_data))\.js[^>]*>'
                      r'</script>')
SIDEBAR = '<div id="pst-primary-sidebar" '     # the theme makes no landmark of it, though the book's name stands in it
SHEET = '<link rel="stylesheet" href="_static/icons.css" />'
HEAD = "</head>"
INLINE_CODE = re.compile(r'<code class="docutils literal notranslate">((?:<span class="pre">[^<]*</span>\s*)*)</code>')
SHORTER = [     # marks of docutils and of the theme that nothing asks for
    (INLINE_CODE, lambda m: f'<code class="notranslate">{re.sub("<[^>]*>", "", m[1])}</code>'),     # as in sheets
    (re.compile(r'(<div class="(?!cell )[^"]*) docutils container"'), r'\1"'),       # the theme asks for a cell's
    (re.compile(r'<tr class="row-(?:odd|even)">'), "<tr>"),
    (re.compile(r"<(td|th)([^>]*)><p>((?:(?!</?p>|</?td).)*)</p></\1>", re.DOTALL), r"<\1\2>\3</\1>"),
    (re.compile(r'<li class="toctree-l1"><a class="reference internal" '), "<li><a "),
    (re.compile(r'<a class="reference internal" '), "<a "),
    (re.compile(r'<span class="std std-(?:doc|ref|numref)">((?:(?!</?span\b).)*)</span>', re.DOTALL), r"\1"),
    (re.compile(r'(<p [^>]*class="caption"[^>]*>)<span class="caption-text">([^<]*)</span></p>'), r"\1\2</p>"),
    (re.compile(r'<p class="collapsed admonition-title">(.*?)</p>\s*<p class="expanded admonition-title">\1</p>',
                re.DOTALL), r'<p class="admonition-title">\1</p>'),        # the same, folded and not
    (re.compile(r'<summary aria-label="Toggle hidden content">'), "<summary>"),     # its title says more
    (re.compile(r"<pre><span></span>"), "<pre>"),
    (re.compile(r"<!--(?!\[).*?-->", re.DOTALL), ""),
    (re.compile(r'<div id="jb-print-toc">.*?</nav>\s*</div>', re.DOTALL), ""),     # the page's contents once more
]
# Ends of cells and rows that HTML does not ask for, as the next begins or the table ends.
ENDS = re.compile(r"</t[dh]>(?=\s*(?:<t[dh]\b|</tr>))|</tr>(?=\s*(?:<tr\b|</t(?:head|body)>))")
# A shape in the first column, as 2 x (14, 14, 14), stays on one line: its spaces become such that do not break.
SHAPE = re.compile(r"(<tr[^>]*>\s*<t[dh][^>]*>)([\d(][\d\s,.()x×:–-]{0,23})(?=</t[dh]>)")
SPACE = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)|\n\s+(?=<)", re.DOTALL)
# Of a reference docutils says that it is one, which ARIA no longer does; it stands in a list.
REFERENCE = ('role="doc-biblioentry"', 'role="listitem"')
# A page waits for nothing but its style sheet before it is shown: scripts go to its end, in their order, where they do
# not compete with the sheet; their options, a few names, stand in the page.
OPTIONS = re.compile(r'<script src="_static/documentation_options\.js[^>]*></script>')
LOADED = re.compile(r'\s*<script(?: defer(?:="defer")?)? src="([^"]+)"></script>')
PRELOADS = re.compile(r'<link rel="preload" as="script"[^>]*>\n?')
# Before scripts run, and where none do, a page is light, or as its reader's system is; "auto" has no colours.
THEME = [('data-theme="auto"', 'data-theme="light"'),
         ('localStorage.getItem("theme") || "auto"',
          'localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")')]
UNREAD = ("**/*.map", "locales/**/*", "webpack-macros.html", "sbt-webpack-macros.html", "scripts/fontawesome.js*",
          "vendor/fontawesome/**/*")

NOT_FOUND = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Page not found - {title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 34rem; margin: 18vh auto 2rem; padding: 0 1.2rem; font: 1.1rem/1.6 Charter, Georgia, serif; }}
input, button {{ padding: .3rem .6rem; font: inherit; }}
input {{ width: 60%; }}
a {{ color: LinkText; }}
</style>
</head>
<body>
<main>
<h1>This page is not here</h1>
<p>The address may be mistyped, or the chapter has moved. <a href="{home}">Start at the front page</a>,
or look for what you need:</p>
<form action="{search}" method="get" role="search">
<label for="q">Search the book</label><br>
<input id="q" name="q" type="search"> <button>Search</button>
</form>
</main>
</body>
</html>
"""


def write_not_found(out: Path, title: str, url: str) -> None:
    "It is shown under any address, so what it leads to is named in full."
    home = f"{url}/index.html" if url else "index.html"
    search = home.replace("index.html", "search.html" if (out / "search.html").exists() else "index.html")
    (out / "404.html").write_text(NOT_FOUND.format(title=escape(title), home=home, search=search), encoding="utf-8")


def write_sitemap(out: Path, url: str) -> None:
    pages = sorted(path.name for path in out.glob("*.html") if path.stem not in ("404", "search", "genindex"))
    places = [f"<url><loc>{escape(url)}/{'' if page == 'index.html' else quote(page)}</loc></url>" for page in pages]
    (out / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        + "\n".join(places) + "\n</urlset>\n", encoding="utf-8")


def slim(html: Path) -> None:
    "Of the theme: the icons that stand on a page, no maps of its sources; of a page: no marks without a meaning."
    pages = {path: path.read_text(encoding="utf-8") for path in html.glob("*.html")}
    script = html / "_static" / "scripts" / "fontawesome.js"
    sheet = icon_sheet(script.read_text(encoding="utf-8"), pages.values()) if script.exists() else ""
    if sheet:
        (html / "_static" / "icons.css").write_text(sheet, encoding="utf-8")
    for path, text in pages.items():
        text = CODE.sub(continued, COLOURLESS.sub(r"\1", text))
        text = text.replace(*REFERENCE).replace(SIDEBAR, SIDEBAR + 'role="complementary" aria-label="The book" ', 1)
        if sheet:
            text = LOADS_ICONS.sub("", text).replace(HEAD, f"  {SHEET}\n  {HEAD}", 1)
        pages[path] = soon_shown(shorter(text), html, path.stem == "search")
    for path, text in sheets.join(html, pages).items():
        path.write_text(text, encoding="utf-8")
    for pattern in UNREAD if sheet else UNREAD[:4]:
        for path in (html / "_static").glob(pattern):
            if path.is_file():
                path.unlink()
    for folder in sorted((html / "_static").glob("**/"), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def shorter(page: str) -> str:
    for marks, rest in SHORTER:
        page = marks.sub(rest, page)
    return ENDS.sub("", SPACE.sub(lambda m: m[1] or "\n", whole_shapes(page)))


def whole_shapes(page: str) -> str:
    return SHAPE.sub(lambda m: m[1] + "\N{NO-BREAK SPACE}".join(m[2].split()), page)


def soon_shown(page: str, html: Path, searches: bool) -> str:
    "A page that needs no script before it is shown; the page that searches runs its scripts one after the other."
    for old, new in THEME:
        page = page.replace(old, new, 1)
    options = (html / "_static" / "documentation_options.js").read_text(encoding="utf-8").strip()
    page = OPTIONS.sub(lambda m: f"<script>{options}</script>", page)
    page = PRELOADS.sub("", page)
    if searches:
        return page
    page = SEARCHES.sub("", page)
    scripts = "".join(f'<script defer src="{script}"></script>\n' for script in LOADED.findall(page))
    return LOADED.sub("", page).replace("</body>", f"{scripts}</body>", 1)


def continued(block: re.Match) -> str:
    "A block of code whose long lines know where they may go on: under their comment, or further in than they begin."
    return block[1] + "".join(map(continued_line, block[2].splitlines(keepends=True))) + block[3]


def continued_line(line: str) -> str:
    text = unescape(re.sub(r"<[^>]*>", "", line)).rstrip("\n")
    if len(text) <= COLUMNS or line.count("<span") != line.count("</span>"):
        return line
    before, comment, _ = line.partition('<span class="c1">')
    own = len(unescape(re.sub(r"<[^>]*>", "", before))) if comment else 0
    at = own + 2 if 8 < own <= MOST_IN else len(text) - len(text.lstrip()) + 4
    return f'<span class="long" style="--at:{at}ch">{line}</span>'


def icon_sheet(script: str, pages) -> str:
    "Style sheet with the icons of these pages; empty where they are not found, and then the script stays."
    used = sorted({match.groups() for page in pages for match in ICON.finditer(page)})
    starts = [m.start() for m in PACKS.finditer(script)]
    if len(starts) != 3:                                            # brands, regular, solid
        return ""
    packs = dict(zip(("fa-brands", "fa-regular", "fa-solid"), zip(starts, [*starts[1:], len(script)], strict=True),
                     strict=True))
    rules = []
    for pack, name in used:
        begin, end = packs[OF_PACK.get(pack, pack)]
        found = re.search(PATHS.format(name=re.escape(name)), script[begin:end])
        if found is None:
            return ""
        width, height, path = found.groups()
        picture = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><path d="{path}"/></svg>'
        rules.append(f".{pack}.fa-{name} {{ --icon: url(\"data:image/svg+xml,{quote(picture, safe=' =:/')}\"); }}")
    return "\n".join([LOOK, *rules]) + "\n"


LOOK = """/* icons of Font Awesome Free (CC BY 4.0, fontawesome.com): those that stand on these pages */
:is(.fa-solid, .fa-regular, .fa-brands, .fas, .far, .fab) {
  display: inline-block;
  width: 1.25em;
  height: 1em;
  background: currentcolor;
  mask: var(--icon, linear-gradient(transparent, transparent)) center / contain no-repeat;
  vertical-align: -0.125em;
}
:is(.fa-solid, .fa-regular, .fa-brands, .fas, .far, .fab)::before { content: none; }
.fa-lg { font-size: 1.25em; line-height: 0.05em; vertical-align: -0.075em; }
@media (forced-colors: active) {
  :is(.fa-solid, .fa-regular, .fa-brands, .fas, .far, .fab) { background: CanvasText; }
}"""

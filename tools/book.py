"""The book's site: `python tools/book.py [--nbs DIR] [--out DIR] [--check]`.

nbdev processes the notebooks (documentation of exported code, hidden cells), pandoc makes pages of them by book.lua and
page.html, Pagefind the index for the search. Title, parts and chapters are read from _quarto.yml. Nothing is executed
here, and a reference, link or citation that leads nowhere fails. --check only reads the notebooks as they are.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape, unescape
from os.path import normpath
from pathlib import Path
from urllib.parse import quote

import api
import yaml

HERE = Path(__file__).resolve().parent
NOTEBOOKS, ANSWERS = "notebooks", "with_answers.zip"  # what readers download; the branch with it has the same name
LISTS = {   # parts whose pages the sidebar does not list one by one; a page of their own does
    "Measured": "All rows, figures and tests behind what the chapters say in a few sentences.",
    "Workshop": "The plumbing of the library and of the book: these pages export it, and are read when it is needed.",
}
LEDGER = "verdicts.csv"  # of nbs: its rows name the cells that decide them
LEFT_OUT = "The answer stands in the version of this notebook with answers."
DRAWN = ('<figure class="schematic"', '<div class="moving"')
OPTIONS = {"default_exp", "export", "exports", "exporti", "hide", "echo", "eval", "label", "fig-cap", "fig-alt",
           "code-fold", "code-summary", "folded"}
FOLDED = re.compile(r"^#\| folded .*$", re.MULTILINE)  # of exported code: nbdev keeps such a line out of the module
LONG = 30  # lines of exported code that a page shows at once


class BookError(Exception):
    """All problems of a book, one line each."""


def page_of(notebook: str) -> str:
    "Name of a notebook's page without suffix; nbdev drops the number the same way."
    return re.sub(r"^\d+[a-zA-Z]?_", "", Path(notebook).stem)


def chapter_of(notebook: str) -> str:
    "Number of the chapter as text, 11a for a sibling; empty where the file name begins with none."
    match = re.match(r"0*(\d+[a-zA-Z]?)_", notebook)
    return match[1] if match else ""


def source_of(cell: dict) -> str:
    return "".join(cell["source"])


def load(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


class Structure:
    """The project as _quarto.yml and settings.ini describe it."""

    def __init__(self, root: Path):
        from configparser import ConfigParser

        self.root = Path(root)
        site = yaml.safe_load((self.root / "_quarto.yml").read_text(encoding="utf-8"))["website"]
        self.title, self.description = site["title"], site.get("description", "")
        self.url, self.repo = site.get("site-url", "").rstrip("/"), site.get("repo-url", "").rstrip("/")
        self.branch, self.folder = site.get("repo-branch", "main"), site.get("repo-subdir", "")
        self.favicon, self.image = site["favicon"], site.get("image", "")
        self.parts: list[tuple[str, list[tuple[str, str]]]] = []
        for item in site["sidebar"]["contents"]:
            section = isinstance(item, dict) and "section" in item
            entries = item["contents"] if section else [item]
            pages = [(e, "") if isinstance(e, str) else (e["href"], e.get("text", "")) for e in entries]
            self.parts.append((item["section"] if section else "", pages))
        settings = ConfigParser()
        settings.read(self.root / "settings.ini", encoding="utf-8")
        self.settings = settings["DEFAULT"]

    @property
    def names(self) -> list[str]:
        return [name for _, pages in self.parts for name, _ in pages]

    def check(self, nbs: Path) -> None:
        "Sidebar and notebooks name the same pages."
        listed, there = set(self.names), {p.name for p in nbs.glob("*.ipynb") if p.name[0] not in "_."}
        problems = [f"_quarto.yml lists {name}, which is not there" for name in listed - there]
        problems += [f"{name} is missing in the sidebar of _quarto.yml" for name in there - listed]
        if problems:
            raise BookError("\n".join(sorted(problems)))

    def online(self, notebook: str) -> list[tuple[str, str]]:
        "Where a notebook can be run without installing anything; .github/workflows/site.yml puts it there."
        user, repo = (self.settings.get(key, "") for key in ("user", "repo"))
        return [] if not (user and repo) else [
            ("Open in Colab", f"https://colab.research.google.com/github/{user}/{repo}/blob/{NOTEBOOKS}/{notebook}"),
            ("Open in Binder", f"https://mybinder.org/v2/gh/{user}/{repo}/{NOTEBOOKS}?labpath={notebook}")]


# ---- cells as book.lua reads them ----

@dataclass
class Code:
    """A code cell's options (`#| key: value`) and the rest of its source."""

    options: dict
    body: str

    @classmethod
    def parse(cls, source: str) -> Code:
        options, lines = {}, source.splitlines()
        while lines and (match := re.match(r"\s*#\s*\|\s*([\w-]+)\s*:?\s*(.*?)\s*$", lines[0])):
            options[match[1]] = yaml.safe_load(match[2]) if match[2][:1] in "\"'" and match[2] else match[2]
            lines.pop(0)
        return cls(options, "\n".join(lines))

    @property
    def shown(self) -> bool:
        "Does anything of this cell reach the page?"
        return not self.options.keys() & {"hide", "export", "exporti", "default_exp"}


def unbroken(text: str) -> str:
    "A mean and its deviation are one number: no line ends between them."
    return re.sub(r"(?<=\d)(%?) ± (?=\d)", "\\1\u00a0±\u00a0", text)


def plain_links(text: str) -> str:
    "nbdev links `name` inside links too; the author's link wins."
    named = r"\[(`[^`]+`)\]\([^()]*\)"
    return re.sub(rf"{named}(?=(?:[^\[\]]|{named})*\]\()", r"\1", text)


def data_of(output: dict, kind: str) -> str:
    return "".join(output.get("data", {}).get(kind, ""))


def drawn(cell: dict) -> bool:
    "Does it show a schematic or a moving picture: a drawing as text, which says itself what is seen?"
    return any(data_of(out, "text/html").startswith(DRAWN) for out in cell.get("outputs", []))


def checked(cell: dict, code: Code) -> None:
    "What is wrong with the options of a cell."
    options, outputs = code.options, cell.get("outputs", [])
    if unknown := options.keys() - OPTIONS:
        raise BookError(f"unknown cell option #| {', '.join(sorted(unknown))}")
    if not code.shown:
        return
    images = any(kind.startswith("image/") for out in outputs for kind in out.get("data", {}))
    if "label" in options and not options.get("fig-cap"):
        raise BookError("a figure with a label needs a fig-cap")
    if "label" in options and not (images or drawn(cell)):
        raise BookError("this figure's cell holds no picture: execute the notebook and save it")
    if "label" in options and sum(out["output_type"] != "stream" for out in outputs) > 1:
        raise BookError("a figure's cell shows the picture alone: what else it says stands in a cell of its own")
    if (images or "fig-cap" in options and not drawn(cell)) and not options.get("fig-alt"):
        raise BookError("a figure needs a fig-alt, which says what is seen")


class Reader:
    """Notebooks as lists of cells for book.lua; pictures are put into a folder on the way."""

    def __init__(self, nbs: Path, pictures: Path | None = None):
        self.nbs, self.pictures, self.problems = nbs, pictures, []
        ledger = nbs / LEDGER
        rows = csv.DictReader(ledger.open(encoding="utf-8", newline="")) if ledger.exists() else []
        self.decisive = {place for row in rows for place in row["decided"].split()}

    def cells(self, name: str, nb: dict) -> list[dict]:
        "All that a page shows; a cell that nbdev made counts as the one before it."
        own = load(self.nbs / name)["cells"]
        source = {c.get("id"): i for i, c in enumerate(own, 1)}
        folded = {c.get("id"): found[0] for c in own if (found := FOLDED.search(source_of(c)))}
        made, where = [], f"{name}, cell 1"
        for cell in nb["cells"]:
            where = f"{name}, cell {source[cell['id']]}" if cell.get("id") in source else where
            text = source_of(cell)
            if cell["cell_type"] == "markdown" and not text.startswith("<!-- WARNING: THIS FILE"):
                made.append({"kind": "markdown", "text": plain_links(unbroken(text)), "id": cell.get("id", "")})
            elif cell["cell_type"] == "code":
                try:
                    made += self.code(name, cell, f"{folded.get(cell.get('id'), '')}\n{text}".lstrip())
                except BookError as problem:
                    self.problems.append(f"{where}: {problem}")
            for new in made[len(made) - 1:]:
                new.setdefault("where", where)
        return made

    def code(self, name: str, cell: dict, source: str) -> list[dict]:
        outputs = cell.get("outputs", [])
        for out in outputs:
            if entry := api.entry(data_of(out, "text/markdown")):
                return [entry]
        code = Code.parse(source)
        checked(cell, code)
        options, body = code.options, code.body.strip("\n")
        if not code.shown:
            return []
        fold = options.get("code-summary", "Code") if options.get("code-fold") == "true" else options.get("folded")
        exported = options.get("code-fold") == "show" or "folded" in options
        if exported and not fold and body.strip().count("\n") >= LONG:                 # it opens at a click
            names = ", ".join(re.findall(r"^(?:class|(?:async )?def) (\w+)", body, re.MULTILINE)) or "this part"
            fold = f"Source of {names}: {body.strip().count(chr(10)) + 1} lines"
        alt = options.get("fig-alt", "")
        shown = [s for s in (self.output(out, alt) for out in outputs) if s]
        made = {"kind": "code", "id": cell.get("id", ""), "outputs": shown, "exported": exported,
                "code": body if options.get("echo") != "false" and body else None, "fold": fold,
                "label": options.get("label"), "caption": options.get("fig-cap"),
                "anchor": f"cell-{cell['id']}" if f"{name}#{cell.get('id')}" in self.decisive else None}
        return [{key: value for key, value in made.items() if value is not None}]

    def output(self, out: dict, alt: str) -> dict | None:
        if html := data_of(out, "text/html") or data_of(out, "image/svg+xml"):
            if alt and html.startswith(DRAWN):
                html = re.sub(r'aria-label="[^"]*"', lambda _: f'aria-label="{escape(alt)}"', html, count=1)
            return {"kind": "html", "text": unbroken(html)}
        if text := data_of(out, "text/markdown"):
            return {"kind": "markdown", "text": unbroken(text)}
        if png := data_of(out, "image/png"):
            return {"kind": "image", "src": self.picture(base64.b64decode(png)), "alt": alt}
        text = data_of(out, "text/plain") or "".join(out.get("text", ""))
        return {"kind": "text", "text": text.strip("\n")} if text.strip() else None

    def picture(self, png: bytes) -> str:
        name = f"{hashlib.sha256(png).hexdigest()[:20]}.png"
        if self.pictures:
            self.pictures.mkdir(exist_ok=True)
            if not (self.pictures / name).exists():
                (self.pictures / name).write_bytes(with_palette(png))
        return f"_images/{name}"


def with_palette(png: bytes) -> bytes:
    "The same picture with at most 128 colours, each with its own opacity, where that is smaller: a third, mostly."
    import io

    from PIL import Image

    picture, out = Image.open(io.BytesIO(png)).convert("RGBA"), io.BytesIO()
    made = picture.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    made.save(out, "PNG", optimize=True)
    return min(out.getvalue(), png, key=len)


class Book:
    """The notebooks of a project, and how they become what is read."""

    def __init__(self, root: Path, nbs: Path | None = None):
        self.structure, self.root = Structure(root), Path(root)
        self.nbs = Path(nbs or self.root / "nbs")
        self.structure.check(self.nbs)
        self.titles = {name: self.title(name) for name in self.structure.names}

    def title(self, name: str) -> tuple[str, str]:
        "Title with its number, and subtitle. nbdev drops what else stands in the first cell."
        cells = load(self.nbs / name)["cells"]
        match = re.fullmatch(r"# +(\S[^\n]*?)\s*(?:\n+> +(\S[^\n]*?))?\s*", source_of(cells[0]) if cells else "")
        if not match:
            raise BookError(f"{name}, cell 1: the first cell holds `# Title` and, on one line, `> subtitle`; no more")
        return f"{chapter_of(name)} {match[1]}".strip(), match[2] or ""

    def pandoc(self, mode: str, out: Path, pages: list[dict]) -> None:
        "Run book.lua; what it complains of is a problem of the book."
        import pypandoc

        s, path = self.structure, self.root / "_build" / "book" / f"{mode}.json"
        work = {"mode": mode, "out": str(out), "pages": pages, "root": str(self.root), "url": s.url,
                "bibliography": str(self.nbs / "references.bib"), "template": str(HERE / "page.html"),
                "files": f"{s.repo}/blob/{s.branch}/", "left_out": LEFT_OUT}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(work, ensure_ascii=False), encoding="utf-8")
        command = [pypandoc.get_pandoc_path(), "+RTS", "-A64m", "-RTS", "lua", str(HERE / "book.lua"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")    # less looking for garbage
        if done.returncode or done.stderr.strip():
            raise BookError(done.stderr.strip() or f"pandoc ended with {done.returncode}")

    def pages(self, folder: Path, reader: Reader) -> list[dict]:
        "The pages of a folder of notebooks, the sources or the processed ones."
        made = [{"file": name, "name": page_of(name), "chapter": chapter_of(name), "title": self.titles[name][0],
                 "cells": reader.cells(name, load(folder / name))} for name in self.structure.names]
        if reader.problems:
            raise BookError("\n".join(reader.problems))
        return made

    def check(self) -> None:
        "Read the notebooks as they are, and tell what is wrong in them."
        self.pandoc("check", Path(), self.pages(self.nbs, Reader(self.nbs)))

    @property
    def texts(self) -> Path:
        "Where `markdown` keeps what it gives: another file when a notebook or the converter has changed."
        files = [*sorted(self.nbs.glob("*.ipynb")), self.nbs / "references.bib", HERE / "book.lua", Path(__file__)]
        key = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
        return self.root / "_build" / "book" / f"texts-{key[:12]}.json"

    def markdown(self) -> dict[str, list[str]]:
        "`notebook#cell` -> its text as Jupyter shows it, and where that differs, without answers. It is kept."
        path = self.texts
        if not path.exists():
            pages = [{**page, "cells": [c for c in page["cells"] if c["kind"] == "markdown" or c.get("caption")]}
                     for page in self.pages(self.nbs, Reader(self.nbs))]
            for old in path.parent.glob("texts-*.json"):
                old.unlink()
            self.pandoc("jupyter", path, pages)
        return load(path)

    def build(self, out: Path) -> None:
        "The site, from what nbdev makes of the notebooks; in place of an old one if nothing is wrong."
        import lab
        from nbdev.serve import proc_nbs

        made, proc = self.root / "_build" / "site", self.root / "_proc"
        for folder in (made, proc):             # nbdev's cache keeps pages of notebooks that are gone
            shutil.rmtree(folder, ignore_errors=True)
        with ThreadPoolExecutor() as pool:
            texts = pool.submit(self.markdown)
            proc_nbs(str(self.nbs), n_workers=2)
            copy_files(self.nbs, made)
            pages = self.pages(proc, Reader(self.nbs, made / "_images")) + self.own_pages()
            for number, page in enumerate(pages):
                page["cells"] += [{"kind": "markdown", "text": text, "where": f"{page['file']}, the index added to it"}
                                  for text in api.index(page["file"], self.root, self.structure.url)]
                page["variables"] = self.variables(page, pages, number)
            self.pandoc("html", made, pages)
            for path in (made / f"{page['name']}.html" for page in pages):
                path.write_text(finished(path.read_text(encoding="utf-8")), encoding="utf-8")
            lab.write_downloads(self, made, texts.result())
        check_pages(made)
        write_services(self, made)
        search_index(made, self.root / "_build" / "search", self.nbs / "pins.csv")
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(made, out)

    def own_pages(self) -> list[dict]:
        "The lists of pages that the sidebar leaves out, and the references."
        made = [("references", "References", [])]
        for part, intro in reversed(LISTS.items()):
            about = [f"- [{self.titles[name][0]}]({name}): {self.titles[name][1]}" for name in self.names(part)]
            cell = {"kind": "markdown", "where": f"the list of {part}", "text": f"{intro}\n\n" + "\n".join(about)}
            made = [(part.lower(), part, [cell])] * bool(about) + made
        return [{"file": name, "name": name, "chapter": "", "title": title, "cells": cells}
                for name, title, cells in made]

    def names(self, part: str) -> list[str]:
        return [name for own, pages in self.structure.parts if own == part for name, _ in pages]

    @property
    def downloads(self) -> list[str]:
        "Notebooks that readers download; plumbing is read in the repository."
        return [name for name in self.structure.names if name not in self.names("Workshop")]

    def variables(self, page: dict, pages: list[dict], number: int) -> dict:
        "What the template asks for."
        s, name = self.structure, page["file"]
        about = self.titles.get(name, ("", ""))[1] or s.description
        links = []
        if name in self.downloads:
            links = [f'<a href="{NOTEBOOKS}/{name}" download>Download this notebook</a>']
            if any('code-summary: "Solution"' in source_of(c) for c in load(self.nbs / name)["cells"]):
                links.append(f'<a href="{NOTEBOOKS}/{ANSWERS}" download>all notebooks with the answers</a>')
            links += [f'<a href="{url}">{text}</a>' for text, url in s.online(name)]
        if name in self.titles:
            links += [f'<a href="{s.repo}/{action}/{s.branch}/{s.folder}/{name}">{text}</a>'
                      for action, text in (("blob", "View its source"), ("edit", "Edit it")) if s.repo]
        made = {"book": escape(s.title), "titled": escape(page["title"]), "about": escape(about),
                "subtitle": escape(self.titles.get(name, ("", ""))[1]),
                "links": " · ".join(links), "sidebar": self.sidebar(page), "favicon": s.favicon, "name": page["name"],
                "moving": "yes" if 'class="moving"' in json.dumps(page["cells"]).replace('\\"', '"') else ""}
        made |= {"url": s.url, "image": s.image} if s.url else {}
        for key, other in (("previous", number - 1), ("next", number + 1)):
            if 0 <= other < len(pages):
                made |= {key: f"{pages[other]['name']}.html", f"{key}_title": escape(pages[other]["title"])}
        return {key: value for key, value in made.items() if value}

    def sidebar(self, page: dict) -> str:
        "Parts that fold, the one with this page open; siblings with a letter are listed with their chapter only."
        def entry(name, text):
            here = ' aria-current="page"' if page_of(name) == page["name"] else ""
            return f'<li><a href="{page_of(name)}.html"{here}>{escape(text or self.titles[name][0])}</a>'

        def entries(pages):
            lines = []
            for name, text in pages:
                own, chapter = chapter_of(name), chapter_of(page["file"])
                if not own[-1:].isalpha() or own.rstrip("abcdefgh") == chapter.rstrip("abcdefgh"):
                    kind = ' class="sibling"' if own[-1:].isalpha() else ""
                    lines.append(entry(name, text).replace("<li>", f"<li{kind}>"))
            return "".join(lines)

        made = []
        for part, pages in self.structure.parts:
            here = [entry(name, "") for name, _ in pages if name == page["file"]]
            if part in LISTS:
                more = f"<ul>{here[0]}</ul>" if here else ""
                made.append(f"<ul>{entry(part.lower(), part)}{more}</ul>")
            elif part:
                opened = " open" if here or page["name"] == "index" else ""
                made.append(f"<details{opened}><summary>{escape(part)}</summary><ul>{entries(pages)}</ul></details>")
            else:
                made.append(f"<ul>{entries(pages)}</ul>")
        made.append(f"<ul>{entry('references', 'References')}</ul>")
        return "\n".join(made).replace("</ul>\n<ul>", "")


def copy_files(nbs: Path, out: Path) -> None:
    "Images, styles, scripts: what is no notebook, table or hidden file."
    kept = (".css", ".js", ".svg", ".png", ".woff2", ".jpg", ".gif")
    shutil.copytree(nbs, out, ignore=lambda folder, names: [
        name for name in names if name[0] in "_." or not (name.endswith(kept) or Path(folder, name).is_dir())])


# ---- the finished page ----

MATH = re.compile(r'<math display="(inline|block)"[^>]*><semantics>(?:<mrow>)?(.*?)(?:</mrow>)?'
                  r"<annotation[^>]*>[^<]*</annotation></semantics></math>", re.DOTALL)
FUNCTION = re.compile(r"<mrow>(<mi[^>]*>\w{2,}</mi>)<mo>(?:&#8289;|\u2061)</mo></mrow>(?=(<mo)?)")
BRACKETS = re.compile(r' form="(?:pre|post)fix"(?=[^>]*>[()\[\]{}|‖⟨⟩])|'
                      r' columnalign="center" style="text-align: center"')      # they have that side and place anyway
CODE = re.compile(r'<div class="sourceCode" id="cb\d+"><pre\s+class="[^"]*"><code\s+class="[^"]*">(.*?)'
                  r"</code></pre></div>", re.DOTALL)
LINE = re.compile(r'<span id="cb[\d-]+"><a href="#cb[\d-]+"[^>]*></a>(.*?)</span>$', re.MULTILINE)
LOOKS = {**dict.fromkeys(("kw", "cf", "im"), "b"), **dict.fromkeys(("st", "vs", "ch", "ss"), "i"),
         **dict.fromkeys(("co", "do", "an", "in"), "em")}       # names and operators have none
COLUMNS = 88  # letters of a line of code that need no care
# A shape in the first column, as 2 x (14, 14, 14), stays on one line: its spaces become such that do not break.
SHAPE = re.compile(r"(<tr[^>]*>\s*<t[dh][^>]*>)([\d(][\d\s,.()x×:–-]{0,23})(?=</t[dh]>)")
# what HTML does not ask for: ends of cells, rows and entries before the next
OMITTED = re.compile(r"</t[dh]>(?=\s*(?:<t[dh]\b|</tr>))|</tr>(?=\s*(?:<tr\b|</t(?:head|body)>))"
                     r"|</li>(?=\s*(?:<li|</[uo]l>))")


def text_of(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


def formula(match: re.Match) -> str:
    "Without marks that say what a browser does anyway; log x has a space, log(x) none."
    text = FUNCTION.sub(lambda m: m[1] + ("" if m[2] else '<mspace width="0.167em"></mspace>'), match[2])
    text = re.sub(r'(?<==)"([\w.-]+)"(?=[\s>])', r"\1", BRACKETS.sub("", text))
    return f"<math{' display=block' if match[1] == 'block' else ''}>{text}</math>"


def listing(match: re.Match) -> str:
    "Words of the language, strings and comments in short tags; a line that is long in one that hangs."
    made = []
    for line in LINE.sub(r"\1", match[1]).split("\n"):
        def look(m):
            return f"<{LOOKS[m[1]]}>{m[2]}</{LOOKS[m[1]]}>" if m[1] in LOOKS else m[2]
        text = re.sub(r'<span class="(\w\w)">([^<]*)</span>', look, line)
        made.append(f"{text}\n" if len(text_of(text)) <= COLUMNS else f"<u>{text}\n</u>")      # a block: no line more
    return f"<div class=code><pre>{''.join(made).removesuffix(chr(10))}</pre></div>"


def finished(page: str) -> str:
    "A page without marks that nothing asks for."
    page = CODE.sub(listing, MATH.sub(formula, page))
    page = re.sub(r"<summary>\s*(.*?)\s*</summary>", r"<summary>\1</summary>", page, flags=re.DOTALL)
    page = SHAPE.sub(lambda m: m[1] + "\N{NO-BREAK SPACE}".join(m[2].split()), page)
    return re.sub(r'(<li><a href="[^"]*") id="toc-[^"]*"', r"\1", OMITTED.sub("", page))


RAW = re.compile(r":::|\$\$|\{#|\?@")  # marks of the source that are no text


def left_raw(page: str) -> list[str]:
    "Marks of the source that a reader would see in the text of a page, each with the words around it."
    text = " ".join(text_of(re.sub(r"<(code|pre|script|style|textarea)\b.*?</\1>", " ", page, flags=re.DOTALL)).split())
    return [f"“…{text[max(m.start() - 40, 0): m.end() + 40]}…”" for m in RAW.finditer(text)]


def astray(pages: dict[str, str], files: Iterable[str]) -> list[str]:
    "Anchors that are there twice, and links and pictures that lead nowhere: not to one of these pages or files."
    ids = {name: re.findall(r'\sid="?([^"\s>]+)', page) for name, page in pages.items()}
    found = [f"{name}: #{i} is there twice" for name in pages for i in sorted({*ids[name]}) if ids[name].count(i) > 1]
    for name, page in pages.items():
        for link in re.findall(r'<(?:a|img)\b[^>]*?\s(?:href|src)="([^"]+)"', page):
            path, _, anchor = unescape(link).partition("#")
            path = normpath(Path(name).parent / path) if path else name
            if not re.match(r"[a-z]+:", link) and (path not in files or anchor and anchor not in ids[path]):
                found.append(f"{name} links to {link}")
    return found


def check_pages(out: Path) -> None:
    "No mark of the source is left in the text, every anchor is there once, every link leads somewhere."
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(out.glob("*.html"))}
    found = [f"{name}: {words} is left in the text" for name, page in pages.items() for words in left_raw(page)]
    found += astray(pages, {path.relative_to(out).as_posix() for path in out.rglob("*")})
    if found:
        raise BookError("\n".join(found))


# ---- what a site has beside its pages ----

NOT_FOUND = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>Page not found - {title}</title>
<style>:root {{ color-scheme: light dark }} body {{ max-width: 34rem; margin: 18vh auto; padding: 0 1.2rem;
font: 1.1rem/1.6 Charter, Georgia, serif }} a {{ color: LinkText }}</style>
</head><body><main><h1>This page is not here</h1>
<p>The address may be mistyped, or the chapter has moved. <a href="{home}">Search from the front page</a>.</p>
</main></body></html>
"""


def write_services(book: Book, out: Path) -> None:
    """A page for addresses that lead nowhere, shown under any of them, the list of pages for search engines, and
    llms.txt for those who read with a program: a notebook is its page as Markdown, with code."""
    s = book.structure
    places = {name: f"{s.url}/{NOTEBOOKS}" if name in book.downloads else f"{s.repo}/raw/{s.branch}/{s.folder}"
              for name in book.titles}
    listed = [f"- [{title}]({places[name]}/{name}): {about}" for name, (title, about) in book.titles.items()]
    text = "\n".join([f"# {s.title}", "", f"> {s.description}", "", *listed, ""])
    (out / "llms.txt").write_text(text, encoding="utf-8")
    home = f"{s.url}/index.html" if s.url else "index.html"
    pages = sorted(path.name for path in out.glob("*.html"))
    (out / "404.html").write_text(NOT_FOUND.format(title=escape(s.title), home=home), encoding="utf-8")
    places = [f"<url><loc>{escape(s.url)}/{'' if page == 'index.html' else quote(page)}</loc></url>" for page in pages]
    (out / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        + "\n".join(places) + "\n</urlset>\n", encoding="utf-8")


HEAD = re.compile(r'<(h[1-4])[^>]*?(?: id="([^"]+)")?[^>]*>(.*?)</\1>|<div id="([^"]+)" class="book-statement [^"]*">',
                  re.DOTALL)
NO_TEXT = re.compile(r"<(pre|math|svg|script|style)\b.*?</\1>|<summary>(?:Arguments|Code)</summary>", re.DOTALL)


def places(name: str, page: str) -> list[dict]:
    "What a search may lead to: sections, statements, documented names, each with its text."
    article = re.search(r"<article>(.*?)</article>", page, re.DOTALL)[1]
    article = re.sub(r'<p class="links">.*?</p>|<a class="api-source".*?</a>', "", article, flags=re.DOTALL)
    heads, found, title = list(HEAD.finditer(article)), [], ""
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        text = article[head.end(): following.start() if following else None]
        if head[4]:                             # a statement, to the end of its first div
            text = text.partition("</div>\n")[0]
            called = re.match(r"\s*<p><strong>([^<]*)</strong>(\s*\([^)]*\))?", text)
            head_text, kind = (text_of(called[1] + (called[2] or "")).rstrip(".") if called else ""), "statement"
        else:
            head_text = " ".join(text_of(head[3]).split())
            kind = "page" if head[1] == "h1" else "name" if head[3].startswith("<code>") else "section"
        title = title or head_text
        anchor = "" if kind == "page" else head[4] or head[2]
        if head_text:
            found.append({"url": f"{name}.html" + (f"#{anchor}" if anchor else ""), "kind": kind, "title": head_text,
                          "page": title, "text": " ".join(text_of(NO_TEXT.sub(" ", text)).split())})
    return found


def search_index(site: Path, folder: Path, pins: Path) -> None:
    "One small page for each place, which Pagefind reads; and the places of words that no ranking can know."
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    every = [p for path in sorted(site.glob("*.html")) if path.stem != "404"
             for p in places(path.stem, path.read_text(encoding="utf-8"))]
    for number, p in enumerate(every):
        meta = "".join(f'<meta data-pagefind-meta="{key}[content]" content="{escape(p[key])}">'
                       for key in ("url", "kind", "title", "page"))
        body = f"<h1>{escape(p['title'])}</h1><p>{escape(p['text'])}</p>"
        (folder / f"{number}.html").write_text(f'<html lang="en"><head>{meta}</head><body>{body}</body></html>',
                                               encoding="utf-8")
    command = [sys.executable, "-m", "pagefind_bin", "--site", str(folder), "--output-path", str(site / "pagefind"),
               "--force-language", "en"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BookError(f"Pagefind made no index:\n{done.stdout}{done.stderr}")
    for path in (site / "pagefind").glob("*"):       # what it brings to show results by; reading.js does that
        if re.match(r"pagefind-(ui|modular|component|highlight)|wasm.unknown", path.name):
            path.unlink()
    known, table = {p["url"]: p for p in every}, {}
    for row in csv.DictReader(pins.open(encoding="utf-8", newline="")) if pins.exists() else ():
        if row["address"] not in known:
            raise BookError(f"{pins.name}: {row['word']} leads to {row['address']}, which is not there")
        table[row["word"]] = {key: known[row["address"]][key] for key in ("url", "title", "page")}
    (site / "pagefind" / "pins.json").write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    from nbdev.config import get_config

    parser = argparse.ArgumentParser(description="Build the book's site.")
    parser.add_argument("--nbs", type=Path, help="folder of notebooks (default: as in settings.ini)")
    parser.add_argument("--out", type=Path, help="folder for the site (default: as in settings.ini)")
    parser.add_argument("--check", action="store_true", help="only read the notebooks, and tell what is wrong")
    options = parser.parse_args()
    config = get_config()
    sys.path.insert(0, str(config.config_path))  # nbdev imports the library that it documents
    out = (options.out or config.doc_path).resolve()
    try:
        book = Book(config.config_path, (options.nbs or config.nbs_path).resolve())
        if options.check:
            return book.check()
        book.build(out)
    except BookError as error:
        sys.exit(f"The site was not built:\n{error}")
    print(f"The site is in {out}: read it with `make serve`, or `python -m http.server --directory {out}`")


if __name__ == "__main__":
    main()

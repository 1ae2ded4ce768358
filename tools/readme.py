"""README.md from nbs/index.ipynb, so that the first page of the site and of the repository are one text.

    python tools/readme.py            write README.md
    python tools/readme.py --check    exit with 1 if README.md is not what index.ipynb gives
"""
import argparse
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
INDEX, README = ROOT / "nbs" / "index.ipynb", ROOT / "README.md"
HEAD = "<!-- Made from nbs/index.ipynb by tools/readme.py. -->\n\n"
LINK = re.compile(r"\]\((?!https?:|#|/)([^)]+)\)")     # the target of a relative link
LABEL = re.compile(r"[ \t]*\{#[^}]*\}[ \t]*$", re.M)   # Quarto's label at the end of a heading
CITED = re.compile(r" \[[^\]\n]*@\w[^\]\n]*\](?!\()")      # a citation in brackets
FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)
CALLOUT = re.compile(r"^::: \{\.callout-[^}]*\}\n## ([^\n]+)\n(.*?)^:::$", re.S | re.M)


def markdown(source):
    "A Markdown cell as GitHub shows it: links start at the top folder, labels and citations are gone."
    source = CALLOUT.sub(quoted, CITED.sub("", LABEL.sub("", FRONT.sub("", source))))
    return LINK.sub(lambda m: f"]({target(m[1])})", source)


def quoted(callout):
    "A callout as a quotation that begins with its title."
    return "\n".join(f"> {line}".rstrip() for line in f"**{callout[1]}**\n\n{callout[2]}".strip().splitlines())


def target(link):
    "Links in index.ipynb start at nbs/; in README.md they start at the top folder."
    return link.removeprefix("../") if link.startswith("../") else f"nbs/{link}"


def code(cell):
    "A code cell and its plain-text output, a moving picture by what is seen, folded code folded; nothing for hidden cells."
    options = re.findall(r"^#\|\s*(.+)$", cell.source, re.M)
    if any(o.split()[0] in ("hide", "default_exp") for o in options):
        return ""
    source = re.sub(r"^#\|.*\n", "", cell.source, flags=re.M).strip()
    shown = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs]
    output = "".join(shown).rstrip()
    pictures = any('class="moving"' in o.get("data", {}).get("text/html", "") for o in cell.outputs)
    told = "" if not output else f"*To be moved on the site: {output}*" if pictures else f"```\n{output}\n```"
    written = f"```python\n{source}\n```"
    if "code-fold: true" in options:
        title = next((o.split(":", 1)[1].strip(" \"") for o in options if o.startswith("code-summary:")), "Code")
        return f"{told}\n\n<details>\n<summary>{title}</summary>\n\n{written}\n\n</details>".strip()
    return f"{written}\n\n{told}".strip()


def readme():
    nb = nbformat.read(INDEX, as_version=4)
    parts = [markdown(c.source) if c.cell_type == "markdown" else code(c) for c in nb.cells]
    return HEAD + "\n\n".join(p.strip() for p in parts if p.strip()) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        README.write_text(readme(), encoding="utf-8")
    elif README.read_text(encoding="utf-8") != readme():
        sys.exit("README.md is not what nbs/index.ipynb gives: run `python tools/readme.py`")


if __name__ == "__main__":
    main()

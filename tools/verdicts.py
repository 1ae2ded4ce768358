"""The ledger of verdicts, nbs/verdicts.csv, and the cells that it names.

    python tools/verdicts.py          list what is wrong with the ledger's links
    python tools/verdicts.py --mend   where a cell has moved to another notebook, write that notebook into the ledger

A cell keeps its id when it moves, so the id says where it is now.
"""
import argparse
import csv
import io
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "nbs" / "verdicts.csv"


def read(path=LEDGER):
    "Its rows, each a dict."
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


def write(rows, path=LEDGER):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def cells_of(nbs):
    "(notebook, id) -> cell."
    return {(path.name, cell["id"]): cell for path in sorted(nbs.glob("*.ipynb"))
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}


def mended(rows, cells):
    "The rows with the notebooks in which their cells are now. A cell that is in several stays where it is."
    now = {}
    for notebook, cell in cells:
        now.setdefault(cell, set()).add(notebook)

    def place(link):
        notebook, _, cell = link.partition("#")
        found = now.get(cell, set())
        return f"{next(iter(found))}#{cell}" if notebook not in found and len(found) == 1 else link

    return [{**row, "decided": " ".join(map(place, row["decided"].split()))} for row in rows]


def lost(rows, cells):
    "Lines for links that lead to no cell that is executed here."
    found = []
    for row in rows:
        for link in row["decided"].split():
            cell = cells.get(tuple(link.split("#")))
            if cell is None:
                found.append(f"{row['id']}: there is no cell {link}")
            elif cell["cell_type"] != "code" or re.search(r"^#\|\s*eval:\s*false", "".join(cell["source"]), re.M):
                found.append(f"{row['id']}: {link} is not executed")
    return found


def main():
    parser = argparse.ArgumentParser(description="Check the links of the ledger of verdicts.")
    parser.add_argument("--mend", action="store_true", help="follow cells that have moved")
    rows, cells = read(), cells_of(LEDGER.parent)
    if parser.parse_args().mend:
        rows = mended(rows, cells)
        write(rows)
    sys.exit("\n".join(lost(rows, cells)) or None)


if __name__ == "__main__":
    main()

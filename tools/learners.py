"""Notebooks for learners: the same cells, without the answers to the exercises.

An answer is a code cell that is folded under a summary which begins with "Solution" or "Answer", and a folded
callout that either stands in a section "Exercise: …" or has a title that begins with one of these words. The code
goes with its outputs; what stays in its place says how to check one's own. Nothing beyond the standard library is
imported, since Quarto runs this too.
"""

from __future__ import annotations

import re

ANSWER = r"(?:Solution|Answer)\b"
SUMMARY = re.compile(rf"""^#\|\s*code-summary:\s*["']?{ANSWER}""", re.MULTILINE)
CHECK = re.compile(r"^check_\w+\(.*\)\s*$", re.MULTILINE)
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*$")
OPEN = re.compile(r"\s*:{3,}\s*\{(.*)\}\s*$")
CLOSE = re.compile(r"\s*:{3,}\s*$")
FOLDED = re.compile(r"""\.callout.*\bcollapse=["']?true""")
LEFT_OUT = "*The answer stands in the version of this notebook with answers.*"


def is_solution(cell: dict) -> bool:
    "Is this a folded code cell with an answer?"
    return cell["cell_type"] == "code" and bool(SUMMARY.search("".join(cell["source"])))


def emptied(cell: dict) -> dict:
    "In place of a solution: the call that checks the reader's own."
    checks = [f'# {call.strip()}; print("right")' for call in CHECK.findall("".join(cell["source"]))]
    text = "\n".join(["# Fill in the stub above, then take away the # below and run this cell.", *checks])
    return {**cell, "source": text.splitlines(keepends=True), "outputs": [], "execution_count": None}


class Scan:
    """Reads Markdown cells in their order, and knows whether an exercise is under way."""

    def __init__(self):
        self.level = 0  # of the heading of the exercise; 0 outside of exercises

    def heading(self, line: str) -> None:
        match = HEADING.match(line)
        if match and (not self.level or len(match[1]) <= self.level):
            self.level = len(match[1]) if match[2].startswith("Exercise:") else 0

    def is_answer(self, lines: list[str]) -> bool:
        "Is the block that begins with these lines a folded answer?"
        opened = OPEN.match(lines[0])
        if not opened or not FOLDED.search(opened[1]):
            return False
        title = next((line for line in lines[1:] if line.strip()), "")
        return bool(self.level or re.match(rf"\s*#+\s+{ANSWER}", title))

    def read(self, text: str) -> tuple[str, int]:
        "The text without its folded answers, and how many there were."
        lines, kept, found, at, fence = text.split("\n"), [], 0, 0, ""
        while at < len(lines):
            line, mark = lines[at], FENCE.match(lines[at])
            if mark:
                fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
            if not fence and not mark and self.is_answer(lines[at:]):
                kept, found, at = [*kept, LEFT_OUT], found + 1, at + block_length(lines[at:])
                continue
            if not fence:
                self.heading(line)
            kept.append(line)
            at += 1
        return "\n".join(kept), found


def block_length(lines: list[str]) -> int:
    "Number of lines of the ::: block that begins here, with those inside of it."
    depth = 0
    for number, line in enumerate(lines, 1):
        depth += bool(OPEN.match(line)) - bool(CLOSE.match(line))
        if depth == 0:
            return number
    return len(lines)


def without_answers(nb: dict) -> tuple[dict, int]:
    "The notebook for learners, and the number of answers that were left out."
    cells, scan, count = [], Scan(), 0
    for cell in nb["cells"]:
        if is_solution(cell):
            cells.append(emptied(cell))
            count += 1
        elif cell["cell_type"] == "markdown":
            text, found = scan.read("".join(cell["source"]))
            cells.append({**cell, "source": text.splitlines(keepends=True)} if found else cell)
            count += found
        else:
            cells.append(cell)
    return {**nb, "cells": cells}, count

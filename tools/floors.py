"""The lowest versions that settings.ini allows, as constraints for pip: what the job `floors` tests.

    python tools/floors.py > floors.txt
    python -m pip install -c floors.txt -e ".[dev]"

Only what the library and its training need: the tools of the book have ranges of their own.
"""
import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ("requirements", "train_requirements")


def floors(settings):
    "`name==lowest` for each requirement; one without a lowest version is a mistake."
    found = {}
    for requirement in " ".join(settings[key] for key in LISTS).split():
        match = re.match(r"([\w-]+)(?:.*)>=([\w.]+)", requirement)
        if not match:
            raise ValueError(f"settings.ini: {requirement} has no lowest version; write one that is tested")
        found[match[1]] = match[2]
    return [f"{name}=={version}" for name, version in found.items()]


def main():
    cfg = ConfigParser()
    cfg.read(ROOT / "settings.ini", encoding="utf-8")
    print("\n".join(floors(cfg["DEFAULT"])))


if __name__ == "__main__":
    main()

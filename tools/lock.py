"""Write constraints.txt: one exact, tested version of everything, for every supported Python.

    python tools/lock.py        needs `uv` on PATH; run it when settings.ini changes

torch is held at the version that the book was tested with. Packages that only a CUDA build of torch
brings along are left out: torch itself pins them.
"""
import re
import subprocess
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
OF_CUDA = re.compile(r"(nvidia-|cuda-|triton)")


def requirements(settings):
    "All requirement lists of settings.ini, extras included."
    return [r for key, value in settings.items() if key.endswith("requirements") for r in value.split()]


def main():
    cfg = ConfigParser()
    cfg.read(ROOT / "settings.ini", encoding="utf-8")
    settings = cfg["DEFAULT"]
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate",
               "--python-version", settings["min_python"], "-"]
    resolved = subprocess.run(command, input="\n".join([*requirements(settings), TORCH]), text=True,
                              check=True, capture_output=True).stdout
    pins = [line for line in resolved.splitlines() if not OF_CUDA.match(line)]
    head = "# Exact versions that were tested; written by tools/lock.py from settings.ini.\n"
    (ROOT / "constraints.txt").write_text(head + "\n".join(pins) + "\n")
    print(f"constraints.txt: {len(pins)} pins")


if __name__ == "__main__":
    main()

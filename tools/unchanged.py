"""Run commands and fail if they change any file of the checkout; new files count.

    python tools/unchanged.py nbdev_export nbdev_clean

Compares contents before and after, so it also tells in a checkout with uncommitted edits whether the
notebooks and what is made from them are in step.
"""
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def snapshot(root):
    "Hash of every file that git tracks or would add."
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=root, check=True, capture_output=True, text=True).stdout
    files = [root / name for name in listed.split("\0") if name]
    return {f: hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.is_file()}


def differences(root, commands):
    "Names of the files that `commands`, run in `root`, made, changed or removed."
    before = snapshot(root)
    for command in commands:
        subprocess.run(command.split(), cwd=root, check=True)
    after = snapshot(root)
    changed = {f for f in before.keys() | after.keys() if before.get(f) != after.get(f)}
    return sorted(str(f.relative_to(root)) for f in changed)


def main():
    changed = differences(ROOT, sys.argv[1:])
    if changed:
        sys.exit("notebooks and library were not in step; now changed, look at them and commit:\n  "
                 + "\n  ".join(changed))


if __name__ == "__main__":
    main()

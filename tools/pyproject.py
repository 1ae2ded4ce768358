"""Write pyproject.toml from settings.ini: `python tools/pyproject.py [--check]`.

nbdev 2, setup.py and settings.ini make the package. nbdev 3 reads pyproject.toml alone; this file gives it the settings
as `nbdev-migrate-config` writes them. What the package is called and needs is left to setup.py (`dynamic`, in the form
of nbdev's own template), so that each value goes on to stand in one place.
"""
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Made from settings.ini by tools/pyproject.py, for nbdev 3. setup.py and settings.ini rule the package.
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{lib_name}"
requires-python = ">={min_python}"
dynamic = ["keywords", "description", "version", "dependencies", "optional-dependencies", "readme",
    "license", "authors", "classifiers", "entry-points", "scripts", "urls"]

[tool.ruff]
line-length = 120
extend-exclude = ["hot_nbdev", "_proc", "_build", "_docs"]

[tool.ruff.lint]
select = ["E", "F", "W", "I", "B", "UP"]

[tool.ruff.lint.per-file-ignores]
# A chapter imports where a thing is needed, and its solutions define again what a stub left open.
"nbs/*.ipynb" = ["E402", "E501", "E731", "E741", "F811", "B905", "E702"]

[tool.nbdev]
"""
DEFAULTS = {"nbs_path": "nbs", "doc_path": "_docs", "branch": "main", "clean_ids": "True", "clear_all": "False",
            "put_version_in_init": "True"}  # of nbdev 3: what equals them is left out
SETTINGS = ["nbs_path", "doc_path", "branch", "recursive", "readme_nb", "tst_flags", "clean_ids", "clear_all",
            "put_version_in_init", "custom_sidebar", "update_pyproject", "title"]


def pyproject(settings) -> str:
    "The text of the file."
    kept = {key: settings[key] for key in SETTINGS if key in settings and settings[key] != DEFAULTS.get(key)}
    words = {"True": "true", "False": "false"}
    lines = [f"{key} = {words[value]}" if value in words else f'{key} = "{value}"' for key, value in kept.items()]
    return HEAD.format(**settings) + "\n".join(lines) + "\n"


def main() -> None:
    cfg = ConfigParser()
    cfg.read(ROOT / "settings.ini", encoding="utf-8")
    text, path = pyproject(cfg["DEFAULT"]), ROOT / "pyproject.toml"
    if sys.argv[1:] == ["--check"]:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit("pyproject.toml is not what settings.ini says: run `python tools/pyproject.py`")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

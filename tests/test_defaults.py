"""Who leaves an argument out gets tomorrow what they get today: a new default is written into defaults.json too."""
import inspect
import json
import pkgutil
from importlib import import_module
from pathlib import Path

import hot_nbdev

PLAIN = bool | int | float | str | tuple | None


def defaults():
    "name in the library -> its defaults that are numbers, words, tuples or None; of a class, those of its methods."
    for module in sorted(m.name for m in pkgutil.walk_packages(hot_nbdev.__path__, "hot_nbdev.")):
        made = import_module(module)
        for name in getattr(made, "__all__", ()):
            own = getattr(made, name)
            parts = {f"{name}.{key}": part for key, part in vars(own).items() if key[0] != "_" or key == "__init__"} \
                if inspect.isclass(own) else {name: own}
            for key, f in ((key, f) for key, f in parts.items() if inspect.isfunction(f)):
                given = {n: p.default for n, p in inspect.signature(f).parameters.items()}
                if found := {n: default for n, default in given.items() if isinstance(default, PLAIN)}:
                    yield f"{module.removeprefix('hot_nbdev.')}.{key}", found


def test_defaults_are_those_of_before():
    known = json.loads(Path(__file__).with_name("defaults.json").read_text())
    now = json.loads(json.dumps(dict(defaults())))
    changed = {name: (known.get(name), now.get(name)) for name in {*known, *now} if known.get(name) != now.get(name)}
    assert not changed, f"before, now: {changed}; say so in CHANGELOG.md and in tests/defaults.json"

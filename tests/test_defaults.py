"""Who leaves an argument out gets tomorrow what they get today: a new default is written into defaults.json too.

So are the bounds of settings."""
import dataclasses
import inspect
import json
import pkgutil
from importlib import import_module
from pathlib import Path

import hot_nbdev

PLAIN = bool | int | float | str | tuple | None


def limits(cls):
    "field of a class of settings -> its bounds."
    for f in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if bounds := {key: b for key, b in f.metadata.items() if isinstance(b, int | float)}:
            yield f.name, bounds


def defaults():
    "name in the library -> its defaults that are numbers, words, tuples or None; of a class, those of its methods."
    for module in sorted(m.name for m in pkgutil.walk_packages(hot_nbdev.__path__, "hot_nbdev.")):
        made = import_module(module)
        for name, own in ((name, getattr(made, name)) for name in getattr(made, "__all__", ())):
            parts = {name: own}
            if inspect.isclass(own):
                yield f"{module}.{name}, limits", dict(limits(own))
                parts = {f"{name}.{key}": f for key, f in vars(own).items() if key[0] != "_" or key == "__init__"}
            for key, f in ((key, f) for key, f in parts.items() if inspect.isfunction(f)):
                given = {n: p.default for n, p in inspect.signature(f).parameters.items()}
                yield f"{module}.{key}", {n: value for n, value in given.items() if isinstance(value, PLAIN)}


def test_defaults_are_those_of_before():
    known = json.loads(Path(__file__).with_name("defaults.json").read_text())
    now = json.loads(json.dumps({name: found for name, found in defaults() if found}))
    changed = {name: (known.get(name), now.get(name)) for name in {*known, *now} if known.get(name) != now.get(name)}
    assert not changed, f"before, now: {changed}; say so in CHANGELOG.md and in tests/defaults.json"

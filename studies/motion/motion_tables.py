"""The tables motion-… of the library, from the pace of the models and the rates that won on seed 99.

    python -m studies.motion.motion_tables            what would change
    python -m studies.motion.motion_tables --write    write them into tables.json

Budgets and models are those of studies/motion/README.md, epochs follow from studies/motion/motion_pace.csv and, where
a rival on a real tensor would have less than nine tenths of the product's time there, from
studies/motion/motion_pace_cases.csv; for motion-growth-… from studies/motion/motion_growth_pace.csv; rates follow
from the rows of the tables that end in -rates. A table whose rates are not all found yet is left out, and what is
still to run is said.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from hot_nbdev.cli.jobs import job_class
from hot_nbdev.cli.tables import merged
from hot_nbdev.train.results import read_rows
from studies.motion import motion_pace
from studies.rates import choose, step
from studies.rows import put_text

HERE = Path(__file__).parent
GRID = (0.001, 0.003, 0.01, 0.03)
SEARCHED = 99  # the seed of all searches
REAL = ["product", "product, no norm", "full", "axial", "axial + token", "none", "dilated", "fourier"]
SCENES = ["product", "full", "axial + token", "dilated", "unet"]


class Case(NamedTuple):
    "A table of rows, and the search of its rates."

    name: str  # motion-NAME and motion-NAME-rates
    title: str
    data: dict  # as shown -> as hot_motion calls it
    size: tuple  # of a frame
    models: list
    pace: int  # size whose pace was measured
    reach: tuple | None = None
    move: str = "shift"
    grid: tuple = GRID  # of rates


FIELD = "motion_fields/{}.npy"
CASES = [
    Case(
        "align",
        "White tables in another order",
        {"white": "white"},
        (16, 16),
        [m for m in motion_pace.MODELS if m not in ("fourier", "unet")],
        16,
        move="align",
    ),
    Case(
        "scenes",
        "Windows of scenes that move, 32 x 32",
        {"Sentinel-2": "sentinel2", "Indian Pines": "indian_pines"},
        (32, 32),
        SCENES,
        32,
        reach=(8, 8),
        grid=GRID[:3],
    ),
    Case("a1b", "Air temperature that moves, 16 x 16", {"A1B": FIELD.format("a1b")}, (16, 16), REAL, 16, reach=(8, 8)),
    Case(
        "ostia",
        "Temperature of the sea that moves, 8 x 32",
        {"OSTIA": FIELD.format("ostia")},
        (8, 32),
        REAL,
        16,
        reach=(4, 16),
    ),
    Case(
        "pictures",
        "Photographs that move, 16 x 16",
        {"pictures": FIELD.format("pictures")},
        (16, 16),
        REAL,
        16,
        reach=(8, 8),
    ),
    Case(
        "mri", "A head that moves, 10 x 10 x 10", {"T1": FIELD.format("mri")}, (10, 10, 10), REAL, 10, reach=(3, 3, 3)
    ),
    Case(
        "kinetic",
        "Reactions that begin earlier or later, 12 x 16",
        {"Kinetic": FIELD.format("kinetic")},
        (12, 16),
        REAL,
        16,
        reach=(0, 8),
    ),
    Case(
        "covid",
        "People and measurements in another order, 16 x 11",
        {"COVID-19": FIELD.format("covid")},
        (16, 11),
        [m for m in REAL if m != "fourier"],
        16,
        move="align",
    ),
]


GROWTH = {16: (0, 1, 2), 32: (0, 1, 2, 3, 4), 64: (0, 1, 2), 128: (0, 1)}  # seeds of white fields of each size
SHARE = 0.9  # of the product's time, which a rival has at least


def fair(epochs, paces):
    "(case, model) -> epochs, where the pace as it is run says that a model has too little of the product's time."
    found = {}
    for case in CASES:
        seconds = {m: paces[case.name, m] for m in case.models if (case.name, m) in paces}
        given = {m: epochs[case.pace, case.move, m] for m in seconds}
        for m, each in seconds.items():
            time = seconds["product"] * given["product"]
            if each * given[m] < SHARE * time:
                found[case.name, m] = round(time / each)
    return found


def row_of(case, model, epochs):
    "Settings of a row that are its own."
    own = {
        k: v for k, v in motion_pace.settings(model, case.size, case.move).items() if k not in ("data", "size", "move")
    }
    return {**own, "epochs": epochs.get((case.name, model), epochs[case.pace, case.move, model])}


def common(case):
    "Settings that all rows of a case share."
    return {
        "size": list(case.size),
        **({"reach": list(case.reach)} if case.reach else {}),
        **({"move": case.move} if case.move != "shift" else {}),
    }


def search_table(case, epochs, rates):
    "The table of a search."
    shown = next(iter(case.data))  # the first chooses for all
    return {
        "title": f"{case.title}: which learning rate (seed {SEARCHED})",
        "command": "motion",
        "data": {shown: case.data[shown]},
        "settings": common(case),
        "seeds": [SEARCHED],
        "each": [{"rate": r} for r in rates],
        "rows": {m: row_of(case, m, epochs) for m in case.models},
    }


def table(case, epochs, rates):
    "The table of the rows that count."
    return {
        "title": f"{case.title}, at equal processor time",
        "command": "motion",
        "data": case.data,
        "settings": common(case),
        "rows": {m: {**row_of(case, m, epochs), "rate": rates[m]} for m in case.models},
    }


def growth(size, rows, rates, planned=None):
    "White fields of one size: epochs by the rows of the pace, rates of 32 x 32; what is planned is left out."
    epochs = {(size, "shift", r["model"]): int(r["epochs"]) for r in rows if int(r["size"]) == size}
    models = [model for *_, model in epochs]
    case = Case(str(size), "", {}, (size, size), models, size)
    made = {m: {**row_of(case, m, epochs), "rate": rates[m]["rate"]} for m in models}
    return {
        "title": f"White fields of four sizes that move: {size} x {size}",
        "command": "motion",
        "data": {"white": "white"},
        "settings": {"size": [size, size]},
        "seeds": list(GROWTH[size]),
        "rows": {m: own for m, own in made.items() if own != (planned or {}).get(m)},
    }


def longer(table, times):
    "The product of a table with so many times the updates."
    own = table["rows"]["product"]
    return {**table, "title": f"{table['title']}, the product with {times} times the updates",
            "rows": {"product": {**own, "epochs": times * own["epochs"]}}}


def told(settings):
    "All settings of a run but its rate, as text."
    numbers = job_class("motion").from_dict(settings).numbers()
    return json.dumps({k: v for k, v in numbers.items() if k != "rate"}, sort_keys=True)


def searched(case, epochs, rows):
    "model -> {rate: error on the validation part}, from the rows that were written."
    asked, found = search_table(case, epochs, case.grid), {m: {} for m in case.models}
    known = {
        told(merged(asked["settings"], own, {}, {"data": data, "seed": SEARCHED})): m
        for m, own in asked["rows"].items()
        for data in asked["data"].values()
    }
    for line in rows:
        settings = json.loads(line["settings"])
        if (model := known.get(told(settings))) is not None:
            found[model][settings["rate"]] = float(line["val_loss"])
    return found


def chosen(tried, grid):
    "The best rate, or None and the rates that must be tried before it can be said."
    what, *answer = choose({rate: [error] for rate, error in tried.items()}, tuple(map(step, grid)))
    return (None, answer[0]) if what == "try" else (answer[0], [])


def tables_of(case, epochs, rows):
    "name -> table of a case, as far as its rates are known, and model -> rates still to be tried."
    tried = searched(case, epochs, rows)
    picks = {m: chosen(v, case.grid) for m, v in tried.items()}
    todo = {m: more for m, (_, more) in picks.items() if more}
    grid = sorted({*case.grid, *(r for v in tried.values() for r in v), *(r for more in todo.values() for r in more)})
    made = {f"motion-{case.name}-rates": search_table(case, epochs, grid)}
    if not todo:
        made[f"motion-{case.name}"] = table(case, epochs, {m: rate for m, (rate, _) in picks.items()})
    return made, todo


def written(tables):
    "All tables as text, a row in a line."
    def line(value):
        return json.dumps(value, ensure_ascii=False)

    blocks = []
    for name, about in tables.items():
        parts = [f'  "title": {line(about["title"])}, "command": {line(about["command"])}']
        parts += [
            f"  {line(key)}: {line(value)}" for key, value in about.items() if key not in ("title", "command", "rows")
        ]
        rows = ",\n".join(f"   {line(row)}: {line(own)}" for row, own in about["rows"].items())
        blocks.append(",\n".join([f" {line(name)}: {{\n" + parts[0], *parts[1:], f'  "rows": {{\n{rows}\n  }}\n }}']))
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="into tables.json")
    parser.add_argument("--rows", type=Path, nargs="*", default=[HERE / "motion.csv"], help="files of rows")
    args = parser.parse_args()
    rows = [r for path in args.rows for r in read_rows(path)]
    epochs = {
        (int(r["size"]), r["move"], r["model"]): int(r["epochs"])
        for r in read_rows(HERE / "motion_pace.csv")
    }
    paces = {(r["case"], r["model"]): float(r["seconds_per_update"])
             for r in read_rows(HERE / "motion_pace_cases.csv")}
    epochs |= fair(epochs, paces)
    path, before = HERE / "tables.json", json.loads((HERE / "tables.json").read_text())
    after = dict(before)
    for case in CASES:
        if not all((case.pace, case.move, m) in epochs for m in case.models):
            print(f"# motion-{case.name}: its pace is not measured yet")
            continue
        made, todo = tables_of(case, epochs, rows)
        after.update(made)
        for m, more in todo.items():
            for rate in more:
                print(f"hot_reproduce motion-{case.name}-rates --row '{m}' --seeds {SEARCHED} --set rate={rate}")
        for name in made:
            if made[name] != before.get(name):
                print(f"# {name}: {'new' if name not in before else 'changed'}")
    paced = read_rows(HERE / "motion_growth_pace.csv")
    for size in GROWTH:
        name = f"motion-growth-{size}"
        earlier = before.get(f"motion-{size}", {}).get("rows")
        after[name] = growth(size, paced, before["motion-32"]["rows"], earlier)
        if after[name] != before.get(name):
            print(f"# {name}: {'changed' if name in before else 'new'}")
    after["motion-growth-64-long"] = longer(after["motion-growth-64"], 4)
    if args.write:
        put_text(path, written(after))


if __name__ == "__main__":
    main()

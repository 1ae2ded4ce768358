"""The papers' tables as a file: what is planned, which rows of results count as done, and that no row is left over."""

import json
from pathlib import Path

import pytest
import torch
from chapters import ROOT
from scripts import load, once

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")

from hot_nbdev.cli import tables as tables_module  # noqa: E402
from hot_nbdev.cli.commands import _jobs  # noqa: E402
from hot_nbdev.cli.jobs import JOBS, ForecastJob, config_for, job_class  # noqa: E402
from hot_nbdev.cli.tables import is_done, made_by, planned, read_tables, results_of, scripts  # noqa: E402
from hot_nbdev.models import make_model  # noqa: E402
from hot_nbdev.train.results import read_rows, write_csv  # noqa: E402

TABLES, SCRIPTS = read_tables(), scripts()


@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_every_table_has_settings_and_a_model(name):
    table = TABLES[name]
    for _, settings in planned(name, table):
        job = job_class(table.command).from_dict(settings)
        scene = (16, 16) if len(job.patch) == 1 else (5, 16, 16)
        sizes = {"forecast": (96, 8), "classify": (28, 28, 28), "segment": scene, "motion": getattr(job, "size", None)}
        config_for(job, sizes[job.kind], 1, 2)


@pytest.mark.parametrize("text, message", [
    ('{"t": {"rows": {"a": {}}, "data": {"D": "d"}, "command": "train"}}', "is 'train'; give one of forecast"),
    ('{"t": [1]}', "a table is made of names and values"), ("{", "is no file of settings"),
])
def test_a_wrong_table_is_named(tmp_path, text, message):
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(ValueError, match=r"own\.json") as said:
        read_tables(tmp_path / "own.json")
    assert message in str(said.value)


SHOWN = ("forecasting", "ablations")
CHAPTERS = {name: table for name, table in TABLES.items() if name.startswith(SHOWN)}
STUDIES = {name: table for name, table in TABLES.items() if name.startswith("motion")}      # runs may be missing


@pytest.mark.parametrize("kind", JOBS)
def test_the_tables_of_the_chapters_plan_exactly_the_rows_that_are_there(kind, monkeypatch):
    "Also of rows that name only what differed from the defaults."
    monkeypatch.setattr(tables_module, "config_for", once(config_for))
    rows = [row for study in ("ablations", "motion") for row in read_rows(ROOT / "studies" / study / f"{kind}.csv")]
    planners = {i: [] for i in range(len(rows))}
    for name, table in {**CHAPTERS, **STUDIES}.items():
        for title, settings in planned(name, table, seeds=table.seeds) if table.command == kind else ():
            job = job_class(kind).from_dict(settings)
            horizon, data = str(getattr(job, "horizon", "")), Path(job.data).stem
            mine = [i for i, r in enumerate(rows) if r["data"].startswith(data)
                    and (r.get("trained_horizon") or r.get("horizon", "")) == horizon and made_by(job, r)]
            assert name in STUDIES or mine, f"{name}: {title}: there is no row"
            for i in mine:
                planners[i] += [f"{name}: {title}"]
    wrong = {rows[i]["run"]: runs for i, runs in planners.items() if len(runs) != 1}
    assert not wrong, wrong  # none: such a row cannot be made again by a table; several: it is planned twice


STRAYS = {"defaults": 98, "marks": 1}       # rows that no plan asks for, of which the studies tell under Changes


@pytest.mark.parametrize("study", ["defaults", "marks", "pair"])
def test_a_study_asks_for_exactly_the_rows_that_are_there(study, tmp_path, monkeypatch, capsys):
    "Its plan is asked without any row, then with the rows that it asked for, until it asks for nothing more."
    script, todo, there, asked, found = load(study), load("todo"), {}, set(), {}
    for owner, name in ((tables_module, "read_tables"), (script, "read_tables"), (script, "told")):
        if hasattr(owner, name):
            monkeypatch.setattr(owner, name, once(getattr(owner, name)))

    def few(numbers):           # `made_by` looks at all, of every fifth row and where these do not tell two apart
        options = sorted((numbers.get("attention_options") or {}).items())
        return str([*map(numbers.get, ("rate", "ff", "epochs", "stem")), options])
    for path in (ROOT / "studies" / study / "rows").glob("*.csv"):
        for line in read_rows(path):
            own = json.loads(line["settings"])
            there.setdefault((path.stem, line["data"], line["attention"], line["seed"], few(own)), []).append(line)
    monkeypatch.setattr("sys.argv", [study, "--plan", "--rows", str(tmp_path)])
    while True:
        script.main()
        runs = [run for text in capsys.readouterr().out.splitlines() for run in todo.single_runs(text)]
        if asked.issuperset(runs):
            break
        for number, run in enumerate(runs):
            given = todo.reproduce_parser().parse_args(run)
            given.seeds = [int(seed) for seed in given.seeds]
            (title, job), *again = _jobs(given.table, TABLES[given.table], given)
            assert all(other == job for _, other in again), title       # a rate that the table does not have
            key = job.kind, Path(job.data).stem, job.label, str(job.seed), few(job.numbers())
            lines = there.get(key, [])
            if number % 5 == 0 or len(lines) > 1:
                lines = [line for line in lines if made_by(job, line)]
            assert len(lines) == 1, f"{title}: {len(lines)} rows"
            found.setdefault(job.kind, {}).update({line["run"]: line for line in lines})
        asked.update(runs)
        for kind, lines in ((kind, lines) for kind, lines in found.items() if lines):
            write_csv(tmp_path / f"{kind}.csv", list(next(iter(lines.values()))), list(lines.values()))
    used = {name for lines in found.values() for name in lines}
    left = [line for lines in there.values() for line in lines if line["run"] not in used]
    assert len(used) + len(left) == sum(map(len, there.values())) and len(left) == STRAYS.get(study, 0)
    for line in left:
        own = json.loads(line["settings"])
        if study == "marks":    # the wide ResNet at the rate of the narrow one
            assert (own["data"], own["model_option"].get("width"), own["rate"]) == ("adrenalmnist3d", 1.0, 0.01)
            continue
        changes = {"rate": own["rate"], "move": "shift", "stem": "linear"}      # --set move=shift --set stem=linear
        plans = planned("defaults-motion", TABLES["defaults-motion"], None, None, [int(line["seed"])], changes)
        assert sum(made_by(job_class("motion").from_dict(plan.settings), line) for plan in plans) == 1


def test_no_file_of_a_study_is_left_over():
    "Each is made by tables that hot_reproduce runs, or by one script, which the README of its folder names."
    tables, top = set(map(results_of, TABLES.values())), ROOT / "studies"
    files = [p for p in top.rglob("[!.]*.*") if p.suffix in (".csv", ".npz") and p.name != "scores.npz"]
    for path in files:
        name = path.relative_to(top).as_posix()
        assert (name in tables) + (name in SCRIPTS or path.name in SCRIPTS) == 1, name
    assert {path.name for path in ROOT.glob("bench/rows/*.csv")} <= SCRIPTS.keys()


@pytest.mark.parametrize("study", sorted({path.parent.name for path in ROOT.glob("studies/*/*.csv")}))
def test_a_study_has_a_readme_that_names_all_its_rows(study):
    folder = ROOT / "studies" / study
    text = (folder / "README.md").read_text(encoding="utf-8")
    for path in [*folder.rglob("*.csv"), *folder.rglob("*.npz")]:
        assert f"| `{path.relative_to(folder).as_posix()}` |" in text, path


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_script_is_there_and_knows_its_table_and_options(file):
    command, adds = SCRIPTS[file]
    program, *words = command.removeprefix("python ").removeprefix("-m ").split() or [""]
    path = ROOT / (program if program.endswith(".py") else program.replace(".", "/") + ".py")
    if program:
        text = path.read_text(encoding="utf-8")
        assert Path(file).stem.removeprefix("bench_") in text
        assert all(f'"{word}"' in text for word in words if word.startswith("--"))
        assert path.parts[-2] in ("tests", "tools") or adds == ("append_row(" in text or "--run" in words)


def line_of(job, sizes=(96, 8), **more):
    training, model = (json.dumps(part.to_dict()) for part in (job.training(), config_for(job, sizes)))
    return dict(data="exchange_rate", md5="", attention=job.label, seed=str(job.seed), horizon=str(job.horizon),
                settings="{}", training=training, model=model, **more)


def test_a_changed_default_never_counts_as_done():
    "Rows name all settings, but the oldest, which leave out defaults: these must stay."
    assert made_by(ForecastJob(data="exchange_rate"), line_of(ForecastJob(data="exchange_rate")))
    for path in ROOT.glob("studies/**/*.csv"):
        if path.stem in JOBS and "ablations" not in path.parts:
            names = {*job_class(path.stem).groups()["data"]} - {"data", "draws", "time", "step", "channels"}
            assert all(names <= json.loads(row["settings"]).keys() for row in read_rows(path)), path
    assert ForecastJob().time is ForecastJob().step is job_class("classify")().channels is None
    old = ForecastJob()
    assert (old.lookback, old.horizon, old.mend, old.masked, old.sort, old.draws) == (96, 96, False, False, False, None)


def test_a_row_that_cannot_be_understood_does_not_count():
    job = ForecastJob(data="exchange_rate")
    for change in ({"model": "{"}, {"model": '{"model": "none such"}'}, {"training": "[]"}, {"settings": "1"}):
        assert not made_by(job, {**line_of(job), **change})


def test_all_horizons_have_to_be_there():
    job = ForecastJob(data="exchange_rate", horizon=192, score=(96, 192))
    told = {"settings": json.dumps({"horizon": 192}), "trained_horizon": "192"}
    lines = [{**line_of(job), **told, "horizon": str(h)} for h in (96, 192)]
    assert is_done(job, lines) and not is_done(job, lines[:1])
    assert not is_done(job.replace(horizon=96, score=()), lines)


def test_the_modes_of_the_first_paper_have_equal_models_and_an_identity_where_none_is_attended():
    table, sizes = TABLES["papers-modes"], (96, 8)
    models = {}
    for row in table.rows:
        job = ForecastJob.from_dict(planned("papers-modes", table, [row])[0].settings)
        models[row] = make_model(config_for(job, sizes)).eval()
    assert len({sum(p.numel() for p in model.parameters()) for model in models.values()}) == 1
    eye = {"none": (0, 1), "variables": (0,), "time": (1,), "both": ()}
    tokens = torch.randn(1, 24, 8, 128, generator=torch.Generator().manual_seed(0))
    for row, model in models.items():
        for m, S in enumerate(model.encoder.blocks[0].attention.maps(tokens)):
            assert torch.equal(S, torch.eye(S.shape[-1]).expand_as(S)) == (m in eye[row]), (row, m)

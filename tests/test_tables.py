"""The papers' tables as a file: what is planned, which rows of results count as done, and that no row is left over."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from chapters import ROOT
from scripts import load, once

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")

from hot_nbdev.cli import tables as tables_module
from hot_nbdev.cli.commands import _jobs
from hot_nbdev.cli.jobs import JOBS, ForecastJob, config_for, job_class
from hot_nbdev.cli.tables import is_done, made_by, planned, read_tables, results_of, scripts
from hot_nbdev.models import make_model
from hot_nbdev.train.results import read_rows, write_csv

TABLES, SCRIPTS = read_tables(), scripts()
CHAPTERS = {name: table for name, table in TABLES.items() if name.startswith(("forecasting", "ablations"))}
STUDIES = {name: table for name, table in TABLES.items() if name.startswith("motion")}      # runs may be missing


@pytest.mark.parametrize("name", [name for name in TABLES if name not in CHAPTERS])
def test_every_run_of_a_table_has_settings_and_a_model(name):
    "Those of the chapters are compared with their rows."
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


@pytest.mark.parametrize("kind", JOBS)
def test_the_tables_of_the_chapters_plan_exactly_the_rows_that_are_there(kind, monkeypatch):
    "Also of rows that name only what differed from the defaults."
    apart_from_seeds = once(config_for, lambda given: re.sub(r"seed=\d+", "", str(given)))
    monkeypatch.setattr(tables_module, "config_for", apart_from_seeds)
    rows = [row for study in ("ablations", "motion") for row in read_rows(ROOT / "studies" / study / f"{kind}.csv")]
    planners, alike = {row["run"] + row.get("horizon", ""): [] for row in rows}, {}
    for row in rows:
        horizon = row.get("trained_horizon") or row.get("horizon", "")
        alike.setdefault((row["attention"], row["seed"], horizon), []).append(row)
    for name, table in {**CHAPTERS, **STUDIES}.items():
        for title, settings in planned(name, table, seeds=table.seeds) if table.command == kind else ():
            job = job_class(kind).from_dict(settings)
            near = alike.get((job.label, str(job.seed), str(getattr(job, "horizon", ""))), [])
            mine = [r for r in near if r["data"].startswith(Path(job.data).stem) and made_by(job, r)]
            assert name in STUDIES or mine, f"{name}: {title}: there is no row"
            for row in mine:
                planners[row["run"] + row.get("horizon", "")] += [f"{name}: {title}"]
    wrong = {row: runs for row, runs in planners.items() if len(runs) != 1}
    assert not wrong, wrong  # none: such a row cannot be made again by a table; several: it is planned twice


@pytest.mark.parametrize("study", ["defaults", "marks", "pair"])
def test_a_study_asks_for_the_row_that_is_not_there_and_for_no_other(study, tmp_path, monkeypatch, capsys):
    script, todo = load(study), load("todo")
    rows = shutil.copytree(ROOT / "studies" / study / "rows", tmp_path / "rows")
    *others, lost = read_rows(rows / "classify.csv")
    write_csv(rows / "classify.csv", list(lost), others)
    monkeypatch.setattr("sys.argv", [study, "--plan", "--rows", str(rows)])
    script.main()
    (run,) = todo.single_runs(capsys.readouterr().out)
    given = todo.reproduce_parser().parse_args(run)
    given.seeds = [*map(int, given.seeds)]
    for title, job in _jobs(given.table, TABLES[given.table], given):
        assert made_by(job, lost), title


def test_each_file_of_a_study_is_made_by_tables_or_by_one_script_and_its_readme_names_it():
    "Tables are run by hot_reproduce; which script makes a file, the README of its folder says."
    tables, top = set(map(results_of, TABLES.values())), ROOT / "studies"
    for path in (p for p in top.rglob("[!.]*.*") if p.suffix in (".csv", ".npz")):
        name, (study, *_) = path.relative_to(top).as_posix(), path.relative_to(top).parts
        makers = (name in tables) + (name in SCRIPTS or path.name in SCRIPTS)
        assert makers == (path.name != "scores.npz"), name
        told = (top / study / "README.md").read_text(encoding="utf-8")
        assert f"| `{name.removeprefix(f'{study}/')}` |" in told, name
    assert {path.name for path in ROOT.glob("bench/rows/*.csv")} <= SCRIPTS.keys()


def test_a_study_writes_its_texts_as_a_whole():
    scripts = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("studies/**/*.py")}
    assert [name for name, text in scripts.items() if ".write_text(" in text] == ["rows.py"]


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_script_is_there_and_knows_its_table_and_options(file):
    command, adds = SCRIPTS[file]
    program, *words = command.removeprefix("python ").removeprefix("-m ").split() or [""]
    path = ROOT / (program if program.endswith(".py") else program.replace(".", "/") + ".py")
    if program:
        text = path.read_text(encoding="utf-8")
        assert Path(file).stem.removeprefix("bench_") in text + command
        assert all(f'"{word}"' in text for word in words if word.startswith("--"))
        goes_on = re.search(r"append_row\(|done = {|following", text) or "--run" in words
        assert path.parts[-2] in ("tests", "tools") or adds == bool(goes_on)


def line_of(job):
    training, model = (json.dumps(part.to_dict()) for part in (job.training(), config_for(job, (96, 8))))
    return dict(data="exchange_rate", md5="", attention=job.label, seed=str(job.seed), horizon=str(job.horizon),
                settings="{}", training=training, model=model)


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


def test_a_row_that_cannot_be_understood_does_not_count_and_all_horizons_have_to_be_there():
    job = ForecastJob(data="exchange_rate")
    for change in ({"model": "{"}, {"model": '{"model": "none such"}'}, {"training": "[]"}, {"settings": "1"}):
        assert not made_by(job, {**line_of(job), **change})
    far = job.replace(horizon=192, score=(96, 192))
    told = {"settings": json.dumps({"horizon": 192}), "trained_horizon": "192"}
    lines = [{**line_of(far), **told, "horizon": str(h)} for h in (96, 192)]
    assert is_done(far, lines) and not is_done(far, lines[:1]) and not is_done(job, lines)


def test_the_modes_of_the_first_paper_have_an_identity_where_none_is_attended():
    table, models = TABLES["papers-modes"], {}
    for row in table.rows:
        job = ForecastJob.from_dict(planned("papers-modes", table, [row])[0].settings)
        models[row] = make_model(config_for(job, (96, 8))).eval()
    eye = {"none": (0, 1), "variables": (0,), "time": (1,), "both": ()}
    tokens = torch.randn(1, 24, 8, 128, generator=torch.Generator().manual_seed(0))
    for row, model in models.items():
        for m, S in enumerate(model.encoder.blocks[0].attention.maps(tokens)):
            assert torch.equal(S, torch.eye(S.shape[-1]).expand_as(S)) == (m in eye[row]), (row, m)

"""Training: a stopped run goes on to the same bits, two processes give what one gives, errors come early."""
import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("accelerate", reason="training needs accelerate: pip install 'hot_nbdev[train]'")

import forks
from accelerate import Accelerator, debug_launcher
from accelerate.state import AcceleratorState
from filelock import FileLock
from safetensors import SafetensorError
from test_tasks import Heads
from torch.nn.utils import parameters_to_vector as weights
from torch.utils.data import DataLoader, StackDataset, TensorDataset

from hot_nbdev.model_config import ClassifierConfig, ForecasterConfig, SegmenterConfig
from hot_nbdev.models import HOTClassifier, HOTForecaster, HOTSegmenter, load_model
from hot_nbdev.train import loop, runs
from hot_nbdev.train.devices import make_accelerator
from hot_nbdev.train.loop import TrainConfig, evaluate, fit
from hot_nbdev.train.parts import Sampled, Tensors, as_part
from hot_nbdev.train.results import read_rows
from hot_nbdev.train.runs import Checkpoints
from hot_nbdev.train.tasks import Classification, Forecasting, Segmentation


def pictures(n, seed=0):
    "Pictures in which a stripe runs along one mode or the other."
    chance = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randn(n, 4, 4, 1, generator=chance)
    x[y == 0, 1] += 1
    x[y == 1, :, 1] += 1
    return Tensors(x, y[:, None])


def forecaster(seed=0):
    torch.manual_seed(seed)
    return HOTForecaster(ForecasterConfig(patch=(4, 1), dim=8, depth=1, heads=2, lookback=8, horizons=(6,),
                                          sizes=(8, 3)))


def classifier(dropout=0.1, seed=0):
    torch.manual_seed(seed)
    return HOTClassifier(ClassifierConfig(patch=(2, 2), dim=8, depth=1, heads=2, dropout=dropout))


SHORT = TrainConfig(epochs=3, batch_size=8, rate=3e-3, average=0.9, accumulate=2)
ONE = TrainConfig(epochs=1, batch_size=8)


forked = pytest.mark.skipif(torch.cuda.is_available(),
                            reason="a process that has used a GPU's autograd cannot be forked to train on a processor")


class Killed(Exception):
    pass


def killed_after(updates):
    "An augmentation that draws random numbers, and that ends the run at an update."
    calls = 0

    def augment(x, y):
        nonlocal calls
        calls += 1
        if updates is not None and calls > updates * SHORT.accumulate:
            raise Killed
        return x + 0.1 * torch.randn_like(x), y
    return augment


def same(one, two):
    "Two dictionaries of tensors, to the bit."
    return one.keys() == two.keys() and all(torch.equal(t, two[name]) for name, t in one.items())


def numbers(history):
    return [{k: v for k, v in h.items() if k != "seconds"} for h in history]


def small(config=SHORT, model=None, folder=None, parts=None, task=None, **options):
    train, val = parts or (pictures(20), pictures(10, 1))
    return fit(model or classifier(), train, val, task or Classification(2), config, folder, **options)


def run(folder, stop=None, model=None, config=SHORT, **options):
    model = model or classifier()
    return model, small(config, model, folder, augment=killed_after(stop), **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "A run without interruption: its model, what it came to, its folder."
    folder = tmp_path_factory.mktemp("whole")
    return *run(folder), folder


@pytest.mark.parametrize("stop, save_every", [(4, None), (7, 1)])
def test_a_killed_run_goes_on_to_the_same_bits(whole, tmp_path, stop, save_every):
    "Order of the data, optimizer, rate, dropout, noise, average, log: all as if nothing had happened."
    model, want, folder = whole
    with pytest.raises(Killed):
        run(tmp_path, stop, save_every=save_every)
    torch.manual_seed(9)                                    # whatever happened in between
    other, found = run(tmp_path, model=classifier(seed=5), save_every=save_every)
    assert numbers(found.history) == numbers(want.history)
    assert found.best["epoch"] == want.best["epoch"] and found.stopped == want.stopped == "finished"
    (_, a, _), (_, b, _) = (Checkpoints(part).last() for part in (folder, tmp_path))
    assert {k.partition(".")[0] for k in a} == {"model", "optimizer", "average", "random"}
    assert same(a, b) and same(model.state_dict(), other.state_dict())


def test_a_run_killed_at_the_very_end_has_its_whole_log(whole, tmp_path, monkeypatch):
    write = loop.write_csv

    def killed(path, columns, rows):
        if len(rows) == SHORT.epochs:
            raise Killed
        write(path, columns, rows)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop, "write_csv", killed)
        run(tmp_path)
    run(tmp_path)
    want, found = (numbers(read_rows(part / "log.csv")) for part in (whole[2], tmp_path))
    assert found == want and len(want) == SHORT.epochs


def test_halves_of_files_that_a_killed_process_left_are_removed(tmp_path):
    halves = [tmp_path / f".{name}.123.part" for name in
              ("checkpoint-000000008.safetensors", "model.safetensors", ".config.json.123.part", "log.csv",
               "fingerprint.json", "notes.txt")]
    for path in halves:
        path.write_text("half")
    with contextlib.ExitStack() as ends:
        runs.open_folder(ends, tmp_path, {})
    assert [p for p in halves if p.exists()] == halves[-1:]         # that one may be of somebody else


def test_the_folder_holds_the_best_model_judged_without_dropout_and_no_pickle(whole):
    "A file of safetensors begins with the length of its header, then JSON."
    model, result, folder = whole
    again = evaluate(load_model(folder), pictures(10, 1), Classification(2))
    assert again == {k: result.best[k] for k in again} == evaluate(model, pictures(10, 1), Classification(2))
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock", "checkpoint-000000006.safetensors", "checkpoint-000000009.safetensors", "config.json",
        "fingerprint.json", "log.csv", "model.safetensors"]
    assert all(path.read_bytes()[8:9] == b"{" for path in folder.glob("*.safetensors"))


def test_the_bar_goes_on_where_the_run_does(tmp_path, capsys):
    "A bar that begins at 0 again would tell a wrong rate."
    with pytest.raises(Killed):
        run(tmp_path, 4)
    assert capsys.readouterr() == ("", "")                  # a bar is for terminals, or on request
    run(tmp_path, progress=True)
    said = capsys.readouterr()
    assert all(word in said.err for word in (" 3/9 ", " 9/9 ", "loss=", "rate=")) and " 0/9 " not in said.err + said.out


def test_a_terminal_that_does_not_know_its_width_has_a_bar(monkeypatch):
    "As one that a script or a container opens: 0 columns, in which a bar would be nothing."
    pty = pytest.importorskip("pty", reason="needs terminals as Unix has them")
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, its = pty.openpty()
    with os.fdopen(its, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with runs.progress_bar(total=7) as bar:
            bar.update(3)
        said = os.read(ours, 10_000)
    os.close(ours)
    assert b"| 0/7 [" in said        # the next is drawn a tenth of a second later


def test_a_damaged_checkpoint_is_passed_over_and_a_cut_best_model_found_before_training(whole, tmp_path, capsys):
    with pytest.raises(Killed):
        run(tmp_path, 7)
    best, newest = tmp_path / "model.safetensors", Checkpoints(tmp_path).paths()[-1]
    kept = best.read_bytes()
    best.write_bytes(kept[:-10])
    with pytest.raises(ValueError, match="the best model so far, cannot be read"):
        run(tmp_path, 0)
    best.write_bytes(kept)
    newest.write_bytes(newest.read_bytes()[:-100])
    _, found = run(tmp_path)
    said = capsys.readouterr().err
    assert f"{newest} cannot be read; checkpoint-000000003.safetensors is used" in said
    assert numbers(found.history) == numbers(whole[1].history)
    for path in Checkpoints(tmp_path).paths():
        path.write_bytes(b"")
    assert Checkpoints(tmp_path).last() is None
    assert "cannot be read; no other is left, so the run starts over" in capsys.readouterr().err


def test_a_disk_that_fills_up_names_the_last_good_checkpoint(tmp_path, monkeypatch):
    written = Checkpoints.save

    def full(self, step, tensors, state):
        if step > 3:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        return written(self, step, tensors, state)
    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(OSError, match=r"No space left.*checkpoint-000000003\.safetensors; make room"):
        run(tmp_path)


def test_random_numbers_of_the_caller_are_left_alone(tmp_path):
    "By a run that stops early."
    config = TrainConfig(epochs=50, batch_size=8, rate=1e-12, patience=2)
    model, state = classifier(), torch.get_rng_state()
    result = small(config, model, tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    assert (result.stopped, result.epochs, result.best["epoch"]) == ("early", 3, 1)


def test_accumulation_changes_nothing_where_labels_are_ignored(tmp_path):
    "Their number differs from piece to piece."
    torch.manual_seed(0)
    x, y = torch.randn(10, 6, 4, 3).double(), torch.randint(-1, 3, (10, 6, 4))
    y[:3] = -1
    states, task = [], Segmentation(3, torch.tensor([1.0, 2.0, 0.5]))
    for accumulate in (1, 3):
        torch.manual_seed(1)
        shape = SegmenterConfig(in_channels=3, patch=(2, 2), dim=8, depth=1, heads=2, classes=3)
        model = HOTSegmenter(shape).double()
        config = TrainConfig(epochs=1, batch_size=4, rate=1e-3, accumulate=accumulate)
        fit(model, Tensors(x, y), Tensors(x, y), task, config, tmp_path / str(accumulate))
        states.append(dict(model.state_dict()))
    torch.testing.assert_close(*states, rtol=1e-7, atol=1e-9)


def accelerators(folder):
    "In a process of its own: what belongs to a process as a whole."
    AcceleratorState._reset_state(reset_partial_state=True)
    half, single = (dataclasses.replace(ONE, precision=precision) for precision in ("bf16", "no"))
    for name, config in (("ours", half), ("ours too", single)):         # another precision in the same process
        model, result = run(folder / name, config=config)
        assert model(pictures(2).tensors[0]).dtype == torch.float32 and "_original_forward" not in vars(model)
        assert math.isfinite(result.best["loss"])
        assert not AcceleratorState._shared_state               # forgotten with the run
    ours = make_accelerator(half, cpu=True), make_accelerator(cpu=True)
    run(folder / "given", config=single, accelerator=ours[1])
    ours[1].state._reset_state()
    theirs, told = Accelerator(mixed_precision="bf16", cpu=True), []
    theirs.trackers.append(SimpleNamespace(name="own", log=lambda values, step: told.append((step, values["epoch"]))))
    for options in (dict(accelerator=theirs), {}):
        assert run(folder / f"theirs {len(options)}", config=half, **options)[1].epochs == 1
        with pytest.raises(ValueError, match="made with mixed_precision='bf16'; make it with mixed_precision='no', or"):
            run(folder / "refused", config=single, **options)
    assert theirs.mixed_precision == "bf16" and not (folder / "refused").exists()
    assert told == [(3, 1)]


@forked
def test_an_accelerator_of_ones_own_is_used_and_never_reset(tmp_path):
    "What `fit` made is forgotten with it; what `make_accelerator` gave, where another precision is asked for."
    status, said = forks.run(tmp_path / "said.txt", accelerators, tmp_path)
    assert status == 0, said


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    "The folder of a run of one epoch, to be looked at."
    folder = tmp_path_factory.mktemp("first")
    small(ONE, folder=folder)
    return folder


@pytest.fixture
def one(first, tmp_path):
    "A copy of it, to be changed."
    return Path(shutil.copytree(first, tmp_path / "one"))


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}


def moved(n, seed=0):
    x, y = pictures(n, seed).tensors
    return Tensors(x + 1, y)


def flipped(x, y):
    return x.flip(1), y


@pytest.mark.parametrize("change, says", [
    (dict(model=classifier(0.2)), "model.dropout was 0.1 and is 0.2"),
    (dict(parts=(moved(20), pictures(10, 1))), "data.train.tensors differs"),
    (dict(parts=(pictures(20), moved(10, 1))), "data.val.tensors differs"),
    (dict(parts=(pictures(22), pictures(10, 1))), "data.train.samples was 20 and is 22"),
    (dict(task=Classification(2, torch.tensor([1.0, 2.0]))), r"task.class_weights was 'None' and is \[1.0, 2.0\]"),
    (dict(config=dataclasses.replace(ONE, seed=1)), "training.seed was 0 and is 1"),
    (dict(optimizer=lambda groups, config: torch.optim.SGD(groups, 0.1)),
     "optimizer.class was 'AdamW' and is 'SGD'"),
    (dict(augment=flipped), "augment was None and is 'flipped'"),
    (dict(about={"lookback": 3}), "about.lookback was None and is 3"),
], ids=lambda c: "-".join(c) if isinstance(c, dict) else "")
def test_another_model_data_task_or_setting_is_refused_before_anything_is_written(first, change, says):
    "The numbers of an old run used to come back as those of another one."
    before = contents(first)
    with pytest.raises(ValueError, match=f"holds another run: .*{says}.*resume=False"):
        small(**{"config": ONE, "folder": first, "files": {"input.json": "{}"}, **change})
    assert contents(first) == before


def test_a_model_of_ones_own_is_known_by_its_layers_and_weights():
    def own(width=3, p=0.1, fixed=False):
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Dropout(p), nn.Linear(width, 2))
        model[1].requires_grad_(not fixed)
        return runs.fingerprint(model, pictures(4), pictures(4), Classification(2), ONE)
    for other, says in ((own(p=0.2), r"model.layers.2 was 'Dropout\(p=0.1, .*and is 'Dropout\(p=0.2"),
                        (own(4), r"model.weights.1.weight was '\(3, 16\) float32' and is '\(4, 16\)"),
                        (own(fixed=True), "float32' and is '.* float32 fixed'")):
        assert re.search(says, "; ".join(runs.differences(own(), other)))


def test_the_same_settings_with_initial_weights_of_ones_own_go_on(first, one):
    found = small(ONE, classifier(seed=7), one, files={"input.json": "{}"})
    assert dataclasses.replace(found, folder=first) == small(ONE, folder=first)
    assert (one / "input.json").read_text() == "{}"            # further files, once the folder is its own


def test_a_part_may_say_itself_what_it_is(first):
    class Named(Tensors):
        def fingerprint(self):
            return "version 2"
    found = runs.fingerprint(classifier(), Named(*pictures(20).tensors), pictures(10), Classification(2), ONE)
    assert found["data"]["train"] == "version 2"
    mark = json.loads((first / "fingerprint.json").read_text())
    assert set(mark["made with"]) == {"hot_nbdev", "torch"}


def test_a_folder_that_is_no_run_is_not_written_into(tmp_path):
    (tmp_path / "model.safetensors").write_text("of somebody else")
    (tmp_path / "letter.txt").write_text("dear")
    before = contents(tmp_path)
    for resume in (True, False):
        with pytest.raises(ValueError, match="holds files .* but no run; .*overwrite=True"):
            small(ONE, folder=tmp_path, resume=resume)
    assert contents(tmp_path) == before
    small(ONE, folder=tmp_path, overwrite=True)
    assert (tmp_path / "letter.txt").read_text() == "dear" and load_model(tmp_path)


def test_a_damaged_fingerprint_is_another_run(one):
    for text in ("", "[]", "{}", '{"run": 3}', "[" * 100_000):
        (one / "fingerprint.json").write_text(text)
        with pytest.raises(ValueError, match="fingerprint.json cannot be read"):
            small(ONE, folder=one)


def test_a_second_run_in_the_same_folder_at_once_is_refused(tmp_path):
    with FileLock(tmp_path / ".lock"), pytest.raises(ValueError, match="another process trains in .*; wait"):
        small(ONE, folder=tmp_path)


class Masked(nn.Module):
    "Counts on its mask."
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 2)

    def forward(self, x, mask):
        assert mask.dtype == torch.bool and mask.shape == x.shape
        return self.line(x.nan_to_num() * mask)


def masked(n, seed=0):
    x, y = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)), torch.arange(n) % 2
    mask = torch.ones(n, 4, dtype=torch.bool)
    mask[::3, 1], x[::3, 1] = False, math.nan
    return x, mask, y


def lines(n, seed=0):
    "One sample at a time, as most data sets of torch."
    return StackDataset(*masked(n, seed))


def whole_and_parts(tmp_path, start, stop, begin=Masked):
    "Weights, and sums of the batches seen, of a run and of one that is killed after some batches and begun again."
    for folder, stops in (("whole", [None]), ("parts", [stop, None])):
        for last in stops:
            torch.manual_seed(0)
            model, seen = begin(), []

            def look(x, mask, y, last=last, seen=seen):
                if len(seen) == last:
                    raise Killed
                seen.append(x.nan_to_num().sum().item())
                return x + 0.1 * torch.randn_like(x), mask, y
            torch.manual_seed(len(stops) + (last or 0))             # whatever happened in between
            with contextlib.suppress(Killed):
                start(model, folder=tmp_path / folder, augment=look)
        yield weights(model.parameters()), seen


@pytest.mark.parametrize("own", [False, True], ids=["global generator", "its own generator"])
def test_a_run_over_loaders_goes_on_to_the_same_bits(tmp_path, own):
    "The order of a loader is drawn anew for each epoch, and is the same again in a resumed run."
    def start(model, **options):
        train = DataLoader(lines(13), 4, shuffle=True, generator=torch.Generator() if own else None)
        fit(model, train, DataLoader(lines(8, 1), 3), Classification(2), TrainConfig(epochs=3, rate=0.1), save_every=1,
            **options)
    (whole, seen), (parts, rest) = whole_and_parts(tmp_path, start, 6)
    assert torch.equal(whole, parts) and len(seen) == 12 and seen[6:] == rest and seen[:4] != seen[4:8]


def test_a_list_of_samples_is_a_data_set(tmp_path):
    "As it is to torch's loader: the same run as with a data set, which knows its samples again when it goes on."
    def run(name, make):
        torch.manual_seed(0)
        model = Masked()
        fit(model, make(13), make(8, 1), Classification(2), ONE, tmp_path / name)
        return weights(model.parameters())
    samples = lambda *a: list(zip(*masked(*a), strict=True))  # noqa: E731
    assert torch.equal(run("list", samples), run("data set", lines))
    loaded = run("loader of a data set", lambda *a: DataLoader(lines(*a), 4))
    for _ in range(2):                                                  # the second time it goes on with it
        assert torch.equal(run("loader of a list", lambda *a: DataLoader(samples(*a), 4)), loaded)
    with pytest.raises(ValueError, match="data.train.dataset.content differs"):
        run("loader of a list", lambda *a: DataLoader([(x, m, 1 - y) for x, m, y in samples(*a)], 4))


def test_some_samples_of_a_part_are_an_epoch(tmp_path):
    "Other samples, or another number of them, are another run."
    x, y = torch.randn(13, 4), torch.arange(13) % 2

    def start(x, samples=16):
        part = Sampled(as_part(list(zip(x, y, strict=True))), samples)
        return fit(nn.Linear(4, 2), part, Tensors(x, y), Classification(2), ONE, tmp_path)
    assert start(x).best["step"] == start(x).best["step"] == 2
    for other in ({"x": x + 1}, {"x": x, "samples": 17}):
        with pytest.raises(ValueError, match="holds another run: data.train"):
            start(**other)


def test_evaluation_takes_loaders_and_data_sets():
    model, task = Masked(), Classification(2)
    want = evaluate(model, TensorDataset(*masked(8)), task)
    torch.manual_seed(0)
    after = torch.rand(1)
    torch.manual_seed(0)
    for part in (lines(8), list(lines(8)), DataLoader(lines(8), 3), DataLoader(lines(8), 3, shuffle=True)):
        assert evaluate(model, part, task) == pytest.approx(want, rel=1e-5)
    assert torch.equal(torch.rand(1), after)


def test_the_schedule_keeps_the_rates_of_several_groups_apart(tmp_path):
    "A factory may give each group a rate of its own."
    made = []

    def make(groups, config):
        made.append(torch.optim.SGD([{**groups[0], "lr": 0.4}, {**groups[1], "lr": 0.1}], 1.0))
        return made[-1]
    config = TrainConfig(epochs=1, batch_size=8, schedule="constant", warmup=0.0)
    fit(Masked(), lines(16), lines(8, 1), Classification(2), config, tmp_path, optimizer=make)
    assert [g["lr"] for g in made[-1].param_groups] == [0.4, 0.1]


def test_callbacks_are_told_of_each_epoch_and_may_stop_the_run(tmp_path):
    told = []
    result = run(tmp_path, callbacks=[told.append, lambda numbers: numbers["epoch"] == 2])[1]
    assert (result.stopped, result.epochs) == ("callback", 2)
    assert [t["loss"] for t in told] == [h["loss"] for h in result.history]
    assert run(tmp_path, stop=0)[1] == result               # it has ended, and is not run again


@pytest.mark.parametrize("change, says", [
    (dict(model=classifier().requires_grad_(False)), "no weight of the model is to be trained"),
    (dict(parts=(pictures(8).tensors, pictures(8))), r"a tuple is no part, .*give Tensors\(x, y\)"),
    (dict(optimizer=torch.optim.SGD), "optimizer is <class .*give a function of the groups of parameters"),
    (dict(callbacks=print), r"callbacks is <built-in function print>; .*callbacks=\[function\]"),
    (dict(task=type("Misnamed", (Classification,), {"criterion": "accuracy"})(2)),
     "criterion of the task 'classification' is 'accuracy', but its metrics are loss, auc, acc; name one"),
], ids=lambda c: "-".join(c) if isinstance(c, dict) else "")
def test_what_cannot_be_trained_is_named(tmp_path, change, says):
    with pytest.raises((ValueError, TypeError), match=says):
        small(**{"config": ONE, "folder": tmp_path, **change})


def unbroken_and_resumed(folder):
    "A run, and the same run killed after four updates and begun again, without dropout; by one process, or by several."
    AcceleratorState._reset_state(reset_partial_state=True)
    series = torch.randn(30, 14, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train, val = (Tensors(t[:, :8], t[:, 8:]) for t in (series[:19], series[19:]))
    two = dataclasses.replace(SHORT, epochs=2)
    for part, stop in (("whole", None), ("parts", 4), ("parts", None)):
        noise = killed_after(stop)
        with pytest.raises(Killed) if stop else contextlib.nullcontext():
            fit(forecaster().double(), train, val, Forecasting(), two, folder / part, save_every=1,
                augment=lambda x, y, noise=noise: (noise(x, y) and x, y))
    torch.manual_seed(0)
    x = torch.randn(15, 10, dtype=torch.float64)
    part = Tensors(x[:, :4], x[:, 4:])
    fit(Heads().double(), part, part, Forecasting(), two, folder / "heads")       # separate heads


@forked
def test_two_processes_give_what_one_gives(tmp_path):
    "With batches that two do not divide, pieces, an average; killed and resumed."
    unbroken_and_resumed(tmp_path / "one")
    debug_launcher(unbroken_and_resumed, (tmp_path / "two",), num_processes=2)
    last = {(n, part): Checkpoints(tmp_path / n / part).last()[1:]
            for n in ("one", "two") for part in ("whole", "parts", "heads")}
    for n in ("one", "two"):                        # resumed: the same bits
        (whole, about), (parts, again) = last[n, "whole"], last[n, "parts"]
        assert numbers(about["history"]) == numbers(again["history"]) and same(whole, parts)
    assert len(last["two", "whole"][0]["random"]) == 2
    about, again = last["one", "whole"][1], last["two", "whole"][1]
    for a, b in zip(about["history"], again["history"], strict=True):       # two processes: up to rounding
        assert {**a, "seconds": 0} == pytest.approx({**b, "seconds": 0}, rel=1e-9)
    for part in ("whole", "heads"):
        one, two = ({name: t for name, t in last[n, part][0].items() if name.startswith(("model.", "average."))}
                    for n in ("one", "two"))
        torch.testing.assert_close(two, one, rtol=1e-8, atol=1e-10)


def test_the_best_epoch_is_the_one_with_the_least_error(tmp_path):
    "That it is the one with the largest AUC, page 60 shows."
    torch.manual_seed(0)
    part, task = Tensors(torch.randn(9, 8, 3), torch.randn(9, 6, 3)), Forecasting()
    result = fit(forecaster(), part, part, task, dataclasses.replace(ONE, epochs=4, rate=0.1), tmp_path)
    found = [h["mse"] for h in result.history]
    assert result.best["mse"] == min(found) < max(found)


def test_beginning_again_removes_the_former_best_model(one):
    with pytest.raises(Killed):
        run(one, 1, config=dataclasses.replace(SHORT, rate=1e-3), resume=False)
    assert not (one / "model.safetensors").exists() and not Checkpoints(one).paths()

"""studies/ndlinear on small data: every system builds, models are of equal size, runs repeat and resume."""
import copy
import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from chapters import NBS, Chapter
from torch import nn

from hot_nbdev.book import results_file
from hot_nbdev.train.results import read_rows

pytest.importorskip("sklearn", reason='needs scikit-learn: pip install "hot_nbdev[train]"')

from studies import rates
from studies.kin.kin import forms
from studies.ndlinear import ndlinear_settings as settings
from studies.ndlinear import ndlinear_simple as simple
from studies.ndlinear import ndlinear_systems as bench
from studies.ndlinear import systems


@pytest.fixture(scope="module", autouse=True)
def what_is_counted_is_not_drawn():
    "Looking for widths makes hundreds of models without numbers; without their starts it takes a third of the time."
    def size(make, size=systems.layers.size):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("uniform_", "kaiming_uniform_", "normal_", "zeros_", "ones_"):
                patch.setattr(nn.init, name, lambda t, *_, **__: t)
            return size(make)
    with pytest.MonkeyPatch.context() as counted:
        counted.setattr(systems.layers, "size", size)
        yield


def words(n, seed):
    "n words of Python, a new line after every eighth."
    pick = random.Random(seed)
    made = [pick.choice("def return self import if else for in range print value".split()) for _ in range(n)]
    return " ".join(w + "\n" * (k % 8 == 7) for k, w in enumerate(made))


def joined(values):
    return ",".join(f"{v:.4f}" for v in values)


def write_waves(folder, name, channels, classes, least, most, g):
    (at := folder / "datasets" / "data" / name).mkdir(parents=True)
    for part in ("TRAIN", "TEST"):
        lines = ["#a comment", f"@problemName {name}", f"@classLabel true {' '.join(classes)}", "@data"]
        for label in classes * 5:
            n = int(torch.randint(least, most + 1, (), generator=g))
            lines.append(":".join([*map(joined, torch.randn(channels, n, generator=g).tolist()), label]))
        (at / f"{name}_{part}.ts").write_text("\n".join(lines) + "\n")


@pytest.fixture
def small(tmp_path, monkeypatch):
    "Small files of the layout of the real ones, and no model kept from an earlier test."
    sources, images = systems.sources, systems.images
    g, data = torch.Generator().manual_seed(0), tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("HOT_DATA", str(data))
    values = torch.randn(260, 7, generator=g).cumsum(0) / 4
    (data / "ETTh1.csv").write_text("date,a,b,c,d,e,f,OT\n" + "".join(
        f"2020-01-01 {k:04d},{joined(row)}\n" for k, row in enumerate(values.tolist())))
    monkeypatch.setattr(systems.forecasts, "ENDS", (120, 180, 260))
    monkeypatch.setattr(images, "DRAWN", 12)
    for name in ("vessel", "adrenal"):
        arrays = {}
        for part, n in (("train", 24), ("val", 8), ("test", 12)):
            arrays[f"{part}_images"] = (255 * (torch.rand(n, 28, 28, 28, generator=g) < 0.1)).numpy().astype(np.uint8)
            arrays[f"{part}_labels"] = (np.arange(n) % 2)[:, None].astype(np.uint8)
        np.savez(data / f"{name}mnist3d.npz", **arrays)
    package = tmp_path / "packages" / "aeon"
    write_waves(package, "JapaneseVowels", 3, list("123"), 5, 9, g)
    write_waves(package, "BasicMotions", 3, ["Standing", "Walking", "Running"], 9, 9, g)     # as long: planned once
    (package / "__init__.py").write_text("raise ImportError('files are read, the package is not imported')\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(sources, "module_text", lambda name: words(600, name))
    monkeypatch.setattr(sources, "CHUNK", 400)
    notebook = {"cells": [{"cell_type": "markdown", "source": [words(1500, "prose")]},
                          {"cell_type": "code", "source": ["no prose"]}]}
    monkeypatch.setattr(sources, "notebooks", lambda: [json.dumps(notebook)])
    cached = [f for f in vars(sources).values() if hasattr(f, "cache_clear")]
    for f in cached:
        f.cache_clear()
    yield sources
    images.TEACHERS.clear()
    systems.language.BASES.clear()
    for f in cached:
        f.cache_clear()


@pytest.fixture
def quick(small, tmp_path):
    return bench.Bench(tmp_path / "rows.csv", tmp_path / "keep", quick=True)


def check_sizes(system, make, where, layers):
    """Within five percent of NdLinear; the wide NdLinear of the language model, of the dense model. Adapters count what
    they say."""
    if system.name == "adapters":
        sizes, blocks = {kind: layers.count(f()) for kind, f in make.items()}, 2
        assert sizes["lora-2"] == 2 * sizes["lora-1"] == 4 * blocks * (4 * 64 + 320)
        assert sizes["ndlora-4"] == 4 * sizes["ndlora-1"] == 4 * blocks * (4 * 128 + 2 * 256)
        assert sizes["krona"] == blocks * (4 * (16 + 16 * 16) + 2 * (16 + 16 * 64))
        assert sizes["none"] == 0 < sizes["head"] < sizes["full"]
    elif system.name != "teacher":
        sizes = {kind: layers.size(f) for kind, f in make.items()}
        for kind in {"dense-equal", "dense-thin", "low-rank", "kron", "tcl", "tt"} & set(sizes):
            assert abs(sizes[kind] / sizes["nd"] - 1) < 0.05, (where, kind, sizes)
        assert "nd-large" not in sizes or abs(sizes["nd-large"] / sizes["dense"] - 1) < 0.05
        assert sizes["nd"] < sizes["dense"]


@pytest.mark.parametrize("name", bench.SYSTEMS)
def test_every_model_of_a_system_takes_a_step_and_rivals_are_of_equal_size(quick, name):
    training, system = systems.training, bench.SYSTEMS[name]
    for data in system.data:
        quick.prepare(system, data, 0)
        task = system.task(data, 0)
        check_sizes(system, task.make, data, systems.layers)
        assert set(system.kinds(data)) <= set(task.make)
        if name == "language" and data != "prose":          # the same models on other letters
            continue
        for kind in system.kinds(data):
            torch.manual_seed(0)
            model = task.make[kind]()
            g = torch.Generator().manual_seed(0)
            batch = next(iter(task.batches(g) if task.batches else training.shuffled(task, 8, g)))
            assert math.isfinite(training.validate(task, model))
            if kind in system.untrained:
                continue
            loss = task.loss(model, *batch)
            loss.backward()
            assert math.isfinite(loss.item())
            trained = [p for p in model.parameters() if p.requires_grad]
            assert trained and all(p.grad is not None for p in trained), kind


def test_a_seed_gives_the_same_row_twice(quick):
    def row(seed=3):
        found, _ = quick.run("main", bench.SYSTEMS["table"], "wine", "kron", seed, 3e-3)
        return {k: v for k, v in found.items() if k != "cpu_seconds"}
    first = row()
    assert row(5) != first == row()
    assert list(first) == [k for k in bench.HEAD if k != "cpu_seconds"]


def test_rows_resume(small, tmp_path, monkeypatch):
    """A search goes on until its optimum is inside, and nothing that has its row is made again. Training only notes
    what was asked; the error is least at one rate."""
    asked, out = [], tmp_path / "rows.csv"

    def train(self, system, task, model, seed, rate, study):
        asked.append((study, system.name, model, seed, rate))
        error = abs(math.log10(rate / 1e-2)) if rate else 1.0
        return systems.training.Run(error, 1, 1, 1, "turned", 0.0, task.make[model]().eval())
    monkeypatch.setattr(bench.Bench, "train", train)
    system = replace(bench.SYSTEMS["table"], data=("wine",), models=("dense", "nd"))
    bench.Bench(out, tmp_path).all(system, range(2))
    rates = [rate for study, _, model, seed, rate in asked if (study, model) == ("rate", "nd")]
    assert rates == [1e-3, 3e-3, 1e-2, 3e-2]                # 1e-2 was at the edge of the first three
    main = [a for a in asked if a[0] == "main"]
    assert main == [("main", "table", m, s, 1e-2) for s in (0, 1) for m in ("dense", "nd")]
    rows = read_rows(out)
    assert len(rows) == len(asked) == 12 and len({tuple(r[k] for k in bench.KEY) for r in rows}) == 12
    assert {r["seed"] for r in rows if r["study"] == "rate"} == {"99"}
    asked.clear()
    bench.Bench(out, tmp_path).all(system, range(2))
    assert asked == []
    out.write_text("\n".join(out.read_text().splitlines()[:-1]) + "\n")     # the last row is lost
    bench.Bench(out, tmp_path).all(system, range(2))
    assert asked == [("main", "table", "nd", 1, 1e-2)] and read_rows(out)[-1]["seed"] == "1"


def test_ragged_series_are_read_and_hours_that_are_not_there_do_not_count(small):
    found, classes, _ = small.waves("JapaneseVowels")
    x, mask, y = found["TRAIN"]
    assert classes == 3 and x.shape == (15, mask.shape[1], 3) and 5 <= mask.sum(1).min() and mask.sum(1).max() <= 9
    assert not x[~mask].any() and y.tolist() == [0, 1, 2] * 5
    torch.testing.assert_close(x[mask].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    model = bench.SYSTEMS["waves"].task("JapaneseVowels", 0).make["nd"]().eval()
    torch.testing.assert_close(model(x + 9.0 * ~mask[..., None], mask), model(x, mask))


def test_a_search_widens_its_grid():
    assert [rates.rate(s) for s in (-7, -6, -5, 0)] == [3e-4, 1e-3, 3e-3, 1.0] and rates.step(3e-2) == -3
    with pytest.raises(ValueError, match="no rate of the grid"):
        rates.step(2e-3)
    assert rates.choose({}) == ("try", [1e-3, 3e-3, 1e-2])
    tried = {1e-3: [3.0], 3e-3: [2.0], 1e-2: [1.0]}
    assert rates.choose(tried) == ("try", [3e-2])
    assert rates.choose(tried | {3e-2: [float("nan")]}) == ("use", 1e-2, True)
    assert rates.choose({r: [1.0] for r in tried}) == ("try", [3e-4])           # of equals the smaller, an edge
    assert rates.choose({1e-3: [0, 9, 9], 3e-3: [1, 1, 1], 1e-2: [2, 2, 0]}) == ("use", 3e-3, True)     # medians
    whole = {rates.rate(s): [-s] for s in range(-6, 3)}
    assert rates.choose(whole) == ("use", 10.0, False)                          # the end of the limits


def test_layers_are_what_they_are_called():
    layers = systems.layers
    x, some = torch.randn(5, 24), layers.KronSum((2, 3, 4), (3, 2, 5), 3)
    nn.init.normal_(some.terms[0].layer.biases[1])
    whole = some(x)
    some.SMALL = 0
    torch.testing.assert_close(some(x), whole)
    train = layers.TensorTrain((2, 3, 4), (3, 2, 5), 3)
    torch.testing.assert_close(train(x.reshape(5, 1, 24))[:, 0], forms()["tensor_train"](x, *train.cores))


def test_training_ends_when_validation_turns():
    torch.manual_seed(0)
    training, x, start = systems.training, torch.randn(64, 3), nn.Linear(3, 1)
    y, noise = x[:, :1] * 2, torch.randn(64, 1)

    def loss(model, x, y):
        return nn.functional.mse_loss(model(x), y)

    def ended(rate, most):
        return training.until_it_turns(task, copy.deepcopy(start), rate, 0, most, 16)
    parts = (x, y + noise), (x[:20], y[:20]), (x, y)
    task = training.Task({}, parts, loss, lambda *given: loss(*given).item(), None, "")
    found = ended(1e-1, 200)
    assert found.stopped == "turned" and found.best_epoch < found.epochs < 200
    assert found.best == pytest.approx(loss(found.model, *task.parts[1]).item())
    assert ended(1e-3, 2).stopped == "cap"
    task.parts[0][1][0] = float("nan")
    assert ended(1e-3, 2).stopped == "diverged"


def test_metrics_are_those_of_scikit_learn():
    from sklearn import metrics
    measures = systems.measures
    g = torch.Generator().manual_seed(0)
    scores, y = torch.randn(60, 2, generator=g).round(decimals=1), torch.randint(2, (60,), generator=g)
    assert measures.auc(scores, y) == pytest.approx(metrics.roc_auc_score(y, scores[:, 1] - scores[:, 0]))
    assert measures.macro_f1(scores, y) == pytest.approx(metrics.f1_score(y, scores.argmax(1), average="macro"))
    assert measures.balanced(scores, y) == pytest.approx(metrics.balanced_accuracy_score(y, scores.argmax(1)))
    a = torch.randn(50, 4, generator=g)
    assert measures.frechet(a, a) == pytest.approx(0, abs=1e-6)
    assert measures.frechet(a, a + 1) == pytest.approx(4)


def test_verdicts_are_paired_and_corrected():
    from scipy import stats
    verdicts = systems.verdicts
    a, b = [1.0, 2.0, 4.0, 3.5, 2.5], [0.5, 1.0, 3.9, 3.0, 2.6]
    rows = [dict(study="main", system="table", data="wine", data_sha="x", model=m, seed=str(s), rate="0.01",
                 test=str(v), validation="1", stopped="turned", code="c")
            for m, values in (("nd", a), ("dense", b)) for s, v in enumerate(values)]
    rows.insert(0, dict(rows[0], data_sha="an earlier state", test="100"))
    (found,) = verdicts.comparisons(rows, bench.SYSTEMS)
    assert found["ours"] == "nd" and found["better"] and found["p"] == pytest.approx(stats.ttest_rel(a, b).pvalue)
    text = "\n".join(verdicts.summary(rows, bench.SYSTEMS))
    assert "nd against dense: ahead on 1 of 1" in text and "nd - dense = +0.4" in text


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_plain_answers_to_every_system(small, monkeypatch):
    "With and without classes, for series, images and text; the same numbers each time."
    monkeypatch.setattr(simple, "STRENGTHS", [0.1, 1.0])
    monkeypatch.setattr(simple, "ORDERS", range(1, 4))
    monkeypatch.setattr(simple, "NEAREST", (1, 3))
    for name in simple.SEEDS:
        data = simple.SYSTEMS[name].data[0]
        rows = list(simple.answers(name, data, 0))
        few = {"constant", "linear"} if name in ("sentence", "rnn", "diffusion") else {"constant", "linear", "other"}
        assert {r["model"] for r in rows} == few
        assert {r["system"] for r in rows} == {name, simple.TWINS.get((name, data), name)}
        assert all(math.isfinite(float(r[part])) for r in rows for part in ("validation", "test"))
        assert rows == list(simple.answers(name, data, 0))
    constant = next(r for r in simple.answers("cnn-slices", "vessel", 0) if r["model"] == "constant")
    assert float(constant["test"]) == 0.5


def test_plain_answers_have_their_rows():
    stored = {r["model"]: r for r in read_rows(results_file("ndlinear_simple.csv"))
              if (r["data"], r["seed"]) == ("breast cancer", "0")}
    for row in simple.answers("table", "breast cancer", 0):
        own = stored.pop(row["model"])
        assert own["data_sha"] == row["data_sha"] and float(own["test"]) == pytest.approx(float(row["test"]), abs=1e-3)
    assert not stored


def test_counts_are_interpolated_as_witten_and_bell_do(small):
    "Against the recursion, character by character; a context does not reach over the beginning of its window."
    text = torch.tensor([1, 2, 1, 2, 3, 1, 1, 2, 3, 3, 2, 1])

    def share(context, c):
        if context is None:
            return 1 / simple.sources.SYMBOLS
        after = [int(text[i + len(context)]) for i in range(len(text) - len(context))
                 if text[i:i + len(context)].tolist() == context]
        lower = share(context[1:] if context else None, c)
        return (after.count(c) + len(set(after)) * lower) / (len(after) + len(set(after))) if after else lower
    windows = torch.tensor([[1, 2, 3, 1, 1], [2, 3, 3, 9, 2]])
    found = simple.Counts(text, 3).bits(windows)
    for order, bits in enumerate(found, 1):
        shares = [share(row[max(0, j - order + 1):j], row[j]) for row in windows.tolist() for j in range(1, 5)]
        assert bits == pytest.approx(-sum(map(math.log2, shares)) / len(shares)), order
    assert sum(share([1, 2], c) for c in range(simple.sources.SYMBOLS)) == pytest.approx(1)


def test_the_linear_guess_of_the_noise_is_that_of_least_squares(small):
    "At one time, on many images: no line through noisy values comes nearer to their noise."
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 2, 2, generator=g) @ torch.tensor([[1.0, 0.5], [0.0, 0.2]]) + 0.3

    task = systems.training.Task({}, 3 * ((x,),), None, lambda *_: 0.0, None, "")
    guess = simple.denoisers(task, "diffusion")["linear"][1]
    t = torch.full((len(x),), 0.4)
    noise, s = torch.randn(x.shape, generator=g), simple.images.signal(t)[0]
    seen = s * x + (1 - s ** 2).sqrt() * noise
    columns = torch.cat([seen.flatten(1), torch.ones(len(x), 1)], 1)
    fitted = (columns @ torch.linalg.lstsq(columns, noise.flatten(1)).solution).view_as(x)
    assert (guess(seen, t) - fitted).square().mean() < 1e-3 < 0.5 < fitted.square().mean()


def test_the_grid_of_settings_has_the_networks_of_the_systems_and_resumes(tmp_path):
    task = settings.SYSTEMS["cnn"].task("digits", 0)
    for model in ("dense", "nd"):
        assert settings.count(settings.network(model, "digits", 256)) == settings.count(task.make[model]())
    for widths in ((64,), (64, 128)):
        settings.run(tmp_path / "rows.csv", [0], ["digits"], ((128,), widths, (0.001,)), cap=1)
    rows = read_rows(tmp_path / "rows.csv")
    assert [(r["model"], r["batch"]) for r in rows] == [("dense", "64"), ("nd", "64"), ("dense", "128"), ("nd", "128")]
    found = settings.scores([rows[0] | {"test": ""}, *rows[1:]], "digits", "dense")
    assert found[128, 64, 0.001] == {0: 0.1}                # a run that diverged has one chance in ten


def test_the_page_reads_the_settings_as_the_script_does():
    cells = {c.id: c.source for c in Chapter(NBS / "ndlinear_measured.ipynb").code}
    space = {}
    exec(cells["ndm-imports"] + "\n" + cells["ndset-rows"], space)
    space["p_shown"] = lambda p: p
    exec(cells["ndset-table"], space)
    found, script = space["shown_lines"], settings.comparisons(read_rows(results_file("ndlinear_settings.csv")))
    assert [line["difference"] for line in found] == pytest.approx([c["difference"] for c in script])
    assert [line["p (Holm)"] for line in found] == pytest.approx([c["corrected"] for c in script])

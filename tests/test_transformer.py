"""Models: every attention by name, masks, saving, compiling, exporting."""
import copy
import dataclasses
import gc
import subprocess
import sys
import warnings

import pytest
import torch
from torch.testing import assert_close

from hot_nbdev.transformer import (
    ATTENTIONS,
    ClassifierConfig,
    ForecasterConfig,
    HOTClassifier,
    HOTConfig,
    HOTEncoder,
    HOTForecaster,
    HOTSegmenter,
    ModelConfig,
    PatchEmbed,
    SegmenterConfig,
    load_model,
    make_model,
)

SMALL = dict(dim=16, heads=2, depth=2)
KINDS = {
    "encoder": (HOTEncoder, HOTConfig, dict(patch=(2, 3)), (2, 6, 9, 1)),
    "classifier": (HOTClassifier, ClassifierConfig, dict(patch=(2, 3), classes=5), (2, 6, 9, 1)),
    "flatten": (HOTClassifier, ClassifierConfig, dict(patch=(2, 3), sizes=(6, 9), pool="flatten"),
                (2, 6, 9, 1)),
    "forecaster": (HOTForecaster, ForecasterConfig, dict(lookback=12, horizons=(3, 7)), (2, 12, 5)),
    "forecaster, mean": (HOTForecaster, ForecasterConfig, dict(pool="mean", separate_heads=True), (2, 12, 5)),
    "segmenter": (HOTSegmenter, SegmenterConfig, dict(in_channels=3, classes=4), (2, 5, 7, 3)),
}
kind = pytest.mark.parametrize("kind", KINDS)
named = pytest.mark.parametrize("name", ATTENTIONS)


def make(kind, seed=0, dtype=torch.float32, device=None, **options):
    torch.manual_seed(seed)
    model, config, given, shape = KINDS[kind]
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    return model(config(**{**SMALL, **given, **options}), dtype=dtype, device=device).eval(), x


def some(x, kind, seed=3):
    "A mask for x."
    shape = x.shape if kind.startswith("forecaster") else x.shape[:-1]
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def fill(x, mask, value):
    return x.masked_fill(~(mask if mask.ndim == x.ndim else mask[..., None]), value)


@kind
@named
def test_every_attention_by_name_with_masks(kind, name):
    model, x = make(kind, attention=name)
    mask = some(x, kind)
    y = model(x, mask)
    assert y.isfinite().all()
    for junk in (float("nan"), float("inf"), 1e30):
        assert torch.equal(model(fill(x, mask, junk), mask), y)
    z, maps = model(x, mask, return_maps=True)
    assert_close(z, y, rtol=1e-4, atol=1e-5)
    assert len(maps) == 2 and (name == "none") == (not maps[0])
    model.train()(x, mask).square().mean().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None and not n.startswith("heads.")]
    assert not silent and all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@named
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_any_number_of_modes(name, order):
    if name == "spatial" and order == 1:
        pytest.skip("no mode but the first")
    torch.manual_seed(0)
    model = HOTEncoder(HOTConfig(**SMALL, attention=name, patch=(2,) * order)).eval()
    assert model(torch.randn(2, *(4, 3, 2, 5)[:order], 1)).shape == (2, *(2, 2, 1, 3)[:order], 16)


@kind
@pytest.mark.parametrize("stem", ["linear", "conv"])
def test_a_larger_frame_changes_nothing(kind, stem):
    "A sample in a larger frame of padding gives what it gives alone, where the head allows other sizes."
    if kind in ("flatten", "forecaster"):
        pytest.skip("the head flattens")
    model, x = make(kind, stem=stem, dtype=torch.float64, patch=(2, 2), stem_kernel=5)
    modes = (1, 2)
    larger = [n + 4 if a in modes else n for a, n in enumerate(x.shape)]
    frame = torch.full(larger, float("nan"), dtype=x.dtype)
    frame[:, :x.shape[1], :x.shape[2]] = x
    mask = torch.zeros(frame.shape[:3], dtype=torch.bool)
    mask[:, :x.shape[1], :x.shape[2]] = True
    y, z = model(x), model(frame, mask)
    if kind == "forecaster, mean":
        z = z[..., :x.shape[2]]
    elif kind != "classifier":
        z = z[:, :y.shape[1], :y.shape[2]]
    assert_close(z, y, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in ATTENTIONS if n not in ("multiscale",)])
@pytest.mark.parametrize("stem", ["linear", "conv"])
def test_a_causal_encoder_leaks_nothing(name, stem):
    torch.manual_seed(0)
    config = HOTConfig(**SMALL, attention=name, patch=(2, 1), causal=(0,), stem=stem, stem_kernel=5)
    model, x = HOTEncoder(config).eval(), torch.randn(1, 8, 3, 1)
    changed = torch.cat([x[:, :4], x[:, 4:] * 3 + 1], 1)
    assert torch.equal(model(x)[:, :2], model(changed)[:, :2]) or \
        (model(x)[:, :2] - model(changed)[:, :2]).abs().max() < 1e-5
    assert not torch.allclose(model(x)[:, 2:], model(changed)[:, 2:])


@kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_save_and_load(kind, dtype, tmp_path):
    model, x = make(kind, attention="full-linear", kernel="prf", positions="learned", position_modes=None,
                    sizes=(6, 9) if kind == "flatten" else (12, 6), dtype=dtype)
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert type(again) is type(model) and again.config == model.config and not again.training
    assert torch.equal(again(x), model(x)) and again(x).dtype == dtype
    for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)
    assert next(load_model(tmp_path, dtype=torch.float64).parameters()).dtype == torch.float64


def test_loading_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        load_model(tmp_path)
    model, _ = make("classifier")
    model.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model": "classifier", "depht": 3}')
    with pytest.raises(ValueError, match=r"ClassifierConfig: unknown settings \['depht'\]"):
        load_model(tmp_path)


def test_a_pickled_weights_file_is_not_opened(tmp_path):
    model, _ = make("classifier")
    model.save(tmp_path)
    torch.save(model.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(Exception, match="(?i)safetensor|header"):
        load_model(tmp_path)


@kind
def test_compiles_to_one_graph(kind):
    torch.compiler.reset()
    model, x = make(kind)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        mask = some(x, kind)
        assert_close(compiled(x, mask), model(x, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["axial", "divided", "multiscale", "none", "full-linear"])
def test_every_attention_compiles_in_a_model(name):
    torch.compiler.reset()
    model, x = make("segmenter", attention=name, depth=1, stem="conv")
    mask = some(x, "segmenter")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(compiled(x, mask), model(x, mask), rtol=1e-4, atol=1e-5)


@kind
def test_exports(kind):
    model, x = make(kind)
    for args in [(x,), (x, some(x, kind))]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, args)
        assert_close(program.module()(*args), model(*args), rtol=1e-4, atol=1e-5)


@kind
@named
def test_autocast(kind, name):
    model, x = make(kind, attention=name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x, some(x, kind))
    want = model(x, some(x, kind))
    assert (y.float() - want).norm() < 0.1 * want.norm()


@kind
def test_device_and_dtype(kind):
    model, x = make(kind, device="meta", dtype=torch.float64, positions="learned", sizes=(6, 9),
                    position_modes=None)
    assert all(t.device.type == "meta" and t.dtype == torch.float64 for t in model.state_dict().values())
    assert model(x.to("meta")).device.type == "meta"


@kind
def test_dropout_acts_in_training_only(kind):
    model, x = make(kind, dropout=0.3, attention_dropout=0.2)
    assert torch.equal(model(x), model(x))
    assert not torch.equal(model.train()(x), model(x))
    assert torch.equal(copy.deepcopy(model).eval()(x), model.eval()(x))


@pytest.mark.parametrize("change", [
    dict(attention="fulll"), dict(positions="rope"), dict(ff="relu"), dict(stem="cnn"), dict(kernel="exp"),
    dict(attention_options={"pol": 1})])
def test_wrong_settings_raise(change):
    with pytest.raises((ValueError, TypeError)):
        HOTEncoder(dataclasses.replace(HOTConfig(**SMALL), **change))


def test_errors_say_what_was_expected_and_what_came():
    model, x = make("segmenter")
    with pytest.raises(ValueError, match=r"PatchEmbed: x must be \(\*batch, n1, n2, 3\), but is \(2, 5"):
        model(x[..., :2])
    with pytest.raises(ValueError, match=r"mask must be bool.*5, 7.*but is torch.float32"):
        model(x, torch.ones(2, 5, 7))
    with pytest.raises(ValueError, match=r"HOTForecaster: x must have time and 1 modes of series"):
        make("forecaster")[0](torch.zeros(3))
    with pytest.raises(TypeError, match="kernl"):
        PatchEmbed(1, 8, (2, 2), kernl=3)


def test_half_precision_sums_do_not_overflow():
    model, _ = make("forecaster, mean", dtype=torch.float16)
    assert model(torch.full((1, 2000, 3), 100.0, dtype=torch.float16)).isfinite().all()


@pytest.mark.parametrize("wrong", [
    dict(depth=None), dict(dim=12.5), dict(heads=True), dict(ff_hidden=12.5), dict(ff_hidden=0),
    dict(lookback=0), dict(horizons=4), dict(horizons=()), dict(horizons=("a",))])
def test_settings_that_count_are_whole_numbers(wrong):
    name, = wrong
    with pytest.raises(ValueError, match=f"ForecasterConfig: {name} is .*whole number"):
        ForecasterConfig(**wrong)


def test_a_subclass_does_not_take_over_the_models_of_its_settings(tmp_path):
    class Mine(HOTClassifier):
        "Has the settings of the classifier."
    config = ClassifierConfig(patch=(2, 2), dim=8, heads=2, depth=1)
    make_model(config).save(tmp_path)
    assert type(make_model(config)) is type(load_model(tmp_path)) is HOTClassifier
    assert type(Mine.load(tmp_path)) is Mine
    del Mine
    gc.collect()


@pytest.mark.parametrize("config", [None, {}, ModelConfig()], ids=["none", "dict", "base"])
def test_make_model_says_which_settings_have_a_model(config):
    with pytest.raises(ValueError, match=r"make_model: no model has settings of the class \w+; .*'Classif"):
        make_model(config)


def test_a_network_of_another_module_is_named_where_that_is_not_imported():
    code = ("from hot_nbdev.transformer import HOTConfig\n"
            "try: HOTConfig(ff='ndlinear')\nexcept ValueError as e: print(e)")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ff is 'ndlinear'; choose one of ('gelu', 'swiglu', 'none'), or import the module" in found.stdout

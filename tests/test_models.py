"""Models: every attention by name, masks, heads that all train, saving, damaged files, compiling, export."""
import copy
import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hot_nbdev.maps import model_maps
from hot_nbdev.model_config import MODELS, ClassifierConfig, ForecasterConfig, HOTConfig, ModelConfig, SegmenterConfig
from hot_nbdev.models import HOTClassifier, HOTEncoder, HOTForecaster, HOTSegmenter, load_model, make_model
from hot_nbdev.names import ATTENTIONS, make_attention
from hot_nbdev.patches import PatchEmbed
from hot_nbdev.transformer import FeedForward

ROOT = Path(__file__).resolve().parent.parent

SMALL = dict(dim=16, heads=2, depth=2)
KINDS = {
    "encoder": (HOTEncoder, HOTConfig, dict(patch=(2, 3)), (2, 6, 9, 1)),
    "classifier": (HOTClassifier, ClassifierConfig, dict(patch=(2, 3), classes=5), (2, 6, 9, 1)),
    "flatten": (HOTClassifier, ClassifierConfig, dict(patch=(2, 3), sizes=(6, 9), readout="flatten"),
                (2, 6, 9, 1)),
    "forecaster": (HOTForecaster, ForecasterConfig, dict(lookback=12, horizons=(3, 7)), (2, 12, 5)),
    "forecaster, mean": (HOTForecaster, ForecasterConfig, dict(readout="mean", separate_heads=True),
                         (2, 12, 5)),
    "segmenter": (HOTSegmenter, SegmenterConfig, dict(in_channels=3, classes=4), (2, 5, 7, 3)),
}
kind = pytest.mark.parametrize("kind", KINDS)
# a head sees tokens and a mask alone: each head once, and each attention once
pairs = pytest.mark.parametrize("kind, name", [*((kind, "product") for kind in KINDS),
                                               *(("segmenter", name) for name in ATTENTIONS if name != "product")])


def make(kind, seed=0, dtype=torch.float32, device=None, **options):
    torch.manual_seed(seed)
    model, config, given, shape = KINDS[kind]
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    return model(config(**{**SMALL, **given, **options}), dtype=dtype, device=device).eval(), x


def some(x, kind, seed=3):
    "A mask for x."
    shape = x.shape if kind.startswith("forecaster") else x.shape[:-1]
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


@pytest.fixture
def saved(tmp_path):
    "A classifier in a folder."
    model, _ = make("classifier")
    model.save(tmp_path)
    return model


@pairs
def test_every_attention_by_name_with_masks(kind, name):
    model, x = make(kind, attention=name)
    mask = some(x, kind)
    y, padded = model(x, mask), ~mask.view(*mask.shape, *(x.ndim - mask.ndim) * [1])
    assert y.isfinite().all()
    for junk in (float("nan"), float("inf")):
        assert torch.equal(model(x.masked_fill(padded, junk), mask), y)
    maps = model_maps(model, x, mask)
    assert len(maps) == 2 and (name == "none") == (not maps[0])
    model.train()(x, mask).square().mean().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None and not n.startswith("heads.")]
    assert not silent and all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name, stem", [("product", "linear"), *(
    (name, "conv") for name in ATTENTIONS if name not in ("multiscale", "axial-token"))])
def test_a_causal_encoder_leaks_nothing(name, stem):
    torch.manual_seed(0)
    config = HOTConfig(**SMALL, attention=name, patch=(2, 1), causal=(0,), stem=stem, stem_width=5)
    model, x = HOTEncoder(config).eval(), torch.randn(1, 8, 3, 1)
    changed = torch.cat([x[:, :4], x[:, 4:] * 3 + 1], 1)
    assert (model(x)[:, :2] - model(changed)[:, :2]).abs().max() < 1e-5
    assert not torch.allclose(model(x)[:, 2:], model(changed)[:, 2:])


@kind
def test_save_and_load(kind, tmp_path):
    model, x = make(kind, attention="full-linear", kernel="prf", positions="learned", position_modes=None,
                    sizes=(6, 9) if kind == "flatten" else (12, 6))
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert type(again) is type(model) and again.config == model.config and not again.training
    assert torch.equal(again(x), model(x))
    for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


@kind
def test_dropout_acts_in_training_only(kind):
    model, x = make(kind, dropout=0.3, attention_dropout=0.2)
    assert torch.equal(model(x), model(x))
    assert not torch.equal(model.train()(x), model(x))
    assert torch.equal(copy.deepcopy(model).eval()(x), model.eval()(x))


@pytest.mark.parametrize("config, change, message", [      # beside those of chapter 11d
    (HOTConfig, dict(patch=(0, 2)), "patch is (0, 2); give"),
    (HOTConfig, dict(heads=True), "heads is True; give a whole number"),
    (HOTConfig, dict(causal=0), "causal is 0; give one or several"),
    (HOTConfig, dict(stem_norm=1), "stem_norm is 1; give true or false"),
    (ForecasterConfig, dict(horizons=("a",)), "horizons is ('a',); give"),
    (SegmenterConfig, dict(heads=3), "heads is 3, which does not divide dim 16")])
def test_wrong_settings_name_setting_value_and_what_is_allowed(config, change, message):
    with pytest.raises(ValueError) as error:
        config(**{**SMALL, **change})
    assert str(error.value).startswith(f"{config.__name__}: ") and message in str(error.value)


def test_half_precision_sums_do_not_overflow():
    model, _ = make("forecaster, mean", dtype=torch.float16)
    assert model(torch.full((1, 2000, 3), 100.0, dtype=torch.float16)).isfinite().all()


def test_a_subclass_and_a_mixin_do_not_take_over_the_models_of_their_settings(tmp_path):
    hub = pytest.importorskip("huggingface_hub")

    class Shared(HOTClassifier, hub.PyTorchModelHubMixin):
        "Has the settings of the classifier, and can be put on a hub."
    config = ClassifierConfig(**SMALL, patch=(2, 3), classes=5, attention_options={"qk_norm": True})
    model, x = Shared(config).eval(), torch.randn(2, 6, 9, 1)
    model.save_pretrained(tmp_path / "shared")
    again = Shared.from_pretrained(tmp_path / "shared").eval()
    assert again.config == config and torch.equal(again(x), model(x))
    make_model(config).save(tmp_path)
    assert type(make_model(config)) is type(load_model(tmp_path)) is HOTClassifier
    assert type(Shared.load(tmp_path)) is Shared


def test_a_configuration_shares_its_options_with_nobody():
    given = {"pool": "sum"}
    config = ClassifierConfig(attention_options=given)
    given["pool"] = "max"                           # the caller's own dictionary is not the configuration's
    config.to_dict()["attention_options"]["pool"] = "rsqrt"     # nor is the one that it hands out
    assert config.attention_options == {"pool": "sum"}
    for change, *given in (("update", {}), ("__setitem__", "x", 1), ("pop", "x"), ("clear",), ("__delitem__", "x")):
        with pytest.raises(TypeError, match="settings do not change"):
            getattr(config.attention_options, change)(*given)
    assert len({config, copy.copy(config), copy.deepcopy(config), ClassifierConfig(attention_options={})}) == 2


def test_a_seed_stands_for_the_same_weights():
    "Stem, then for each block its attention and its network, then the head: runs are repeated by their seed."
    torch.manual_seed(0)
    model = HOTClassifier(ClassifierConfig(**SMALL, classes=3))
    torch.manual_seed(0)
    parts = [PatchEmbed(1, 16, (4, 4))]
    for _ in range(2):
        parts += [make_attention("product", 16, 2, 2), FeedForward(16)]
    parts.append(nn.Linear(16, 3))
    blocks = [layer for b in model.encoder.blocks for layer in (b.attention, b.ff)]
    for want, got in zip(parts, [model.encoder.embed, *blocks, model.head], strict=True):
        for a, b in zip(want.parameters(), got.parameters(), strict=True):
            assert torch.equal(a, b)


def rows():
    "Every distinct column `model` of the tables, by kind of model."
    files = [path for name in ("classify", "forecast", "segment") for path in (ROOT / "studies").rglob(f"{name}.csv")]
    found = defaultdict(set)
    for path in files:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            found[json.loads(row["model"])["model"]].add(row["model"])
    return found


@pytest.mark.parametrize("kind, texts", sorted(rows().items()), ids=sorted(rows()))
def test_old_rows_make_a_configuration_and_a_model(kind, texts):
    former, kinds = {"pool": "readout", "stem_kernel": "stem_width", "features": "kernel_features"}, {}
    for text in texts:
        settings = json.loads(text)
        config = ModelConfig.from_dict(settings)
        again = ModelConfig.from_dict(json.loads(str(config)))
        assert again == config and again.to_dict()["model"] == kind
        for key, value in settings.items():
            if key == "attention_options" and settings["attention"] in ("product", "sum") and "format" not in settings:
                value = {"qk_norm": False, **({"qk_gain": 1.0} if value.get("qk_norm") else {}), **value}
            if key not in ("model", "format"):
                assert json.loads(json.dumps(getattr(config, former.get(key, key)))) == value, key
        kinds[str([v for v in settings.values() if isinstance(v, str | bool | dict)])] = config
    # of those that differ in numbers alone one is enough; one of MONAI, whose import takes long, is made elsewhere
    for config in kinds.values() if kind != "resnet" else ():
        assert sum(p.numel() for p in make_model(config, device="meta").parameters()) > 0


def test_a_row_without_a_format_has_the_defaults_of_its_time():
    "Queries and keys had no norm, and where they were given one, no gain; what is written by hand has those of today."
    for options, then in (({}, {}), ({"qk_norm": True}, {"qk_gain": 1.0})):
        config = ClassifierConfig(**SMALL, attention="sum", attention_options={"qk_norm": False, **options, **then})
        told = {**json.loads(str(config)), "attention_options": options}
        assert told.pop("format") == 2 and ModelConfig.from_dict(told) == config
        assert ModelConfig.from_dict({**told, "format": 2}) != config
    for text in ({}, {"model": "encoder"}, {"attention": "sum", "attention_options": {}}):
        assert "qk_norm" not in HOTConfig.from_dict(text).attention_options
    pooled = {"attention_options": {"pool": "sum"}}         # of queries and keys, no former name
    assert ModelConfig.from_dict({"model": "encoder", **pooled}) == HOTConfig(**pooled)


DEEP = "[" * 300 + "]" * 300
DAMAGE = {
    "unknown": (lambda s: {**s, "colour": 3}, "ClassifierConfig: there is no setting 'colour'"),
    "missing": (lambda s: {k: v for k, v in s.items() if k != "heads"}, "'heads' is missing"),
    "kind": (lambda s: {**s, "model": "forest"}, "model is 'forest'; known are"),
    "kind, list": (lambda s: {**s, "model": ["classifier"]}, r"model is \['classifier'\]"),
    "no kind": (lambda s: {k: v for k, v in s.items() if k != "model"}, "model is 'model'"),
    "value": (lambda s: {**s, "dim": "wide"}, "dim is 'wide'; give a whole number"),
    "nested": (lambda s: {**s, "patch": json.loads(DEEP)}, "patch is too large; .* nested at most 16 deep"),
    "nested options": (lambda s: {**s, "attention_options": {"pool": json.loads(DEEP)}}, "options is too large"),
    "bad option": (lambda s: {**s, "attention_options": {"pool": "max"}}, "ClassifierConfig: KroneckerAttention: pool"),
    "too large": (lambda s: {**s, "dim": 2 ** 70, "heads": 2}, "ClassifierConfig: "),
    "groups": (lambda s: {**s, "attention": "axial", "attention_options": {"groups": [0] * 100_000}},
               "options is too large; at most 64 entries"),
    **{f"format {n}": (lambda s, n=n: {**s, "format": n}, "format is .* but this version knows 2; use the version")
       for n in (3, "2")},
    "of a mode": (lambda s: {**s, "attention_options": {"by_mode": {"0": {"bias": "learned"}}}},
                  "reach is None with bias='learned'; give it"),
}


def one_line(error, path):
    text = str(error.value)
    assert "\n" not in text and str(path) in text, text


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_settings_are_one_line_that_names_the_file(damage, saved, tmp_path):
    change, message = DAMAGE[damage]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=message) as error:
        load_model(tmp_path)
    one_line(error, path)


@pytest.mark.parametrize("change, message", [
    (dict(classes=7), "head.weight is .5, 16., but .7, 16. is expected"),
    (dict(depth=3), "encoder.blocks.2.* is missing"),
    (dict(depth=1), "encoder.blocks.1.* is not expected"), (dict(dim=2 ** 24, heads=2), "is expected")])
def test_weights_of_another_model_are_refused_before_memory_is_taken(change, message, saved, tmp_path):
    saved.config.replace(**change).save(tmp_path / "config.json")
    with pytest.raises(ValueError, match=f"does not fit config.json beside it: .*{message}") as error:
        load_model(tmp_path)
    one_line(error, tmp_path / "model.safetensors")


def test_settings_of_another_save_are_refused_where_all_shapes_fit(saved, tmp_path):
    "As an edit leaves them, in any setting; a file that says nothing of settings is read as before."
    other, path = saved.config.replace(dropout=0.25), tmp_path / "model.safetensors"
    other.save(tmp_path / "config.json")
    with pytest.raises(ValueError, match="was saved with other settings than config.json beside it has") as error:
        load_model(tmp_path)
    one_line(error, path)
    save_file(load_file(path), path)
    assert load_model(tmp_path).config == other


def test_settings_that_a_later_version_reads_in_another_way_are_those_of_the_weights(saved, tmp_path, monkeypatch):
    "What stands beside each other is compared as it was written, and config.json may be laid out anew."
    path, told = tmp_path / "config.json", saved.config.replace(dropout=0.25)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    monkeypatch.setattr(ModelConfig, "from_dict", classmethod(lambda cls, settings: told))
    assert load_model(tmp_path).config == told


def test_a_model_with_other_settings_does_not_take_over_ones_own(monkeypatch):
    monkeypatch.setitem(MODELS, "own", HOTClassifier)
    with pytest.raises(ValueError, match="no model has settings of the class OwnConfig; .*MODELS.'own'. = a class"):
        make_model(type("OwnConfig", (ModelConfig,), {})())


def test_numbers_of_numpy_are_numbers():
    import numpy as np
    one, two = np.int64(1), np.int64(2)
    options = {"by_mode": {one: {"window": two}}, "qk_gain": np.float32(2.0), "qk_norm": np.bool_(True)}
    config = ClassifierConfig(heads=two, patch=[two, one], causal=(np.int8(0),), dropout=np.float64(0.25),
                              attention_options=options)
    plain = ClassifierConfig(heads=2, patch=(2, 1), causal=(0,), dropout=0.25,
                             attention_options={"by_mode": {1: {"window": 2}}, "qk_gain": 2.0, "qk_norm": True})
    assert config == plain and str(config) == str(plain)
    for wrong in (np.float64(2.0), np.bool_(True), np.int64(0)):
        with pytest.raises(ValueError, match="ClassifierConfig: depth is"):
            ClassifierConfig(depth=wrong)

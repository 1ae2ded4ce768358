"""Layers replaced in models, and adapters: what they promise to code that has other plans with them."""
import copy
import itertools
import json
import time

import pytest
import torch
from layers import tensor
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close
from torch.utils.data import TensorDataset
from ways import every_line

from hot_nbdev import adapter_files, adapters
from hot_nbdev.adapter_files import adapter_state_dict, load_adapters, save_adapters
from hot_nbdev.adapters import ADAPTERS, LoRA, NdLoRA, add_adapters, merge, remove_adapters, unmerge
from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import HOTClassifier
from hot_nbdev.models import load_model as hot_load
from hot_nbdev.replacing import FlatNdLinear, nearest_square, replace_linear
from hot_nbdev.train.loop import TrainConfig, fit
from hot_nbdev.train.tasks import Classification

F64 = torch.float64
kinds = pytest.mark.parametrize("kind", ADAPTERS)
lines = every_line(adapters, adapter_files, but=["def extra_repr"])


def mlp(dtype=F64, bias=True, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 20, bias), nn.GELU(), nn.Linear(20, 6, bias)).to(dtype)


def shake(model, seed=2):
    "Random numbers in all trainable parameters."
    torch.manual_seed(seed)
    for p in model.parameters():
        if p.requires_grad:
            nn.init.normal_(p, std=0.3)
    return model


def adapted(kind, dtype=F64, **options):
    return shake(add_adapters(mlp(dtype), kind=kind, **options))


def classifier(seed=0):
    torch.manual_seed(seed)
    return HOTClassifier(ClassifierConfig(patch=(2, 2), dim=16, depth=2, heads=2, classes=3))


@pytest.mark.parametrize("how, modes, bias", [("nearest", 3, False), ("fresh", 2, True)])
def test_a_replaced_model_equals_its_dense_twin(how, modes, bias):
    cut = lambda name, linear: torch.tensor(nearest_square(linear.in_features, modes)).numpy()      # noqa: E731
    model = shake(replace_linear(mlp(bias=bias), "*", cut, how=how)[0])
    twin = nn.Sequential(model[0].layer.to_linear(), nn.GELU(), model[2].layer.to_linear())
    for batch in [(), (0,), (2, 3)]:
        assert_close(model(tensor(*batch, 12)), twin(tensor(*batch, 12)))


def test_lists_and_functions_choose_the_same_and_a_lone_layer_is_its_own_model():
    "Names and patterns are those of chapter 15a."
    for select in [["0"], lambda n, m: m.in_features == 12]:
        model, report = replace_linear(mlp(), select, how="fresh")
        assert [line["layer"] for line in report] == ["0", "whole model"]
        assert isinstance(model[0], FlatNdLinear) and isinstance(model[2], nn.Linear)
    new, report = replace_linear(nn.Linear(6, 4))
    assert isinstance(new, FlatNdLinear) and report[0]["layer"] == ""
    adapter = add_adapters(nn.Linear(6, 4), kind="lora", rank=2)
    assert isinstance(adapter, LoRA) and adapter_state_dict(adapter).keys() == {"A", "B"}
    assert type(remove_adapters(adapter)) is nn.Linear


def test_the_report_counts_each_parameter_once():
    model = nn.ModuleDict({"a": nn.Linear(12, 12), "b": nn.Linear(12, 12)})
    model["b"].weight = model["a"].weight
    model, report = replace_linear(model, how="fresh")
    assert (report[-1]["before"], report[-1]["after"]) == (144 + 24, 9 + 16 + 2 * (3 + 4))
    assert "whole model" in repr(report) and "168" in repr(report) and "relative error" in repr(report)


def untouched(model, work, says):
    "Some work is refused with these words, and leaves layers, numbers and what is trained as they were."
    before = [type(m) for m in model.modules()], {n: (p.clone(), p.requires_grad) for n, p in model.named_parameters()}
    with pytest.raises(ValueError) as e:
        work()
    assert says in str(e.value) and "\n" not in str(e.value)
    assert [type(m) for m in model.modules()] == before[0]
    for (name, p), (there, (q, trained)) in zip(model.named_parameters(), before[1].items(), strict=True):
        assert name == there and (p.is_meta or torch.equal(p, q)) and p.requires_grad == trained


def test_what_is_refused_changes_nothing():
    class Clever(nn.Linear):
        pass
    hooked = mlp()
    hooked[0].register_forward_hook(lambda *_: None)
    tied = nn.ModuleDict({"a": nn.Linear(12, 12), "b": nn.Linear(12, 12)})
    tied["b"].weight = tied["a"].weight
    for model, options, says in [       # beside those of chapter 15a
            (mlp(), dict(select="0", in_features=(3, 4), out_features=(2, 2, 5)), "in 2 and 3 modes"),
            (mlp(), dict(select=["0", "3"]), "'3' names no linear layer"), (mlp(), dict(how="exact"), "how='exact'"),
            (mlp(), dict(select=[]), "select is []; give"), (mlp(), dict(in_features=12), "in 0 and 2 modes"),
            (nn.Sequential(Clever(4, 4)), {}, "is a Clever, which may do more"), (hooked, {}, "'0' has hooks"),
            (tied, dict(select="a"), "'a' shares a parameter with 'b.weight'"),
            (tied, dict(in_features=lambda n, m: (3, 4) if n == "a" else (4, 3)), "both the same in_features"),
            (mlp().to("meta"), {}, "on the meta device"),
            *((mlp(), dict(select="0", in_features=n), "features") for n in ((3.0, 4), (12, 1, 0))),
            (add_adapters(mlp(), "0"), {}, "'0' is a NdLoRA, which may do more than an nn.Linear; leave it out")]:
        untouched(model, lambda model=model, options=options: replace_linear(model, **options), says)
    model = nn.Sequential(nn.Linear(12, 20), nn.Linear(20, 6))
    untouched(model, lambda: add_adapters(model, in_features=(3, 4)), "layer '1': NdLoRA: the layer takes 20 features")


def test_layers_whose_weight_is_read_by_others_are_served():
    "nn.MultiheadAttention and the fast path of nn.TransformerEncoderLayer read weights and call no layer."
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    adapters = shake(add_adapters(copy.deepcopy(block), kind="ndlora"))
    for model in [replace_linear(block, copy=True)[0], adapters]:
        slow = model.train()(x)
        with torch.no_grad():
            assert_close(model.eval()(x), slow.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(slow, block(x))
    slow.sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@kinds
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_merge_is_close_unmerge_exact_and_loading_takes_a_merge_apart(kind, dtype):
    model, x = adapted(kind, dtype).eval(), tensor(5, 12, dtype=dtype)
    y, state, eps = model(x), {n: t.clone() for n, t in model.state_dict().items()}, torch.finfo(dtype).eps
    assert merge(model) is model
    assert_close(model(x), y, rtol=30 * eps, atol=30 * eps)
    for found in (model.state_dict(), unmerge(merge(model)).state_dict()):      # twice is once
        assert found.keys() == state.keys() and all(torch.equal(found[n], t) for n, t in state.items())
    assert torch.equal(model(x), y)
    other = merge(shake(adapted(kind, dtype), seed=3).eval())
    other.load_state_dict(state)
    assert torch.equal(other(x), y)


@pytest.mark.parametrize("kind, trainable", [
    ("lora", ()), ("ndlora", ()), ("ndlora", "2"), ("lora", ("2.weight", "2.bias")), ("ndlora", ["2.*"])])
def test_saved_adapters_come_back_with_what_trains_beside_them_also_into_merged_ones(kind, trainable, tmp_path):
    model, x, file = adapted(kind, trainable=trainable).eval(), tensor(3, 12), tmp_path / "a.safetensors"
    assert isinstance(model[2], nn.Linear) == bool(trainable)
    y, own = model(x), adapter_state_dict(model).keys()
    assert own == {n for n, p in model.named_parameters() if p.requires_grad} and ("2.weight" in own) == bool(trainable)
    save_adapters(merge(model), file)
    other = mlp(seed=9 if trainable else 0)         # with another head
    other[0].load_state_dict(mlp()[0].state_dict())
    for target in (other, merge(adapted(kind, trainable=trainable))):
        found = load_adapters(target.eval(), file)
        assert_close(found.eval()(x), y, rtol=0, atol=0)
        assert {n for n, p in found.named_parameters() if p.requires_grad} == adapter_state_dict(found).keys() == own


def test_files_that_do_not_fit_are_refused_by_name(tmp_path):
    file, plain, headed = (tmp_path / f"{name}.safetensors" for name in "abc")
    save_adapters(adapted("lora", rank=2), file)
    save_adapters(adapted("lora", trainable="2"), headed)
    save_file({"x": torch.zeros(1)}, plain)
    wide = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 6))
    for model, path, says in [
            (mlp(), plain, "is no whole file of adapters (KeyError: 'adapters'); save_adapters writes such files"),
            (wide, file, "'0.B' is (20, 2) in the file, but must be (24, 2)"),
            (nn.Sequential(*mlp()[:2], nn.Linear(20, 7)), headed, "'2.weight' is (6, 20) in the file, but must be (7"),
            (mlp(), written(tmp_path / "d", {"0": LORA}, trainable=["2.weights"]), "'2.weights' is nothing in the"),
            (nn.Sequential(nn.Linear(12, 20)), file, "an adapter for '2', which is no linear layer here; near"),
            (add_adapters(mlp(), kind="lora", rank=2, alpha=1), file, "'0' has an adapter with"),
            (add_adapters(nn.Sequential(*mlp(), nn.Linear(6, 6)), "3"), file, "the file says None; remove_adapters")]:
        untouched(model, lambda model=model, path=path: load_adapters(model, path), says)


def test_wrong_settings_are_refused():
    "Beside those of chapter 15b."
    layer = nn.Linear(12, 8)
    for make, message in [
        (lambda: NdLoRA(layer, terms=0), "NdLoRA: base is a Linear, rank or terms 0, alpha 1.0; give"),
        (lambda: LoRA(layer, alpha=float("inf")), "alpha inf; give"),
        (lambda: LoRA(nn.GELU()), "LoRA: base is a GELU, rank or terms 8, alpha 8; give an nn.Linear"),
        (lambda: add_adapters(mlp(), rank=2), "layer '0': "),
        (lambda: add_adapters(mlp(), trainable=["0", "2"]), "all layers that select names are trainable in full"),
        (lambda: merge(adapted("lora").to("meta")), "on the meta device or offloaded; bring it to"),
    ]:
        with pytest.raises(ValueError) as e:
            make()
        assert message in str(e.value)


def test_an_adapter_is_refused_beside_another_weight(tmp_path):
    "A file keeps the first numbers of the base, and a cast keeps them; a model without numbers is not compared."
    file, old = tmp_path / "a.safetensors", tmp_path / "old.safetensors"
    save_adapters(adapted("lora", rank=2), file)
    other, near = mlp(seed=9), mlp()
    near[0].weight.data *= 1 + 2 ** -18
    for model in (other, near):
        untouched(model, lambda model=model: load_adapters(model, file), "'0' was trained beside another weight")
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    for saved, dtype in itertools.product(dtypes, dtypes):
        save_adapters(add_adapters(mlp().to(saved), kind="lora"), old)
        load_adapters(mlp().to(dtype), old)
    load_adapters(mlp(seed=9).to("meta"), file)


def written(path, settings, **head):
    "An adapter file that says what it likes."
    tensors = {"0.A": torch.zeros(2, 12), "0.B": torch.zeros(20, 2)}
    said = settings if isinstance(settings, str) else json.dumps(settings)
    head = {"base": {} if said is settings else dict.fromkeys(settings, []), "trainable": []} | head
    save_file(tensors, path, {"adapters": said} | {key: json.dumps(value) for key, value in head.items()})
    return path


LORA = dict(kind="lora", rank=2, alpha=2)
NDLORA = dict(kind="ndlora", in_features=[3, 4], out_features=[4, 5], terms=1, alpha=1.0)


@pytest.mark.parametrize("settings, message", [
    (NDLORA, "'0.terms.0.layer.weight0' is nothing in the file, but must be (4, 3)"),
    (NDLORA | dict(in_features=[10 ** 9, 4]), "layer '0': NdLoRA: the layer takes 12 features to 20, but"),
    (dict(kind="ndlora", in_features=[1] * 100_000), "the settings of '0' cannot be used"),
    (NDLORA | dict(in_features=12), "the settings of '0' cannot be used"),
    (NDLORA | dict(terms=0), "rank or terms 0, alpha 1.0; give an nn.Linear, a whole number from 1 on"),
    (LORA | dict(rank=10 ** 18), "the settings of '0' cannot be used"),
    (NDLORA | dict(in_features=[12] + 99 * [1], out_features=[20] + 99 * [1]), "in 100 and 100 modes; give as many"),
    (LORA | dict(alpha="1"), "the settings of '0' cannot be used"),
    (LORA | dict(device="cuda"), "unexpected keyword argument 'device'"),
    ({}, "the settings of '0' cannot be used"),
    (dict(kind="lora", rank=2), "they are {'kind': 'lora', 'rank': 2}, but must name all of"),
    (LORA | dict(kind="loha"), "kind is 'loha'; choose one of ('lora', 'ndlora')"),
    ({"kind": ["lora"]}, "kind is ['lora']; choose one of"),
])
def test_sizes_in_a_file_are_checked_before_anything_is_made(settings, message, tmp_path, monkeypatch):
    "Nothing that holds a number: what is made to be compared is on the meta device."
    file, model = written(tmp_path / "a.safetensors", {"0": settings}), mlp()
    for kind in ADAPTERS.values():
        def made(self, base, *options, init=kind.__init__, **more):
            assert base.weight.is_meta
            init(self, base, *options, **more)
        monkeypatch.setattr(kind, "__init__", made)
    start = time.perf_counter()
    with pytest.raises(ValueError) as e:
        load_adapters(model, file)
    assert time.perf_counter() - start < 2
    assert message in str(e.value) and str(file) in str(e.value) and "'0" in str(e.value)
    assert type(model[0]) is nn.Linear and model[0].weight.requires_grad


@pytest.mark.parametrize("settings, more", [
    *((words, {}) for words in ("", "{", "[]", "3", "null", '{"0": 3}', '{"0": null}', "[" * 100_000)),
    *(({"0": LORA}, {"base": base}) for base in (3, [], {}, {"0": 3}, {"0": ["x"]}, {"0": [None]}, {"0": [10 ** 400]})),
    *(({"0": LORA}, {"trainable": names}) for names in (3, [["2"]]))], ids=lambda v: str(v)[:20])
def test_settings_that_are_no_settings_are_one_line(settings, more, tmp_path):
    model = mlp()
    file = written(tmp_path / "a.safetensors", settings, **more)
    untouched(model, lambda: load_adapters(model, file), f"{file} is no whole file of adapters")


def test_an_adapted_model_is_saved_once_its_layers_are_plain_again(tmp_path):
    "Else the error says the way out, a folder is not begun, chapter 11e, and no random number is drawn."
    model, x = add_adapters(classifier(), "*.ff.*"), tensor(2, 6, 8, 1, dtype=torch.float32)
    assert {n for n, p in model.named_parameters() if p.requires_grad} == adapter_state_dict(model).keys()
    drawn = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"HOTClassifier.save: .* by its settings, so load_model could not read "
                       r"it; with adapters, call remove_adapters\(merge\(model\)\)"):
        model.save(tmp_path / "new")
    assert torch.equal(torch.get_rng_state(), drawn) and not (tmp_path / "new").exists()
    y = shake(model).eval()(x)
    remove_adapters(merge(model)).save(tmp_path / "new")
    assert_close(hot_load(tmp_path / "new")(x), y, rtol=1e-4, atol=1e-5)


def test_a_subclass_with_a_constructor_of_its_own_is_saved_as_before(tmp_path):
    class Own(HOTClassifier):
        def __init__(self, config, note):
            super().__init__(config)
    model = Own(classifier().config, "mine")
    model.save(tmp_path)
    assert torch.equal(hot_load(tmp_path).head.weight, model.head.weight)


def test_fit_leaves_of_an_adapted_model_its_weights_alone(tmp_path):
    "`load_model` does not take them for those of a plain one."
    model = add_adapters(classifier(), "*.ff.*", trainable="head")
    data = TensorDataset(torch.randn(8, 6, 8, 1), torch.arange(8) % 3)
    fit(model, data, data, Classification(3), TrainConfig(epochs=1, batch_size=8), tmp_path / "run")
    x = tensor(2, 6, 8, 1, dtype=torch.float32)
    with pytest.raises(FileNotFoundError, match="config.json is not there"):
        hot_load(tmp_path / "run")
    again = add_adapters(classifier(seed=3), "*.ff.*", trainable="head").eval()
    again.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    assert_close(again(x), model.eval()(x))

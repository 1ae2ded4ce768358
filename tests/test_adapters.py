"""Layers replaced in models, and adapters: what they promise to code that has other plans with them."""
import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from torch.testing import assert_close

from hot_nbdev.adapters import (
    ADAPTERS,
    FlatNdLinear,
    LoRA,
    NdLoRA,
    adapter_state_dict,
    add_adapters,
    load_adapters,
    merge,
    remove_adapters,
    replace_linear,
    save_adapters,
    unmerge,
)
from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.transformer import ClassifierConfig, HOTClassifier

F64 = torch.float64
kinds = pytest.mark.parametrize("kind", ADAPTERS)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    "Tensors are tiny: a second thread would only wait for the first."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def mlp(dtype=F64, bias=True, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 20, bias), nn.GELU(), nn.Linear(20, 6, bias)).to(dtype)


def tensor(*shape, dtype=F64, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


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


@pytest.mark.parametrize("how", ["nearest", "fresh"])
@pytest.mark.parametrize("modes", [2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_a_replaced_model_equals_its_dense_twin(how, modes, bias):
    model, _ = replace_linear(mlp(bias=bias), how=how, modes=modes)
    shake(model)
    twin = copy.deepcopy(model)
    for i in (0, 2):
        twin[i] = model[i].layer.to_linear()
    for batch in [(), (0,), (3,), (2, 3)]:
        assert_close(model(tensor(*batch, 12)), twin(tensor(*batch, 12)))


def test_gradients_of_a_replaced_model():
    model, _ = replace_linear(mlp(), how="fresh")
    assert torch.autograd.gradcheck(model, tensor(2, 12).requires_grad_())
    names, values = zip(*((n, p.detach().requires_grad_()) for n, p in model.named_parameters()), strict=True)
    assert torch.autograd.gradcheck(
        lambda *p: torch.func.functional_call(model, dict(zip(names, p, strict=True)), tensor(2, 12)), values)


def test_names_patterns_lists_and_functions_choose_the_same():
    for select in ["0", ["0"], "[0]", lambda n, m: m.in_features == 12]:
        model, report = replace_linear(mlp(), select, how="fresh")
        assert [r.name for r in report] == ["0"]
        assert isinstance(model[0], FlatNdLinear) and isinstance(model[2], nn.Linear)


def test_a_copy_leaves_the_model_alone():
    model = mlp()
    before = {n: p.clone() for n, p in model.named_parameters()}
    other, _ = replace_linear(model, copy=True)
    assert other is not model and {n for n, _ in model.named_parameters()} == before.keys()
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_a_lone_layer_is_its_own_model():
    layer = nn.Linear(6, 4)
    new, report = replace_linear(layer)
    assert isinstance(new, FlatNdLinear) and report[0].name == ""
    adapter = add_adapters(nn.Linear(6, 4), kind="lora", rank=2)
    assert isinstance(adapter, LoRA) and adapter_state_dict(adapter).keys() == {"A", "B"}
    assert type(remove_adapters(adapter)) is nn.Linear


def test_the_report_counts_each_parameter_once():
    model = nn.ModuleDict({"a": nn.Linear(12, 12), "b": nn.Linear(12, 12)})
    model["b"].weight = model["a"].weight
    model, report = replace_linear(model, how="fresh", bias="full")
    assert (report.before, report.after) == (144 + 24, 9 + 16 + 24)
    assert "whole model" in repr(report) and "168" in repr(report)


def test_what_is_refused_changes_nothing():
    class Clever(nn.Linear):
        pass
    hooked = mlp()
    hooked[0].register_forward_hook(lambda *_: None)
    tied = nn.ModuleDict({"a": nn.Linear(12, 12), "b": nn.Linear(12, 12)})
    tied["b"].weight = tied["a"].weight
    cases = [
        (mlp(), dict(select="0", factors=((3, 4), (3, 4))), "'0' takes 12 features to 20"),
        (mlp(), dict(select="0", factors=((3, 4), (2, 2, 5))), "in 2 and 3 modes"),
        (mlp(), dict(select=["0", "3"]), "'3' names no linear layer"),
        (mlp(), dict(select="1"), "'1' is a GELU, not an nn.Linear"),
        (mlp(), dict(how="exact"), "how='exact'"),
        (nn.Sequential(nn.GELU()), {}, "has no nn.Linear"),
        (nn.Sequential(Clever(4, 4)), {}, "is a Clever, which may do more"),
        (hooked, {}, "'0' has hooks"),
        (tied, dict(select="a"), "'a' shares a parameter with 'b.weight'"),
        (tied, dict(factors=lambda n, m: ((3, 4), (3, 4)) if n == "a" else ((4, 3), (4, 3))), "same factors"),
        (mlp().to("meta"), {}, "on the meta device"),
        (add_adapters(mlp(), "0"), {}, "'0' has an adapter already"),
    ]
    for model, options, message in cases:
        before = [type(m) for m in model.modules()]
        with pytest.raises(ValueError) as e:
            replace_linear(model, **options)
        assert message in str(e.value)
        assert [type(m) for m in model.modules()] == before


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


def test_feed_forward_networks_of_a_classifier_are_replaced_and_train():
    model, report = replace_linear(classifier(), "*.ff.*", how="fresh")
    assert len(report) == 4 and all(r.after < r.before / 5 for r in report)
    x, y = tensor(8, 6, 8, 1, dtype=torch.float32), torch.arange(8) % 3
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    for _ in range(15):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def models():
    yield "replaced", replace_linear(mlp(torch.float32), how="fresh")[0]
    for kind in ADAPTERS:
        yield kind, adapted(kind, torch.float32)
        yield f"{kind}, merged", merge(adapted(kind, torch.float32).eval())


@pytest.mark.parametrize("name", [name for name, _ in models()])
def test_compile_export_copy_pickle_autocast(name):
    model, x = dict(models())[name].eval(), tensor(3, 12, dtype=torch.float32)
    y = model(x)
    torch._dynamo.reset()
    assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), y)
    assert_close(torch.export.export(model, (x,)).module()(x), y)
    assert_close(copy.deepcopy(model)(x), y)
    assert_close(pickle.loads(pickle.dumps(model))(x), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(x)
    assert low.dtype == torch.bfloat16
    assert_close(low.float(), y, rtol=0.05, atol=0.1 * y.abs().max().item())
    assert_close(model.double()(x.double()), y.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, _ in models()])
def test_whole_models_survive_safetensors(name, tmp_path):
    model, other = dict(models())[name].eval(), dict(models())[name].eval()
    save_model(model, tmp_path / "m.safetensors")
    for p in other.parameters():
        nn.init.zeros_(p)
    load_model(other, tmp_path / "m.safetensors")
    x = tensor(3, 12, dtype=torch.float32)
    assert_close(other(x), model(x), rtol=1e-5, atol=1e-6)


@kinds
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_merge_is_close_and_unmerge_exact(kind, dtype):
    model, x = adapted(kind, dtype).eval(), tensor(5, 12, dtype=dtype)
    y, state = model(x), {n: t.clone() for n, t in model.state_dict().items()}
    assert merge(model) is model
    eps = torch.finfo(dtype).eps
    assert_close(model(x), y, rtol=30 * eps, atol=30 * eps)
    found = model.state_dict()
    assert found.keys() == state.keys() and all(torch.equal(found[n], t) for n, t in state.items())
    merge(model)                                                # twice is once
    assert all(torch.equal(t, state[n]) for n, t in unmerge(model).state_dict().items())
    assert torch.equal(model(x), y)
    assert not any(p.requires_grad for n, p in model.named_parameters() if "base" in n)


@kinds
def test_loading_takes_a_merge_apart(kind):
    one, two, x = adapted(kind).eval(), add_adapters(mlp(), kind=kind).eval(), tensor(4, 12)
    merge(two)
    two.load_state_dict(one.state_dict())
    assert_close(two(x), one(x))


@kinds
def test_merged_adapters_do_not_train(kind):
    model = merge(adapted(kind)).train()
    with pytest.raises(ValueError, match="merged and would not train; call unmerge"):
        model(tensor(2, 12))


@kinds
def test_only_the_adapters_train_and_start_at_nothing(kind):
    model, x = add_adapters(mlp(), kind=kind), tensor(7, 12)
    before = {n: p.clone() for n, p in model.named_parameters()}
    assert torch.equal(model(x), mlp()(x))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    for n, p in model.named_parameters():
        assert torch.equal(p, before[n]) == ("base" in n), n
    assert adapter_state_dict(model).keys() == {n for n, p in model.named_parameters() if p.requires_grad}


@kinds
def test_dropout_acts_on_the_update_in_training_alone(kind):
    layer, x = shake(ADAPTERS[kind](nn.Linear(12, 8, dtype=F64), dropout=1.0)), tensor(3, 12)
    assert torch.equal(layer(x), layer.base(x))
    assert not torch.equal(layer.eval()(x), layer.base(x))


def test_several_terms_reach_any_matrix():
    "With as many terms as the rearrangement has rank, the update of a sum of Kronecker products is anything."
    torch.manual_seed(0)
    layer, x = NdLoRA(nn.Linear(6, 4, dtype=F64), (2, 3), (2, 2), terms=4), torch.eye(6, dtype=F64)
    target = torch.randn(6, 4, dtype=F64)
    optimizer = torch.optim.LBFGS(layer.own_parameters(), max_iter=300, line_search_fn="strong_wolfe",
                                  tolerance_grad=1e-9, tolerance_change=1e-14)

    def loss():
        optimizer.zero_grad()
        value = (layer(x) - layer.base(x) - target).square().sum()
        value.backward()
        return value
    optimizer.step(loss)
    assert loss().item() < 1e-8
    assert torch.linalg.matrix_rank(layer.matrix()) == layer.max_rank == 4


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_any_one_factor_may_start_at_zero(zero):
    layer = NdLoRA(nn.Linear(12, 12), modes=3, zero=zero)
    layer(torch.randn(2, 12)).square().sum().backward()
    grads = [bool(W.grad.any()) for W in layer.terms[0].layer.weights]
    assert grads == [m == zero for m in range(3)]


@kinds
def test_saved_adapters_come_back(kind, tmp_path):
    model, x, file = adapted(kind).eval(), tensor(3, 12), tmp_path / "a.safetensors"
    y = model(x)
    for written in (model, merge(copy.deepcopy(model))):
        save_adapters(written, file)
        assert load_file(file).keys() == adapter_state_dict(model).keys()
        for target in (mlp(), add_adapters(mlp(), kind=kind), merge(adapted(kind))):
            found = load_adapters(target.eval(), file)
            assert_close(found.eval()(x), y, rtol=0, atol=0)
            trainable = {n for n, p in found.named_parameters() if p.requires_grad}
            assert trainable == adapter_state_dict(found).keys()


def test_files_that_do_not_fit_are_refused_by_name(tmp_path):
    file, plain = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_adapters(adapted("lora", rank=2), file)
    save_file({"x": torch.zeros(1)}, plain)
    wide = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 6))
    cases = [
        (mlp(), plain, "holds no adapters"),
        (wide, file, "'0.B' is (20, 2) in the file, but must be (24, 2)"),
        (nn.Sequential(nn.Linear(12, 20)), file, "an adapter for '2', which is no linear layer here; near"),
        (add_adapters(mlp(), kind="lora", rank=3), file, "'0' has an adapter with"),
        (add_adapters(mlp(), kind="lora", rank=2, alpha=1), file, "'0' has an adapter with"),
        (add_adapters(nn.Sequential(*mlp(), nn.Linear(6, 6)), "3"), file, "'3' has an adapter, but the file"),
    ]
    for model, path, message in cases:
        before = {n: (p.clone(), p.requires_grad) for n, p in model.named_parameters()}
        with pytest.raises(ValueError) as e:
            load_adapters(model, path)
        assert message in str(e.value)
        after = {n: (p, p.requires_grad) for n, p in model.named_parameters()}
        assert after.keys() == before.keys()
        assert all(torch.equal(after[n][0], p) and after[n][1] == g for n, (p, g) in before.items())


def test_wrong_settings_are_refused():
    layer = nn.Linear(12, 8)
    for make, message in [
        (lambda: LoRA(layer, rank=0), "rank must be at least 1"),
        (lambda: NdLoRA(layer, terms=0), "terms must be at least 1"),
        (lambda: NdLoRA(layer, (3, 4), (3, 3)), "the layer takes 12 features to 8, but in_factors (3, 4)"),
        (lambda: NdLoRA(layer, (3, 4), (2, 2, 2)), "in 2 and 3 modes"),
        (lambda: LoRA(nn.GELU()), "base must be an nn.Linear, but is a GELU"),
        (lambda: add_adapters(mlp(), rank=2), "layer '0': "),
        (lambda: merge(mlp()), "has no adapters"),
        (lambda: FlatNdLinear(NdLinear((2, 3), (2, 2)))(torch.zeros(5)), "must have 6 features in its last"),
    ]:
        with pytest.raises(ValueError) as e:
            make()
        assert message in str(e.value)


def test_adapters_of_shared_layers_and_tied_weights():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = nn.Linear(6, 6)
            self.embed, self.out = nn.Embedding(5, 6), nn.Linear(6, 5)
            self.out.weight = self.embed.weight

        def forward(self, i):
            return self.out(self.b(self.a(self.embed(i)).relu()))
    torch.manual_seed(0)
    model, i = shake(add_adapters(Twice(), kind="lora", rank=2)).eval(), torch.arange(5)
    assert model.a is model.b and model.out.base.weight is model.embed.weight
    y, table = model(i), model.embed.weight.clone()
    assert_close(merge(model)(i), y)
    model = remove_adapters(model)
    assert_close(model(i), y)
    assert model.a is model.b and torch.equal(model.embed.weight, table)

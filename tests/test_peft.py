"""Kronecker adapters as a method of PEFT (examples/peft_method.py): they train, are saved, loaded, merged and
switched as PEFT's own are."""
import copy
import importlib
import json
import pickle
import sys

import pytest
import torch
from forks import fresh, run
from scripts import load
from torch import nn
from torch.testing import assert_close

from hot_nbdev.adapters import NdLoRA
from hot_nbdev.kronecker import kron
from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import make_model
from hot_nbdev.replacing import nearest_square

TARGETS = ["to_q", "to_v", "up"]


@pytest.fixture
def method():
    "The example, which has the functions of PEFT that it needs."
    return pytest.importorskip("peft_method", reason='needs PEFT: pip install "peft>=0.21"')


def model(seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return make_model(ClassifierConfig(patch=(2, 2), dim=16, depth=2, heads=2, classes=3), dtype=dtype).eval()


X = torch.randn(2, 6, 8, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def adapted(method, base, target_modules=TARGETS, **settings):
    torch.manual_seed(1)
    return method.get_peft_model(base, method.NdLoraConfig(target_modules=target_modules, **settings)).eval()


def test_it_starts_as_the_model_and_trains_the_adapters_alone(method):
    adapted_model = adapted(method, model(), terms=2)
    assert_close(adapted_model(X), model()(X), rtol=0, atol=0)
    adapted_model.train()(X).square().sum().backward()
    torch.optim.SGD(adapted_model.parameters(), 0.1).step()
    trained = {n for n, p in adapted_model.named_parameters() if p.requires_grad}
    assert trained and all("ndlora_terms.default" in n for n in trained)
    old = dict(model().named_parameters())
    for name, p in adapted_model.named_parameters():
        if name not in trained:
            assert p.grad is None and p.equal(old[name.removeprefix("base_model.model.").replace("base_layer.", "")])
    with adapted_model.disable_adapter():
        assert_close(adapted_model.eval()(X), model()(X), rtol=0, atol=0)
    assert (adapted_model(X) - model()(X)).abs().max() > 1e-4


@pytest.mark.parametrize("settings", [
    dict(terms=3, alpha=2.5), dict(modes=3), dict(in_features=[2, 8], out_features=[16, 1])])
def test_the_update_is_that_of_the_definition_and_of_the_library(method, settings):
    "y = W x + b + alpha / R · Σ (W_1 ⊗ ⋯ ⊗ W_N) x, as written out, and as NdLoRA has it."
    torch.manual_seed(0)
    linear = nn.Linear(16, 16).double()
    W, b, x = linear.weight.detach().clone(), linear.bias.detach().clone(), torch.randn(5, 16, dtype=torch.float64)
    modes = settings.get("modes", 2)
    sizes = {k: settings.get(k, nearest_square(16, modes)) for k in ("in_features", "out_features")}
    own = NdLoRA(copy.deepcopy(linear), **sizes, **{k: settings[k] for k in settings.keys() & {"terms", "alpha"}})
    net = adapted(method, nn.Sequential(linear), ["0"], init_weights=False, **settings)
    layer = net.base_model.model[0]
    D = sum(kron(*(p.detach() for p in term.layer.weights)) for term in layer.ndlora_terms["default"])
    D = settings.get("alpha", 1.0) / settings.get("terms", 1) * D
    assert_close(net(x), x @ (W + D).T + b, rtol=0, atol=1e-12)
    own.terms.load_state_dict(layer.ndlora_terms["default"].state_dict())
    assert_close(net(x), own(x), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == sum(p.numel() for p in own.own_parameters())


def test_saved_and_loaded(method, tmp_path):
    "One safetensors file and settings; a fresh model becomes the one that was saved."
    first = adapted(method, model(), terms=2, init_weights=False, modules_to_save=["head"])
    with torch.no_grad():
        first.base_model.model.head.modules_to_save["default"].weight.add_(1)
    y = first(X)
    first.save_pretrained(tmp_path)
    written = {p.name for p in tmp_path.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= written and "adapter_model.bin" not in written
    assert json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"] == "NDLORA"
    again = method.PeftModel.from_pretrained(model(), tmp_path).eval()
    assert_close(again(X), y, rtol=0, atol=1e-12)
    assert type(method.PeftConfig.from_pretrained(tmp_path)) is method.NdLoraConfig
    cheap = method.PeftModel.from_pretrained(model(), tmp_path, low_cpu_mem_usage=True, is_trainable=True).eval()
    assert_close(cheap(X), y, rtol=0, atol=1e-12)
    assert any(p.requires_grad for p in cheap.parameters())


FRESH = """
import pickle, sys, torch
sys.modules['torchvision'] = None       # transformers imports one, and needs none
net = pickle.load(open('net.pickle', 'rb'))
print(*net(torch.ones(4, dtype=torch.float64)).tolist(), type(net.peft_config['default']).__name__)

from transformers import Trainer, TrainingArguments
from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import load_model, make_model
class WithLoss(torch.nn.Sequential):
    def forward(self, x, labels):
        scores = self[0](x)
        return {'loss': torch.nn.functional.cross_entropy(scores, labels), 'logits': scores}

model = make_model(ClassifierConfig(patch=(2, 2), dim=8, depth=1, heads=2, classes=3))
data = [{'x': torch.randn(4, 4, 1), 'labels': torch.tensor(i % 3)} for i in range(6)]
before = model.head.weight.detach().clone()
options = TrainingArguments('run', max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy='no')
Trainer(WithLoss(model), options, train_dataset=data).train()
model.save('model')
print(model.head.weight.equal(before), load_model('model').head.weight.equal(model.head.weight))
"""


def test_a_fresh_process_loads_a_pickle_and_trains_a_module_that_holds_a_model(method, tmp_path):
    """The trainer of transformers sets an attribute of `model.config`, which settings refuse; so it is given a model
    with a loss around it."""
    net = adapted(method, nn.Sequential(nn.Linear(4, 6)).double(), ["0"], init_weights=False)
    (tmp_path / "net.pickle").write_bytes(pickle.dumps(net))
    first, *_, trained = (line.split() for line in fresh(FRESH, tmp_path).splitlines())
    assert first.pop() == "NdLoraConfig" and trained == ["False", "True"]
    want = net(torch.ones(4, dtype=torch.float64)).tolist()
    assert [float(v) for v in first] == pytest.approx(want, rel=0, abs=1e-12)


class Eight(nn.Linear):
    "A linear layer whose weight has eight bits, as libraries that quantize make them."
    def __init__(self, dtype):
        super().__init__(4, 6)
        self.weight = nn.Parameter((20 * self.weight.data).to(dtype), requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype) / 20, self.bias)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_bases_of_eight_bits_are_adapted(method, dtype, tmp_path):
    base, x = Eight(dtype), torch.randn(5, 4)
    net = adapted(method, nn.Sequential(copy.deepcopy(base)), ["0"])
    assert_close(net(x), base(x), rtol=0, atol=0)
    own = [p for p in net.parameters() if p.requires_grad]
    assert {p.dtype for p in own} == {torch.float32}
    net(x).square().sum().backward()
    with torch.no_grad():
        for p in own:
            p += 0.3 * torch.randn_like(p) + p.grad
    y = net(x)
    assert (y - base(x)).abs().max() > 1e-3
    net.save_pretrained(tmp_path)
    again = method.PeftModel.from_pretrained(nn.Sequential(copy.deepcopy(base)), tmp_path)
    assert_close(again(x), y, rtol=0, atol=1e-6)
    if dtype == torch.int8:
        with pytest.raises(ValueError, match="a weight of torch.int8 cannot be merged; load the base in full"):
            net.merge_adapter()


def test_merging_equals_the_adapted_model_and_leaves_plain_layers(method):
    "Also of two adapters, of which each acts and trains alone until both are active."
    net = adapted(method, model(), terms=2, modes=3, init_weights=False)
    y = net(X)
    assert_close(copy.deepcopy(net).unload()(X), model()(X), rtol=0, atol=0)
    net.merge_adapter()
    with net.disable_adapter():
        assert_close(net(X), model()(X), rtol=0, atol=0)
    net.add_adapter("second", method.NdLoraConfig(target_modules=["to_v", "down"], init_weights=False))
    assert_close(net(X), y, rtol=0, atol=0)
    assert not any(p.requires_grad for n, p in net.named_parameters() if "ndlora_terms.second" in n)
    net.set_adapter("second")
    trained = [n for n, p in net.named_parameters() if p.requires_grad]
    assert trained and all("ndlora_terms.second" in n for n in trained)
    assert (net(X) - y).abs().max() > 1e-3
    net.base_model.set_adapter(["default", "second"])
    both, layer = net(X), net.base_model.model.encoder.blocks[0].ff.up
    net.merge_adapter()
    assert_close(net(X), both, rtol=0, atol=1e-12)
    net.unmerge_adapter()                       # two are taken apart exactly
    assert layer.base_layer.weight.equal(model().encoder.blocks[0].ff.up.weight) and net(X).equal(both)
    net.delete_adapter("second")
    net.set_adapter("default")
    merged = net.merge_and_unload(safe_merge=True)
    assert_close(merged(X), y, rtol=0, atol=1e-12)
    assert [type(m) for m in merged.modules()] == [type(m) for m in model().modules()]
    assert merged.state_dict().keys() == model().state_dict().keys()


def test_taking_a_merge_apart_is_exact_also_in_half_precision(method):
    base = model(dtype=torch.bfloat16)
    before = {n: p.clone() for n, p in base.named_parameters()}
    net = adapted(method, base, init_weights=False)
    for _ in range(3):
        net.merge_adapter()
        up = net.base_model.model.encoder.blocks[0].ff.up.base_layer
        assert not up.weight.equal(before["encoder.blocks.0.ff.up.weight"])
        net.unmerge_adapter()
    for name, p in net.base_model.model.named_parameters():
        if "ndlora" not in name:
            assert p.equal(before[name.replace("base_layer.", "")]), name
    x = X.bfloat16()
    assert net(x).dtype == torch.bfloat16
    assert_close(net.merge_and_unload()(x).float(), net(x).float(), rtol=0.05, atol=0.05)


def test_lokr_of_peft_is_the_form_of_the_chapter_on_kin(method):
    from peft import LoKrConfig, inject_adapter_in_model
    linear = nn.Linear(24, 12, bias=False).double()
    W0 = linear.weight.detach().clone()
    config = LoKrConfig(r=1, alpha=1, target_modules=["0"], decompose_factor=3, init_weights=False)
    peer = inject_adapter_in_model(config, nn.Sequential(linear)).double()
    W1, A, B = (peer[0].get_parameter(f"lokr_{name}.default").detach() for name in ("w1", "w2_a", "w2_b"))
    x = torch.randn(8, 24, dtype=torch.float64)
    assert_close(load("kin").forms()["lokr"](x.reshape(8, W1.shape[1], -1), W0, W1, A, B), peer(x))
    assert_close(peer(torch.eye(24).double()).T - W0, kron(W1, A @ B))


@pytest.mark.parametrize("settings,says", [
    (dict(terms=0), "NdLoraConfig: terms is 0, but must be a whole number from 1 on"),
    (dict(modes=1), "NdLoraConfig: modes is 1, but must be a whole number from 2 on"),
    (dict(in_features=[3, 5]), r"NdLoraConfig: the layer takes 16 features to"),
    (dict(target_modules=["embed"]), "NdLora: 'encoder.embed' is a PatchEmbed, but must be an nn.Linear"),
])
def test_errors_say_what_was_wanted(method, settings, says):
    with pytest.raises(ValueError, match=says):
        adapted(method, model(), **settings)


def test_a_weight_that_is_not_finite_is_not_merged(method):
    net = adapted(method, model(), ["head"], init_weights=False)
    with torch.no_grad():
        net.base_model.model.head.ndlora_terms["default"][0].layer.weights[0].fill_(float("inf"))
    with pytest.raises(ValueError, match="adapter 'default' the merged weight is not finite"):
        net.merge_adapter(safe_merge=True)


def test_a_torchvision_for_another_torch_is_no_hindrance(method, tmp_path):
    "Such a one raises when it is imported, and PEFT would with it; as None it does not (a fresh process, above)."
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator nms does not exist')")

    def work():
        for name in ("torchvision", "peft_method"):
            sys.modules.pop(name, None)
        sys.path.insert(0, str(tmp_path))
        importlib.import_module("peft_method")
        print(sys.modules["torchvision"])
    assert run(tmp_path / "said", work) == (0, "None\n")

"""Kronecker adapters as a method of the library PEFT, which then finds layers, trains, saves, loads and merges them.

To use it, put this file beside your program and `import peft_method` before adapters are made or loaded:
it makes the method known to PEFT under the name 'NDLORA'. Needs PEFT 0.21 or later: pip install "peft>=0.21".
"""
import copy
import sys
import tempfile
from dataclasses import dataclass

import torch
from torch import nn

from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.replacing import FlatNdLinear, nearest_square, split_features

try:                                        # PEFT imports transformers, which imports torchvision where it finds one:
    import torchvision  # noqa: F401        # one that was built for another torch fails, and none at all is needed
except (ImportError, RuntimeError, AttributeError, OSError):
    sys.modules["torchvision"] = None

from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING, PeftConfig, PeftModel, get_peft_model
from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer, check_adapters_to_merge


class Name(str):
    "The name of a method, as PEFT asks for it."
    value = name = property(str.__str__)


@dataclass
class NdLoraConfig(PeftConfig):
    "Settings: ΔW = alpha / terms · Σ W_1 ⊗ ⋯ ⊗ W_N."
    terms: int = 1                              # number of Kronecker products
    modes: int = 2                              # factors of each, of sizes nearest to equal
    in_features: list[int] | None = None        # (D_1, …, D_N), where all chosen layers have these
    out_features: list[int] | None = None       # (H_1, …, H_N)
    alpha: float = 1.0
    init_weights: bool = True                   # start as the model is; False: with random updates
    target_modules: list[str] | str | None = None   # as in PEFT: names, a pattern, or 'all-linear'
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    modules_to_save: list[str] | None = None    # what trains in full, and is saved with the adapters

    def __post_init__(self):
        super().__post_init__()
        self.peft_type = Name("NDLORA")
        for name, least in (("terms", 1), ("modes", 2)):
            if type(n := getattr(self, name)) is not int or n < least:
                raise ValueError(f"NdLoraConfig: {name} is {n!r}, but must be a whole number from {least} on")
        for name in ("target_modules", "exclude_modules"):
            if isinstance(getattr(self, name), list):
                setattr(self, name, set(getattr(self, name)))


class NdLoraLayer(nn.Module, BaseTunerLayer):
    "A linear layer with Kronecker updates beside it, by name; PEFT keeps all adapters of a layer in one module."
    adapter_layer_names, other_param_names = ("ndlora_terms",), ("scaling",)

    def __init__(self, base_layer: nn.Module, adapter_name: str, config: NdLoraConfig):
        super().__init__()
        self.base_layer, self.scaling, self.merged_adapters, self.before = base_layer, {}, [], []
        self.ndlora_terms = nn.ModuleDict()
        linear = self.get_base_layer()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._disable_adapters, self._active_adapter = False, adapter_name
        self.update_layer(adapter_name, config)

    def update_layer(self, adapter_name: str, config: NdLoraConfig) -> None:
        "Add an adapter of this name. Its last factors start at zero, so that the model begins as it was."
        linear, sizes = self.get_base_layer(), (config.in_features, config.out_features)
        if not any(sizes):
            sizes = [nearest_square(n, config.modes) for n in (self.in_features, self.out_features)]
        D, H = split_features("NdLoraConfig: the layer", linear, *sizes)
        W = linear.weight               # beside weights of 8 bits the factors have 32
        dtype = W.dtype if W.dtype.is_floating_point and W.element_size() > 1 else torch.float32
        terms = [FlatNdLinear(NdLinear(D, H, bias=False, device=W.device, dtype=dtype)) for _ in range(config.terms)]
        for term in terms if config.init_weights else ():
            nn.init.zeros_(term.layer.weights[-1])
        self.ndlora_terms[adapter_name] = nn.ModuleList(terms)
        self.scaling[adapter_name] = config.alpha / config.terms
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.ndlora_terms[adapter_name].to(dtype=dtype)         # PEFT has given them the dtype of the weight
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def get_delta_weight(self, adapter: str) -> torch.Tensor:   # (H, D)
        return self.scaling[adapter] * sum(term.weight for term in self.ndlora_terms[adapter])

    def forward(self, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        if self.disable_adapters and self.merged:
            self.unmerge()
        y = self.base_layer(x, *args, **kwargs)
        for name in () if self.disable_adapters or self.merged else self.active_adapters:
            if name in self.ndlora_terms:
                terms = self.ndlora_terms[name]
                t = self._cast_input_dtype(x, next(terms.parameters()).dtype)
                y = y + (self.scaling[name] * sum(term(t) for term in terms)).to(y.dtype)
        return y

    @torch.no_grad()
    def merge(self, safe_merge: bool = False, adapter_names: list | None = None) -> None:
        "Add the update to the weight, rounded once; the weight from before is kept, so that taking it apart is exact."
        linear = self.get_base_layer()
        if not linear.weight.is_floating_point():
            raise ValueError(f"NdLora: a weight of {linear.weight.dtype} cannot be merged; load the base in full "
                             "precision")
        for name in check_adapters_to_merge(self, adapter_names):
            if name in self.ndlora_terms:
                W, D = linear.weight.data, self.get_delta_weight(name)
                merged = (W.to(torch.promote_types(D.dtype, torch.float32)) + D).to(W.dtype)
                if safe_merge and not merged.isfinite().all():
                    raise ValueError(f"NdLora: with the adapter {name!r} the merged weight is not finite; train it "
                                     "again, or leave it out")
                self.before.append(W)
                linear.weight.data = merged
                self.merged_adapters.append(name)

    def unmerge(self) -> None:
        if self.before:
            self.get_base_layer().weight.data = self.before[0]
        self.before, self.merged_adapters = [], []


class NdLoraModel(BaseTuner):
    "What PEFT asks of a method: put an adapter at a layer."
    prefix, target_module_mapping, tuner_layer_cls = "ndlora_", {}, NdLoraLayer

    def _create_and_replace(self, config, adapter_name: str, target: nn.Module, target_name: str, parent: nn.Module,
                            current_key: str, **_) -> None:
        if isinstance(target, NdLoraLayer):
            return target.update_layer(adapter_name, config)
        linear = target.get_base_layer() if hasattr(target, "get_base_layer") else target
        if not isinstance(linear, nn.Linear):
            raise ValueError(f"NdLora: {current_key!r} is a {type(linear).__name__}, but must be an nn.Linear; name "
                             "others in target_modules")
        layer = NdLoraLayer(target, adapter_name, config)
        self._replace_module(parent, target_name, layer, target)


# PEFT's `register_peft_method` takes only names of its own list, so the method enters itself into the public tables.
PEFT_TYPE_TO_CONFIG_MAPPING[Name("NDLORA")] = NdLoraConfig
PEFT_TYPE_TO_TUNER_MAPPING[Name("NDLORA")] = NdLoraModel
PEFT_TYPE_TO_PREFIX_MAPPING[Name("NDLORA")] = NdLoraModel.prefix


def main():
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    model = get_peft_model(copy.deepcopy(base), NdLoraConfig(target_modules=["0", "2"], terms=2))
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    optimizer, losses = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2), []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(nn.functional.mse_loss(model(x), y))
        losses[-1].backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(base, folder)
    merged = again.merge_and_unload()
    assert torch.allclose(merged(x), model(x), atol=1e-5) and type(merged[0]) is nn.Linear
    model.print_trainable_parameters()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, saved, loaded and merged")


if __name__ == "__main__":
    main()

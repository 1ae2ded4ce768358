"""A small adapter on a trained network: only it and the new head learn, and only they are saved."""
import copy
import tempfile

import torch
from torch import nn

from hot_nbdev.adapter_files import load_adapters, save_adapters
from hot_nbdev.adapters import add_adapters

torch.manual_seed(0)
trained = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
x, y = torch.randn(256, 16), torch.randint(4, (256,))
model = add_adapters(copy.deepcopy(trained), ["0", "2"], "ndlora", terms=2, trainable=["4"])     # the head stays open
learning = [name for name, p in model.named_parameters() if p.requires_grad]


def loss(model):
    return nn.functional.cross_entropy(model(x), y)


before = loss(model).item()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
for _ in range(40):
    optimizer.zero_grad()
    value = loss(model)
    value.backward()
    optimizer.step()
count = [sum(p.numel() for p in model.parameters() if p.requires_grad or not own) for own in (True, False)]
print(f"{count[0]} of {count[1]} numbers learn; loss {before:.3f} -> {loss(model).item():.3f}")
assert loss(model).item() < before and all("4." in name or "terms" in name for name in learning)
with tempfile.TemporaryDirectory() as folder:
    save_adapters(model, f"{folder}/adapters.safetensors")
    again = load_adapters(copy.deepcopy(trained), f"{folder}/adapters.safetensors")
again[4].load_state_dict(model[4].state_dict())
assert torch.allclose(again(x), model(x), atol=1e-6)

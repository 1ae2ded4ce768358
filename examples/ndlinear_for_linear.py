"""NdLinear in the place of a dense layer: the nearest one first, then trained on."""
import torch
from torch import nn

from hot_nbdev import NdLinear

torch.manual_seed(0)
dense = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
x, y = torch.randn(512, 64), torch.randn(512, 16) * 0.1
thin = NdLinear.from_linear(dense[0], in_features=(8, 8), out_features=(8, 8))      # 64 -> 64 as 8·8 -> 8·8
model = nn.Sequential(nn.Unflatten(-1, (8, 8)), thin, nn.ReLU(), nn.Flatten(-2), dense[2])
count = lambda layer: sum(p.numel() for p in layer.parameters())  # noqa: E731


def loss():
    return nn.functional.mse_loss(model(x), y)


before = loss().item()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for _ in range(30):
    optimizer.zero_grad()
    value = loss()
    value.backward()
    optimizer.step()
print(f"{count(dense[0])} -> {count(thin)} parameters; loss {before:.3f} -> {loss().item():.3f}")
assert count(thin) < count(dense[0]) / 10 and loss().item() < before
back = thin.to_linear()             # and as a dense layer again
assert torch.allclose(back(x), thin(x.unflatten(-1, (8, 8))).flatten(-2), atol=1e-5)

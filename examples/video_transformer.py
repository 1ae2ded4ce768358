"""A video Transformer that is causal in time: each frame predicts the next one of a moving field."""
import torch
from torch import nn

from hot_nbdev import KroneckerAttention


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = KroneckerAttention(dim, heads, order=3, causal=(0,))
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ff(self.norm2(x))


def videos(count, steps=5, size=6):     # fields that move by one row in each step
    first = torch.randn(count, 1, size, size)
    return torch.cat([first.roll(t, 2) for t in range(steps)], 1)[..., None]    # (count, steps, size, size, 1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), Block(16, 2), Block(16, 2), nn.Linear(16, 1))
optimizer, losses = torch.optim.AdamW(model.parameters(), 3e-3), []
for _ in range(60):
    x = videos(8)
    loss = nn.functional.mse_loss(model(x[:, :-1]), x[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
x, changed = videos(2), videos(2)
changed[:, :3] = x[:, :3]               # the same past, another future
same = torch.equal(model(x)[:, :3], model(changed)[:, :3])
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; the future changes nothing before it: {same}")
assert same and losses[-1] < losses[0]

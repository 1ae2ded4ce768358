"""A compiled layer gives what the plain one gives, and a step on two processes what a step on one gives."""
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hot_nbdev import KroneckerAttention

x, y = torch.randn(2, 4, 5, 6, 16, generator=torch.Generator().manual_seed(0))


def layer():
    torch.manual_seed(1)
    return KroneckerAttention(16, 2, order=2)


def gradient(model, x, y):
    nn.functional.mse_loss(model(x), y).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def work(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    found = gradient(DistributedDataParallel(layer()), x[rank::2], y[rank::2])      # half of the batch each
    if rank == 0:
        torch.save(found, file + ".pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    one = gradient(layer(), x, y)
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(work, (f"{folder}/meet",), nprocs=2)
        two = torch.load(f"{folder}/meet.pt", weights_only=True)
    far = (torch.compile(layer(), fullgraph=True)(x) - layer()(x)).abs().max().item()
    print(f"gradients agree: {torch.allclose(one, two, atol=1e-6)}; compiled is off by {far:.0e}")
    assert torch.allclose(one, two, atol=1e-6) and far < 1e-5

"""One volume in two processes, a slab for each: `torchrun --nproc_per_node 2 examples/large_volume.py`; or on machines
that meet at one of them: `torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint HOST:29500 …`."""
import copy
import os
import tempfile

import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh

from hot_nbdev import HOTSegmenter, SegmenterConfig
from hot_nbdev.sharding import local_part, shard_modes, sum_gradients, whole_tensor

torch.manual_seed(0)                                        # the same in each process
x, y = torch.randn(2, 1, 17, 12, 8, 1).double()             # (batch, n1, n2, n3, channels)
model = HOTSegmenter(SegmenterConfig(patch=(1, 2, 2), dim=16, heads=2, classes=1, positions="sincos")).double()


def trained(model, x, target, add_up=lambda model: None):
    for _ in range(3):
        model.zero_grad()
        ((model(x) - target).square().sum() / y.numel()).backward()         # a sum: those of all slabs add up
        add_up(model)
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model(x).detach()


def work(rank=-1, meeting=None, count=-1):                  # torchrun says itself where all meet
    distributed.init_process_group("gloo", meeting, rank=rank, world_size=count)
    mesh, axes = init_device_mesh("cpu", (distributed.get_world_size(),), mesh_dim_names=("slabs",)), {1: "slabs"}
    sharded = shard_modes(copy.deepcopy(model), mesh, {0: "slabs"})
    slab = trained(sharded, *(local_part(t, mesh, axes) for t in (x, y)), lambda model: sum_gradients(model, mesh))
    off = (whole_tensor(slab, mesh, axes) - trained(model, x, y)).abs().max().item()
    assert off < 1e-10
    print(f"this process has {slab.shape[1]} of {x.shape[1]} slices; largest difference from one process {off:.0e}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    work() if "RANK" in os.environ else multiprocessing.spawn(work, (f"file://{tempfile.mkdtemp()}/meet", 2), nprocs=2)

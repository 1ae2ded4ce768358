"""What the processes of test_sharding.py do: each compares its part with the whole, and notes how far it is off."""
import contextlib
import copy
import itertools
import re
from math import prod

import pytest
import torch
from layers import DIM, HEADS, random_mask, tensor
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from ways import Lines

from hot_nbdev import sharding
from hot_nbdev.kernels import PositiveRandomFeatures, elu_features
from hot_nbdev.kronecker_attention import KroneckerAttention
from hot_nbdev.model_config import HOTConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.names import kronecker
from hot_nbdev.ndlinear import NdLinear
from hot_nbdev.positions import LearnedPositions, Rotary
from hot_nbdev.replacing import FlatNdLinear, NdFeedForward
from hot_nbdev.sharding import local_part, part_sizes, sent, shard_modes, sum_gradients, whole_tensor
from hot_nbdev.transformer import Block, FeedForward

KERNELS = {"softmax": None, "elu": elu_features, "random": PositiveRandomFeatures(DIM // HEADS, 3).double()}
# sizes, causal modes, mode -> axis of the mesh of 2 × 2 processes, or of 4 ("all")
CUTS = [((5,), (), {0: "all"}), ((5, 3), (), {0: "all"}), ((2, 7), (), {1: "all"}), ((5, 3, 4), (), {1: "a"}),
        ((5, 3, 4), (), {2: "a", 0: "b"}), ((4, 6, 2), (0,), {1: "all"}), ((5, 3, 4), (0,), {0: "all"}),
        ((5, 3, 4), (1,), {1: "a", 2: "b"}), ((3, 2, 5), (0, 1), {2: "all"}), ((5,), (0,), {0: "all"}),
        ((7, 3), (1,), {0: "b", 1: "a"})]
SETTINGS = [("softmax", "product", False), ("softmax", "sum", True), ("random", "product", True), ("elu", "sum", False),
            ("softmax", "product", True)]
CHOICES = [("mean", "before", True, True), ("sum", "after", False, False), ("rsqrt", "before", False, True),
           ("sum", "before", True, False)]


def cases():
    "Each cut with two of the settings, in turn; and factors so thin that no map is formed, with a causal mode beside."
    for i, cut in enumerate(CUTS):
        yield from ((*cut, SETTINGS[(i + j) % len(SETTINGS)]) for j in (0, 3))
    yield from ((*CUTS[-1], ("random", combine, masked)) for combine, masked in (("product", True), ("sum", False)))


def expected(sizes, causal, parts, ranks, masked, batch, size=8):
    "Bytes that a process sends in one pass of a layer with softmax: sums go around in a ring, rows go for columns."
    cut = {m: part_sizes(sizes[m], p) for m, p in parts.items()}
    own = [cut[m][ranks[m]] if m in cut else n for m, n in enumerate(sizes)]
    now, total, width = list(own), 0, DIM // HEADS + masked
    for m, p in parts.items():
        now[m], places = sizes[m], {c: p if c == m else own[c] for c in causal}
        rows = sum(n * prod(places[c] for c in causal if c != i) for i, n in enumerate(now))
        total += 2 * (p - 1) / p * batch * rows * (DIM + bool(causal or masked))
        front = batch * HEADS * prod(own[c] for c in causal if c != m)
        columns = width * prod(n for i, n in enumerate(own) if i != m and i not in causal)
        mine = part_sizes(columns, p)[ranks[m]]
        total += front * (own[m] * (columns - mine) + (sizes[m] - own[m]) * mine)
    return size * total


def far(a, b):
    return max((s - t).abs().max().item() if s.numel() else 0.0 for s, t in zip(a, b, strict=True))


def compare(whole, x, mask, mesh, cut, k, sizes=None):
    "Largest differences of outputs, gradients of the input, gradients of the weights."
    whole.zero_grad()
    axes, sharded = {m - k - 1: a for m, a in cut.items()}, shard_modes(copy.deepcopy(whole), mesh, cut, sizes)
    at = {m - k: a for m, a in cut.items()}
    x = x.clone().requires_grad_()
    y = whole(x, mask)
    weights = tensor(*y.shape, seed=5)
    (y * weights).sum().backward()
    own = local_part(x.detach(), mesh, axes).clone().requires_grad_()
    with sent() as forward:
        found = sharded(own, None if mask is None else local_part(mask, mesh, at))
    with sent() as backward:
        (found * local_part(weights, mesh, axes)).sum().backward()
    sum_gradients(sharded, mesh, list(cut.values()))
    pairs = zip(sharded.parameters(), whole.parameters(), strict=True)
    off = [far([found], [local_part(y, mesh, axes)]), far([own.grad], [local_part(x.grad, mesh, axes)]),
           far(*zip(*((p.grad, q.grad) for p, q in pairs if q.grad is not None), strict=True))]
    return max(off), forward, backward


def layers(meshes, note):
    "All settings of the layer, with and without a mask, and what they send."
    for i, (sizes, causal, cut, (kernel, combine, masked)) in enumerate(cases()):
        pool, project, norm, shared = CHOICES[(i + i // 3) % 4]
        torch.manual_seed(i)
        layer = kronecker(DIM, HEADS, len(sizes), combine=combine, pool=pool, project=project, qk_norm=norm,
                          shared=shared, temperature=bool(i % 3), qk_center=bool(i % 2), causal=causal,
                          kernel=KERNELS[kernel], rotary=Rotary(DIM // HEADS) if i % 7 else None,
                          by_mode={-1: dict(window=1, bias="alibi")} if i % 3 == 1 else None).double()
        x, mask = tensor(2, *sizes, DIM, seed=i), random_mask(2, *sizes, seed=i) if masked else None
        if masked:
            mask[:, :2] = False                     # a process may have no valid position
            x[~mask] = torch.nan
        mesh = meshes["all" if "all" in cut.values() else "square"]
        told = {m: sizes[m] for m in cut}           # then no whole numbers are told
        off, forward, backward = compare(layer, x, mask, mesh, cut, len(sizes), told)
        name = f"{sizes} {causal} {cut} {kernel} {combine} {masked}"
        note[name] = off
        ranks = {m: mesh.get_local_rank(a) for m, a in cut.items()}
        parts = {m: mesh.size(mesh.mesh_dim_names.index(a)) for m, a in cut.items()}
        note[f"bytes back {name}"] = abs(sum(forward) - sum(backward)) + abs(len(forward) - len(backward))
        if kernel == "softmax":
            off = abs(sum(forward) - expected(sizes, causal, parts, ranks, masked, 2))
            note[f"bytes {name}"] = off + abs(len(forward) - 3 * len(parts))


def models(meshes, note):
    "Encoders, segmenters, blocks: positions, patches, masks; sizes that the processes tell one another."
    for positions, kind in zip(("rotary", "sincos", "learned", "none"), itertools.cycle((HOTConfig, SegmenterConfig))):
        torch.manual_seed(0)
        config = kind(patch=(2, 1, 2), dim=DIM, depth=2, heads=HEADS, attention="product+sum", positions=positions,
                      sizes=(14, 4, 6))
        n = 17 if positions == "learned" else 13    # longer than what they are learned for
        model, x, mask = make_model(config).double(), tensor(2, n, 4, 6, 1), random_mask(2, n, 4, 6)
        mesh, axes = meshes["square"], {1: "a", 3: "b"}
        sharded = shard_modes(copy.deepcopy(model), mesh, {0: "a", -1: "b"})
        own = [local_part(t, mesh, axes, multiple=2) for t in (x, mask)]
        want = local_part(model(x, mask), mesh, axes, multiple=1 if kind is HOTConfig else 2)
        note[f"model {positions} {kind.__name__}"] = far([sharded(*own)], [want])
    torch.manual_seed(1)
    block = Block(KroneckerAttention(DIM, HEADS, 2), FeedForward(DIM)).double()
    note["block"] = compare(block, tensor(3, 6, 5, DIM), None, meshes["square"], {0: "a", 1: "b"}, 2)[0]
    note["block in steps"] = compare(block, tensor(3, 6, 5, DIM), random_mask(3, 6, 5), meshes["all"], {1: "all"}, 2)[0]
    for full in (False, True):
        table = LearnedPositions((4, 6), DIM, full=full, modes=(1,) if full else None).double()
        x, mesh = tensor(2, 5, 9, DIM), meshes["all"]
        own, want = (local_part(t, mesh, {2: "all"}) for t in (x, table(x)))
        note[f"learned {full}"] = far([shard_modes(copy.deepcopy(table), mesh, {1: "all"})(own)], [want])


def uneven(meshes, note):
    "Parts that no rule made: 1, 0, 4 and 2 positions of 7."
    sizes, mesh = (1, 0, 4, 2), meshes["all"]
    torch.manual_seed(2)
    for causal in ((), (1,)):
        layer, x = KroneckerAttention(DIM, HEADS, 2, causal=causal).double(), tensor(2, 3, 7, DIM)
        own = x.split(sizes, 2)[distributed.get_rank()].contiguous()
        want = layer(x)
        y = shard_modes(layer, mesh, {1: "all"})(own)
        note[f"uneven {causal}"] = far([y], [want.split(sizes, 2)[distributed.get_rank()]])
        note[f"together {causal}"] = far([whole_tensor(y, mesh, {2: "all"})], [want])


def linear(meshes, note):
    "NdLinear along a cut mode by the way that the error names; and NdLinear of features alone within an encoder."
    x, axes, mesh = tensor(3, 5, 6, seed=3), {1: "all"}, meshes["all"]
    torch.manual_seed(4)
    layer = NdLinear((5, 6), (7, 4)).double()
    for b in layer.biases:
        torch.nn.init.normal_(b)
    whole = x.clone().requires_grad_()
    y = layer(whole)
    weights = tensor(*y.shape, seed=5)
    want = torch.autograd.grad((y * weights).sum(), [whole, *layer.parameters()])
    model, own = copy.deepcopy(layer), local_part(x, mesh, axes).clone().requires_grad_()
    found = local_part(model(whole_tensor(own, mesh, axes)), mesh, axes)
    (found * local_part(weights, mesh, axes)).sum().backward()
    sum_gradients(model, mesh)
    note["linear"] = far([found], [local_part(y, mesh, axes)])
    grads = [own.grad, *(p.grad for p in model.parameters())]
    note["linear back"] = far(grads, [local_part(want[0], mesh, axes), *want[1:]])
    block, x = Block(KroneckerAttention(DIM, HEADS, 2), NdFeedForward(DIM)).double(), tensor(2, 6, 3, DIM)
    sharded = shard_modes(copy.deepcopy(block), mesh, {0: "all"}, pointwise=(FlatNdLinear,))
    note["linear features"] = far([sharded(local_part(x, mesh, axes))], [local_part(block(x), mesh, axes)])


def second(meshes, note):
    "Gradients of gradients, an empty batch, half precision, DTensor in and out, DDP."
    mesh, x = meshes["all"], tensor(2, 3, 5, DIM)
    layer = KroneckerAttention(DIM, HEADS, 2).double()
    sharded, axes = shard_modes(copy.deepcopy(layer), mesh, {1: "all"}), {2: "all"}

    def twice(f, x, parts):
        x = x.clone().requires_grad_()
        g, = torch.autograd.grad(f(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad((g * local_part(tensor(2, 3, 5, DIM, seed=8), mesh, parts)).sum(), x)[0]
    own = local_part(x, mesh, axes)
    note["twice"] = far([twice(sharded, own, axes)], [local_part(twice(layer, x, {}), mesh, axes)])
    note["empty"] = float(sharded(own[:0]).shape != own[:0].shape)
    note["twice, its name"] = float("combine=product" not in repr(sharded))
    whole = distribute_tensor(x, mesh, [Shard(2)])
    y = DTensor.from_local(sharded(whole.to_local()), mesh, [Shard(2)], shape=x.shape, stride=x.stride())
    note["DTensor"] = far([y.full_tensor()], [layer(x)])
    half = copy.deepcopy(layer).bfloat16()
    want = local_part(half(x.bfloat16()), mesh, axes)
    note["half"] = float(far([shard_modes(half, mesh, {1: "all"})(own.bfloat16()).double()], [want.double()]) > 0.03)
    note["maps"] = far(sharded.maps(own), layer.maps(x))
    want = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    parallel = DistributedDataParallel(sharded)     # it must live until the gradients are there
    parallel(own).square().sum().backward()
    note["DDP"] = far([4 * p.grad for p in sharded.parameters()], want)


def beside_data(meshes, note):
    "The batch over one axis by DDP, a mode over the other one; and weights shared out by FSDP over all processes."
    mesh, x = meshes["square"], tensor(4, 3, 5, DIM)
    torch.manual_seed(3)
    layer = KroneckerAttention(DIM, HEADS, 2).double()
    want = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    own = local_part(x, mesh, {0: "a", 2: "b"})
    model = shard_modes(copy.deepcopy(layer), mesh, {1: "b"})
    parallel = DistributedDataParallel(model, process_group=mesh.get_group("a"))
    parallel(own).square().sum().backward()
    sum_gradients(model, mesh, ["b"])
    note["DDP beside"] = far([2 * p.grad for p in model.parameters()], want)
    from torch.distributed.fsdp import fully_shard
    model = shard_modes(copy.deepcopy(layer), meshes["all"], {1: "all"})
    fully_shard(model, mesh=meshes["all"])
    model(local_part(x, meshes["all"], {2: "all"})).square().sum().backward()
    note["FSDP"] = far([4 * p.grad.full_tensor() for p in model.parameters()], want)


def errors(meshes, note):
    "What differs between processes is an error in all of them, and nobody waits."
    layer = shard_modes(KroneckerAttention(DIM, HEADS, 2).double(), meshes["all"], {1: "all"})
    rank = distributed.get_rank()
    for x, mask, says in [
            (tensor(2 + (rank == 1), 3, 2, DIM), None, "size of the batch is [2, 3, 2, 2] in the processes"),
            (tensor(2, 3 + (rank == 2), 2, DIM), None, "size of mode 0 is [3, 3, 4, 3]"),
            (tensor(2, 3, 2, DIM), random_mask(2, 3, 2) if rank else None, "number of masks is [0, 1, 1, 1]")]:
        with pytest.raises(ValueError, match="ShardedKroneckerAttention.*" + re.escape(says)):
            layer(x, mask)
    model = shard_modes(make_model(HOTConfig(patch=(2, 2), dim=DIM, depth=1, heads=HEADS)), meshes["all"], {0: "all"})
    if rank < 3:                                    # the last process may have part of a patch
        with pytest.raises(ValueError):
            model(torch.randn(1, 3, 4, 1))
    note["errors"] = 0.0


def work(rank, folder, count, coverage_file=None):
    "One of the processes. Lines that run in the first count towards the coverage of the tests, where that is measured."
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count)
    meshes = {"all": init_device_mesh("cpu", (count,), mesh_dim_names=("all",)),
              "square": init_device_mesh("cpu", (2, count // 2), mesh_dim_names=("a", "b"))}
    note, lines = {}, Lines(
        sharding, but=["def __deepcopy__"], data_file=coverage_file or f"{folder}/lines", data_suffix=True)
    with lines.collect() if rank == 0 else contextlib.nullcontext():
        for part in (layers, models, uneven, linear, second, beside_data, errors):
            part(meshes, note)
    if rank == 0:
        note = {"lost": lines.lost()} | note
        lines.save()
    torch.save(note, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()

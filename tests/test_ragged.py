"""Tensors of unequal sizes in one batch: padding and its inverse, answers as alone, samplers, compilation."""
import pickle
from functools import partial
from itertools import product
from math import prod

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st
from layers import ATTENTION, CPU_GPU, F64, LAYERS, each, tensor
from often import examples
from test_training import whole_and_parts
from torch.testing import assert_close
from torch.utils.data import DataLoader

from hot_nbdev.data import ragged
from hot_nbdev.model_config import ClassifierConfig, HOTConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.names import ATTENTIONS
from hot_nbdev.patches import patch_mask
from hot_nbdev.train.loop import TrainConfig, fit
from hot_nbdev.train.runs import fingerprint
from hot_nbdev.train.tasks import Classification


@st.composite
def cases(draw, least=1, most=5, count=4):
    "order, sizes, features, multiple_of"
    order = draw(st.integers(1, 3))
    one = st.tuples(*[st.integers(least, most)] * order)
    sizes = draw(st.lists(one, min_size=1, max_size=count))
    features = draw(st.sampled_from([(), (2,), (2, 3)]))
    return order, sizes, features, draw(st.one_of(st.integers(1, 4), st.tuples(*[st.integers(1, 4)] * order)))


@examples(40)
@given(case=cases(least=0), dtype=st.sampled_from([torch.float32, F64, torch.bfloat16, torch.int64, torch.bool]))
def test_padding_is_what_a_loop_over_entries_gives(case, dtype):
    order, sizes, features, steps = case
    tensors = [(tensor(*own, *features, seed=i) * 3).to(dtype) for i, own in enumerate(sizes)]
    x, mask = ragged.pad_tensors(tensors, order, steps)
    steps = (steps,) * order if isinstance(steps, int) else steps
    for m, s in enumerate(steps):
        largest = max(own[m] for own in sizes)
        assert x.shape[1 + m] % s == 0 and largest <= x.shape[1 + m] < largest + s
    assert x.dtype == dtype and mask.dtype == torch.bool and x.shape == (len(sizes), *mask.shape[1:], *features)
    for i, own in enumerate(sizes):
        for at in product(*map(range, mask.shape[1:])):
            inside = all(a < n for a, n in zip(at, own, strict=True))
            assert mask[(i, *at)] == inside
            assert torch.equal(x[(i, *at)], tensors[i][at] if inside else torch.zeros(features, dtype=dtype))
    back = ragged.unpad_tensors(x, sizes)
    assert all(map(torch.equal, back, tensors))
    if min(map(min, sizes)):
        found = ragged.unpad_tensors(x, mask) + ragged.unpad_tensors(x, torch.tensor(sizes))
        assert ragged.mask_sizes(mask) == sizes and all(map(torch.equal, found, tensors * 2))


@CPU_GPU
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_are_taken(device):
    parts = [tensor(n, 3, device=device) for n in (4, 2, 5)]
    for layout in (torch.jagged, torch.strided):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        x, mask = ragged.pad_tensors(nested, 1)
        assert torch.equal(x, nested.to_padded_tensor(0.0)) and mask.sum(1).tolist() == [4, 2, 5]
        assert x.device.type == mask.device.type == device
    several = [tensor(2, 5), tensor(4, 3)]                      # more than one ragged mode: the plain layout alone
    x, mask = ragged.pad_tensors(torch.nested.nested_tensor(several), 2)
    assert all(map(torch.equal, ragged.unpad_tensors(x, mask), several))


def test_collate_takes_arrays_and_plain_numbers():
    samples = [(tensor(2, 3, 1), 0), (tensor(1, 4, 1), 1)]
    x, _, y = ragged.collate_padded([(x.numpy(), i) for x, i in samples], 2, 2)
    assert torch.equal(x, ragged.collate_padded(samples, 2, 2)[0]) and y.tolist() == [0, 1]


SIZES = [(4, 3, 5, 2), (1, 6, 2, 3), (7, 1, 1, 1), (4, 3, 5, 2)]


@each(ATTENTION)
def test_layers_answer_in_a_padded_batch_as_alone(case):
    "Also: rows that hold nothing at all, and more padding, change no answer beyond rounding."
    layer, parts = case.layer(), [case.input(sizes=s[:case.order], seed=i) for i, s in enumerate(SIZES)]
    with torch.no_grad():
        alone = [layer(t) for t in parts]
        for steps in (1, 4):
            x, mask = ragged.pad_tensors(parts, case.order, steps)
            together = layer(x, mask)
            for got, want in zip(ragged.unpad_tensors(together, mask), alone, strict=True):
                assert_close(got, want, rtol=0, atol=1e-12)
            more = layer(torch.cat([x, x.new_full(x[:2].shape, 7.0)]), torch.cat([mask, mask[:2] & False]))
            assert_close(more[:len(x)], together, rtol=0, atol=1e-14)


PICTURES = [(8, 6), (3, 9), (5, 5), (1, 1)]
PLAIN = dict(in_channels=2, patch=(3, 2), dim=8, heads=2, depth=2)
SAME = [*({"attention": name} for name in sorted(ATTENTIONS)),
        *({"positions": p, "attention": a} for p in ("none", "sincos") for a in ("product", "full")),
        *({"stem": s, "attention": a} for s in ("conv", "local") for a in ("product", "multiscale")),
        *({"kernel": k} for k in ("prf", "smreg", "elu", "relu")),
        {"stem_norm": True, "ff": "swiglu"}, {"causal": (0,)}]


@pytest.mark.parametrize("kind, options", [*((SegmenterConfig, options) for options in SAME), (HOTConfig, {}),
                                           *((ClassifierConfig, {"stem": stem}) for stem in ("linear", "conv"))],
                         ids=lambda v: getattr(v, "__name__", str(v)))
@torch.no_grad()
def test_models_answer_in_a_padded_batch_as_alone(kind, options):
    "A head sees tokens and a mask alone: each head once, and everything else with one of them."
    config = kind(**{**PLAIN, **options})
    torch.manual_seed(0)
    model = make_model(config, dtype=F64).eval()
    parts = [tensor(*own, 2, seed=i) for i, own in enumerate(PICTURES)]
    x, mask = ragged.pad_tensors(parts, 2)
    y = model(x, mask)
    if kind is not ClassifierConfig:
        y = ragged.unpad_tensors(y, mask if kind is SegmenterConfig else patch_mask(mask, config.patch))
    for together, part in zip(y, parts, strict=True):
        assert_close(together, model(part), rtol=0, atol=1e-12)


def test_a_flattened_readout_takes_one_size():
    model = make_model(ClassifierConfig(**PLAIN, sizes=(8, 6), readout="flatten"), dtype=F64)
    x, mask = ragged.pad_tensors([tensor(8, 6, 2), tensor(3, 5, 2)], 2)
    assert model(x, mask).shape == (2, 2)
    with pytest.raises(ValueError, match="but the head flattens"):
        model(x[1, :3, :5])


@pytest.mark.parametrize(("case", "threads"), [*((case, 1) for case in LAYERS), (LAYERS[3], 2)],
                         ids=lambda v: getattr(v, "name", v))
@torch.no_grad()
def test_company_and_order_change_a_sample_by_rounding_at_most(case, threads, request):
    "Not promised to the bit: products choose their way by the number of rows."
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    sizes, order = (7, 6, 3, 2)[:case.order], torch.tensor([3, 0, 2, 1])
    layer = case.layer(torch.float32, sizes=sizes)
    for arguments in case.arguments(case.input(4, sizes=sizes, dtype=torch.float32)):
        y = layer(*arguments)
        others = {"again": layer(*arguments), "order": layer(*(t[order] for t in arguments))[order.argsort()],
                  "alone": torch.cat([layer(*(t[i:i + 1] for t in arguments)) for i in range(4)]),
                  "two": torch.cat([layer(*(t[a:a + 2] for t in arguments)) for a in (0, 2)])}
        assert torch.equal(y, others["again"])
        for name, other in others.items():
            assert (y - other).abs().max() <= 1e-5 * y.abs().max(), name


@examples(40)
@given(case=cases(count=30, most=9), limits=st.sampled_from([(3, None), (None, 800), (4, 900)]),
       seed=st.integers(0, 3))
def test_each_sample_once_within_the_limits(case, limits, seed):
    order, sizes, _, steps = case
    size, positions = limits
    positions = positions and max(positions, 12 ** order)
    sampler = ragged.BucketSampler(sizes, size, positions, buckets=4, multiple_of=steps, seed=seed)
    steps = (steps,) * order if isinstance(steps, int) else steps
    seen, lengths = [], []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert sorted(i for b in batches for i in b) == list(range(len(sizes))) and list(sampler) == batches
        lengths.append(len(batches))
        for b in batches:
            box = prod(-(-max(sizes[i][m] for i in b) // s) * s for m, s in enumerate(steps))
            assert (size is None or len(b) <= size) and (positions is None or len(b) * box <= positions)
        seen.append(batches)
    assert seen[0] == seen[2] and set(lengths) == {len(sampler)}
    assert 0 <= ragged.padding_share(sizes, seen[0], steps) < 1


@examples(30)
@given(sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12),
       least=st.integers(1, 3))
def test_the_first_cut_saves_most(sizes, least):
    "Against all cuts there are, one by one."
    def cost(rows):
        return len(rows) * prod(max(sizes[i][m] for i in rows) for m in (0, 1)) if rows else 0
    n = range(len(sizes))
    best = cost(list(n))
    for m, at in product((0, 1), range(1, 7)):
        both = [[i for i in n if sizes[i][m] <= at], [i for i in n if sizes[i][m] > at]]
        if min(map(len, both)) >= least:
            best = min(best, sum(map(cost, both)))
    found = [rows.tolist() for rows in ragged.size_buckets(sizes, 2, least)]
    assert sum(map(cost, found)) == best and sorted(i for rows in found for i in rows) == list(n)


def loader(**options):
    "As a worker gets it."
    sizes = torch.randint(2, 9, (24, 2), generator=torch.Generator().manual_seed(3))
    data = [(tensor(*own, 2, seed=i, dtype=torch.float32), i % 2) for i, own in enumerate(sizes.tolist())]
    sampler = ragged.BucketSampler(sizes, **{"batch_size": 6, "buckets": 3, "multiple_of": (3, 2), **options})
    collate = partial(ragged.collate_padded, order=2, multiple_of=(3, 2))
    return pickle.loads(pickle.dumps(DataLoader(data, batch_sampler=sampler, collate_fn=collate)))


def test_a_run_goes_on_to_the_same_bits_and_other_batches_are_another_run(tmp_path):
    config, task = TrainConfig(epochs=2, rate=0.01), Classification(2)

    def begin():
        torch.manual_seed(0)
        return make_model(ClassifierConfig(**{**PLAIN, "depth": 1}))

    def run(model, **options):
        fit(model, loader(), loader(), task, config, save_every=1, **options)
    (whole, seen), (parts, rest) = whole_and_parts(tmp_path, run, 5, begin)
    assert torch.equal(whole, parts) and seen[5:] == rest and len(seen) == 2 * len(loader())
    several = (loader(), loader(), loader(seed=1), loader(batch_size=5))
    marks = [fingerprint(begin(), one, one, task, config) for one in several]
    assert marks[0] == marks[1] and marks[0] != marks[2] and marks[0] != marks[3]


def test_each_process_gets_other_batches_and_all_samples_occur():
    "The shards of two processes are formed here; for one, the page of the workshop prepares it."
    sampler = loader().batch_sampler
    shards = [list(BatchSamplerShard(sampler, 2, rank)) for rank in (0, 1)]
    assert len(shards[0]) == len(shards[1])
    assert {i for shard in shards for batch in shard for i in batch} == set(range(24))


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ragged.pad_tensors([torch.ones(2), [1.0]], 1), "tensor 1 is a list"),
    (lambda: ragged.pad_tensors([torch.ones(2), torch.ones(2, device="meta")], 1), "on meta, and tensor 0"),
    (lambda: ragged.pad_tensors([torch.ones(2)], 0), "at least one mode"),
    (lambda: ragged.pad_tensors([torch.ones(2)], 1, 0), "a positive number"),
    (lambda: ragged.BucketSampler([(1, 2), (3,)], 2), "of equally many modes"),
    (lambda: ragged.BucketSampler([], 2), "there must be a sample"),
    (lambda: ragged.BucketSampler([(1, 0)], 2), "no empty mode"),
    (lambda: ragged.BucketSampler([(1, 2)], 0), "all of them positive"),
    (lambda: ragged.unpad_tensors(torch.ones(1, 2), [(1, 1)]), r"tensor 0 should have the sizes \(1, 1\), but x is"),
])
def test_errors_name_the_tensor_the_mode_and_the_sample(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def graphs(model, inputs):
    torch.compiler.reset()
    made = []

    def count(graph, example):
        made.append(graph)
        return graph.forward
    compiled = torch.compile(model, backend=count, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for arguments in inputs:
            assert_close(compiled(*arguments), model(*arguments), rtol=1e-4, atol=1e-5)
    return len(made)


@pytest.mark.parametrize(("name", "masked"), [("full", True), ("product", True), ("hot1", False)])
def test_changing_sizes_compile_once(name, masked):
    "Where the way is the same: a product of three modes chooses between two."
    case, inputs = next(c for c in ATTENTION if c.name == name), []
    for sizes in ([(3, 5, 5), (4, 6, 6), (5, 4, 4)], [(4, 5, 5), (8, 3, 3), (9, 4, 4), (4, 5, 5)]):
        parts = [case.input(sizes=own[:case.order], dtype=torch.float32) for own in sizes]
        inputs.append(ragged.pad_tensors(parts, case.order)[:1 + masked])
    assert graphs(case.layer(torch.float32), inputs) == 1


def test_a_model_compiles_once_where_patches_fit():
    "Not 2 samples of 2 channels at first: what is equal there, PyTorch takes for one size."
    model = make_model(ClassifierConfig(**{**PLAIN, "depth": 1, "patch": (3,)})).eval()
    lists = [[tensor(n + i, 2, dtype=torch.float32) for i in range(b)] for b, n in ((4, 5), (3, 9), (5, 12))]
    assert graphs(model, [ragged.pad_tensors(own, 1, 3) for own in lists]) == 1

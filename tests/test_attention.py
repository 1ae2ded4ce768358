"""What chapter 5 does not try: settings at the edge, memory order, reprs, hooks, kernels of all sorts."""
import pytest
import torch
import torch.nn.functional as F
from layers import DIM, HEADS, tensor
from torch import nn
from torch.testing import assert_close

from hot_nbdev.attention import Allowed, FullAttention, as_features, attend, kernel_map, softmax_map
from hot_nbdev.axial import AxialAttention, DividedAttention, MultiscaleAttention, NoAttention
from hot_nbdev.layer import AttentionLayer, Cost, check_sizes

KINDS = [FullAttention, AxialAttention, DividedAttention, MultiscaleAttention, NoAttention]
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("keys", [1, 3, 5, 15, 16, 20])
def test_softmax_map_takes_a_scale_for_each_pair(keys):
    q, k, scale = tensor(5, 4), tensor(keys, 4, seed=2), tensor(5, keys, seed=3)
    want = (q @ k.T * scale).softmax(-1)
    assert_close(softmax_map(q, k, scale=scale), want)
    assert_close(softmax_map(q, k, torch.ones(5, keys, dtype=torch.bool), scale=scale), want)
    assert_close(softmax_map(q, k, scale=scale[:, :1]), (q @ k.T * scale[:, :1]).softmax(-1))


@pytest.mark.parametrize("keys", [3, 20])
def test_maps_lie_in_memory_row_by_row(keys):
    assert softmax_map(tensor(2, 3, 7, 4), tensor(2, 3, keys, 4)).is_contiguous()
    assert kernel_map(tensor(2, 3, 7, 4).exp(), tensor(2, 3, keys, 4).exp()).is_contiguous()


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("kernel", [None, torch.relu])
def test_maps_of_layers_lie_in_memory_row_by_row(kind, kernel):
    layer, x = kind(DIM, HEADS, 2, kernel=kernel).double(), tensor(2, 3, 4, DIM)
    for S in layer.maps(x):
        assert S.is_contiguous()
        torch.kron(S.flatten(0, -3)[0].detach(), torch.eye(3, dtype=S.dtype))
    assert layer.dense_map(x).is_contiguous()


@kinds
def test_the_number_of_modes_has_no_default(kind):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: order is None.*give the number of modes"):
        kind(DIM, HEADS)


@kinds
@pytest.mark.parametrize("setting, says", [
    (dict(heads=0), "heads is 0, but must be a whole number of at least 1"),
    (dict(heads=-2), "heads is -2"), (dict(heads=2.0), "heads is 2.0"),
    (dict(heads=3), "choose heads that divide dim"), (dict(dim=0), "dim is 0"),
    (dict(order=0), "order is 0"), (dict(order=True), "order is True"),
    (dict(causal=0), r"write causal=\(0,\)"), (dict(causal=True), r"write causal=\(1,\)"),
    (dict(causal=(2,)), "causal mode 2 is out of range for 2 modes"),
    (dict(causal=None), r"causal is None, .*; write causal=\(\) for none"), (dict(causal=(True,)), "causal mode True"),
    (dict(causal=("a",)), "causal mode 'a'"), (dict(dropout=-0.1), "dropout is -0.1"),
    (dict(dropout=1.0), "dropout is 1.0, but must be at least 0 and below 1"),
    (dict(dropout=float("nan")), "dropout is nan")])
def test_settings_are_checked_with_a_way_out(kind, setting, says):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: .*{says}"):
        kind(**{**dict(dim=DIM, heads=HEADS, order=2), **setting})


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_dropout_with_a_kernel_is_refused(kind):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: with a kernel no map is formed.*set dropout=0"):
        kind(DIM, HEADS, 2, kernel=torch.relu, dropout=0.1)


@pytest.mark.parametrize("plain", [torch.relu, torch.exp, nn.Softplus(), lambda t: t.square(), F.elu])
def test_any_function_of_one_tensor_is_a_kernel(plain):
    "Also builtins, which have no signature to look at."
    phi = (lambda t: plain(t) + 1) if plain is F.elu else plain
    layer, x = FullAttention(DIM, HEADS, 2, kernel=phi).double(), tensor(2, 3, 4, DIM)
    mask = tensor(2, 3, 4) > 0
    assert_close(layer(x, mask), layer(x, mask, return_maps=True)[0])
    q, k = (f(x).unflatten(-1, (HEADS, -1)).movedim(-2, 1).flatten(2, 3) for f in (layer.to_q, layer.to_k))
    features = [phi(t * (DIM // HEADS) ** -0.25) for t in (q, k)]
    assert_close(layer.dense_map(x), kernel_map(*features))


@pytest.mark.parametrize("wrong", [nn.ReLU, 3, "relu"])
def test_what_is_no_kernel_is_refused(wrong):
    with pytest.raises(ValueError, match="must be a FeatureFunction or a function of one tensor"):
        FullAttention(DIM, HEADS, 2, kernel=wrong)


@kinds
def test_repr_shows_every_setting(kind):
    "Each argument of the constructor but device and dtype, by name and value; of stages, in the stages."
    import inspect
    options = dict(causal=(1,))
    if kind is not NoAttention:
        options.update(qk_norm=True, kernel=torch.relu)
    more = dict(stride=1) if kind is MultiscaleAttention else {}
    text = repr(kind(DIM, HEADS, 2, **options, **more))
    names = set(inspect.signature(kind).parameters) | set(options)
    unused = {"device", "dtype", "options"} | ({"rotary", "dropout"} if kind is NoAttention else set())
    for name in names - unused:
        assert f"{name}=" in text, name
    assert "causal=(1,)" in text and (kind is NoAttention or "qk_norm=True" in text and "kernel=relu" in text)


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("kernel", [None, nn.Softplus()])
def test_hooks_see_every_submodule(kind, kernel):
    "With and without gradient: profilers and quantizers look through hooks."
    layer, x = kind(DIM, HEADS, 2, kernel=kernel, qk_norm=True), torch.randn(2, 3, 4, DIM)
    for context in (torch.no_grad, torch.enable_grad):
        seen, handles = set(), []
        for name, m in layer.named_modules():
            handles.append(m.register_forward_hook(lambda *_, seen=seen, name=name: seen.add(name)))
        with context():
            layer(x)
        for handle in handles:
            handle.remove()
        containers = {name for name, m in layer.named_modules() if isinstance(m, nn.ModuleList)}
        assert set(dict(layer.named_modules())) - seen <= containers


def test_a_row_that_may_see_nothing_is_zero():
    q, k, v = (tensor(2, 1, 6, 4, seed=s) for s in range(3))
    keys = torch.zeros(2, 3, 2, dtype=torch.bool)
    keys[0, 1:] = True              # the first slice of a causal mode sees nothing; the second sample neither
    for kernel in (None, as_features(torch.exp)):
        allowed = Allowed((3, 2), keys, (0,), query_sizes=(3, 2))
        y, maps = attend(q, k, v, allowed, kernel)
        z, [S] = attend(q, k, v, allowed, kernel, return_map=True)
        assert maps == [] and not y[0, :, :2].any() and not y[1].any() and y[0, :, 2:].all()
        assert_close(y, z)
        assert_close(S.sum(-1)[0, 0], torch.tensor([0, 0, 1, 1, 1, 1]).double())


@pytest.mark.parametrize("causal", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("kernel", [None, as_features(torch.exp)])
def test_queries_may_stand_on_a_grid_of_their_own(causal, kernel):
    "Here queries are every other key of the second mode, unless that is causal."
    q, k, v = (tensor(2, 2, 3, 4, 5, seed=s) for s in range(3))
    few, sizes = (q, (3, 4)) if 1 in causal else (q[:, :, :, ::2], (3, 2))
    whole, _ = attend(*(t.flatten(2, 3) for t in (q, k, v)), Allowed((3, 4), None, causal), kernel)
    allowed = Allowed((3, 4), None, causal, sizes)
    part, _ = attend(*(t.flatten(2, 3) for t in (few, k, v)), allowed, kernel)
    whole = whole.unflatten(2, (3, 4))
    assert_close(part.unflatten(2, sizes), whole if 1 in causal else whole[:, :, :, ::2])


def test_later_values_must_be_finite_for_a_softmax_and_need_not_for_a_kernel():
    x = tensor(4, 2, DIM)
    broken = torch.cat([x[:2], x[2:] * float("nan")])
    softmax = FullAttention(DIM, HEADS, 2, causal=(0,)).double()
    linear = FullAttention(DIM, HEADS, 2, causal=(0,), kernel=torch.exp).double()
    assert torch.equal(linear(broken)[:2], linear(x)[:2])
    assert torch.equal(softmax(torch.cat([x[:2], x[2:] * 1e30]))[:2], softmax(x)[:2])


def test_costs_add_up_but_for_the_worst_moment():
    total = Cost(projections=1, peak=7, moved=2) + Cost(maps=2, peak=3, moved=2)
    assert (total.multiply_adds, total.peak, total.moved) == (3, 7, 4)
    assert (total * 3).multiply_adds == 9 and isinstance(FullAttention(DIM, HEADS, 1), AttentionLayer)
    with pytest.raises(ValueError, match=r"FullAttention: sizes is \(3,\) for 2 modes"):
        FullAttention(DIM, HEADS, 2).cost((3,))
    with pytest.raises(ValueError, match="give a positive size"):
        check_sizes("here", (3, 0), 2)

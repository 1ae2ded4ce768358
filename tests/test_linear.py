"""Linear forecasters: saving, precision, masks, gradients, and the closed form."""
import pytest
import torch
from torch.testing import assert_close

from hot_nbdev.model_config import ModelConfig
from hot_nbdev.models import load_model
from hot_nbdev.rivals.linear import LinearConfig, LinearForecaster, least_squares, moving_average, simple_forecaster
from hot_nbdev.train.parts import Tensors

KINDS = {
    "one matrix": (dict(), (2, 12, 3)),
    "two branches": (dict(trend=5, instance_norm=False), (2, 12, 3)),
    "each its own": (dict(trend=3, series=6, order=3), (4, 12, 2, 3)),
    "one series": (dict(order=1), (5, 12)),
}
kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, dtype=torch.float32):
    torch.manual_seed(0)
    options, shape = KINDS[kind]
    return LinearForecaster(LinearConfig(12, (3, 7), **options), dtype=dtype), torch.randn(shape, dtype=dtype)


@kind
def test_a_forecaster_takes_any_batch_and_bfloat16(kind):
    model, x = make(kind)
    y = model(x)
    assert y.shape == (x.shape[0], 7, *x.shape[2:])
    assert_close(model(x[0]), y[0])
    assert model(x[:0]).shape == (0, *y.shape[1:])
    assert_close(model(x.expand(2, *x.shape)), y.expand(2, *y.shape))
    half = model.bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert_close(half.float(), y, rtol=0.05, atol=0.05)


@kind
def test_a_saved_model_is_the_same(kind, tmp_path):
    model, x = make(kind)
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert type(again) is LinearForecaster and again.config == model.config and not again.training
    assert torch.equal(again(x), model(x))
    assert ModelConfig.from_dict(model.config.to_dict()) == model.config
    assert model.config.to_dict()["model"] == "linear"
    assert load_model(tmp_path, dtype=torch.float64)(x.double()).dtype == torch.float64
    assert LinearForecaster(model.config, device="meta")(x.to("meta")).shape == model(x).shape


@kind
def test_what_is_missing_has_no_say(kind):
    model, x = make(kind)
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[0] = False                                     # a sample without any number
    y = model(x, mask)
    assert y.isfinite().all()
    for junk in (float("nan"), float("inf")):
        assert torch.equal(model(x.masked_fill(~mask, junk), mask), y)
    assert torch.equal(model(x, torch.ones_like(mask)), model(x))
    with pytest.raises(ValueError, match="LinearForecaster: mask must be bool"):
        model(x, mask.float())


@kind
def test_gradients_flow(kind):
    model, x = make(kind, torch.float64)
    assert torch.autograd.gradcheck(model, (x[:1].requires_grad_(),))
    model(x).square().mean().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_wide_averages_and_simple_forecasts_of_tensors():
    x = torch.randn(2, 5)
    assert_close(moving_average(x, 21)[:, 2], (8 * x[:, 0] + x.sum(1) + 8 * x[:, 4]) / 21)
    x = torch.randn(3, 6, 2, 4)
    assert_close(simple_forecaster("last", 6, (2, 5), order=3)(x), x[:, -1:].expand(-1, 5, -1, -1))
    assert_close(simple_forecaster("seasonal", 6, (5,), 3, order=3)(x)[:, 3], x[:, 3])


def test_the_closed_form_needs_samples():
    "What else it needs stands on page 58."
    part = Tensors(torch.randn(9, 8, 3), torch.randn(9, 4, 3))
    assert least_squares(LinearConfig(8, (4,)), part).linear.weight.dtype == torch.float32
    with pytest.raises(ValueError, match="least_squares: the part has no samples"):
        least_squares(LinearConfig(8, (4,)), Tensors(torch.randn(0, 8, 3), torch.randn(0, 4, 3)))


def test_compiles_to_one_graph_and_exports():
    model, x = make("each its own")
    torch.compiler.reset()
    assert_close(torch.compile(model, fullgraph=True, backend="eager", dynamic=True)(x), model(x))
    assert_close(torch.export.export(model, (x,)).module()(x), model(x))

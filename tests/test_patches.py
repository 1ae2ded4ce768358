"""Patches and stems: masks, causal modes, larger frames, padding, stems of one's own."""
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from hot_nbdev.patches import STEMS, PatchEmbed, pad_to_patches, patch_mask, patchify

PATCHES = [(3,), (4, 1), (2, 3), (1, 3, 2), (2, 1, 2, 2), (6, 4)]
KINDS = {"linear": dict(), "conv": dict(stem="conv"), "conv, wide":
         dict(stem="conv", width=5, act="relu", norm=True), "local": dict(stem="local", width=5)}
patches = pytest.mark.parametrize("patch", PATCHES, ids=str)
kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind, patch, dtype=torch.float64, **options):
    torch.manual_seed(0)
    embed = PatchEmbed(2, 6, patch, **{**KINDS[kind], **options}, dtype=dtype)
    x = torch.randn(3, *(2 * p + 1 for p in patch), 2, dtype=dtype)
    return embed, x, torch.rand(x.shape[:-1]) < 0.7


@patches
def test_a_patch_takes_part_if_one_of_its_positions_does(patch):
    mask = torch.rand(2, *(2 * p + 1 for p in patch), generator=torch.Generator().manual_seed(0)) < 0.2
    cells = patchify(pad_to_patches(mask[..., None].float(), patch), patch).sum((-1, -2))
    assert torch.equal(patch_mask(mask, patch), cells > 0)


@patches
@kinds
def test_what_is_masked_has_no_say_and_a_larger_frame_changes_nothing(patch, kind):
    if kind == "local" and len(patch) > 3:
        pytest.skip("PyTorch convolves three modes at most")
    embed, x, mask = make(kind, patch)
    tokens = embed(x, mask)
    for junk in (float("nan"), float("inf"), 1e30):
        assert torch.equal(embed(x.masked_fill(~mask[..., None], junk), mask), tokens)
    sizes = [n + 2 * p for n, p in zip(x.shape[1:-1], patch, strict=True)]
    frame = torch.full((3, *sizes, 2), float("nan"), dtype=x.dtype)
    larger = torch.zeros(frame.shape[:-1], dtype=torch.bool)
    inside = (slice(None), *(slice(0, n) for n in x.shape[1:-1]))
    frame[inside], larger[inside] = x, mask
    kept = patch_mask(mask, patch)
    grid = (slice(None), *(slice(0, n) for n in kept.shape[1:]))
    assert_close(embed(frame, larger)[grid][kept], tokens[kept])


@pytest.mark.parametrize("patch", [(4, 1), (2, 3), (6, 4), (3,)], ids=str)
def test_a_causal_stem_sees_no_later_patch(patch):
    for width in (3, 5):
        embed, x, _ = make("conv", patch, causal=(0,), width=width)
        changed = x.clone()
        changed[:, patch[0]:] += 1
        assert torch.equal(embed(x)[:, :1], embed(changed)[:, :1])
    around = make("conv", patch, width=5)[0]        # with three, the extra position lies before in any case
    assert not torch.equal(around(x)[:, :1], around(changed)[:, :1])


def test_a_negative_causal_mode_is_that_mode():
    one, x, _ = make("conv", (2, 3), causal=(1,))
    other, _, _ = make("conv", (2, 3), causal=(-1,))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x)) and one.proj.pads == other.proj.pads


def test_a_stem_of_ones_own(monkeypatch):
    class Whole(nn.Module):
        whole = True
        def __init__(self, in_channels, dim, patch, **_):
            super().__init__()
            self.patch, self.seen = patch, []
        def forward(self, x, mask):
            self.seen.append(mask)
            return patchify(pad_to_patches(x, self.patch), self.patch).mean(-2)
    monkeypatch.setitem(STEMS, "whole", Whole)
    embed, mask = PatchEmbed(3, 3, (2, 2), "whole"), torch.ones(4, 4, dtype=torch.bool)
    assert embed(torch.ones(4, 4, 3), mask).shape == (2, 2, 3)
    assert torch.equal(embed.proj.seen[0], mask)


@kinds
def test_what_fills_up_takes_no_part(kind):
    "Between layers it would be no zero any more, because of their biases."
    embed, x, _ = make(kind, (4, 4))
    assert torch.equal(embed(x), embed(x, torch.ones(x.shape[:-1], dtype=torch.bool)))


@pytest.mark.parametrize("wrong, message", [
    (dict(act="tanh"), "PatchEmbed: act is 'tanh'"), (dict(patch=(0, 2)), "patch is .0, 2."),
    (dict(stem="conv", padding="same"), "ConvStem: padding is 'same'; choose one of .'zeros', 'circular'")])
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        PatchEmbed(**{**dict(in_channels=1, dim=8, patch=(2, 2)), **wrong})
    with pytest.raises(TypeError, match="kernl"):
        PatchEmbed(1, 8, (2, 2), kernl=3)

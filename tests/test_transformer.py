"""Blocks and their parts: attentions and feed-forward networks by name, in open tables."""

import pytest

from hot_nbdev.names import ATTENTIONS, attention_options, make_attention
from hot_nbdev.positions import AxialRotary

named = pytest.mark.parametrize("name", list(ATTENTIONS))


@named
def test_the_order_is_required_and_options_are_those_of_the_layer(name):
    "A layer for one mode would take a batch of pictures for a batch of batches of rows."
    with pytest.raises(TypeError, match="order"):
        make_attention(name, 16, 2)
    with pytest.raises((TypeError, ValueError), match="mask_padding"):
        make_attention(name, 16, 2, 2, mask_padding=True)
    known = attention_options(name)
    own = name in ("hot1", "hot2", "tied", "tied-mix")
    assert known is None or not {"dim", "options"} & set(known) and ("combine" not in known or own)
    if name in ("hot1", "hot2", "divided", "multiscale", "spatial", "full-linear", "product"):
        assert {"causal", "bias", "qk_norm", "kernel"} <= set(known)


def test_joint_maps_share_their_features():
    def joint(name, order, **own):
        layer = make_attention(name, 24, 2, order, rotary=range(order), **own)
        return any(isinstance(m, AxialRotary) for m in layer.modules())

    known = [name for name in ATTENTIONS if name != "none"]
    assert [name for name in known if joint(name, 2)] == ["full", "full-linear", "multiscale"]
    assert {name for name in known if joint(name, 3)} == {"full", "full-linear", "divided", "multiscale", "spatial"}
    assert joint("axial", 3, groups=[(0, 2), 1]) and not joint("divided", 3, groups=[0, 1, (2,)])


def test_an_order_without_frames_is_named():
    with pytest.raises(ValueError, match="'spatial' attends along all modes but the first, and order is 1"):
        make_attention("spatial", 16, 2, 1)


@pytest.mark.parametrize("name, by_mode, message", [
    ("product", {2: {}}, "KroneckerAttention: by_mode has mode 2, but of the 2 modes only .0, 1."),
    ("divided", {"-1": dict(bias="learned", reach=True)}, "DividedAttention: by_mode of mode 1: reach is True"),
    ("temporal", {1: dict(window=1)}, "of the 2 modes only .0,. have a map of their own"),
    *(("axial", {-1: wrong}, f"AxialAttention: by_mode of mode 1: {[*wrong][-1]} is .*; give a") for wrong in (
        dict(window=True), dict(window=-1), dict(window=1, dilation=0), dict(dropout=True)))])
def test_options_of_a_mode_are_checked_at_the_door(name, by_mode, message):
    with pytest.raises(ValueError, match=message):
        make_attention(name, 16, 2, 2, by_mode=by_mode)

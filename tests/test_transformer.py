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

"""Fields that move and tables in another order: what a sample holds, and that no part knows another."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from hot_nbdev.data import moved
from hot_nbdev.data.moved import FIELDS, Aligned, Shifted, motion_data, smooth_fields, white_fields


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def test_smooth_fields_have_the_spectrum_that_is_told():
    x = smooth_fields(1000, (32, 32), chance())
    power = torch.fft.rfft2(x).abs().square().mean(0)
    assert_close(power[0, 1] / power[0, 4], torch.tensor(16.0), rtol=0.15, atol=0)
    assert power[0, 0] < 1e-6


def test_half_the_torus_means_every_shift_once():
    draws = Shifted(white_fields(1, (6, 7), chance()), (6, 7), (3, 3), 5000).draws
    counts = [torch.bincount(draws[:, 3 + m] % n, minlength=n) for m, n in enumerate((6, 7))]
    assert all((abs(c / 5000 * len(c) - 1) < 0.2).all() for c in counts)


def test_in_a_window_only_what_can_be_known_counts_and_nothing_is_read_outside():
    source = torch.arange(2 * 20 * 17.0).reshape(2, 20, 17)
    part = Shifted(source, (8, 7), (4, 3), 100, torus=False)
    x, y = part[torch.arange(100)]
    for (a, b), c, (f, i, j, s, t) in zip(x.movedim(-1, 1), y[..., 0], part.draws.tolist(), strict=True):
        at = [(i - n * s, j - n * t) for n in range(3)]
        assert all(0 <= p <= 12 and 0 <= q <= 10 for p, q in at)
        frames = [source[f, p:p + 8, q:q + 7] for p, q in at]
        assert torch.equal(a, frames[0]) and torch.equal(b, frames[1])
        for p in range(8):
            for q in range(7):
                inside = 0 <= p - s < 8 and 0 <= q - t < 7
                assert (c[p, q] == frames[2][p, q] == b[p - s, q - t]) if inside else c[p, q].isnan()


def island():
    sea = torch.randn(3, 12, 11, generator=chance())
    sea[:, 3:6, 2:7] = torch.nan
    return sea


@pytest.mark.parametrize("part", [Shifted(white_fields(4, (6, 5), chance()), (6, 5), (3, 2), 20),
                                  Shifted(island(), (5, 4), (2, 2), 20, torus=False),
                                  Aligned(white_fields(4, (6, 5), chance()), 20)], ids=["shifted", "masked", "aligned"])
def test_fresh_batches_follow_the_generator_and_leave_the_part_as_it_is(part):
    given, before = part[torch.arange(8)], part.fingerprint()
    torch.manual_seed(5)
    first, second = part.fresh(*given), part.fresh(*given)
    torch.manual_seed(5)
    assert all(torch.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in zip(first, part.fresh(*given), strict=True))
    assert not torch.equal(first[0], second[0]) and [t.shape for t in first] == [t.shape for t in given]
    assert part.fingerprint() == before == part.to("cpu").fingerprint()


def test_a_seed_repeats_the_parts():
    parts, again, other = (motion_data("white", (6, 5), samples=10, seed=seed) for seed in (0, 0, 1))
    assert parts.fingerprint() == again.fingerprint() != other.fingerprint()
    assert [f[0] for f in parts.about["fields"]] == list(FIELDS.values())


def test_regions_of_a_scene_share_no_pixel(monkeypatch):
    pixels = torch.arange(3 * 101 * 100.0).reshape(3, 101, 100)
    scene = SimpleNamespace(values=pixels.movedim(0, -1), md5=None)
    monkeypatch.setattr(moved, "load_scene", lambda name: scene)
    regions = [part.fields for part in motion_data("sentinel2", (8, 8), reach=(2, 2), samples=4)[:3]]
    std, mean = torch.std_mean(pixels[:, :, :52].double(), (1, 2), correction=0)
    back = [(r.double() * std.view(-1, 1, 1) + mean.view(-1, 1, 1)).round().long() for r in regions]
    assert [tuple(r.shape[1:]) for r in regions] == [(101, 52), (50, 48), (51, 48)]
    seen = [set(r.flatten().tolist()) for r in back]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]
    assert sum(map(len, seen)) == pixels.numel()


def test_fields_of_a_file(tmp_path):
    film = np.random.default_rng(0).normal(5, 2, (20, 24, 20)).astype(np.float32)
    np.save(tmp_path / "a.npy", film)
    assert not motion_data(str(tmp_path / "a.npy"), (8, 8), reach=(4, 3), samples=7).about["torus"]
    endless = np.where(np.arange(20) == 3, np.inf, film)
    for array, text in [(film[:5], "5 fields, .* do not make three parts; give at least 10"), (endless, "a.npy"),
                        (film * 0 + 3, "a.npy holds one number alone"), (film * np.nan, "a.npy holds no number"),
                        (np.array(["a", "b"]), "fields .*a.npy should hold real numbers")]:
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ValueError, match=text):
            motion_data(str(tmp_path / "a.npy"), (4, 4))

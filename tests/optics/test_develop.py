"""Developing: the curve's ends, and the mean over single pixels' noise against a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.optics.camera import EOS_RP
from sorites.optics.develop import curves, develop, jpeg, tone
from sorites.optics.sensor import Draw, raw


def test_the_curve_rises_from_black_to_white() -> None:
    seen = tone(np.linspace(-0.1, 1.1, 999), EOS_RP)
    assert (np.diff(seen) >= 0).all()
    assert seen[0] == 0
    assert seen[-1] == pytest.approx(1)


@pytest.mark.parametrize("area", [1.0, 6.0])
def test_black_is_black_and_white_is_white_in_every_channel(area: float) -> None:
    table = curves(EOS_RP, 400, area).reshape(3, -1)
    np.testing.assert_allclose(table[:, -1], 1, atol=1e-6)
    ends = develop(np.array([[[EOS_RP.white_dn] * 3, [EOS_RP.black_dn] * 3]], np.float32), EOS_RP, 400)
    np.testing.assert_allclose(ends[0, 0], 1, atol=1e-6)
    np.testing.assert_allclose(ends[0, 1], 0, atol=1e-6)


def test_white_balance_makes_grey_grey() -> None:
    """Filters that pass less are made up for: equal light gives equal values."""
    light = 0.2 * EOS_RP.saturation_e(100) / np.array(EOS_RP.balance)
    numbers = (light * EOS_RP.dn_per_e(100) + EOS_RP.black_dn).astype(np.float32).reshape(1, 1, 3)
    seen = develop(numbers, EOS_RP, 100)[0, 0]
    np.testing.assert_allclose(seen, tone(np.array(0.2), EOS_RP), atol=2e-3)


@pytest.mark.parametrize("electrons", [0.0, 3.0, 30.0])
def test_a_scaled_down_image_is_the_mean_of_developed_pixels(electrons: float) -> None:
    """In the dark the curve bends within the noise: what is seen is the mean of the curve, not the
    curve of the mean.
    """
    iso, many = 6400, (256, 256, 3)
    single = raw(np.full(many, electrons, np.float32), iso, Draw.of(many, np.random.default_rng(0)), EOS_RP)
    wanted = develop(single, EOS_RP, iso).mean((0, 1))
    mean = np.full((1, 1, 3), EOS_RP.black_dn + electrons * EOS_RP.dn_per_e(iso), np.float32)
    np.testing.assert_allclose(develop(mean, EOS_RP, iso, area=1e6)[0, 0], wanted, rtol=0.05, atol=0.004)


def test_jpeg_is_what_a_file_holds() -> None:
    y, x = np.mgrid[:64, :64] / 64
    image = np.stack([x, y, (x + y) / 2], 2).astype(np.float32)
    kept = jpeg(image, 95)
    assert kept.dtype == np.float32
    np.testing.assert_allclose(kept * 255, np.rint(kept * 255), atol=1e-4)
    assert 0 < np.abs(kept - image).mean() < 0.01
    assert np.abs(jpeg(image, 20) - image).mean() > np.abs(kept - image).mean()

"""The camera's exposure, ranges and blur, against ISO 12232 and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics import convolve
from sorites.optics.camera import BODIES, EOS_RP, Exposure, blur


def test_saturation_follows_iso_12232() -> None:
    """Raw is full at H = 78 / S lux seconds, H = 0.65 L t / N^2."""
    for e in (Exposure(100, 1 / 60, 5.6), Exposure(3200, 1 / 500, 4.0)):
        luminance = 78 / e.iso / (0.65 * e.shutter / e.aperture**2)
        assert luminance * EOS_RP.electrons(e) == pytest.approx(EOS_RP.saturation_e(e.iso))


@pytest.mark.parametrize(("f_number", "confusion"), [(4.0, 0.0), (16.0, 0.0), (5.0, 40.0)])
def test_blur_conserves_the_energy_of_a_point(f_number: float, confusion: float) -> None:
    point = np.zeros((65, 65, 3), np.float32)
    point[32, 32] = 1
    spread = next(iter(convolve.sweep(point, [blur(f_number, 6.0, confusion)], "zeros")))
    np.testing.assert_allclose(spread.sum((0, 1)), 1, rtol=1e-4)


def test_defocus_blurs_to_the_circle_of_confusion() -> None:
    """The rms radius of a uniform disk of diameter d is d / sqrt 8 (small diffraction apart)."""
    taps = blur(4.0, 2.0, 60.0).taps[1]
    x = np.arange(len(taps)) - len(taps) // 2
    rms = np.sqrt((taps * (x**2 + x[:, None] ** 2)).sum()) * 2.0
    assert rms == pytest.approx(60 / 8**0.5, rel=0.1)


@pytest.mark.parametrize(
    "wrong",
    [Exposure(50, 0.1, 5), Exposure(100, 60, 5), Exposure(100, 0.1, 2), Exposure(100, 0.1, float("nan"))],
)
def test_a_setting_out_of_range_is_refused_with_the_range(wrong: Exposure) -> None:
    with pytest.raises(SoritesError, match=r"eos_rp: (iso|shutter|aperture)"):
        BODIES["eos_rp"].check(wrong)

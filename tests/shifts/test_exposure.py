"""The three dials against closed forms: powers of two in light, the photon-transfer line, the
transfer of a disk.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import uniform_filter

from sorites import core
from sorites.core import ImageF32
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.optics.camera import EOS_RP
from sorites.optics.develop import linear_from_srgb
from sorites.shifts.camera import disk_transfer


def turn(name: str, image: ImageF32, severity: float) -> ImageF32:
    return core.shift(name)(image, severity, rng_for(0, "one", name))


@pytest.mark.parametrize("stops", [0.5, 1, 3])
def test_a_stop_is_a_factor_of_two_in_light(photo: ImageF32, stops: float) -> None:
    up, down = turn("exposure_stops", photo, stops), turn("exposure_stops_down", photo, stops)
    unclipped = linear_from_srgb(photo) * 2**stops < 1
    np.testing.assert_allclose(
        linear_from_srgb(up)[unclipped], (linear_from_srgb(photo) * 2**stops)[unclipped], rtol=1e-4
    )
    assert (up[~unclipped] > 1 - 1e-6).all()
    np.testing.assert_allclose(linear_from_srgb(down), linear_from_srgb(photo) / 2**stops, rtol=1e-4)


@pytest.mark.parametrize("stops", [3, 6, 9])
def test_noise_is_that_of_the_iso_less_that_of_the_base(stops: float) -> None:
    grey = np.full((256, 256, 3), 0.6, np.float32)
    light = float(linear_from_srgb(grey)[0, 0, 1])
    noisy = linear_from_srgb(turn("iso_noise", grey, stops))[..., 1]

    def variance(iso: float) -> float:
        return light / EOS_RP.saturation_e(iso) + (EOS_RP.noise_e(iso) / EOS_RP.saturation_e(iso)) ** 2

    if stops < 9:  # beyond, the tails are clipped
        assert noisy.var() == pytest.approx(variance(100 * 2**stops) - variance(100), rel=0.03)
    assert noisy.mean() == pytest.approx(light, rel=0.05)


def test_the_disk_transfer_is_that_of_a_sampled_disk() -> None:
    """The Fourier transform of a finely drawn disk, at frequencies along one axis."""
    diameter, fine = 7.0, 41
    x = (np.arange(-6 * fine, 6 * fine) + 0.5) / fine
    disk = np.hypot(x, x[:, None]) <= diameter / 2
    along = disk.sum(0) / disk.sum()
    for frequency in (0.0, 0.05, 0.1, 0.2):
        wanted = (along * np.cos(2 * np.pi * frequency * x)).sum()
        assert disk_transfer(diameter, np.array([frequency], np.float32))[0] == pytest.approx(
            wanted, abs=2e-3
        )


def test_opening_the_lens_keeps_the_light_and_loses_detail(photo: ImageF32) -> None:
    blurred = turn("aperture", photo, 8)
    assert linear_from_srgb(blurred).mean() == pytest.approx(linear_from_srgb(photo).mean(), rel=0.02)
    detail = [
        np.square(made - uniform_filter(made, (3, 3, 1))).mean()
        for made in (photo, turn("aperture", photo, 4), blurred)
    ]
    assert detail[0] > detail[1] > detail[2]


@pytest.mark.parametrize(("name", "wrong"), [("exposure_stops", -1), ("iso_noise", 40), ("aperture", 9)])
def test_out_of_range_is_refused(photo: ImageF32, name: str, wrong: float) -> None:
    with pytest.raises(SoritesError, match=f"{name}: expected a severity from 0 to"):
        turn(name, photo, wrong)

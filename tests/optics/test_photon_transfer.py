"""Photon transfer against sensors that NumPy simulates, whose gain and read noise are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.photon_transfer import Planes, Transfer, fit_sensor, measure_transfer

BLACK, WHITE = 512, 16383


class VirtualSensor:
    """Poisson photons, normal read noise, a fixed pattern of 1 %, vignetting, rounding and saturation."""

    def __init__(self, gain: float, read_e: float, seed: int, side: int = 96) -> None:
        self.gain, self.read_e, self.rng = gain, read_e, np.random.default_rng(seed)
        y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
        pattern = 1 + 0.01 * self.rng.standard_normal((4, side, side))
        self.response: NDArray[np.float64] = (1 - 0.2 * (x**2 + y**2)) * pattern
        self.offset = self.rng.normal(0, 3, (4, side, side))

    def frame(self, electrons: float) -> Planes:
        counts = self.rng.poisson(electrons * self.response)
        noisy = counts + self.rng.normal(0, self.read_e, counts.shape)
        return np.clip(np.rint(noisy * self.gain + BLACK + self.offset), 0, WHITE).astype(np.uint16)

    def measured(self, shares: Sequence[float], darks: int = 4, iso: float = 100) -> Transfer:
        """Measure pairs at shares of saturation; the lamp is 1 % brighter in the second frame of a pair."""
        full = (WHITE - BLACK) / self.gain
        pairs = [(self.frame(share * full), self.frame(1.01 * share * full)) for share in shares]
        return measure_transfer(pairs, [self.frame(0) for _ in range(darks)], WHITE, iso)


EIGHT = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.75, 2.0)


@pytest.mark.parametrize(("gain", "read_e"), [(0.317, 26.0), (1.3, 4.0), (5.08, 2.7)])
def test_twenty_frames_give_gain_and_read_noise_within_three_percent(gain: float, read_e: float) -> None:
    found = VirtualSensor(gain, read_e, seed=1).measured(EIGHT)
    assert found.gain.value == pytest.approx(gain, rel=0.03)
    assert found.read_e.value == pytest.approx(read_e, rel=0.03)
    assert found.full_e.value == pytest.approx((WHITE - BLACK) / gain, rel=0.03)
    assert found.saturation_seen
    assert found.pairs == len(EIGHT) - 1
    assert found.gains == pytest.approx([gain] * 4, rel=0.06)


def test_intervals_contain_the_true_values() -> None:
    """Of 30 sensors, 95 % intervals miss at most 5 (binomial: 99.7 %)."""
    gains, noises = 0, 0
    for seed in range(30):
        found = VirtualSensor(1.0, 5.0, seed, side=36).measured((0.1, 0.3, 0.6))
        gains += found.gain.low <= 1.0 <= found.gain.high
        noises += found.read_e.low <= 5.0 <= found.read_e.high
    assert gains >= 25
    assert noises >= 25


def test_without_a_saturated_flat_the_white_level_is_used_and_said() -> None:
    found = VirtualSensor(1.0, 5.0, 0).measured((0.1, 0.5))
    assert not found.saturation_seen
    assert found.saturation_dn == WHITE


def test_saturation_below_the_white_level_is_found() -> None:
    """A well that is full below the range of the converter: values pile up there."""
    sensor = VirtualSensor(1.0, 5.0, 0)
    pairs = [
        (np.minimum(sensor.frame(e), 9000), np.minimum(sensor.frame(e), 9000)) for e in (500, 3000, 14000)
    ]
    found = measure_transfer(pairs, [sensor.frame(0), sensor.frame(0)], WHITE, 100)
    assert found.saturation_dn == 9000
    assert found.full_e.value == pytest.approx(9000 - BLACK, rel=0.03)


def test_processed_files_are_off_the_line() -> None:
    """Noise reduction that depends on the level breaks the photon-transfer line."""
    sensor = VirtualSensor(1.0, 5.0, 0)

    def smoothed(e: float) -> Planes:
        frame = sensor.frame(e).astype(np.float64)
        return np.rint((frame + np.roll(frame, 1, 2)) / 2).astype(np.uint16) if e > 1000 else sensor.frame(e)

    pairs = [(smoothed(e), smoothed(e)) for e in (200, 500, 5000)]
    assert measure_transfer(pairs, [sensor.frame(0), sensor.frame(0)], WHITE, 100).nonlinearity > 0.2


@pytest.mark.parametrize("shares", [(), (2.0,), (1e-5,)], ids=["none", "saturated", "dark"])
def test_flats_that_say_nothing_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(SoritesError, match="ISO 100"):
        VirtualSensor(1.0, 5.0, 0, side=24).measured(shares)


def test_noise_before_and_after_the_gain_are_told_apart() -> None:
    transfers = [
        VirtualSensor(0.3 * iso / 100, (2.2**2 + (26 * 100 / iso) ** 2) ** 0.5, 3).measured(
            (0.2, 0.6), iso=iso
        )
        for iso in (100, 400, 1600)
    ]
    sensor = fit_sensor(transfers, WHITE)
    assert sensor.base_iso == 100
    assert sensor.read_e == pytest.approx(2.2, rel=0.05)
    assert sensor.late_e == pytest.approx(26, rel=0.03)
    assert sensor.full_well_e == pytest.approx((WHITE - BLACK) / 0.3, rel=0.03)
    assert (sensor.bits, sensor.black_dn) == (14, BLACK)
    assert fit_sensor(transfers[:1], WHITE).late_e is None

from __future__ import annotations

import numpy as np

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for


def turn(image: ImageF32, severity: float, sample: str = "a") -> ImageF32:
    return shift("spatter")(image, severity, rng_for(0, sample, "spatter"))


def test_spatter_is_turquoise_water_then_brown_mud() -> None:
    gray = np.full((96, 96, 3), 0.3, np.float32)
    water = turn(gray, 2) - gray
    wet = water[..., 2] > 0.02
    assert 0.02 < wet.mean() < 0.5
    np.testing.assert_allclose(water[wet][:, 0] / water[wet][:, 2], 175 / 238, rtol=0.01)
    mud = turn(gray, 5)
    thick = mud[..., 2] < 0.1
    assert thick.mean() > 0.05
    np.testing.assert_allclose(mud[thick].min(axis=0), [63 / 255, 42 / 255, 20 / 255], atol=0.01)


def test_water_runs_thin_and_bright_from_nothing() -> None:
    gray = np.full((96, 96, 3), 0.3, np.float32)
    gains = [(turn(gray, severity) - gray).max() for severity in (0.01, 0.1, 0.5, 1.0)]
    np.testing.assert_allclose(
        gains, [0.006 * 238 / 255, 0.06 * 238 / 255, 0.3 * 238 / 255, 0.6 * 238 / 255], rtol=1e-3
    )

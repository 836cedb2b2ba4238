from __future__ import annotations

import numpy as np

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for


def turn(image: ImageF32, severity: float, sample: str = "a") -> ImageF32:
    return shift("frost")(image, severity, rng_for(0, sample, "frost"))


def test_frost_weighs_image_and_pane_as_published() -> None:
    black, gray = np.zeros((64, 64, 3), np.float32), np.full((64, 64, 3), 0.25, np.float32)
    for sample in map(str, range(6)):
        for level, seen, frozen in ((1, 1, 0.4), (3, 0.7, 0.7), (5, 0.6, 0.75)):
            pane = turn(black, level, sample) / np.float32(frozen)
            np.testing.assert_allclose(
                turn(gray, level, sample), np.clip(seen * 0.25 + frozen * pane, 0, 1), atol=1e-6
            )
        assert 0.4 < pane.mean() < 0.85
        assert 0.02 < pane.std(axis=(0, 1)).mean() < 0.2

"""Exposure error in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sorites.measures.images import exposure_error


def test_exposure_error_is_in_stops() -> None:
    grey = np.full((8, 8, 3), 188, np.uint8)
    half = np.full((8, 8, 3), 137, np.uint8)
    assert exposure_error(grey, half) == pytest.approx(-1, abs=0.01)
    assert exposure_error(half, grey) == pytest.approx(1, abs=0.01)
    assert math.isfinite(exposure_error(grey, np.zeros_like(grey)))

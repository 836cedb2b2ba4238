"""Every shift takes an image of any size, or says that it is too small.

Shifts broke where no power of two divides a side.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sorites.core import SHIFTS, Shift
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for

ALL = [pytest.param(SHIFTS.get(name), id=name) for name in SHIFTS.names()]
SIDES = st.integers(1, 140)


@pytest.mark.parametrize("shift", ALL)
@settings(derandomize=True, database=None, max_examples=6, deadline=None)
@given(height=SIDES, width=SIDES, seed=st.integers(0, 9))
@example(height=1, width=1, seed=0)
@example(height=1, width=140, seed=0)
@example(height=97, width=131, seed=0)
@example(height=131, width=97, seed=1)
@example(height=65, width=33, seed=0)
def test_any_size_is_taken_or_called_too_small(shift: Shift, height: int, width: int, seed: int) -> None:
    image = np.random.default_rng(seed).random((height, width, 3), np.float32)
    ends = [*shift.levels[:1], *shift.levels[-1:], *shift.settings[-1:]]
    made, said = [], ""
    try:
        made = list(shift.sweep(image, ends, rng_for(seed, "sample", shift.name)))
    except SoritesError as error:
        said = str(error)
    assert made or "small" in said
    assert made or min(height, width) < 25, "an image as large as a kernel is large enough"
    for moved in made:
        assert moved.shape == image.shape
        assert np.isfinite(moved).all()
        assert moved.min() >= 0
        assert moved.max() <= 1


@pytest.mark.parametrize("shift", [one for one in ALL if SHIFTS.get(str(one.id)).levels])
@pytest.mark.parametrize(
    "severity", [5e-324, 1e-300, 1e-9, 1e6, 1e18, 1e300, float("inf"), float("nan"), -1.0]
)
def test_an_absurd_severity_is_applied_or_refused_in_words(shift: Shift, severity: float) -> None:
    image = np.random.default_rng(0).random((40, 30, 3), np.float32)
    moved, said = None, ""
    try:
        moved = shift(image, severity, rng_for(0, "sample", shift.name))
    except SoritesError as error:
        said = str(error)
    if moved is None:
        assert shift.name in said or "severity" in said
    else:
        assert 0 < severity < float("inf")
        assert np.isfinite(moved).all()

from __future__ import annotations

import pytest

from sorites.core.errors import SoritesError
from sorites.optics.tracing.lens import first_order


@pytest.mark.parametrize(("n", "thick"), [(1.5, 0.0), (1.5168, 8.0), (1.8, 20.0)])
def test_a_thick_lens_is_the_lensmakers(n: float, thick: float) -> None:
    """1/f = (n - 1)(1/R1 - 1/R2 + (n - 1) d / (n R1 R2)), and the back focus is f (1 - (n - 1) d /
    (n R1)) (Hecht 6.1).
    """
    one, two = 1 / 50.0, -1 / 80.0
    power = (n - 1) * (one - two + (n - 1) * thick * one * two / n)
    found = first_order([one, two], [thick, 0], [n, 1], 1)
    assert found.efl_mm == pytest.approx(1 / power, rel=1e-12)
    assert found.bfl_mm == pytest.approx((1 - (n - 1) * thick * one / n) / power, rel=1e-12)
    assert found.at_stop == pytest.approx(1 - (n - 1) * thick * one / n, rel=1e-12)


def test_a_ball_of_glass() -> None:
    """f = n R / (2 (n - 1)) from the middle (Hecht, problem 6.9)."""
    found = first_order([1 / 5, -1 / 5], [10, 0], [1.5, 1], 0)
    assert found.efl_mm == pytest.approx(7.5)
    assert found.bfl_mm == pytest.approx(2.5)


def test_a_window_has_no_focal_length() -> None:
    with pytest.raises(SoritesError, match="afocal"):
        first_order([0, 0], [5, 0], [1.5, 1], 0)

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for
from sorites.shifts.blur import _fetch


def walked(draw: NDArray[np.float32], reach: int) -> NDArray[np.intp]:
    """The published loop on pixel numbers: from the last pixel to the first, a near pixel copied
    over each.
    """
    height, width = draw.shape[1:]
    numbers = np.arange(height * width).reshape(height, width)
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            dy, dx = (int(u * 2 * reach) - reach for u in draw[:2, h, w])
            numbers[h, w] = numbers[h + dy, w + dx]
    return numbers.ravel()


@pytest.mark.parametrize("reach", [1, 2, 4])
@pytest.mark.parametrize("size", [(8, 8), (31, 23)])
def test_chains_of_copies_end_where_the_published_loop_ends_them(reach: int, size: tuple[int, int]) -> None:
    draw = np.random.default_rng(reach).random((3, *size), dtype=np.float32)
    np.testing.assert_array_equal(_fetch(draw, reach), walked(draw, reach))


def test_a_fraction_of_the_reach_moves_that_fraction_of_the_pixels() -> None:
    draw = np.random.default_rng(0).random((3, 100, 100), dtype=np.float32)
    here = np.arange(10000)
    moved = [(_fetch(draw, reach) != here).mean() for reach in (0.1, 0.2, 1.0)]
    assert moved[0] == pytest.approx(moved[2] / 10, rel=0.2)
    assert moved[1] == pytest.approx(moved[2] / 5, rel=0.2)


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (8, 8)])
def test_glass_takes_any_size(size: tuple[int, int]) -> None:
    image: ImageF32 = np.full((*size, 3), 0.3, np.float32)
    np.testing.assert_allclose(shift("glass_blur")(image, 5, rng_for(0, "a", "glass_blur")), image, atol=1e-6)

"""The nineteen against the package imagecorruptions, at every published level.

What has no chance in it is equal to rounding; what has is as strong: the same mean squared change
over many draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sorites.core import ImageF32, ImageU8, shift, to_uint8
from sorites.core.rng import rng_for

Corrupt = Callable[[ImageU8, str, int], ImageU8]
DRAWS = {"glass_blur": 3, "fog": 60, "snow": 40, "spatter": 120, "motion_blur": 60, "elastic_transform": 12}
# the peer seeds its impulses by itself, so that a run in a hundred was 4 % apart with 8 draws
DRAWS_OF_NOISE = 40
TOLERANCE = {
    "glass_blur": 0.07,
    "frost": 0.1,
    "fog": 0.1,
    "spatter": 0.12,
    "snow": 0.08,
    "motion_blur": 0.06,
    "elastic_transform": 0.05,
}
NOISES = ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"]
each_level = pytest.mark.parametrize("level", [1, 2, 3, 4, 5])


def ours(image: ImageF32, name: str, level: int, sample: int = 0) -> ImageU8:
    dial = shift(name)
    return to_uint8(dial(image, dial.levels[level - 1], rng_for(0, str(sample), name)))


@each_level
@pytest.mark.parametrize(
    "name",
    ["brightness", "contrast", "defocus_disk", "gaussian_blur", "jpeg", "pixelate", "saturate", "zoom_blur"],
)
def test_equal_to_rounding_where_there_is_no_chance(
    photo: ImageF32, peer: Corrupt, name: str, level: int
) -> None:
    """Theirs cuts to 8 bits where ours rounds, hence 1; its zoom may leave the last row and column black."""
    made, theirs = ours(photo, name, level).astype(int), peer(to_uint8(photo), name, level).astype(int)
    apart = np.abs(made - theirs)[:-1, :-1]
    assert apart.max() <= (0 if name in ("jpeg", "pixelate") else 1)


@each_level
@pytest.mark.parametrize("name", [*NOISES, *DRAWS, pytest.param("frost", marks=pytest.mark.slow)])
def test_as_strong_where_there_is_chance(photo: ImageF32, peer: Corrupt, name: str, level: int) -> None:
    np.random.seed(level)  # noqa: NPY002 - the peer draws from the global generator
    image = photo[:, :96].copy()
    image_u8 = to_uint8(image).astype(float)
    draws = DRAWS.get(name, 120 if name == "frost" else DRAWS_OF_NOISE)
    made = np.mean([np.square(ours(image, name, level, k) - image_u8).mean() for k in range(draws)])
    theirs = np.mean([np.square(peer(to_uint8(image), name, level) - image_u8).mean() for _ in range(draws)])
    assert made == pytest.approx(theirs, rel=TOLERANCE.get(name, 0.04))

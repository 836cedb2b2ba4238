"""How much air stands between: the optical depth that a picture gained, from how much of the scene's light still arrives."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture
from sorites.errors import SoritesError
from sorites.optics.srgb import light_of_bytes

_GREY = np.array([0.2126, 0.7152, 0.0722])


def haze_depth(reference: Picture, moved: Picture) -> float:
    """-log of the share of the scene's contrast that arrives, in linear light: 0 untouched, 1 where a third is left.

    The share is the slope of the moved picture's light on the reference's (Koschmieder 1924: through even air of optical depth
    d the light is J exp(-d) + A (1 - exp(-d)), so the slope is exp(-d)); streaks and flakes, which know nothing of the scene,
    do not count as contrast. Infinite where nothing arrives, not a number where the reference is a single grey.
    """
    if reference.shape != moved.shape:
        raise SoritesError(f"wanted two pictures of one size, got {reference.shape} and {moved.shape}")
    before, after = _light(reference), _light(moved)
    spread = float(before.var())
    if spread < 1e-12:
        return math.nan
    share = float(((before - before.mean()) * (after - after.mean())).mean()) / spread
    return -math.log(share) if share > 0 else math.inf


def _light(picture: Picture) -> NDArray[np.float64]:
    light: NDArray[np.float64] = light_of_bytes()[picture] @ _GREY
    return light

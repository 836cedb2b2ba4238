"""The measure of haze: the optical depth of the air that a picture gained, from the share of contrast that still arrives."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture, add_measure
from sorites.optics.srgb import light_of_bytes

_GREY = np.array([0.2126, 0.7152, 0.0722])


@add_measure(nearer="lower", unit="optical depth")
def haze_depth(reference: Picture, moved: Picture) -> float:
    """Optical depth gained: -log of the share of the scene's contrast that arrives, in linear light; 0 for equal pictures.

    Lower is nearer; at 1 about a third of the contrast is left. The share is the slope of the moved picture's light on the
    reference's (Koschmieder 1924: through even air of optical depth d the light is J exp(-d) + A (1 - exp(-d)), so the slope is
    exp(-d)); streaks and flakes, which do not depend on the scene, do not count as contrast. The value is infinite where nothing
    arrives, and not a number where the reference is a single grey.
    """
    before, after = _light(reference), _light(moved)
    spread = float(before.var())
    if spread < 1e-12:
        return math.nan
    share = float(((before - before.mean()) * (after - after.mean())).mean()) / spread
    return -math.log(share) if share > 0 else math.inf


def _light(picture: Picture) -> NDArray[np.float64]:
    light: NDArray[np.float64] = light_of_bytes()[picture] @ _GREY
    return light

"""The light of a screen: gamma, white and veil from a grey ramp, and flicker from repeated photographs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError

Array = NDArray[np.float64]
# Range of gammas and flicker frequencies (Hz) that are searched.
GAMMAS, FREQUENCIES = (1.0, 4.0), (24.0, 2000.0)
# Relative error of a luminance in the fit, and the absolute one relative to white.
RELATIVE, ABSOLUTE = 0.005, 2e-5
# Flicker below this depth is not told from noise.
MIN_DEPTH = 0.003


@dataclass(frozen=True)
class Ramp:
    """A screen as L = white x^gamma + veil, where x is the pixel value 0..1.

    Attributes:
        gamma: Exponent, common to the colours.
        white: Luminance of white without the veil, by colour, cd/m2.
        veil: Light that the screen reflects or leaks at black, by colour, cd/m2.
        error: Largest relative deviation of a measured luminance from the curve.
    """

    gamma: float
    white: tuple[float, float, float]
    veil: tuple[float, float, float]
    error: float


def fit_ramp(values: Sequence[int], luminance: Array) -> Ramp:
    """Fit gamma, white and veil to a grey ramp.

    Args:
        values: Pixel values 0..255 that were shown; at least four different ones, with 0.
        luminance: Measured light, values x 3 colours.

    Raises:
        SoritesError: There are too few values, or the screen does not get brighter.
    """
    from scipy.optimize import minimize_scalar

    shown = np.asarray(values, np.float64) / 255
    if len(set(values)) < 4 or 0 not in values:
        raise SoritesError(f"a grey ramp needs black and at least three other values, got {list(values)}")
    if not (luminance[shown.argmax()] > 1.5 * luminance[shown.argmin()]).all():
        raise SoritesError(
            "the screen does not get brighter with the value that it shows; is the camera aimed at it?"
        )
    weights = 1 / (RELATIVE * luminance + ABSOLUTE * luminance.max())
    best = minimize_scalar(
        lambda gamma: _residual(gamma, shown, luminance, weights)[0], bounds=GAMMAS, method="bounded",
        options={"xatol": 1e-6},
    )  # fmt: skip
    gamma = float(best.x)
    white, veil = _residual(gamma, shown, luminance, weights)[1]
    curve = white * shown[:, None] ** gamma + veil
    return Ramp(
        gamma,
        (float(white[0]), float(white[1]), float(white[2])),
        (float(veil[0]), float(veil[1]), float(veil[2])),
        float(np.abs(luminance / curve - 1).max()),
    )


def _residual(
    gamma: float, shown: Array, luminance: Array, weights: Array
) -> tuple[float, tuple[Array, Array]]:
    """Return the weighted squared error at a gamma, with the white and veil of each colour that minimise
    it.
    """
    total, whites, veils = 0.0, [], []
    for colour in range(luminance.shape[1]):
        design = np.stack([shown**gamma, np.ones_like(shown)], axis=1) * weights[:, colour, None]
        target = luminance[:, colour] * weights[:, colour]
        (white, veil), *_ = np.linalg.lstsq(design, target, rcond=None)
        veil = max(float(veil), 0.0)
        total += float(((design @ np.array([white, veil]) - target) ** 2).sum())
        whites.append(float(white))
        veils.append(veil)
    return total, (np.array(whites), np.array(veils))


@dataclass(frozen=True)
class Flicker:
    """A screen whose light varies as 1 + depth x sin(2 pi hz t).

    Attributes:
        depth: Amplitude relative to the mean; 0 if none was found.
        hz: Frequency; None without flicker.
    """

    depth: float
    hz: float | None

    def level(self, shutter: float, phase: float) -> float:
        """Return the relative light of a photograph: the mean over its exposure, which starts at
        ``phase``.
        """
        return flicker_level(self.depth, self.hz or 0.0, shutter, phase)


def flicker_level(depth: float, hz: float, shutter: float, phase: float) -> float:
    """Return the mean of 1 + depth x sin over an exposure whose middle has this phase, in radians."""
    return 1 + depth * float(np.sinc(hz * shutter)) * math.sin(phase)


def fit_flicker(levels: Mapping[float, Sequence[float]]) -> Flicker:
    """Fit depth and frequency to the light of repeated photographs.

    An exposure averages the light over its time t, so that the rms variation between photographs is
    depth |sinc(hz t)| / sqrt 2.

    Args:
        levels: Measured light of repeated photographs by shutter time in s; at least three per time.
    """
    times = np.array(sorted(levels))
    variances, weights = [], []
    for time in times:
        light = np.asarray(levels[float(time)], np.float64)
        variances.append(float((light / light.mean()).var(ddof=1)))
        weights.append(len(light) - 1)
    variance, weight = np.array(variances), np.array(weights, np.float64)
    low, high = FREQUENCIES
    grid = np.geomspace(low, high, 1000)
    shapes = np.sinc(grid[:, None] * times) ** 2 / 2
    floor = MIN_DEPTH**2 / 2
    # Variances follow a gamma distribution: its likelihood at each frequency, with the best depth there,
    # which
    # solves its own equation.
    square = (weight * variance).sum() / (weight * np.maximum(shapes, 1e-12)).sum(1)
    for _ in range(30):
        pull = weight * shapes / (square[:, None] * shapes + floor) ** 2
        square = np.maximum(0.0, (pull * (variance - floor)).sum(1) / (pull * shapes).sum(1))
    expected = square[:, None] * shapes + floor
    best = int((weight * (np.log(expected) + variance / expected)).sum(1).argmin())
    depth = math.sqrt(float(square[best]))
    return Flicker(depth, float(grid[best])) if depth >= 2 * MIN_DEPTH else Flicker(0.0, None)

"""Zernike polynomials on the unit disk, not normalised: they peak at 1 at the rim; coefficients are in waves.

``m >= 0`` goes with cos(m t), ``m < 0`` with sin(|m| t), as in the Fringe (University of Arizona) order that
Zemax uses: 1 piston, 2-3 tilt, 4 defocus, 5-6 astigmatism, 7-8 coma, 9 spherical, 10-11 trefoil, ..., 37 is
(12, 0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import eval_jacobi

from sorites.core.errors import SoritesError

Array = NDArray[np.float64]

# (n, m) by Fringe index. The first 36 follow a rule; the 37th is by convention the next spherical term.
FRINGE: dict[int, tuple[int, int]] = {37: (12, 0)}

FRINGE |= {
    (1 + half) ** 2 - 2 * m + odd: (2 * half - m, -m if odd else m)
    for half in range(6)
    for m in range(half + 1)
    for odd in (0, 1)
    if m or not odd
}


def radial(n: int, m: int, rho: Array) -> Array:
    """Return the radial polynomial R_n^|m| (Born and Wolf 9.2.1) as a Jacobi polynomial, which is stable at
    any order.
    """
    m = abs(m)
    if n < m or (n - m) % 2:
        raise SoritesError(f"no Zernike polynomial (n={n}, m={m}): expected n >= |m| and n - |m| even")
    k = (n - m) // 2
    return np.asarray((-1) ** k * rho**m * eval_jacobi(k, m, 0, 1 - 2 * rho**2))


def zernike(n: int, m: int, rho: Array, theta: Array) -> Array:
    """Return Z_n^m at polar coordinates; ``rho`` is in pupil radii."""
    angular = np.cos(m * theta) if m >= 0 else np.sin(-m * theta)
    return radial(n, m, rho) * angular


def fringe(index: int) -> tuple[int, int]:
    """Return the (n, m) of a Fringe index 1..37."""
    if index not in FRINGE:
        raise SoritesError(f"no Fringe Zernike number {index}: expected 1 to 37")
    return FRINGE[index]


def rms(n: int, m: int) -> float:
    """Return the RMS of Z_n^m over the disk, the factor from a peak coefficient to RMS wavefront error."""
    return 0.0 if n == 0 else 1 / math.sqrt((n + 1) * (1 if m == 0 else 2))


def check_coefficients(waves: Mapping[int, float]) -> dict[int, float]:
    """Return the non-zero coefficients; raise an error for unknown indices and non-finite values."""
    for index, value in waves.items():
        fringe(index)
        if not math.isfinite(value):
            raise SoritesError(f"Zernike coefficient {index} is {value}: expected a finite number of waves")
    return {index: value for index, value in waves.items() if value}


def wavefront(waves: Mapping[int, float], rho: Array, theta: Array) -> Array:
    """Return the wavefront error in waves, the sum of Fringe polynomials."""
    total = np.zeros(np.broadcast_shapes(rho.shape, theta.shape))
    for index, value in check_coefficients(waves).items():
        total += value * zernike(*fringe(index), rho, theta)
    return total


def wavefront_rms(waves: Mapping[int, float]) -> float:
    """Return the RMS wavefront error in waves without piston; the polynomials are orthogonal, so squares
    add.
    """
    return math.sqrt(
        sum((value * rms(*fringe(index))) ** 2 for index, value in check_coefficients(waves).items())
    )


def max_slope(waves: Mapping[int, float]) -> float:
    """Return an upper bound of the wavefront's slope over the disk, in waves per pupil radius."""
    return sum(
        abs(value) * max(_slope(*fringe(index)), 0.0) for index, value in check_coefficients(waves).items()
    )


def _slope(n: int, m: int) -> float:
    """Return the bound of one polynomial: the larger of the rim slope (n (n + 2) - m^2) / 2 and the angular
    slope |m|.
    """
    return max((n * (n + 2) - m * m) / 2, float(abs(m)))

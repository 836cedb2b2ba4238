"""Zernike polynomials on the unit disk, not normalised: peak value 1 at the rim, coefficients in peak waves.

``m >= 0`` goes with cos(m t), ``m < 0`` with sin(|m| t), as in the Fringe (University of Arizona) order that Zemax uses:
1 piston, 2-3 tilt, 4 defocus, 5-6 astigmatism, 7-8 coma, 9 spherical, 10-11 trefoil, ..., 37 is (12, 0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import eval_jacobi

from sorites.errors import SoritesError

Array = NDArray[np.float64]

FRINGE: dict[int, tuple[int, int]] = {37: (12, 0)}
"""Fringe index to (n, m). The first 36 follow one rule; the 37th, by convention, is the next spherical one."""

FRINGE |= {
    (1 + half) ** 2 - 2 * m + odd: (2 * half - m, -m if odd else m)
    for half in range(6)
    for m in range(half + 1)
    for odd in (0, 1)
    if m or not odd
}


def radial(n: int, m: int, rho: Array) -> Array:
    """The radial polynomial R_n^|m| (Born and Wolf 9.2.1), stable at any order because it is a Jacobi polynomial."""
    m = abs(m)
    if n < m or (n - m) % 2:
        raise SoritesError(f"no Zernike polynomial (n={n}, m={m}): wanted n >= |m| and n - |m| even")
    k = (n - m) // 2
    return np.asarray((-1) ** k * rho**m * eval_jacobi(k, m, 0, 1 - 2 * rho**2))


def zernike(n: int, m: int, rho: Array, theta: Array) -> Array:
    """Z_n^m at polar points; ``rho`` is the distance from the pupil's centre in pupil radii."""
    angular = np.cos(m * theta) if m >= 0 else np.sin(-m * theta)
    return radial(n, m, rho) * angular


def fringe(index: int) -> tuple[int, int]:
    """The (n, m) of a Fringe index 1..37."""
    if index not in FRINGE:
        raise SoritesError(f"no Fringe Zernike number {index}: wanted 1 to 37")
    return FRINGE[index]


def rms(n: int, m: int) -> float:
    """The RMS over the disk of Z_n^m: peak coefficient times this is the RMS wavefront error."""
    return 0.0 if n == 0 else 1 / math.sqrt((n + 1) * (1 if m == 0 else 2))


def checked(waves: Mapping[int, float]) -> dict[int, float]:
    """Fringe coefficients that are all known and finite, zeros left out."""
    for index, value in waves.items():
        fringe(index)
        if not math.isfinite(value):
            raise SoritesError(f"Zernike coefficient {index} is {value}: wanted a finite number of waves")
    return {index: value for index, value in waves.items() if value}


def wavefront(waves: Mapping[int, float], rho: Array, theta: Array) -> Array:
    """The wavefront error in waves: the sum of Fringe polynomials times their coefficients."""
    total = np.zeros(np.broadcast_shapes(rho.shape, theta.shape))
    for index, value in checked(waves).items():
        total += value * zernike(*fringe(index), rho, theta)
    return total


def wavefront_rms(waves: Mapping[int, float]) -> float:
    """The RMS wavefront error in waves over the disk, piston left out: the polynomials are orthogonal."""
    return math.sqrt(sum((value * rms(*fringe(index))) ** 2 for index, value in checked(waves).items()))


def steepest(waves: Mapping[int, float]) -> float:
    """A bound on the wavefront's slope anywhere on the disk, in waves per pupil radius."""
    return sum(abs(value) * max(_slope(*fringe(index)), 0.0) for index, value in checked(waves).items())


def _slope(n: int, m: int) -> float:
    """The rim slope of R_n^m, (n (n + 2) - m^2) / 2, or of its angle, |m|: the steeper of the two is the bound."""
    return max((n * (n + 2) - m * m) / 2, float(abs(m)))

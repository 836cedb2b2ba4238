"""Find the coefficient at which a mode's kernel is as strong as a reference kernel, and say how well it fits otherwise.

All criteria are means over the colours, as in the OpticsBench paper (appendix E-B): the frequency at 50 % contrast, the area
under the MTF, or the likeness of two test charts blurred by the one and by the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from sorites.errors import SoritesError
from sorites.optics.aberrated import Imager
from sorites.optics.charts import acutance, slanted_edge, spilled_coins, texture_mtf
from sorites.optics.convolve import sweep
from sorites.optics.mtf import SLICES, crossing, sharpness
from sorites.optics.quality import psnr, ssim

Array = NDArray[np.float64]
Criterion = Literal["mtf50", "area", "ssim", "psnr"]
STRONGEST = 8.0
"""Waves beyond which no match is looked for."""


@dataclass(frozen=True)
class Match:
    """A coefficient in waves, its kernel (colour, y, x), and the least share of the light its frame caught in any colour."""

    waves: float
    taps: Array
    caught: float


def match(imager: Imager, mode: int, reference: Array, criterion: str = "mtf50") -> Match:
    """The coefficient of Fringe ``mode`` that comes nearest to ``reference``, (y, x) or (colour, y, x), by the criterion.

    Where the frame cuts off so much light that no coefficient is as blurred as the reference, the nearest one is given.
    """
    if criterion not in get_args(Criterion):
        raise SoritesError(f"criterion: wanted one of {', '.join(get_args(Criterion))}, got {criterion!r}")
    made = functools.lru_cache(maxsize=64)(lambda waves: imager.kernel({mode: waves}))
    found = _crossing(made, reference, criterion) if criterion in ("mtf50", "area") else _nearest(made, reference, criterion)
    return Match(found, made(found), imager.caught({mode: found}))


def _crossing(made: Callable[[float], Array], reference: Array, criterion: str) -> float:
    """Where the criterion falls through the reference's value; coefficients are doubled until it does."""
    wanted = getattr(sharpness(reference), criterion)

    def excess(waves: float) -> float:
        return float(np.nan_to_num(getattr(sharpness(made(waves)), criterion), nan=0.5) - wanted)

    low, high = 0.0, 1.0
    while excess(high) > 0 and high < STRONGEST:
        low, high = high, 2 * high
    if excess(low) * excess(high) <= 0:
        return float(brentq(excess, low, high, xtol=1e-4))
    return _least(lambda waves: abs(excess(waves)), low, high)


def _nearest(made: Callable[[float], Array], reference: Array, criterion: str) -> float:
    """Where the charts are most alike, looked for around the coefficient of equal area."""
    start = _crossing(made, reference, "area")
    return _least(lambda waves: -charts(made(waves), reference)[f"{criterion}_coins"], 0.6 * start, 1.6 * start + 0.1)


def _least(cost: Callable[[float], float], low: float, high: float) -> float:
    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-3}).x)


@functools.lru_cache(maxsize=1)
def _charts() -> dict[str, Array]:
    return {"edge": slanted_edge(), "coins": spilled_coins()}


def _blurred(chart: Array, taps: Array) -> Array:
    planes = taps if taps.ndim == 3 else taps[None]
    gray = np.repeat(chart[..., None], len(planes), axis=2).astype(np.float32)
    return np.asarray(next(sweep(gray, [planes], "reflect")), np.float64)


def charts(taps: Array, reference: Array) -> dict[str, float]:
    """SSIM and PSNR between both charts blurred by either kernel; differences in texture MTF50 and acutance on the coins."""
    colours = max(x.shape[0] if x.ndim == 3 else 1 for x in (taps, reference))
    taps, reference = (np.broadcast_to(x, (colours, *x.shape[-2:])) for x in (taps, reference))
    told: dict[str, float] = {}
    for name, chart in _charts().items():
        ours, theirs = _blurred(chart, taps), _blurred(chart, reference)
        told |= {f"ssim_{name}": ssim(ours, theirs), f"psnr_{name}": psnr(ours, theirs)}
    pairs = [[texture_mtf(chart, seen[..., c]) for c in range(colours)] for seen in (ours, theirs)]
    frequency, sharp = (np.array([[read(curve) for curve in curves] for curves in pairs]).mean(1) for read in (_half, acutance))
    return told | {"texture_mtf50": float(frequency[0] / frequency[1] - 1), "acutance": float(sharp[0] - sharp[1])}


def _half(curve: Array) -> float:
    return crossing(curve, 0.5)


def residuals(taps: Array, reference: Array) -> dict[str, float]:
    """Ours over the reference's minus one: MTF50, 20, 10 and area on the mean; MTF50 by colour and by slice."""
    ours, theirs = sharpness(taps), sharpness(reference)
    told = {name: value / asdict(theirs)[name] - 1 for name, value in asdict(ours).items()}
    for colour, plane in enumerate(taps):
        same = reference[colour] if reference.ndim == 3 else reference
        told[f"mtf50_colour{colour}"] = sharpness(plane).mtf50 / sharpness(same).mtf50 - 1
    for angle in SLICES:
        told[f"mtf50_{angle:.0f}deg"] = sharpness(taps, angle).mtf50 / sharpness(reference, angle).mtf50 - 1
    return told

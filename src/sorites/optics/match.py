"""Find the coefficient of an aberration whose kernel blurs as much as a reference kernel.

All criteria are means over the colours, as in the OpticsBench paper (appendix E-B): the frequency at 50 %
contrast, the area under the MTF, or the similarity of test charts blurred by both kernels. The paper takes
"the best overall fit" over its criteria in steps of 0.1 waves without stating their weights; ``overall``
weighs them equally.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from sorites.core.errors import SoritesError
from sorites.optics.convolve import sweep
from sorites.optics.mtf import SLICES, acutance, crossing, sharpness, slanted_edge, spilled_coins, texture_mtf
from sorites.optics.psf import Imager
from sorites.optics.quality import psnr, ssim

Array = NDArray[np.float64]
Single = Literal["mtf50", "area", "ssim", "psnr"]
Criterion = Literal[Single, "overall"]
# Step between the coefficients that ``overall`` compares.
STEP_WAVES = 0.1
# Upper limit of the search.
MAX_WAVES = 8.0


@dataclass(frozen=True)
class Match:
    """Result of a match.

    Attributes:
        waves: The coefficient.
        taps: Its kernel (colour, y, x).
        caught: The share of light inside the kernel's frame, of the colour with the smallest share.
    """

    waves: float
    taps: Array
    caught: float


def match(imager: Imager, mode: int, reference: Array, criterion: str = "mtf50") -> Match:
    """Find the coefficient of one Zernike mode that matches a reference kernel.

    If the frame cuts off so much light that no coefficient blurs as much as the reference, return the
    nearest.

    Args:
        imager: The camera that renders kernels.
        mode: Fringe number of the mode.
        reference: Kernel, (y, x) or (colour, y, x).
        criterion: ``mtf50``, ``area``, ``ssim``, ``psnr`` or ``overall``, which weighs the other four equally
            and returns a multiple of 0.1 waves.
    """
    if criterion not in get_args(Criterion):
        raise SoritesError(f"criterion: expected one of {', '.join(get_args(Criterion))}, got {criterion!r}")
    kernel_of = functools.lru_cache(maxsize=64)(lambda waves: imager.kernel({mode: waves}))
    if criterion == "overall":
        best = _overall(kernel_of, reference)
    elif criterion in ("mtf50", "area"):
        best = _crossing(kernel_of, reference, criterion)
    else:
        best = _nearest(kernel_of, reference, criterion)
    return Match(best, kernel_of(best), imager.caught({mode: best}))


def _overall(kernel_of: Callable[[float], Array], reference: Array) -> float:
    """Return the coefficient with the lowest mean cost of the four criteria.

    Each criterion walks downhill from the coefficient of equal MTF50. Over the range of steps where they end,
    each cost is scaled to 0..1 before averaging, so that its unit does not act as a weight.
    """
    at = functools.cache(lambda step: _costs(kernel_of(round(step * STEP_WAVES, 1)), reference))
    guess = max(round(_crossing(kernel_of, reference, "mtf50") / STEP_WAVES), 1)
    ends = [_downhill(at, which, guess) for which in range(len(get_args(Single)))]
    costs = np.array([at(step) for step in range(min(ends), max(ends) + 1)])
    spread = np.ptp(costs, axis=0)
    scaled = (costs - costs.min(0)) / np.where(spread > 0, spread, 1)
    return round((min(ends) + int(scaled.mean(1).argmin())) * STEP_WAVES, 1)


def _downhill(costs: Callable[[int], Sequence[float]], which: int, step: int) -> int:
    """Return the step where a walk to lower costs of one criterion ends."""
    for side in (-1, 1):
        while 1 <= step + side <= MAX_WAVES / STEP_WAVES and costs(step + side)[which] < costs(step)[which]:
            step += side
    return step


def _costs(taps: Array, reference: Array) -> list[float]:
    """Return the distance of a kernel from the reference by each criterion, 0 for equality.

    These are the relative differences of MTF50 (0.5 if above Nyquist) and area, 1 - SSIM, and for PSNR the
    root mean squared difference.
    """
    ours, theirs = sharpness(taps), sharpness(reference)
    similarity = _similarity(taps, reference, "coins")
    return [
        abs(np.nan_to_num(ours.mtf50, nan=0.5) / theirs.mtf50 - 1),
        abs(ours.area / theirs.area - 1),
        1 - similarity["ssim"],
        10 ** (-similarity["psnr"] / 20),
    ]


def _crossing(kernel_of: Callable[[float], Array], reference: Array, criterion: str) -> float:
    """Return the coefficient at which the criterion falls to the reference's value."""
    target = getattr(sharpness(reference), criterion)

    def excess(waves: float) -> float:
        return float(np.nan_to_num(getattr(sharpness(kernel_of(waves)), criterion), nan=0.5) - target)

    low, high = 0.0, 1.0  # double the upper end until it blurs more than the reference
    while excess(high) > 0 and high < MAX_WAVES:
        low, high = high, 2 * high
    if excess(low) * excess(high) <= 0:
        return float(brentq(excess, low, high, xtol=1e-4))
    return _minimise(lambda waves: abs(excess(waves)), low, high)


def _nearest(kernel_of: Callable[[float], Array], reference: Array, criterion: str) -> float:
    """Return the coefficient with the most similar charts, near the coefficient of equal area."""
    start = _crossing(kernel_of, reference, "area")
    return _minimise(
        lambda waves: -_similarity(kernel_of(waves), reference, "coins")[criterion],
        0.6 * start,
        1.6 * start + 0.1,
    )


def _minimise(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return the argument between ``low`` and ``high`` with the lowest cost."""
    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-3}).x)


@functools.lru_cache(maxsize=1)
def _charts() -> dict[str, Array]:
    return {"edge": slanted_edge(), "coins": spilled_coins()}


def _blurred(chart: Array, taps: Array) -> Array:
    """Return the chart blurred by a kernel, with one channel per colour of the kernel."""
    planes = taps if taps.ndim == 3 else taps[None]
    gray = np.repeat(chart[..., None], len(planes), axis=2).astype(np.float32)
    return np.asarray(next(sweep(gray, [planes], "reflect")), np.float64)


def _similarity(taps: Array, reference: Array, chart: str) -> dict[str, float]:
    """Return SSIM and PSNR between a chart blurred by each kernel."""
    ours, theirs = (_blurred(_charts()[chart], taps) for taps in _broadcast_colours(taps, reference))
    return {"ssim": ssim(ours, theirs), "psnr": psnr(ours, theirs)}


def _broadcast_colours(*kernels: Array) -> list[Array]:
    """Broadcast all kernels to the largest number of colours among them."""
    colours = max(kernel.shape[0] if kernel.ndim == 3 else 1 for kernel in kernels)
    return [np.broadcast_to(kernel, (colours, *kernel.shape[-2:])) for kernel in kernels]


def charts(taps: Array, reference: Array) -> dict[str, float]:
    """Compare two kernels on the test charts: SSIM and PSNR on both, texture MTF50 and acutance on the
    coins.
    """
    taps, reference = _broadcast_colours(taps, reference)
    values: dict[str, float] = {}
    for name, chart in _charts().items():
        ours, theirs = _blurred(chart, taps), _blurred(chart, reference)
        values |= {f"ssim_{name}": ssim(ours, theirs), f"psnr_{name}": psnr(ours, theirs)}
    pairs = [[texture_mtf(chart, blurred[..., c]) for c in range(len(taps))] for blurred in (ours, theirs)]
    frequency, sharp = (
        np.array([[read(curve) for curve in curves] for curves in pairs]).mean(1)
        for read in (_mtf50, acutance)
    )
    return values | {
        "texture_mtf50": float(frequency[0] / frequency[1] - 1),
        "acutance": float(sharp[0] - sharp[1]),
    }


def _mtf50(curve: Array) -> float:
    return crossing(curve, 0.5)


def residuals(taps: Array, reference: Array) -> dict[str, float]:
    """Return relative differences to the reference (ratio minus one).

    Keys are MTF50, MTF20, MTF10 and area of the mean curve, and MTF50 by colour and by angle.
    """
    ours, theirs = sharpness(taps), sharpness(reference)
    values = {name: value / asdict(theirs)[name] - 1 for name, value in asdict(ours).items()}
    for colour, plane in enumerate(taps):
        same = reference[colour] if reference.ndim == 3 else reference
        values[f"mtf50_colour{colour}"] = sharpness(plane).mtf50 / sharpness(same).mtf50 - 1
    for angle in SLICES:
        values[f"mtf50_{angle:.0f}deg"] = sharpness(taps, angle).mtf50 / sharpness(reference, angle).mtf50 - 1
    return values

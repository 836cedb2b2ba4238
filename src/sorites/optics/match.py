"""Find the coefficient at which a mode's kernel blurs as much as a reference kernel, and report how
well it fits otherwise.

All criteria are means over the colours, as in the OpticsBench paper (appendix E-B): the frequency
at 50 % contrast, the area under the MTF, or the similarity of a test chart blurred by one kernel to
the same chart blurred by the other. The paper takes "the best overall fit" over its criteria in
steps of 0.1 waves and does not say how it weighs them; ``overall`` weighs them alike.
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
# The step, in waves, between the coefficients that ``overall`` compares.
STEP = 0.1
# The search for a match ends at a coefficient of this many waves.
MAX_WAVES = 8.0


@dataclass(frozen=True)
class Match:
    """A coefficient in waves, its kernel (colour, y, x), and the smallest share of light that its
    frame caught in any colour.
    """

    waves: float
    taps: Array
    caught: float


def match(imager: Imager, mode: int, reference: Array, criterion: str = "mtf50") -> Match:
    """Return the coefficient of Fringe ``mode`` that comes nearest to ``reference``, (y, x) or
    (colour, y, x), by the criterion.

    If the frame cuts off so much light that no coefficient blurs as much as the reference, the
    nearest one is returned. ``overall`` weighs the four single criteria alike and gives a multiple
    of 0.1 waves.
    """
    if criterion not in get_args(Criterion):
        raise SoritesError(f"criterion: wanted one of {', '.join(get_args(Criterion))}, got {criterion!r}")
    kernel_of = functools.lru_cache(maxsize=64)(lambda waves: imager.kernel({mode: waves}))
    if criterion == "overall":
        found = _overall(kernel_of, reference)
    elif criterion in ("mtf50", "area"):
        found = _crossing(kernel_of, reference, criterion)
    else:
        found = _nearest(kernel_of, reference, criterion)
    return Match(found, kernel_of(found), imager.caught({mode: found}))


def _overall(kernel_of: Callable[[float], Array], reference: Array) -> float:
    """Return the step at which the four criteria together are nearest.

    The first guess is the coefficient of equal MTF50; from there each criterion walks in steps
    until its cost rises. Over the steps between the places where they stop, each cost is scaled to
    0 at its least and 1 at its greatest, and the step with the least mean is taken: no criterion
    counts for more because of its unit.
    """
    at = functools.cache(lambda step: _costs(kernel_of(round(step * STEP, 1)), reference))
    guess = max(round(_crossing(kernel_of, reference, "mtf50") / STEP), 1)
    ends = [_downhill(at, which, guess) for which in range(len(get_args(Single)))]
    costs = np.array([at(step) for step in range(min(ends), max(ends) + 1)])
    spread = np.ptp(costs, axis=0)
    scaled = (costs - costs.min(0)) / np.where(spread > 0, spread, 1)
    return round((min(ends) + int(scaled.mean(1).argmin())) * STEP, 1)


def _downhill(costs: Callable[[int], Sequence[float]], which: int, step: int) -> int:
    """Return the step at which a walk to lower costs of one criterion ends; steps go from one up to
    ``MAX_WAVES``.
    """
    for side in (-1, 1):
        while 1 <= step + side <= MAX_WAVES / STEP and costs(step + side)[which] < costs(step)[which]:
            step += side
    return step


def _costs(taps: Array, reference: Array) -> list[float]:
    """Return how far a kernel is from the reference by each single criterion, 0 where they agree:
    the relative differences of MTF50 (which counts as 0.5 above Nyquist) and area, 1 - SSIM, and
    for PSNR the root of the mean squared difference.
    """
    ours, theirs = sharpness(taps), sharpness(reference)
    likeness = _likeness(taps, reference, "coins")
    return [
        abs(np.nan_to_num(ours.mtf50, nan=0.5) / theirs.mtf50 - 1),
        abs(ours.area / theirs.area - 1),
        1 - likeness["ssim"],
        10 ** (-likeness["psnr"] / 20),
    ]


def _crossing(kernel_of: Callable[[float], Array], reference: Array, criterion: str) -> float:
    """Return the coefficient at which the criterion falls through the reference's value; the search
    doubles it until it does.
    """
    wanted = getattr(sharpness(reference), criterion)

    def excess(waves: float) -> float:
        return float(np.nan_to_num(getattr(sharpness(kernel_of(waves)), criterion), nan=0.5) - wanted)

    low, high = 0.0, 1.0
    while excess(high) > 0 and high < MAX_WAVES:
        low, high = high, 2 * high
    if excess(low) * excess(high) <= 0:
        return float(brentq(excess, low, high, xtol=1e-4))
    return _least(lambda waves: abs(excess(waves)), low, high)


def _nearest(kernel_of: Callable[[float], Array], reference: Array, criterion: str) -> float:
    """Return the coefficient at which the charts are most alike, searched around the coefficient of
    equal area.
    """
    start = _crossing(kernel_of, reference, "area")
    return _least(
        lambda waves: -_likeness(kernel_of(waves), reference, "coins")[criterion],
        0.6 * start,
        1.6 * start + 0.1,
    )


def _least(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return the place between ``low`` and ``high`` where the cost is least."""
    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-3}).x)


@functools.lru_cache(maxsize=1)
def _charts() -> dict[str, Array]:
    """Return the two test charts by name."""
    return {"edge": slanted_edge(), "coins": spilled_coins()}


def _blurred(chart: Array, taps: Array) -> Array:
    """Return the chart blurred by a kernel, with one channel per colour of the kernel."""
    planes = taps if taps.ndim == 3 else taps[None]
    gray = np.repeat(chart[..., None], len(planes), axis=2).astype(np.float32)
    return np.asarray(next(sweep(gray, [planes], "reflect")), np.float64)


def _likeness(taps: Array, reference: Array, chart: str) -> dict[str, float]:
    """Return SSIM and PSNR of a chart blurred by one kernel and by the other."""
    ours, theirs = (_blurred(_charts()[chart], taps) for taps in _in_colours(taps, reference))
    return {"ssim": ssim(ours, theirs), "psnr": psnr(ours, theirs)}


def _in_colours(*kernels: Array) -> list[Array]:
    """Return the kernels with as many colours as the one that has most."""
    colours = max(kernel.shape[0] if kernel.ndim == 3 else 1 for kernel in kernels)
    return [np.broadcast_to(kernel, (colours, *kernel.shape[-2:])) for kernel in kernels]


def charts(taps: Array, reference: Array) -> dict[str, float]:
    """Compare two kernels: SSIM and PSNR on both charts, differences in texture MTF50 and acutance
    on the coins.
    """
    taps, reference = _in_colours(taps, reference)
    values: dict[str, float] = {}
    for name, chart in _charts().items():
        ours, theirs = _blurred(chart, taps), _blurred(chart, reference)
        values |= {f"ssim_{name}": ssim(ours, theirs), f"psnr_{name}": psnr(ours, theirs)}
    pairs = [[texture_mtf(chart, seen[..., c]) for c in range(len(taps))] for seen in (ours, theirs)]
    frequency, sharp = (
        np.array([[read(curve) for curve in curves] for curves in pairs]).mean(1)
        for read in (_half, acutance)
    )
    return values | {
        "texture_mtf50": float(frequency[0] / frequency[1] - 1),
        "acutance": float(sharp[0] - sharp[1]),
    }


def _half(curve: Array) -> float:
    """Return the frequency at which a curve falls to 50 % contrast."""
    return crossing(curve, 0.5)


def residuals(taps: Array, reference: Array) -> dict[str, float]:
    """Return the relative differences to the reference (ratio minus one): MTF50, MTF20, MTF10 and
    area of the mean curve, and MTF50 by colour and by slice.
    """
    ours, theirs = sharpness(taps), sharpness(reference)
    values = {name: value / asdict(theirs)[name] - 1 for name, value in asdict(ours).items()}
    for colour, plane in enumerate(taps):
        same = reference[colour] if reference.ndim == 3 else reference
        values[f"mtf50_colour{colour}"] = sharpness(plane).mtf50 / sharpness(same).mtf50 - 1
    for angle in SLICES:
        values[f"mtf50_{angle:.0f}deg"] = sharpness(taps, angle).mtf50 / sharpness(reference, angle).mtf50 - 1
    return values

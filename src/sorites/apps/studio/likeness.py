"""Check that a rectified photograph shows its reference image, and not another image, a covered screen or a
wrong crop.

Exposure, white balance and noise change every pixel, so the check compares structure: the values of both
images on a coarse grid, by rank, where pixels that are all black or all white are ties. The colour channel
that matches best counts, because another may be saturated. A photograph that is black or white says nothing
and is accepted; the confirmations of the screen cover it. One that is uniformly grey shows something else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from scipy.stats import rankdata

from sorites.core import ImageU8

Cells = NDArray[np.float64]
# Longer side of the grid on which images are compared.
GRID_PX = 48
# Minimum standard deviation of a channel of a photograph to be compared.
MIN_SPREAD = 4.0
# Mean values beyond which a uniform photograph counts as black or white (measured: up to 11, from 254 on).
BLACK, WHITE = 25.0, 230.0
# Values of cells up to and from which the darkest and the brightest ones of a photograph count as clipped.
CLIPPED = (3.0, 250.0)
# Below this rank correlation, a photograph does not show its reference. Measured with the simulated camera at
# all test settings and two automatic shots per light, on 40 ImageNet images and 40 cut-outs: of 3857
# photographs that are not uniform one is below, and 92 % of those of other images are.
MIN_CORRELATION = 0.42
# Above this one, no displacement is searched for.
GOOD_CORRELATION = 0.9
# A displaced crop correlates better by this much if it is moved by whole cells of the grid.
MOVED_GAIN, MAX_MOVE = 0.08, 4


@dataclass(frozen=True)
class Likeness:
    """How well a photograph matches its reference.

    Attributes:
        correlation: Rank correlation; None if the photograph is black or white, as manual settings may be,
            0 if it is uniform for another reason.
        level: Mean value, from 0 to 255, of a uniform photograph whose correlation is 0.
        moved: Displacement (right, down) in percent of the longer side at which both match clearly better.
    """

    correlation: float | None
    moved: tuple[float, float] | None = None
    level: float | None = None

    @property
    def problem(self) -> str | None:
        """Description of the mismatch, or None."""
        if self.moved is not None:
            return f"the image is displaced by {self.moved[0]:+.0f} % and {self.moved[1]:+.0f} % of its size"
        if self.level is not None:
            return _uniform(self.level)
        if self.correlation is not None and self.correlation < MIN_CORRELATION:
            return f"the photograph does not show its image (correlation {self.correlation:.2f})"
        return None


def likeness(photograph: ImageU8, reference: ImageU8, metered: bool = False) -> Likeness:
    """Compare a rectified photograph with its reference of the same size.

    Args:
        photograph: The rectified photograph.
        reference: The image that was shown.
        metered: Whether the exposure was automatic, so that a black or white photograph is wrong too.

    Example:
        >>> image = np.tile(np.arange(20, 220, 4, dtype=np.uint8)[:, None, None], (1, 50, 3))
        >>> likeness(image // 2, image).correlation
        1.0
    """
    size = _grid(photograph.shape[1], photograph.shape[0])
    taken, shown = _cells(photograph, size), _cells(reference, size)
    at_place = _correlation(taken, shown)
    if at_place is None:
        level = float(taken.mean())
        unexplained = metered or BLACK < level < WHITE
        if unexplained and shown.std(axis=(0, 1)).max() >= MIN_SPREAD:
            return Likeness(0.0, level=level)
        return Likeness(None)
    if at_place > GOOD_CORRELATION:
        return Likeness(at_place)
    best, moved = _best_move(taken, shown)
    return Likeness(at_place, moved if best > at_place + MOVED_GAIN and best >= MIN_CORRELATION else None)


def _grid(width: int, height: int) -> tuple[int, int]:
    scale = GRID_PX / max(width, height)
    return max(8, round(width * scale)), max(8, round(height * scale))


def _cells(image: ImageU8, size: tuple[int, int]) -> Cells:
    """Return the means over the cells of the grid, which removes most noise."""
    return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BOX), np.float64)


def _uniform(level: float) -> str:
    """Describe a photograph that has one value everywhere."""
    if level >= WHITE:
        return "the photograph is all white, so it cannot be compared: over-exposed, or of something bright"
    if level <= BLACK:
        return "the photograph is all black, so it cannot be compared: under-exposed, or the screen is dark"
    return "the photograph is uniformly grey: the screen is covered, or something else is in front of it"


def _correlation(taken: Cells, shown: Cells) -> float | None:
    """Return the rank correlation of the channel that matches best, None if all are too uniform.

    Of the reference, the brightest cells count as equal if as many are white in the photograph, and the
    darkest if as many are black.
    """
    values = []
    for one, other in zip(np.moveaxis(np.round(taken), -1, 0), np.moveaxis(shown, -1, 0), strict=True):
        clipped = _clipped_alike(one, other)
        if one.std() >= MIN_SPREAD and clipped.std() > 0:
            values.append(float(np.corrcoef(rankdata(one), rankdata(clipped))[0, 1]))
    return max(values, default=None)


def _clipped_alike(taken: Cells, shown: Cells) -> Cells:
    """Return a channel of the reference, clipped at as many cells as the photograph is."""
    white = float((taken == taken.max()).mean()) if taken.max() >= CLIPPED[1] else 0.0
    black = float((taken == taken.min()).mean()) if taken.min() <= CLIPPED[0] else 0.0
    return np.clip(shown, *np.quantile(shown, (black, max(black, 1 - white))))


def _best_move(taken: Cells, shown: Cells) -> tuple[float, tuple[float, float]]:
    """Return the best correlation over displacements by 2 to 4 cells, and the displacement in percent."""
    best, moved = -1.0, (0.0, 0.0)
    high, wide = taken.shape[:2]
    steps = range(-MAX_MOVE, MAX_MOVE + 1, 2)
    for down in steps:
        for right in steps:
            if down == right == 0:
                continue
            here = taken[max(0, down) : high + min(0, down), max(0, right) : wide + min(0, right)]
            there = shown[max(0, -down) : high + min(0, -down), max(0, -right) : wide + min(0, -right)]
            value = _correlation(here, there)
            if value is not None and value > best:
                best, moved = value, (100 * right / max(high, wide), 100 * down / max(high, wide))
    return best, moved

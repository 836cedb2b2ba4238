"""Trace where a lens puts its light, by colour and angle, and how much of it arrives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.optics.projection import Projection, relative_illumination
from sorites.optics.psf import LINES_UM
from sorites.optics.tracing.blur import FIELDS, drop_stray_rays
from sorites.optics.tracing.lens import D_LINE_UM, Lens
from sorites.optics.tracing.prescription import Refused
from sorites.optics.tracing.rays import Beam, beams, trace

# Traced parts of the half field; the last ones may be dark.
PARTS = tuple(np.linspace(0, 1, 21).tolist())
# Rays across a beam: their number is the cross-section of the beam to one part in a thousand.
ACROSS = 200


def trace_places(lens: Lens, window: int) -> Projection:
    """Trace the image heights and the illumination of a lens.

    A height is that of the middle of the light (its centre of mass), where the kernels of the lens are
    centred. It differs from that of the chief ray where there is coma.

    Args:
        lens: The lens, with its sensor in focus.
        window: The width in um within which the light of a point is gathered.

    Raises:
        Refused: Less than the field of the kernels can be traced.
    """
    angles, boxes = _reachable(lens)
    heights = np.zeros((len(LINES_UM), len(angles)))
    areas = np.zeros_like(heights)
    for k, (angle, box) in enumerate(zip(angles, boxes, strict=True)):
        for colour, line in enumerate(LINES_UM):
            heights[colour, k], areas[colour, k] = _landed(lens, angle, box, line, window)
    heights = np.abs(heights)
    heights[:, 0] = 0.0
    degrees = np.asarray(angles, np.float64)
    light = [relative_illumination(degrees, h, area) for h, area in zip(heights, areas, strict=True)]
    return Projection(degrees, heights, np.stack(light))


def _reachable(lens: Lens) -> tuple[list[float], list[Beam]]:
    """Return the angles from the axis to the last one with light, and their beams."""
    angles = [part * lens.field_deg for part in PARTS]
    while True:
        try:
            return angles, beams(lens, angles, 90.0, D_LINE_UM)
        except Refused:
            if angles[-1] <= FIELDS[-1] * lens.field_deg * (1 + 1e-9):
                raise
            angles = angles[:-1]


def _landed(lens: Lens, angle: float, box: Beam, line_um: float, window: int) -> tuple[float, float]:
    """Return the height of the light of a beam and its cross-section before the lens, in mm."""
    rays = drop_stray_rays(trace(lens, angle, line_um, ACROSS, box), window)
    cell = (2 * box.wide / ACROSS) * (2 * box.tall / ACROSS)
    height: NDArray[np.float64] = rays.y
    return float(height.mean()), len(height) * cell

"""Trace rays from a distant point through a lens to its sensor.

Rays start on an even grid across the plane wave, and those that pass the real aperture stop are kept. Wide
angles therefore need no aiming at a paraxial pupil.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from sorites.optics.tracing.lens import Lens, tracer
from sorites.optics.tracing.prescription import Refused

Array = NDArray[np.float64]
# Rays across the beam in a first, coarse trace.
COARSE = 34
# Largest step when the chief ray is followed from the axis outward.
STEP_DEG = 8.0


@dataclass(frozen=True)
class Rays:
    """Rays at the sensor; a lost ray is nan in all attributes.

    Attributes:
        x, y: Position in mm.
        L, M, N: Direction cosines.
        path: Optical path in mm from a wavefront before the lens.
        sx, sy: Where the ray crossed the aperture stop, in stop radii.
        step: Largest difference of its direction from its grid neighbours' (0 without a grid).
    """

    x: Array
    y: Array
    L: Array
    M: Array
    N: Array
    path: Array
    sx: Array
    sy: Array
    step: Array

    def where(self, mask: NDArray[np.bool_]) -> Rays:
        """Return the rays that a mask selects."""
        return Rays(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))

    def moved(self, by_mm: float) -> Rays:
        """Return the rays on a sensor ``by_mm`` further back."""
        return replace(
            self,
            x=self.x + self.L / self.N * by_mm,
            y=self.y + self.M / self.N * by_mm,
            path=self.path + by_mm / self.N,
        )

    def turned(self, degrees: float) -> Rays:
        """Return the rays with the lens and its light rotated about the axis."""
        c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        return replace(
            self,
            **{a: c * getattr(self, a) - s * getattr(self, b) for a, b in _PAIRS},
            **{b: s * getattr(self, a) + c * getattr(self, b) for a, b in _PAIRS},
        )

    def mirrored(self) -> Rays:
        """Return these rays and their mirror images, the full beam of a lens symmetric about the yz plane."""
        both = {name: np.concatenate([getattr(self, name)] * 2) for name in self.__dataclass_fields__}
        sign = np.repeat([1.0, -1.0], len(self.x))
        return Rays(
            **{name: sign * values if name in ("x", "L", "sx") else values for name, values in both.items()}
        )


_PAIRS = (("x", "y"), ("L", "M"), ("sx", "sy"))


def launch(lens: Lens, angle: float, azimuth: float, a: Array, b: Array) -> tuple[Array, Array]:
    """Return start points (3 x n) and direction of a plane wave.

    Args:
        lens: The lens.
        angle: Angle off the axis, in degrees.
        azimuth: Direction of the field, in degrees.
        a: Positions across the field.
        b: Positions along the field.
    """
    theta, phi = math.radians(angle), math.radians(azimuth)
    direction = np.array([math.sin(theta) * math.cos(phi), math.sin(theta) * math.sin(phi), math.cos(theta)])
    along = np.array([math.cos(theta) * math.cos(phi), math.cos(theta) * math.sin(phi), -math.sin(theta)])
    across = np.array([math.sin(phi), -math.cos(phi), 0.0])
    back = lens.length_mm + 4 * lens.epd_mm
    return across[:, None] * a + along[:, None] * b - direction[:, None] * back, direction


def through(lens: Lens, starts: Array, direction: Array, line_um: float) -> Rays:
    """Trace rays to the sensor; rays blocked by the stop or a rim, or that miss a surface, become nan."""
    rays, ones = _start_rays(starts, direction, line_um)
    lost, crossing = np.zeros(len(ones), bool), (ones, ones)
    with np.errstate(all="ignore"):
        for i, surface in enumerate(lens.surfaces[1:], start=1):
            surface.trace(rays, record=False)
            x, y = _local(surface, rays)
            if i == lens.stop:
                crossing = x / lens.stop_mm, y / lens.stop_mm
            rim = lens.stop_mm * (1 + 1e-9) if i == lens.stop else lens.rims.get(i, math.inf)
            lost |= ~(np.hypot(x, y) <= rim) | ~np.isfinite(np.asarray(rays.L))
            if i == lens.stop and lens.vignetting:
                lost |= ~_unvignetted(lens, direction, *crossing)
            _replace_lost(rays, lost)
        landed = Rays(
            rays.x, rays.y, rays.L, rays.M, rays.N, rays.opd + direction @ starts, *crossing, 0 * ones
        )
        lost |= ~np.isfinite(landed.path + landed.x + landed.y) | ~(np.asarray(rays.i) > 0)
        nan_mask = np.where(lost, np.nan, 0.0)
        surviving = Rays(
            *(np.asarray(getattr(landed, name)) + nan_mask for name in landed.__dataclass_fields__)
        )
        return surviving.moved(lens.focus_mm) if lens.focus_mm else surviving


def _unvignetted(lens: Lens, direction: Array, x: Array, y: Array) -> NDArray[np.bool_]:
    """Return which rays pass the vignetting ellipse, interpolated between stated fields."""
    part = math.degrees(math.acos(min(1.0, float(direction[2])))) / lens.field_deg
    parts = [stated.part for stated in lens.vignetting]
    along, narrower, shorter = (
        float(np.interp(part, parts, [getattr(stated, name) for stated in lens.vignetting]))
        for name in ("along", "narrower", "shorter")
    )
    sideways = math.hypot(direction[0], direction[1])
    c, s = (direction[:2] / sideways) if sideways else (0.0, 1.0)
    sign = math.copysign(1.0, lens.paraxial.at_stop)
    u, v = sign * (s * x - c * y), sign * (c * x + s * y)
    return np.asarray((u / (1 - narrower)) ** 2 + ((v - along) / (1 - shorter)) ** 2 <= 1 + 1e-9)


def _replace_lost(rays: Any, lost: NDArray[np.bool_]) -> None:
    """Overwrite lost rays with a valid one to keep the tracer's iterations short; their results are not
    read.
    """
    if lost.any() and not lost.all():
        valid = int(np.flatnonzero(~lost)[0])
        for name in ("x", "y", "z", "L", "M", "N", "opd", "i"):
            values = getattr(rays, name)
            values[lost] = values[valid]


def _start_rays(starts: Array, direction: Array, line_um: float) -> tuple[Any, Array]:
    """Return optiland's rays for start points and a direction, and an array of ones of the same length."""
    ones = np.ones(starts.shape[1])
    return tracer().rays.RealRays(*starts, *(ones * part for part in direction), ones, ones * line_um), ones


def at_stop(
    lens: Lens, angle: float, azimuth: float, a: Array, b: Array, line_um: float
) -> tuple[Array, Array]:
    """Return where rays cross the plane of the aperture stop, in stop radii, ignoring the stop and all
    rims.
    """
    rays, _ = _start_rays(*launch(lens, angle, azimuth, a, b), line_um)
    with np.errstate(all="ignore"):
        for surface in lens.surfaces[1 : lens.stop + 1]:
            surface.trace(rays, record=False)
    x, y = _local(lens.surfaces[lens.stop], rays)
    return x / lens.stop_mm, y / lens.stop_mm


def _local(surface: Any, rays: Any) -> tuple[Array, Array]:
    """Return x and y of the rays relative to the centre of a surface."""
    centre = surface.geometry.cs
    return np.asarray(rays.x) - float(np.squeeze(centre.x)), np.asarray(rays.y) - float(np.squeeze(centre.y))


@dataclass(frozen=True)
class Beam:
    """The rectangle of the plane wave that contains all transmitted light, in mm.

    Attributes:
        a, b: Centre across and along the field.
        wide: Half extent across the field.
        tall: Half extent along the field.
    """

    a: float
    b: float
    wide: float
    tall: float


def beams(lens: Lens, angles: Sequence[float], azimuth: float, line_um: float) -> list[Beam]:
    """Return the beams at rising angles by following the chief ray outward and searching around it."""
    boxes, at, here, slope = [], 0.0, np.zeros(2), np.zeros(2)
    for angle in angles:
        here, slope, jacobian = _follow_chief(lens, (at, angle), azimuth, here, slope, line_um)
        half = 1.3 * float(np.linalg.norm(np.linalg.inv(jacobian), 2))
        boxes.append(
            _fit_box(lens, angle, azimuth, Beam(float(here[0]), float(here[1]), half, half), line_um)
        )
        at = angle
    return boxes


def _follow_chief(
    lens: Lens, span: tuple[float, float], azimuth: float, here: Array, slope: Array, line_um: float
) -> tuple[Array, Array, Array]:
    """Follow the chief ray over a span of angles, extrapolating each step and halving it if it fails.

    Returns:
        The entry point at the end, its derivative by angle, and the Jacobian of the crossing point in the
        stop with respect to the entry point.
    """
    (at, angle), step = span, STEP_DEG
    here, jacobian = _aim_chief(lens, at, azimuth, here, line_um)
    while at < angle:
        further = min(at + step, angle)
        try:
            there, jacobian = _aim_chief(lens, further, azimuth, here + slope * (further - at), line_um)
        except Refused:
            step /= 2
            if step < STEP_DEG / 200:
                raise
            continue
        slope, here, at = (there - here) / (further - at), there, further
    return here, slope, jacobian


def _aim_chief(lens: Lens, angle: float, azimuth: float, start: Array, line_um: float) -> tuple[Array, Array]:
    """Find the entry point of the chief ray by Newton's method (three rays per step), and the Jacobian
    there.
    """
    reach, here = 0.02 * lens.epd_mm, start
    for _ in range(20):
        x, y = at_stop(
            lens,
            angle,
            azimuth,
            here[0] + np.array([0, reach, 0]),
            here[1] + np.array([0, 0, reach]),
            line_um,
        )
        jacobian = np.array([[x[1] - x[0], x[2] - x[0]], [y[1] - y[0], y[2] - y[0]]]) / reach
        if not np.isfinite(jacobian).all() or abs(np.linalg.det(jacobian)) < 1e-12:
            break
        step = -np.linalg.solve(jacobian, [x[0], y[0]])
        here = here + step
        if math.hypot(*step) < 1e-6 * lens.epd_mm:
            return here, jacobian
    raise Refused(f"no light from {angle:.1f} degrees reaches the middle of its aperture stop")


def _fit_box(lens: Lens, angle: float, azimuth: float, box: Beam, line_um: float) -> Beam:
    """Return the smallest box around the transmitted light, one coarse cell wider on every side."""
    # Twice, because the second trace is finer.
    return _tighten(lens, angle, azimuth, _tighten(lens, angle, azimuth, box, line_um), line_um)


def _tighten(lens: Lens, angle: float, azimuth: float, box: Beam, line_um: float) -> Beam:
    """Shrink a box to the transmitted light; a box that is too small is widened first."""
    for _ in range(6):
        a, b = _mesh(box, COARSE)
        lit = _largest_piece(
            np.isfinite(through(lens, *launch(lens, angle, azimuth, a.ravel(), b.ravel()), line_um).path),
            a.shape,
        )
        if not lit.any():
            raise Refused(f"no light from {angle:.1f} degrees gets through")
        a, b, cell, row = a.ravel()[lit], b.ravel()[lit], 2 * box.wide / COARSE, 2 * box.tall / COARSE
        if np.abs(a - box.a).max() < box.wide - cell and np.abs(b - box.b).max() < box.tall - row:
            break
        box = replace(box, wide=1.6 * box.wide, tall=1.6 * box.tall)
    low, high = float(b.min()), float(b.max())
    return Beam(box.a, (low + high) / 2, float(np.abs(a - box.a).max()) + cell, (high - low) / 2 + row)


def _largest_piece(passed: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the largest connected piece of the rays that passed.

    Rays far outside that reach the stop on another way do not belong to the beam.
    """
    pieces, _ = ndimage.label(passed.reshape(shape))
    sizes = np.bincount(pieces.ravel())[1:]
    return (pieces.ravel() == 1 + int(sizes.argmax())) if len(sizes) else passed


def _mesh(box: Beam, across: int, half: bool = False) -> tuple[Array, Array]:
    """Return the cell centres of an even grid over the box, or over its half with positive ``a``."""
    even = 2 * math.ceil(across / 2)
    offsets = 2 / even * (np.arange(even) - (even - 1) / 2)
    a, b = np.meshgrid(
        box.a + box.wide * (offsets[offsets > 0] if half else offsets),
        box.b + box.tall * offsets,
        indexing="ij",
    )
    return a, b


def trace(
    lens: Lens,
    angle: float,
    line_um: float,
    across: int,
    box: Beam,
    azimuth: float = 90.0,
    whole: bool = False,
) -> Rays:
    """Trace a beam and return the rays that reach the sensor.

    Args:
        lens: The lens.
        angle: Angle off the axis, in degrees.
        line_um: Wavelength.
        across: Rays across the beam.
        box: The beam.
        azimuth: Direction of the field; used only with ``whole``.
        whole: Trace the whole beam. Otherwise the lens must be symmetric about the plane of the field; half
            the beam is traced at azimuth 90 degrees and mirrored.
    """
    a, b = _mesh(box if whole else replace(box, a=0.0), across, half=not whole)
    sent = through(lens, *launch(lens, angle, azimuth if whole else 90.0, a.ravel(), b.ravel()), line_um)
    passed = replace(sent, step=_steps(sent, a.shape)).where(_largest_piece(np.isfinite(sent.path), a.shape))
    return passed if whole else passed.mirrored()


def _steps(rays: Rays, shape: tuple[int, ...]) -> Array:
    """Return the largest difference of each ray's direction from its grid neighbours', 0 without
    neighbours.
    """
    steps = np.zeros(shape)
    for part in (rays.L.reshape(shape), rays.M.reshape(shape)):
        for axis in (0, 1):
            apart = np.nan_to_num(np.abs(np.diff(part, axis=axis)))
            ahead, behind = (
                (slice(None), ends) if axis else (ends,) for ends in (slice(1, None), slice(None, -1))
            )
            steps[ahead], steps[behind] = np.maximum(steps[ahead], apart), np.maximum(steps[behind], apart)
    return steps.ravel()


def chief(lens: Lens, angle: float, azimuth: float, line_um: float) -> tuple[float, float]:
    """Return where the chief ray lands, (x, y) in mm from the axis."""
    here, _, _ = _follow_chief(lens, (0.0, angle), azimuth, np.zeros(2), np.zeros(2), line_um)
    landed = through(lens, *launch(lens, angle, azimuth, here[:1], here[1:]), line_um)
    return float(landed.x[0]), float(landed.y[0])


def paths(lens: Lens, angle: float, box: Beam, line_um: float) -> list[list[tuple[float, float]]]:
    """Return (z, y) in mm at every surface for three rays of a beam, for drawings."""
    b = box.b + np.array([-0.9, 0.0, 0.9]) * box.tall
    starts, direction = launch(lens, angle, 90.0, np.zeros(3), b)
    rays, _ = _start_rays(starts, direction, line_um)
    drawn: list[list[tuple[float, float]]] = [[], [], []]
    with np.errstate(all="ignore"):
        for surface in lens.surfaces[1:]:
            surface.trace(rays, record=False)
            for line, z, y in zip(drawn, np.asarray(rays.z), np.asarray(rays.y), strict=True):
                line.append((float(z), float(y)))
    return [line for line in drawn if np.isfinite(line).all()]

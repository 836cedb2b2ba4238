"""Trace rays from a distant point through a lens to its sensor.

A distant point sends a plane wave: rays start on an even grid across it, and those that pass the
real aperture stop are kept, so that wide angles need no aiming at a paraxial pupil.
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
# The number of rays across the beam in a first, coarse trace.
COARSE = 34
# The largest step in degrees when the chief ray is followed from the axis outward.
STEP_DEG = 8.0


@dataclass(frozen=True)
class Rays:
    """Rays at the sensor: position ``x``, ``y`` (mm), direction ``L``, ``M``, ``N``, optical
    ``path`` (mm, from one wavefront before the lens), the point ``sx``, ``sy`` where each crossed
    the aperture stop (in stop radii), and ``step``, the distance of its direction from its
    neighbours' on the grid (0 if there is no grid). A lost ray is nan in all of them.
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

    def where(self, kept: NDArray[np.bool_]) -> Rays:
        """Return the rays that a mask selects."""
        return Rays(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))

    def moved(self, by_mm: float) -> Rays:
        """Return the rays on a sensor that is ``by_mm`` further back."""
        return replace(
            self,
            x=self.x + self.L / self.N * by_mm,
            y=self.y + self.M / self.N * by_mm,
            path=self.path + by_mm / self.N,
        )

    def turned(self, degrees: float) -> Rays:
        """Return the rays with the lens and all its light turned about the axis."""
        c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        return replace(
            self,
            **{a: c * getattr(self, a) - s * getattr(self, b) for a, b in _PAIRS},
            **{b: s * getattr(self, a) + c * getattr(self, b) for a, b in _PAIRS},
        )

    def mirrored(self) -> Rays:
        """Return these rays and their mirror images: both halves of a beam that is symmetric about
        the yz plane.
        """
        both = {name: np.concatenate([getattr(self, name)] * 2) for name in self.__dataclass_fields__}
        sign = np.repeat([1.0, -1.0], len(self.x))
        return Rays(
            **{name: sign * values if name in ("x", "L", "sx") else values for name, values in both.items()}
        )


_PAIRS = (("x", "y"), ("L", "M"), ("sx", "sy"))


def launched(lens: Lens, angle: float, azimuth: float, a: Array, b: Array) -> tuple[Array, Array]:
    """Return start points (3 x n) and direction of a plane wave at ``angle`` off the axis toward
    ``azimuth``; ``a`` runs across the field, ``b`` along it.
    """
    theta, phi = math.radians(angle), math.radians(azimuth)
    direction = np.array([math.sin(theta) * math.cos(phi), math.sin(theta) * math.sin(phi), math.cos(theta)])
    along = np.array([math.cos(theta) * math.cos(phi), math.cos(theta) * math.sin(phi), -math.sin(theta)])
    across = np.array([math.sin(phi), -math.cos(phi), 0.0])
    back = lens.length_mm + 4 * lens.epd_mm
    return across[:, None] * a + along[:, None] * b - direction[:, None] * back, direction


def through(lens: Lens, starts: Array, direction: Array, line_um: float) -> Rays:
    """Trace rays to the sensor.

    A ray outside the aperture stop or a rim, or one that misses a surface, is nan.
    """
    rays, one = _sent(starts, direction, line_um)
    lost, crossing = np.zeros(len(one), bool), (one, one)
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
            rays.x, rays.y, rays.L, rays.M, rays.N, rays.opd + direction @ starts, *crossing, 0 * one
        )
        lost |= ~np.isfinite(landed.path + landed.x + landed.y) | ~(np.asarray(rays.i) > 0)
        gone = np.where(lost, np.nan, 0.0)
        rest = Rays(*(np.asarray(getattr(landed, name)) + gone for name in landed.__dataclass_fields__))
        return rest.moved(lens.focus_mm) if lens.focus_mm else rest


def _unvignetted(lens: Lens, direction: Array, x: Array, y: Array) -> NDArray[np.bool_]:
    """Return which rays pass the ellipse that vignetting leaves at this field; between two stated
    fields it is interpolated.
    """
    part = math.degrees(math.acos(min(1.0, float(direction[2])))) / lens.field_deg
    known = [one.part for one in lens.vignetting]
    along, narrower, shorter = (
        float(np.interp(part, known, [getattr(one, name) for one in lens.vignetting]))
        for name in ("along", "narrower", "shorter")
    )
    sideways = math.hypot(direction[0], direction[1])
    c, s = (direction[:2] / sideways) if sideways else (0.0, 1.0)
    sign = math.copysign(1.0, lens.paraxial.at_setting)
    u, v = sign * (s * x - c * y), sign * (c * x + s * y)
    return np.asarray((u / (1 - narrower)) ** 2 + ((v - along) / (1 - shorter)) ** 2 <= 1 + 1e-9)


def _replace_lost(rays: Any, lost: NDArray[np.bool_]) -> None:
    """Overwrite lost rays with a sound one, so that no iteration waits for them; their results are
    never read.
    """
    if lost.any() and not lost.all():
        sound = int(np.flatnonzero(~lost)[0])
        for name in ("x", "y", "z", "L", "M", "N", "opd", "i"):
            values = getattr(rays, name)
            values[lost] = values[sound]


def _sent(starts: Array, direction: Array, line_um: float) -> tuple[Any, Array]:
    """Return optiland's rays for start points and a direction, and an array of ones of their number."""
    one = np.ones(starts.shape[1])
    return tracer().rays.RealRays(*starts, *(one * part for part in direction), one, one * line_um), one


def at_setting(
    lens: Lens, angle: float, azimuth: float, a: Array, b: Array, line_um: float
) -> tuple[Array, Array]:
    """Return where rays cross the plane of the aperture stop, in stop radii; the stop and all rims
    let everything through.
    """
    rays, _ = _sent(*launched(lens, angle, azimuth, a, b), line_um)
    with np.errstate(all="ignore"):
        for surface in lens.surfaces[1 : lens.stop + 1]:
            surface.trace(rays, record=False)
    x, y = _local(lens.surfaces[lens.stop], rays)
    return x / lens.stop_mm, y / lens.stop_mm


def _local(surface: Any, rays: Any) -> tuple[Array, Array]:
    """Return the rays' x and y relative to the centre of a surface."""
    centre = surface.geometry.cs
    return np.asarray(rays.x) - float(np.squeeze(centre.x)), np.asarray(rays.y) - float(np.squeeze(centre.y))


@dataclass(frozen=True)
class Beam:
    """The rectangle of the plane wave that holds all light that gets through: its middle (``a``,
    ``b``) and half its extent across (``wide``) and along the field (``tall``), in mm.
    """

    a: float
    b: float
    wide: float
    tall: float


def beams(lens: Lens, angles: Sequence[float], azimuth: float, line_um: float) -> list[Beam]:
    """Return the beams at rising angles: follow the ray through the stop's middle outward, then
    search around it.
    """
    found, at, here, slope = [], 0.0, np.zeros(2), np.zeros(2)
    for angle in angles:
        here, slope, jacobian = _followed(lens, (at, angle), azimuth, here, slope, line_um)
        half = 1.3 * float(np.linalg.norm(np.linalg.inv(jacobian), 2))
        found.append(_fitted(lens, angle, azimuth, Beam(float(here[0]), float(here[1]), half, half), line_um))
        at = angle
    return found


def _followed(
    lens: Lens, span: tuple[float, float], azimuth: float, here: Array, slope: Array, line_um: float
) -> tuple[Array, Array, Array]:
    """Follow the ray through the middle of the aperture stop over a span of angles.

    Return where it enters at the end, how fast that point moves with the angle, and the Jacobian of
    the crossing point in the stop's plane with respect to the entry point. Each step is
    extrapolated from the last one, and halved if it fails.
    """
    (at, angle), step = span, STEP_DEG
    here, jacobian = _centred(lens, at, azimuth, here, line_um)
    while at < angle:
        further = min(at + step, angle)
        try:
            there, jacobian = _centred(lens, further, azimuth, here + slope * (further - at), line_um)
        except Refused:
            step /= 2
            if step < STEP_DEG / 200:
                raise
            continue
        slope, here, at = (there - here) / (further - at), there, further
    return here, slope, jacobian


def _centred(lens: Lens, angle: float, azimuth: float, start: Array, line_um: float) -> tuple[Array, Array]:
    """Return the entry point of the ray through the stop's middle, and the Jacobian: Newton's
    method, three rays per step.
    """
    reach, here = 0.02 * lens.epd_mm, start
    for _ in range(20):
        x, y = at_setting(
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


def _fitted(lens: Lens, angle: float, azimuth: float, box: Beam, line_um: float) -> Beam:
    """Return the smallest box around the light that passes, one coarse cell wider on every side.

    It is found twice, because the second trace is finer.
    """
    return _tight(lens, angle, azimuth, _tight(lens, angle, azimuth, box, line_um), line_um)


def _tight(lens: Lens, angle: float, azimuth: float, box: Beam, line_um: float) -> Beam:
    """Return a tighter box around the light that passes; a box that is too small is widened first."""
    for _ in range(6):
        a, b = _mesh(box, COARSE)
        lit = _whole(
            np.isfinite(through(lens, *launched(lens, angle, azimuth, a.ravel(), b.ravel()), line_um).path),
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


def _whole(passed: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the largest connected piece of the rays that passed; rays far outside that reach the
    stop another way do not belong to the beam.
    """
    pieces, _ = ndimage.label(passed.reshape(shape))
    sizes = np.bincount(pieces.ravel())[1:]
    return (pieces.ravel() == 1 + int(sizes.argmax())) if len(sizes) else passed


def _mesh(box: Beam, across: int, half: bool = False) -> tuple[Array, Array]:
    """Return the cell middles of an even grid over the box, or over the half of it with ``a`` above
    the middle; each cell stands for the same amount of light.
    """
    even = 2 * math.ceil(across / 2)
    places = 2 / even * (np.arange(even) - (even - 1) / 2)
    a, b = np.meshgrid(
        box.a + box.wide * (places[places > 0] if half else places), box.b + box.tall * places, indexing="ij"
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

    With ``whole=False`` the lens must be symmetric about the plane of the field, and only half the
    beam is traced; the azimuth is then 90 degrees (the field along y).
    """
    a, b = _mesh(box if whole else replace(box, a=0.0), across, half=not whole)
    sent = through(lens, *launched(lens, angle, azimuth if whole else 90.0, a.ravel(), b.ravel()), line_um)
    passed = replace(sent, step=_steps(sent, a.shape)).where(_whole(np.isfinite(sent.path), a.shape))
    return passed if whole else passed.mirrored()


def _steps(rays: Rays, shape: tuple[int, ...]) -> Array:
    """Return the largest difference of each ray's direction to a neighbour's on the grid; 0 if it
    has no neighbour.
    """
    found = np.zeros(shape)
    for part in (rays.L.reshape(shape), rays.M.reshape(shape)):
        for axis in (0, 1):
            apart = np.nan_to_num(np.abs(np.diff(part, axis=axis)))
            ahead, behind = (
                (slice(None), ends) if axis else (ends,) for ends in (slice(1, None), slice(None, -1))
            )
            found[ahead], found[behind] = np.maximum(found[ahead], apart), np.maximum(found[behind], apart)
    return found.ravel()


def chief(lens: Lens, angle: float, azimuth: float, line_um: float) -> tuple[float, float]:
    """Return where the chief ray (through the middle of the aperture stop) lands, (x, y) in mm from
    the axis.
    """
    here, _, _ = _followed(lens, (0.0, angle), azimuth, np.zeros(2), np.zeros(2), line_um)
    landed = through(lens, *launched(lens, angle, azimuth, here[:1], here[1:]), line_um)
    return float(landed.x[0]), float(landed.y[0])


def paths(lens: Lens, angle: float, box: Beam, line_um: float) -> list[list[tuple[float, float]]]:
    """Return the (z, y) in mm at every surface of three rays of a beam, near its two rims and in
    its middle, for a drawing.
    """
    b = box.b + np.array([-0.9, 0.0, 0.9]) * box.tall
    starts, direction = launched(lens, angle, 90.0, np.zeros(3), b)
    rays, _ = _sent(starts, direction, line_um)
    drawn: list[list[tuple[float, float]]] = [[], [], []]
    with np.errstate(all="ignore"):
        for surface in lens.surfaces[1:]:
            surface.trace(rays, record=False)
            for line, z, y in zip(drawn, np.asarray(rays.z), np.asarray(rays.y), strict=True):
                line.append((float(z), float(y)))
    return [line for line in drawn if np.isfinite(line).all()]

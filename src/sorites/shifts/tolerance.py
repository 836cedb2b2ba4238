"""Production errors of a lens as three dials: one element off the axis, tilted, or too far from the next.

The severity is the error itself, so a failure point reads "the model fails by 20 um of decentre". Severity 0 is the untouched
picture; above it the picture is seen through the lens, and the least error shows practically the lens as designed. One
kernel blurs the whole picture, as in the shift ``lens``; each sample draws the azimuth of the field.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sorites.core import SHIFTS, Image, Shift
from sorites.errors import SoritesError
from sorites.lenses import tolerances as store
from sorites.optics.convolve import Kernel, Padding
from sorites.optics.convolve import sweep as convolve
from sorites.shifts._kernels import point

MOVES = {
    "decentre": "an element of the lens is off its axis",
    "tilt": "an element of the lens is tilted",
    "spacing": "an element of the lens is too far from the next one",
}
FADE = 0.05
"""Below this fraction of the first stop the lens itself fades in, so that the dial starts at the untouched picture."""


Blurred = tuple[Image, Mapping[str, Any]]
"""A picture, with the azimuth that was drawn for it, the lens and its element, and MTF50 at the severity."""


def dial(name: str, path: Path, field: float | None, padding: Padding) -> Shift:
    """Return the shift over a traced file, at its field or (``field`` 0) on the axis."""
    about = store.about(path)
    stops, azimuths = tuple(map(float, about["stops"][1:])), store.around(about)
    if field not in (None, 0, about["field"]):
        raise SoritesError(f"{name}: {about['lens']} was traced at field 0 and {about['field']:g}, got {field!r}")

    def drawn(rng: np.random.Generator) -> int | None:
        """Draw the azimuth of a sample's field, in degrees; it is the same at every severity, and None on the axis."""
        return None if field == 0 else azimuths[int(rng.integers(len(azimuths)))]

    @functools.lru_cache(maxsize=128)
    def kernel(severity: float, azimuth: int | None) -> Kernel:
        taps, share = store.load(path).taps(severity, azimuth), min(severity / (FADE * stops[0]), 1.0)
        return Kernel((1 - share) * point(taps.shape) + share * taps)

    def together(image: Image, severities: Sequence[float], rng: np.random.Generator) -> Iterator[Blurred]:
        azimuth = drawn(rng)
        kernels = [kernel(float(severity), azimuth) for severity in severities]
        for severity, blurred in zip(severities, convolve(image, kernels, padding, flip=True), strict=True):
            sharp = round(store.load(path).sharpness(severity, azimuth), 5)
            chosen = {"azimuth": azimuth, "mtf50": sharp, "lens": about["lens"], "element": about["element"]}
            yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32)), chosen

    def apply(image: Image, severity: float, rng: np.random.Generator) -> Blurred:
        return next(together(image, [severity], rng))

    line = f"Blur by a production error: {MOVES[name]}; the first level is practically the lens as designed ({about['lens']})."
    shift = Shift(name, apply, "optics", about["unit"], stops, version=store.version(path), about=line)
    shift.configure = functools.partial(configure, name)
    shift.sweeper(together)
    return shift


def configure(name: str, *, tolerances: str | None = None, field: float | None = None, padding: Padding = "reflect") -> Shift:
    """Return the shift with some of its options changed.

    ``tolerances`` names a file of ``sorites lens tolerance``, or a folder with one for this shift, to use instead of ours.
    ``field`` is 0 for the axis; the default is the traced field. ``padding`` is what lies beyond the border: the picture
    mirrored (``reflect``) or black (``zeros``).
    """
    if padding not in get_args(Padding):
        raise SoritesError(f"{name}: wanted padding zeros or reflect, got {padding!r}")
    where = store.builtin() if tolerances is None else Path(tolerances)
    return dial(name, store.find(where, name), field, padding)


for _name in MOVES:
    SHIFTS.add(_name, configure(_name))

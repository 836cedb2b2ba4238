"""Real lenses as a shift: every traced lens of a folder at five distances from the middle of its picture.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object Detection", section
V-B: a picture is taken as a small part of a large sensor, so one kernel blurs all of it; a point of light becomes the kernel.
A lens has no severity. The params are ``lens`` and ``field`` (a fraction of the half field of view); a sample draws its azimuth.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sorites.core import SHIFTS, Image, Shift
from sorites.errors import SoritesError
from sorites.lenses import store
from sorites.optics.convolve import Kernel, Padding
from sorites.optics.convolve import sweep as convolve
from sorites.optics.tracing.positions import AZIMUTHS, FIELDS
from sorites.shifts.digital import jpeg

ABOUT = "Blur as a real lens does at a distance from the middle of its picture; each sample draws an azimuth (LensCorruptions)."
Blurred = tuple[Image, Mapping[str, Any]]
"""A picture, with the azimuth that was drawn for it and the lens's MTF50 and quality there."""


def place(field: float, azimuth: int) -> int:
    """Return which of a lens's thirteen kernels belongs to a field and azimuth; on the axis there is one for all azimuths."""
    at = FIELDS.index(field)
    return 0 if at == 0 else 1 + 3 * (at - 1) + AZIMUTHS.index(azimuth)


def drawn(rng: np.random.Generator) -> int:
    """Draw the azimuth of a sample, in degrees; it is the same at every lens and field."""
    return AZIMUTHS[int(rng.integers(len(AZIMUTHS)))]


class LensSet:
    """The lenses of a folder; each is read when it is first used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, store.names(folder)
        self.entry = functools.lru_cache(maxsize=256)(functools.partial(store.load, folder))
        self.kernel = functools.lru_cache(maxsize=128)(self._kernel)

    def settings(self) -> tuple[Mapping[str, Any], ...]:
        """Return every lens at every field."""
        return tuple({"lens": name, "field": field} for name in self.names for field in FIELDS)

    def _kernel(self, name: str, index: int) -> Kernel:
        return Kernel(self.entry(name).arrays["kernels"][index])

    def at(self, params: Mapping[str, Any], azimuth: int) -> Kernel:
        """Return the kernel of a setting at an azimuth; raise an error if there is no such lens or field."""
        if params.get("lens") not in self.names or params.get("field") not in FIELDS:
            raise SoritesError(
                f"lens: a setting names one of {len(self.names)} lenses and a field of {FIELDS}, got {dict(params)}"
            )
        return self.kernel(params["lens"], place(params["field"], azimuth))


def lens_shift(lenses: LensSet, padding: Padding, version: str, quality: int | None = None) -> Shift:
    """Return the shift over a set of lenses; with ``quality`` its pictures are saved as JPEG and read again."""

    def together(image: Image, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Blurred]:
        azimuth = drawn(rng)
        for params in stops:
            for blurred in convolve(image, [lenses.at(params, azimuth)], padding, flip=True):
                picture = np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32))
                picture = picture if quality is None else next(jpeg.sweep(picture, [100.0 - quality], rng))
                yield picture, {"azimuth": azimuth, **sharpness(params)}

    def sharpness(params: Mapping[str, Any]) -> dict[str, float]:
        about = lenses.entry(params["lens"]).about
        mtf50 = dict(zip(FIELDS, about["mtf50"], strict=True))[params["field"]]
        return {"mtf50": round(mtf50, 5), "quality": round(about["quality"], 5)}

    def apply(image: Image, params: Any, rng: np.random.Generator) -> Blurred:
        return next(together(image, [params], rng))

    shift = Shift("lens", apply, "optics", "setting", (), lenses.settings(), version, ABOUT, options)
    shift.sweeper(together)
    return shift


def options(*, lenses: str | None = None, padding: Padding = "reflect", quality: int | None = None) -> Shift:
    """Return the shift over the lenses of a folder (``sorites lens import`` makes one); the default is the fifteen built-in ones.

    ``padding`` is what lies beyond the border: the picture mirrored (``reflect``) or black (``zeros``). ``quality`` saves
    every picture as JPEG, 90 in the published sets; without it nothing is lost.
    """
    if quality is not None and (isinstance(quality, bool) or not isinstance(quality, int) or not 1 <= quality <= 99):
        raise SoritesError(f"lens: wanted a JPEG quality of 1 to 99, got {quality!r}")
    if padding not in get_args(Padding):
        raise SoritesError(f"lens: wanted padding zeros or reflect, got {padding!r}")
    folder = store.builtin() if lenses is None else Path(lenses)
    return lens_shift(LensSet(folder), padding, store.version(folder), quality)


SHIFTS.add("lens", lens_shift(LensSet(store.builtin()), "reflect", store.version(store.builtin())))

"""Real lenses as a shift: every traced lens of a folder at five distances from the middle of its picture.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object Detection", section
V-B: a picture is taken as a small part of a large sensor, so one kernel blurs all of it, a point of light becoming the kernel.
A lens has no severity; the params are ``lens`` and ``field`` (part of the half field of view), the azimuth is the sample's draw.
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

ABOUT = "Lens blur: a real lens at a distance from the picture's middle, the azimuth by the sample's draw (LensCorruptions)."


def place(field: float, azimuth: int) -> int:
    """Which of a lens's thirteen kernels stands at a field and azimuth; on the axis all azimuths are one."""
    at = FIELDS.index(field)
    return 0 if at == 0 else 1 + 3 * (at - 1) + AZIMUTHS.index(azimuth)


def drawn(rng: np.random.Generator) -> int:
    """The azimuth of a sample, in degrees, the same at every lens and field."""
    return AZIMUTHS[int(rng.integers(len(AZIMUTHS)))]


class Set:
    """The lenses of a folder, each read when it is first used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, store.names(folder)
        self.entry = functools.lru_cache(maxsize=256)(functools.partial(store.load, folder))
        self.kernel = functools.lru_cache(maxsize=128)(self._kernel)

    def settings(self) -> tuple[Mapping[str, Any], ...]:
        return tuple({"lens": name, "field": field} for name in self.names for field in FIELDS)

    def _kernel(self, name: str, index: int) -> Kernel:
        return Kernel(self.entry(name).arrays["kernels"][index])

    def at(self, params: Mapping[str, Any], azimuth: int) -> Kernel:
        if params.get("lens") not in self.names or params.get("field") not in FIELDS:
            raise SoritesError(
                f"lens: a setting names one of {len(self.names)} lenses and a field of {FIELDS}, got {dict(params)}"
            )
        return self.kernel(params["lens"], place(params["field"], azimuth))


def made(held: Set, padding: Padding, version: str) -> Shift:
    """The shift over a set of lenses."""

    def together(image: Image, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Image]:
        azimuth = drawn(rng)
        for params in stops:
            for blurred in convolve(image, [held.at(params, azimuth)], padding, flip=True):
                yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32))

    def apply(image: Image, params: Any, rng: np.random.Generator) -> Image:
        return next(together(image, [params], rng))

    def told(image: Image, params: Any, rng: np.random.Generator) -> Mapping[str, Any]:
        about = held.entry(params["lens"]).about
        sharp = dict(zip(FIELDS, about["mtf50"], strict=True))[params["field"]]
        return {"azimuth": drawn(rng), "mtf50": round(sharp, 5), "quality": round(about["quality"], 5)}

    shift = Shift("lens", apply, "optics", "setting", (), held.settings(), version, ABOUT, options, told=told)
    shift.sweeper(together)
    return shift


def options(*, lenses: str | None = None, padding: Padding = "reflect") -> Shift:
    """The shift over the lenses of a folder (``sorites lens import`` makes one), by default the fifteen that come with us;
    ``padding`` is what lies beyond the border: the picture mirrored (``reflect``) or black (``zeros``)."""
    if padding not in get_args(Padding):
        raise SoritesError(f"lens: wanted padding zeros or reflect, got {padding!r}")
    folder = store.builtin() if lenses is None else Path(lenses)
    return made(Set(folder), padding, store.version(folder))


SHIFTS.add("lens", made(Set(store.builtin()), "reflect", store.version(store.builtin())))

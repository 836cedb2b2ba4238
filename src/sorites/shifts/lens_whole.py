"""Real lenses over the whole picture: each place of it is blurred as the lens blurs that place of its own picture.

Unlike the shift ``lens``, which takes a picture as a small part of a large sensor, the picture fills the sensor here: its middle
stands on the axis and its corners at ``corner`` of the half field. Its pixels are taken as those that the lens was matched to.
There is nothing to draw, and ``lens`` is the only param.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core import SHIFTS, Image, Shift
from sorites.errors import SoritesError
from sorites.lenses import store
from sorites.optics.tracing.field import Spectrum, TiledPicture, Tiling, transfer
from sorites.shifts.lens import Set

ABOUT = "Lens blur over the whole picture: a real lens, sharp in the middle and less so toward the corners."
VERSION = 1


def made(held: Set, corner: float, version: str) -> Shift:
    """The shift over a set of lenses."""

    @functools.lru_cache(maxsize=16)
    def taps(name: str, how: Tiling) -> Spectrum:
        return transfer(_kernels(held, name), how)

    def together(image: Image, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Image]:
        scenes: dict[int, TiledPicture] = {}
        for params in stops:
            side = _kernels(held, params.get("lens")).shape[-1]
            first = TiledPicture(image, side, corner)
            scene = scenes.setdefault(first.tiling.reach, first)
            yield _whole(scene, taps(params["lens"], scene.tiling))

    def apply(image: Image, params: Any, rng: np.random.Generator) -> Image:
        return next(together(image, [params], rng))

    def told(image: Image, params: Any, rng: np.random.Generator) -> Mapping[str, Any]:
        return {"quality": round(held.entry(params["lens"]).quality, 5)}

    settings = tuple({"lens": name} for name in held.names)
    shift = Shift("lens_whole", apply, "optics", "setting", (), settings, version, ABOUT, options, told=told)
    shift.sweeper(together)
    return shift


def _kernels(held: Set, name: Any) -> Any:
    if name not in held.names:
        raise SoritesError(f"lens_whole: a setting names one of {len(held.names)} lenses, got {name!r}")
    return held.entry(name).arrays["kernels"]


def _whole(scene: TiledPicture, taps: Spectrum) -> Image:
    image = np.empty(scene.picture.shape, np.float32)
    for top, strip in scene.through(taps):
        image[top : top + len(strip)] = strip
    return image


def options(*, lenses: str | None = None, corner: float = 1.0) -> Shift:
    """The shift over the lenses of a folder (``sorites lens import`` makes one), by default the fifteen that come with us;
    the picture's corners stand at ``corner`` (0 to 1) of the lens's half field."""
    if not 0 < corner <= 1:
        raise SoritesError(f"lens_whole: wanted a corner above 0 and up to 1 of the half field, got {corner!r}")
    folder = store.builtin() if lenses is None else Path(lenses)
    return made(Set(folder), corner, f"{VERSION} {store.version(folder)}")


SHIFTS.add("lens_whole", made(Set(store.builtin()), 1.0, f"{VERSION} {store.version(store.builtin())}"))

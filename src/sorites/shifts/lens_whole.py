"""Real lenses over the whole picture: each place in it is blurred as the lens blurs that place of the image it forms.

Unlike the shift ``lens``, which takes a picture as a small part of a large sensor, the picture fills the sensor here: its middle
stands on the axis and its corners at the fraction ``corner`` of the half field. Its pixels are taken as those that the lens was
matched to. Nothing is drawn at random, and ``lens`` is the only param.
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
from sorites.shifts.lens import LensSet

ABOUT = "Blur the whole picture as a real lens does: sharp in the middle and less so toward the corners."
VERSION = 1


def lens_whole_shift(lenses: LensSet, corner: float, version: str) -> Shift:
    """Return the shift over a set of lenses."""

    @functools.lru_cache(maxsize=16)
    def taps(name: str, how: Tiling) -> Spectrum:
        return transfer(_kernels(lenses, name), how)

    def together(image: Image, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[tuple[Image, Mapping[str, Any]]]:
        scenes: dict[int, TiledPicture] = {}
        for params in stops:
            side = _kernels(lenses, params.get("lens")).shape[-1]
            first = TiledPicture(image, side, corner)
            scene = scenes.setdefault(first.tiling.reach, first)
            quality = round(lenses.entry(params["lens"]).quality, 5)
            yield _whole(scene, taps(params["lens"], scene.tiling)), {"quality": quality}

    def apply(image: Image, params: Any, rng: np.random.Generator) -> tuple[Image, Mapping[str, Any]]:
        return next(together(image, [params], rng))

    settings = tuple({"lens": name} for name in lenses.names)
    shift = Shift("lens_whole", apply, "optics", "setting", (), settings, version, ABOUT, options)
    shift.sweeper(together)
    return shift


def _kernels(lenses: LensSet, name: Any) -> Any:
    if name not in lenses.names:
        raise SoritesError(f"lens_whole: a setting names one of {len(lenses.names)} lenses, got {name!r}")
    return lenses.entry(name).arrays["kernels"]


def _whole(scene: TiledPicture, taps: Spectrum) -> Image:
    image = np.empty(scene.picture.shape, np.float32)
    for top, strip in scene.through(taps):
        image[top : top + len(strip)] = strip
    return image


def options(*, lenses: str | None = None, corner: float = 1.0) -> Shift:
    """Return the shift over the lenses of a folder (``sorites lens import`` makes one); the default is the fifteen built-in ones.

    The picture's corners stand at the fraction ``corner`` (0 to 1) of the lens's half field.
    """
    if not 0 < corner <= 1:
        raise SoritesError(f"lens_whole: wanted a corner above 0 and up to 1 of the half field, got {corner!r}")
    folder = store.builtin() if lenses is None else Path(lenses)
    return lens_whole_shift(LensSet(folder), corner, f"{VERSION} {store.version(folder)}")


SHIFTS.add("lens_whole", lens_whole_shift(LensSet(store.builtin()), 1.0, f"{VERSION} {store.version(store.builtin())}"))

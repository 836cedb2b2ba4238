"""Real lenses as a shift: every traced lens of a folder at five distances from the middle of its image.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and
Object Detection", section V-B: an image is taken as a small part of a large sensor, so one kernel
blurs all of it; a point of light becomes the kernel. A lens has no severity. The params are
``lens`` and ``field`` (a fraction of the half field of view); a sample draws its azimuth.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sorites.core import SHIFTS, ImageF32, Shift
from sorites.core.errors import SoritesError
from sorites.lenses import store
from sorites.lenses import tolerances as store_of
from sorites.optics.convolve import Kernel, Padding
from sorites.optics.convolve import sweep as convolve
from sorites.optics.tracing.blur import AZIMUTHS, FIELDS
from sorites.optics.tracing.field import Spectrum, TiledImage, Tiling, transfer
from sorites.shifts.aberration import point
from sorites.shifts.digital import jpeg

ABOUT = (
    "Blur as a real lens does at a distance from the middle of its image; each sample draws an azimuth"
    " (LensCorruptions)."
)
# An image, with the azimuth that was drawn for it and the lens's MTF50 and quality there.
Blurred = tuple[ImageF32, Mapping[str, Any]]


def place(field: float, azimuth: int) -> int:
    """Return which of a lens's thirteen kernels belongs to a field and azimuth; on the axis there
    is one for all azimuths.
    """
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
                f"lens: a setting names one of {len(self.names)} lenses and a field of {FIELDS}, got"
                f" {dict(params)}"
            )
        return self.kernel(params["lens"], place(params["field"], azimuth))


def lens_shift(lenses: LensSet, padding: Padding, version: str, quality: int | None = None) -> Shift:
    """Return the shift over a set of lenses; with ``quality`` its images are saved as JPEG and
    read again.
    """

    def together(image: ImageF32, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Blurred]:
        azimuth = drawn(rng)
        for params in stops:
            for blurred in convolve(image, [lenses.at(params, azimuth)], padding, flip=True):
                image_u8 = np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32))
                image_u8 = image_u8 if quality is None else next(jpeg.sweep(image_u8, [100.0 - quality], rng))
                yield image_u8, {"azimuth": azimuth, **sharpness(params)}

    def sharpness(params: Mapping[str, Any]) -> dict[str, float]:
        about = lenses.entry(params["lens"]).about
        mtf50 = dict(zip(FIELDS, about["mtf50"], strict=True))[params["field"]]
        return {"mtf50": round(mtf50, 5), "quality": round(about["quality"], 5)}

    def apply(image: ImageF32, params: Any, rng: np.random.Generator) -> Blurred:
        return next(together(image, [params], rng))

    shift = Shift("lens", apply, "optics", "setting", (), lenses.settings(), version, ABOUT, options)
    shift.sweeper(together)
    return shift


def options(*, lenses: str | None = None, padding: Padding = "reflect", quality: int | None = None) -> Shift:
    """Return the shift over the lenses of a folder (``sorites lens import`` makes one); the default
    is the fifteen built-in ones.

    ``padding`` is what lies beyond the border: the image mirrored (``reflect``) or black
    (``zeros``). ``quality`` saves every image as JPEG, 90 in the published sets; without it
    nothing is lost.
    """
    if quality is not None and (
        isinstance(quality, bool) or not isinstance(quality, int) or not 1 <= quality <= 99
    ):
        raise SoritesError(f"lens: wanted a JPEG quality of 1 to 99, got {quality!r}")
    if padding not in get_args(Padding):
        raise SoritesError(f"lens: wanted padding zeros or reflect, got {padding!r}")
    folder = store.builtin() if lenses is None else Path(lenses)
    return lens_shift(LensSet(folder), padding, store.version(folder), quality)


SHIFTS.add("lens", lens_shift(LensSet(store.builtin()), "reflect", store.version(store.builtin())))


# Real lenses over the whole image: each place in it is blurred as the lens blurs that place of the
# image it forms.


WHOLE_LENS_ABOUT = (
    "Blur the whole image as a real lens does: sharp in the middle and less so toward the corners."
)
VERSION = 1


def lens_whole_shift(lenses: LensSet, corner: float, version: str) -> Shift:
    """Return the shift over a set of lenses."""

    @functools.lru_cache(maxsize=16)
    def taps(name: str, how: Tiling) -> Spectrum:
        return transfer(_kernels(lenses, name), how)

    def together(
        image: ImageF32, stops: Sequence[Any], rng: np.random.Generator
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        scenes: dict[int, TiledImage] = {}
        for params in stops:
            side = _kernels(lenses, params.get("lens")).shape[-1]
            first = TiledImage(image, side, corner)
            scene = scenes.setdefault(first.tiling.reach, first)
            quality = round(lenses.entry(params["lens"]).quality, 5)
            yield _whole(scene, taps(params["lens"], scene.tiling)), {"quality": quality}

    def apply(image: ImageF32, params: Any, rng: np.random.Generator) -> tuple[ImageF32, Mapping[str, Any]]:
        return next(together(image, [params], rng))

    settings = tuple({"lens": name} for name in lenses.names)
    shift = Shift(
        "lens_whole", apply, "optics", "setting", (), settings, version, WHOLE_LENS_ABOUT, whole_lens_options
    )
    shift.sweeper(together)
    return shift


def _kernels(lenses: LensSet, name: Any) -> Any:
    if name not in lenses.names:
        raise SoritesError(f"lens_whole: a setting names one of {len(lenses.names)} lenses, got {name!r}")
    return lenses.entry(name).arrays["kernels"]


def _whole(scene: TiledImage, taps: Spectrum) -> ImageF32:
    image = np.empty(scene.image.shape, np.float32)
    for top, strip in scene.through(taps):
        image[top : top + len(strip)] = strip
    return image


def whole_lens_options(*, lenses: str | None = None, corner: float = 1.0) -> Shift:
    """Return the shift over the lenses of a folder (``sorites lens import`` makes one); the default
    is the fifteen built-in ones.

    The image's corners stand at the fraction ``corner`` (0 to 1) of the lens's half field.
    """
    if not 0 < corner <= 1:
        raise SoritesError(
            f"lens_whole: wanted a corner above 0 and up to 1 of the half field, got {corner!r}"
        )
    folder = store.builtin() if lenses is None else Path(lenses)
    return lens_whole_shift(LensSet(folder), corner, f"{VERSION} {store.version(folder)}")


SHIFTS.add(
    "lens_whole",
    lens_whole_shift(LensSet(store.builtin()), 1.0, f"{VERSION} {store.version(store.builtin())}"),
)


# Production errors of a lens as three dials: one element off the axis, tilted, or too far from the next.


MOVES = {
    "decentre": "an element of the lens is off its axis",
    "tilt": "an element of the lens is tilted",
    "spacing": "an element of the lens is too far from the next one",
}
# Below this fraction of the first stop the lens itself fades in, so that the dial starts at the
# untouched image.
FADE = 0.05


# An image, with the azimuth that was drawn for it, the lens and its element, and MTF50 at the
# severity.
ToleranceBlurred = tuple[ImageF32, Mapping[str, Any]]


def dial(name: str, path: Path, field: float | None, padding: Padding) -> Shift:
    """Return the shift over a traced file, at its field or (``field`` 0) on the axis."""
    about = store_of.about(path)
    stops, azimuths = tuple(map(float, about["stops"][1:])), store_of.around(about)
    if field not in (None, 0, about["field"]):
        raise SoritesError(
            f"{name}: {about['lens']} was traced at field 0 and {about['field']:g}, got {field!r}"
        )

    def drawn(rng: np.random.Generator) -> int | None:
        """Draw the azimuth of a sample's field, in degrees; it is the same at every severity, and
        None on the axis.
        """
        return None if field == 0 else azimuths[int(rng.integers(len(azimuths)))]

    @functools.lru_cache(maxsize=128)
    def kernel(severity: float, azimuth: int | None) -> Kernel:
        taps, share = store_of.load(path).taps(severity, azimuth), min(severity / (FADE * stops[0]), 1.0)
        return Kernel((1 - share) * point(taps.shape) + share * taps)

    def together(
        image: ImageF32, severities: Sequence[float], rng: np.random.Generator
    ) -> Iterator[ToleranceBlurred]:
        azimuth = drawn(rng)
        kernels = [kernel(float(severity), azimuth) for severity in severities]
        for severity, blurred in zip(severities, convolve(image, kernels, padding, flip=True), strict=True):
            sharp = round(store_of.load(path).sharpness(severity, azimuth), 5)
            chosen = {"azimuth": azimuth, "mtf50": sharp, "lens": about["lens"], "element": about["element"]}
            yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32)), chosen

    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ToleranceBlurred:
        return next(together(image, [severity], rng))

    line = (
        f"Blur by a production error: {MOVES[name]}; the first level is practically the lens as designed"
        f" ({about['lens']})."
    )
    shift = Shift(name, apply, "optics", about["unit"], stops, version=store_of.version(path), about=line)
    shift.configure = functools.partial(configure, name)
    shift.sweeper(together)
    return shift


def configure(
    name: str, *, tolerances: str | None = None, field: float | None = None, padding: Padding = "reflect"
) -> Shift:
    """Return the shift with some of its options changed.

    ``tolerances`` names a file of ``sorites lens tolerance``, or a folder with one for this shift,
    to use instead of ours. ``field`` is 0 for the axis; the default is the traced field.
    ``padding`` is what lies beyond the border: the image mirrored (``reflect``) or black
    (``zeros``).
    """
    if padding not in get_args(Padding):
        raise SoritesError(f"{name}: wanted padding zeros or reflect, got {padding!r}")
    where = store_of.builtin() if tolerances is None else Path(tolerances)
    return dial(name, store_of.find(where, name), field, padding)


for _name in MOVES:
    SHIFTS.add(_name, configure(_name))

"""Real lenses as shifts: every traced lens of a folder at five field positions, over the whole image, and
with production errors.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and
Object Detection", section V-B: an image is a small part of a large sensor, so one kernel blurs all of it. A
lens has no severity. The params are ``lens`` and ``field`` (relative to the half field of view); a sample
draws its azimuth. With ``azimuth`` in degrees, the kernel is that of any place of the field.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sorites.core import SHIFTS, Box, ImageF32, Shift
from sorites.core.errors import SoritesError
from sorites.lenses import store
from sorites.lenses import tolerances as store_of
from sorites.optics.convolve import Kernel, Library, Padding, check_library
from sorites.optics.convolve import sweep as convolve
from sorites.optics.develop import linear_from_srgb, to_display
from sorites.optics.projection import Places
from sorites.optics.tracing.blur import AZIMUTHS, FIELDS
from sorites.optics.tracing.field import Spectrum, TiledImage, Tiling, kernel_at, transfer
from sorites.scenes.moved_boxes import boxes_after_map
from sorites.scenes.point_maps import RadialTable, Size
from sorites.scenes.resample import warped
from sorites.shifts.aberration import check_linear, displayed, point, version_with
from sorites.shifts.digital import jpeg

ABOUT = (
    "Blur like a real lens at a distance from the image centre; each sample draws an azimuth"
    " (LensCorruptions)."
)
# An image with the azimuth drawn for it, and the MTF50 and quality of the lens there.
Blurred = tuple[ImageF32, Mapping[str, Any]]
# Version of the parts apart from the blur: increment when a pixel or a box changes.
GEOMETRY_VERSION = 1


@dataclass(frozen=True)
class Geometry:
    """The parts of a lens that are applied apart from its blur.

    Attributes:
        rectified: Whether the camera corrects the distortion.
        lateral_colour: Whether red and blue land beside green.
        illumination: Whether the light falls off towards the corners.
    """

    rectified: bool = True
    lateral_colour: bool = False
    illumination: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool):
                raise SoritesError(f"lens_whole: expected {name} true or false, got {value!r}")

    @property
    def changes(self) -> bool:
        """Return whether anything but the blur is applied."""
        return not self.rectified or self.lateral_colour or self.illumination

    def version(self, of_blur: str) -> str:
        """Return the version of a shift with these parts."""
        parts = [
            *(["distortion"] if not self.rectified else []),
            *(["lateral"] if self.lateral_colour else []),
            *(["illumination"] if self.illumination else []),
        ]
        return " ".join([of_blur, *(["geometry", str(GEOMETRY_VERSION), *parts] if parts else [])])

    def before_blur(self, image: ImageF32, places: Places, pitch_um: float) -> ImageF32:
        """Return the image with these parts, as display values; a pixel is ``pitch_um`` wide."""
        size = image.shape[:2]
        if self.lateral_colour:
            maps = [colour_map(places, colour, size, pitch_um) for colour in range(3)]
            margin = math.ceil(1000 * float(np.abs(places.lateral).max()) / pitch_um) + 2
            planes = [_warped(image[..., c : c + 1], map_, margin) for c, map_ in enumerate(maps)]
            image = np.concatenate(planes, axis=-1)
        elif not self.rectified:
            image = warped(image, green_map(places, size))
        return self._darkened(image, places) if self.illumination else image

    def _darkened(self, image: ImageF32, places: Places) -> ImageF32:
        """Return the image with the illumination of its places, in linear light."""
        height, width = image.shape[:2]
        y, x = np.mgrid[:height, :width] + 0.5
        radius = np.hypot(x - width / 2, y - height / 2) / (math.hypot(height, width) / 2)
        light = linear_from_srgb(image)
        for colour, part in enumerate(places.light):
            light[..., colour] *= np.interp(radius, places.seen, part).astype(np.float32)
        return to_display(light)


def _warped(plane: ImageF32, map_: RadialTable, margin: int) -> ImageF32:
    """Return a plane after a change, mirrored at its border by a margin, so that colours that are moved
    apart leave no coloured border.
    """
    height, width = plane.shape[:2]
    down, across = min(margin, height - 1), min(margin, width - 1)
    wide = np.pad(plane, ((down, down), (across, across), (0, 0)), mode="reflect")
    part = math.hypot(height, width) / math.hypot(*wide.shape[:2])
    wider = RadialTable(part * map_.original, part * map_.changed, (wide.shape[0], wide.shape[1]))
    return warped(wide, wider)[down : down + height, across : across + width]


def green_map(places: Places, size: Size) -> RadialTable:
    """Return the map of points from the original image to the image of green light."""
    return RadialTable(places.original, places.seen, size)


def colour_map(places: Places, colour: int, size: Size, pitch_um: float) -> RadialTable:
    """Return the map of points from the original image to that of a colour (0 red, 1 green, 2 blue).

    Lateral colour is a displacement of the kernel on the sensor. Like the kernels, it is counted in pixels
    of the width that the lens was matched to, whatever the size of the image.
    """
    half_diagonal_mm = math.hypot(*size) / 2 * pitch_um / 1000
    moved = np.maximum.accumulate(places.seen + places.lateral[colour] / half_diagonal_mm)
    return RadialTable(places.original, moved, size)


def kernel_index(field: float, azimuth: int) -> int:
    """Return the index of the kernel of a field and azimuth among the thirteen of a lens; the axis has only
    one.
    """
    i = FIELDS.index(field)
    return 0 if i == 0 else 1 + 3 * (i - 1) + AZIMUTHS.index(azimuth)


def draw_azimuth(rng: np.random.Generator) -> int:
    """Draw the azimuth of a sample in degrees, the same for every lens and field."""
    return AZIMUTHS[int(rng.integers(len(AZIMUTHS)))]


class LensSet:
    """The lenses of a folder, loaded on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, store.names(folder)
        self.entry = functools.lru_cache(maxsize=256)(functools.partial(store.load, folder))
        self.kernel = functools.lru_cache(maxsize=128)(self._kernel)
        self.around = functools.lru_cache(maxsize=2)(lambda name: self.entry(name).around())
        self.between = functools.lru_cache(maxsize=32)(self._between)

    def settings(self) -> tuple[Mapping[str, Any], ...]:
        """Return every lens at every field."""
        return tuple({"lens": name, "field": field} for name in self.names for field in FIELDS)

    def _kernel(self, name: str, index: int) -> Kernel:
        return Kernel(self.entry(name).arrays["kernels"][index])

    def _between(self, name: str, field: float, azimuth: float) -> Kernel:
        return Kernel(kernel_at(self.around(name), field, azimuth))

    def at(self, params: Mapping[str, Any], azimuth: int) -> Kernel:
        """Return the kernel of a setting at an azimuth; raise an error for unknown lenses and fields.

        Params with an azimuth of their own may have any field up to the last traced one.
        """
        if "azimuth" in params:
            return self.between(*self._place(params))
        if params.get("lens") not in self.names or params.get("field") not in FIELDS:
            raise SoritesError(
                f"lens: expected one of {len(self.names)} lenses and a field of {FIELDS}, got {dict(params)}"
            )
        return self.kernel(params["lens"], kernel_index(params["field"], azimuth))

    def _place(self, params: Mapping[str, Any]) -> tuple[str, float, float]:
        """Return the lens, field and azimuth of params; raise an error unless they are valid."""
        name, field, azimuth = (params.get(key) for key in ("lens", "field", "azimuth"))
        if (
            name in self.names
            and isinstance(field, int | float)
            and isinstance(azimuth, int | float)
            and 0 <= field <= FIELDS[-1]
            and math.isfinite(azimuth)
        ):
            return str(name), float(field), float(azimuth)
        raise SoritesError(
            f"lens: expected one of {len(self.names)} lenses, a field of 0 to {FIELDS[-1]} and an azimuth in"
            f" degrees, got {dict(params)}"
        )


def lens_shift(
    lenses: LensSet,
    padding: Padding,
    version: str,
    quality: int | None = None,
    linear: bool = False,
    fft: Library = "scipy",
) -> Shift:
    """Return the shift for a set of lenses; see ``options``."""

    def sweep(image: ImageF32, settings: Sequence[Any], rng: np.random.Generator) -> Iterator[Blurred]:
        azimuth = draw_azimuth(rng)
        light = linear_from_srgb(image) if linear else image
        for params in settings:
            for blurred in convolve(light, [lenses.at(params, azimuth)], padding, flip=True, library=fft):
                output = displayed(blurred, linear)
                output = output if quality is None else next(jpeg.sweep(output, [100.0 - quality], rng))
                yield output, {"azimuth": params.get("azimuth", azimuth), **sharpness(params)}

    def sharpness(params: Mapping[str, Any]) -> dict[str, float]:
        about = lenses.entry(params["lens"]).about
        mtf50 = float(np.interp(params["field"], FIELDS, about.mtf50))
        return {"mtf50": round(mtf50, 5), "quality": round(about.quality, 5)}

    def apply(image: ImageF32, params: Any, rng: np.random.Generator) -> Blurred:
        return next(sweep(image, [params], rng))

    shift = Shift(
        "lens", apply, "optics", "setting", (), lenses.settings(), version, ABOUT, options, stage="optics"
    )
    shift.sweeper(sweep)
    return shift


def options(
    *,
    lenses: str | None = None,
    padding: Padding = "reflect",
    quality: int | None = None,
    linear: bool = False,
    fft: Library = "scipy",
) -> Shift:
    """Return the shift for the lenses of a folder.

    Args:
        lenses: A folder made by ``sorites lens import``; None uses the fifteen built-in lenses.
        padding: The border: mirrored (``reflect``) or black (``zeros``).
        quality: Compress images as JPEG with this quality (90 in the published sets); None is lossless.
        linear: Whether linear light is blurred, as in a camera, instead of display values, as published.
        fft: The library of the transforms: ``scipy``, ``ducc``, which is the fastest, or ``torch``, which is
            faster than SciPy with MKL; they differ in the last bits.
    """
    check_linear("lens", linear)
    check_library("lens", fft)
    if quality is not None and (
        isinstance(quality, bool) or not isinstance(quality, int) or not 1 <= quality <= 99
    ):
        raise SoritesError(f"lens: expected a JPEG quality of 1 to 99, got {quality!r}")
    if padding not in get_args(Padding):
        raise SoritesError(f"lens: expected padding zeros or reflect, got {padding!r}")
    folder = store.builtin() if lenses is None else Path(lenses)
    version = version_with(store.version(folder), linear, fft)
    return lens_shift(LensSet(folder), padding, version, quality, linear, fft)


SHIFTS.add("lens", options())


# Real lenses over the whole image: the blur varies with the position.

WHOLE_LENS_ABOUT = (
    "Blur the whole image like a real lens: sharp in the centre and less so toward the corners."
)
VERSION = 2


def lens_whole_shift(lenses: LensSet, corner: float, version: str, geometry: Geometry | None = None) -> Shift:
    """Return the shift for a set of lenses; see ``whole_lens_options``."""
    parts = geometry or Geometry()

    @functools.lru_cache(maxsize=64)
    def places_of(name: str) -> Places:
        return lenses.entry(name).places(corner, parts.rectified)

    def transformed(name: str, tiling: Tiling) -> Spectrum:
        return transfer(lenses.entry(name).around(), tiling)

    # A lens takes 20 to 40 MB for small images and 150 MB for large ones.
    many, few = (functools.lru_cache(maxsize=size)(transformed) for size in (16, 2))

    def sweep(
        image: ImageF32, settings: Sequence[Any], rng: np.random.Generator
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        scenes: dict[int, TiledImage] = {}
        for params in settings:
            side = _kernels(lenses, params.get("lens")).shape[-1]
            chosen = {"quality": round(lenses.entry(params["lens"]).quality, 5)}
            if parts.changes:
                scene, moved = projected(image, params["lens"])
                chosen |= moved
            else:
                first = TiledImage(image, side, corner)
                scene = scenes.setdefault(first.tiling.reach, first)
            taps = (many if scene.tiling.small else few)(params["lens"], scene.tiling)
            yield _blur_tiles(scene, taps), chosen

    def projected(image: ImageF32, name: str) -> tuple[TiledImage, dict[str, float]]:
        """Return the image before the blur, and the distortion of its corners if there is any."""
        entry, places = lenses.entry(name), places_of(name)
        before = parts.before_blur(image, places, entry.about.pitch_um)
        scene = TiledImage(before, entry.arrays["kernels"].shape[-1], corner, (places.seen, places.fields))
        return scene, {} if parts.rectified else {"distortion": round(places.distortion, 5)}

    def apply(image: ImageF32, params: Any, rng: np.random.Generator) -> tuple[ImageF32, Mapping[str, Any]]:
        return next(sweep(image, [params], rng))

    all_settings = tuple({"lens": name} for name in lenses.names)
    shift = Shift(
        "lens_whole",
        apply,
        "optics",
        "setting",
        (),
        all_settings,
        version,
        WHOLE_LENS_ABOUT,
        whole_lens_options,
        stage="optics",
    )
    shift.sweeper(sweep)
    if not parts.rectified:

        @shift.box_mover
        def move(
            boxes: Sequence[Box], params: Any, rng: np.random.Generator, size: tuple[int, int]
        ) -> Sequence[Box]:
            _kernels(lenses, params.get("lens"))
            return boxes_after_map(boxes, green_map(places_of(params["lens"]), size), size)

    return shift


def _kernels(lenses: LensSet, name: Any) -> Any:
    if name not in lenses.names:
        raise SoritesError(f"lens_whole: expected one of {len(lenses.names)} lenses, got {name!r}")
    return lenses.entry(name).arrays["kernels"]


def _blur_tiles(scene: TiledImage, taps: Spectrum) -> ImageF32:
    image = np.empty(scene.image.shape, np.float32)
    for top, strip in scene.through(taps):
        image[top : top + len(strip)] = strip
    return image


def whole_lens_options(
    *,
    lenses: str | None = None,
    corner: float = 1.0,
    rectified: bool = True,
    lateral_colour: bool = False,
    illumination: bool = False,
) -> Shift:
    """Return the shift for the lenses of a folder.

    Args:
        lenses: A folder made by ``sorites lens import``; None uses the fifteen built-in lenses.
        corner: The position of the image corners, relative to the half field of view of the lens (0 to 1).
        rectified: Whether the camera corrects the distortion of the lens. If not, the image is distorted, and
            ground-truth boxes move with it.
        lateral_colour: Whether red and blue light lands beside green light, as traced.
        illumination: Whether the light falls off towards the corners as traced, in linear light.
    """
    if not 0 < corner <= 1:
        raise SoritesError(
            f"lens_whole: expected a corner above 0 and at most 1 (relative to the half field), got"
            f" {corner!r}"
        )
    folder = store.builtin() if lenses is None else Path(lenses)
    loaded = LensSet(folder)
    geometry = Geometry(rectified, lateral_colour, illumination)
    if lenses is not None:
        store.warn_of_rotation(map(loaded.entry, loaded.names))
    if geometry.changes:
        for name in loaded.names:
            loaded.entry(name).places(corner, rectified)
    version = geometry.version(f"{VERSION} {store.version(folder)}")
    return lens_whole_shift(loaded, corner, version, geometry)


SHIFTS.add(
    "lens_whole",
    lens_whole_shift(LensSet(store.builtin()), 1.0, f"{VERSION} {store.version(store.builtin())}"),
)


# Production errors of a lens: an element that is decentred, tilted, or too far from the next.


MOVES = {
    "decentre": "an element of the lens is off its axis",
    "tilt": "an element of the lens is tilted",
    "spacing": "an element of the lens is too far from the next one",
}
# Below this fraction of the first level the lens itself fades out, so that severity 0 is the unchanged image.
FADE = 0.05


# An image with the azimuth drawn for it, the lens and its element, and the MTF50 at the severity.
ToleranceBlurred = tuple[ImageF32, Mapping[str, Any]]


def tolerance_shift(
    name: str, path: Path, field: float | None, padding: Padding, linear: bool = False
) -> Shift:
    """Return the shift for a traced file, at its field or, if ``field`` is 0, on the axis; ``linear`` blurs
    linear light instead of display values.
    """
    about = store_of.about(path)
    levels, azimuths = tuple(about.stops[1:]), store_of.all_azimuths(about)
    if field not in (None, 0, about.field):
        raise SoritesError(
            f"{name}: {about.lens} was traced at the fields 0 and {about.field:g}, got {field!r}"
        )

    def draw_field_azimuth(rng: np.random.Generator) -> int | None:
        """Draw the azimuth of a sample in degrees, the same at every severity; None on the axis."""
        return None if field == 0 else azimuths[int(rng.integers(len(azimuths)))]

    @functools.lru_cache(maxsize=128)
    def kernel(severity: float, azimuth: int | None) -> Kernel:
        taps, share = store_of.load(path).taps(severity, azimuth), min(severity / (FADE * levels[0]), 1.0)
        return Kernel((1 - share) * point(taps.shape) + share * taps)

    def sweep(
        image: ImageF32, severities: Sequence[float], rng: np.random.Generator
    ) -> Iterator[ToleranceBlurred]:
        azimuth = draw_field_azimuth(rng)
        kernels = [kernel(float(severity), azimuth) for severity in severities]
        light = linear_from_srgb(image) if linear else image
        for severity, blurred in zip(severities, convolve(light, kernels, padding, flip=True), strict=True):
            sharp = round(store_of.load(path).sharpness(severity, azimuth), 5)
            metadata = {
                "azimuth": azimuth,
                "mtf50": sharp,
                "lens": about.lens,
                "element": about.element,
            }
            yield displayed(blurred, linear), metadata

    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ToleranceBlurred:
        return next(sweep(image, [severity], rng))

    line = (
        f"Blur by a production error: {MOVES[name]}; at the first level the lens is practically as designed"
        f" ({about.lens})."
    )
    version = version_with(store_of.version(path), linear, "scipy")
    shift = Shift(name, apply, "optics", about.unit, levels, version=version, about=line, stage="optics")
    shift.configure = functools.partial(configure, name)
    shift.sweeper(sweep)
    return shift


def configure(
    name: str,
    *,
    tolerances: str | None = None,
    field: float | None = None,
    padding: Padding = "reflect",
    linear: bool = False,
) -> Shift:
    """Return the shift with other options.

    Args:
        name: The name of the shift.
        tolerances: A file of ``sorites lens tolerance``, or a folder with one for this shift; None uses the
            built-in lens.
        field: 0 for the axis; None uses the traced field.
        padding: The border: mirrored (``reflect``) or black (``zeros``).
        linear: Whether linear light is blurred, as in a camera, instead of display values, as published.
    """
    check_linear(name, linear)
    if padding not in get_args(Padding):
        raise SoritesError(f"{name}: expected padding zeros or reflect, got {padding!r}")
    where = store_of.builtin() if tolerances is None else Path(tolerances)
    return tolerance_shift(name, store_of.find(where, name), field, padding, linear)


for _name in MOVES:
    SHIFTS.add(_name, configure(_name))

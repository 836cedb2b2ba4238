"""The published camera grid as a shift: 64 + 27 manual settings and five automatic shots, lamp on and off.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024. ``docs/camera.md``
says what was fitted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sorites.core import ImageF32, Shift, add_shift
from sorites.core import camera_grid as es_grid
from sorites.core.errors import SoritesError, UnknownName
from sorites.optics import convolve
from sorites.optics.camera import BODIES, EOS_RP, Body, Exposure, Light, blur, blur_size
from sorites.optics.develop import develop, jpeg, linear, program, to_display
from sorites.optics.sensor import Draw, raw, through_mosaic
from sorites.shifts.base import add_dial

# An image on a screen in a dark room, and a camera in front of it: the studio of ImageNet-ES as numbers.


# The fewest pixels per side that an image must have to be photographed.
SMALLEST = 16
# The weights of linear red, green and blue in luminance (ITU-R BT.709).
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


@dataclass(frozen=True)
class Studio:
    """The room, and how the image stands in the frame.

    Luminances are in cd/m2, per state of the lamp ("on", "off").
    """

    white: Mapping[str, float]
    """The luminance of the screen's white."""
    veil: Mapping[str, tuple[float, float, float]]
    """The light on the screen that is not the image's: red, green, blue."""
    gamma: float
    span_px: int
    """The sensor pixels across the shorter side of the image."""
    confusion_um: float
    """The circle of confusion of the focus error at f/5, on the sensor; it shrinks as the aperture closes."""
    weight: float
    """The image's share in the meter's reading of the frame."""
    surround: Mapping[str, float]
    """The luminance of the rest of the frame."""
    wander: float
    """The spread of the meter from shot to shot, in stops (rms)."""
    widest: float
    """The lens's largest aperture at the focal length used."""
    quality: int
    """The JPEG quality of the kept image."""


# The studio of ImageNet-ES; ``docs/camera.md`` says how its numbers were fitted.
ES_STUDIO = Studio(
    white={"on": 375.0, "off": 330.0},
    veil={"on": (1.5, 1.25, 0.9), "off": (0.38, 0.35, 0.32)},
    gamma=2.4,
    span_px=550,
    confusion_um=0.0,
    weight=0.026,
    surround={"on": 0.62, "off": 0.03},
    wander=0.1,
    widest=5.0,
    quality=92,
)


@dataclass(frozen=True)
class StudioScene:
    """One image in front of the camera, with all that its shots share."""

    studio: Studio
    body: Body
    mosaic: bool
    light: Light
    """The light that the screen shows, white = 1."""
    wander: tuple[float, ...]
    """The error of the meter at each automatic shot, in stops."""
    rng: np.random.Generator

    @functools.cached_property
    def draw(self) -> Draw:
        """The sensor's random draw, shared by all shots."""
        height, width = self.light.shape[:2]
        return Draw.of((2 * height, 2 * width, 3) if self.mosaic else (height, width, 3), self.rng)

    @functools.cached_property
    def area(self) -> float:
        """The sensor pixels behind one pixel of the image; at least one, however large the image."""
        return max(1.0, float(self.studio.span_px / min(self.light.shape[:2])) ** 2)

    def metered(self, lamp: str, shot: int) -> Exposure:
        """Return the exposure that evaluative metering chooses, from the image and the dark rest
        of the frame.
        """
        studio = self.studio
        image = self.light.reshape(-1, 3).mean(0, dtype=np.float64) * studio.white[lamp] + studio.veil[lamp]
        frame = studio.weight * float(image @ LUMINANCE) + (1 - studio.weight) * studio.surround[lamp]
        return program(frame * 2 ** self.wander[shot - 1], self.body, studio.widest)

    def exposure(self, params: Mapping[str, Any]) -> Exposure:
        """Return the exposure of a setting: the one it names, or the metered one in the mode "auto"."""
        if params["mode"] == "auto":
            return self.metered(params["light"], params["shot"])
        return self.body.check(Exposure(params["iso"], params["shutter"], params["aperture"]))

    def blurred(self, apertures: Sequence[float]) -> dict[float, Light]:
        """Return the light as the lens blurs it at each aperture.

        There is one forward transform for all, and the kernels have one size whichever apertures
        are asked for.
        """
        pitch = self.body.pixel_um * math.sqrt(self.area)
        confusion_um = {
            f_number: self.studio.confusion_um * 5 / f_number
            for f_number in (*apertures, *self.body.aperture)
        }
        size = max(blur_size(f_number, pitch, confusion_um[f_number]) for f_number in self.body.aperture)
        kernels = [blur(f_number, pitch, confusion_um[f_number], size) for f_number in apertures]
        lights = convolve.sweep(self.light, kernels, "reflect")
        return {f_number: np.maximum(light, 0) for f_number, light in zip(apertures, lights, strict=True)}

    def shoot(self, lamp: str, exposure: Exposure, light: Light, shot: int = 0) -> ImageF32:
        """Take one image, 0..1; ``light`` is what ``blurred`` gave for the aperture."""
        collected = self.body.electrons(exposure) / np.array(self.body.balance)
        row = light.shape[1]  # whole rows at a time: a loop over three channels costs more than the sums
        electrons = light.reshape(len(light), -1) * np.tile(self.studio.white[lamp] * collected, row).astype(
            np.float32
        )
        electrons += np.tile(np.array(self.studio.veil[lamp]) * collected, row).astype(np.float32)
        area = self.area * self.body.averaged(exposure.iso)
        take = through_mosaic if self.mosaic else raw
        numbers = take(electrons.reshape(light.shape), exposure.iso, self.draw.again(shot), self.body, area)
        return jpeg(develop(numbers, self.body, exposure.iso, area), self.studio.quality)


def put_on_screen(
    image: ImageF32, rng: np.random.Generator, studio: Studio, body: Body, mosaic: bool = False
) -> StudioScene:
    """Put an image on the screen and the camera in front of it."""
    height, width = image.shape[:2]
    if min(height, width) < SMALLEST:
        raise SoritesError(
            f"an image of {width}x{height} px is too small for the camera: wanted {SMALLEST} px per side or"
            " more"
        )
    wander = tuple((rng.standard_normal(es_grid.SHOTS) * studio.wander).tolist())
    return StudioScene(studio, body, mosaic, image ** np.float32(studio.gamma), wander, rng)


T = TypeVar("T", Body, Studio)
# The published splits whose manual settings each value of the option ``grid`` visits.
GRIDS = {"val": ("val",), "test": ("test",), "both": ("val", "test")}


def options(
    *,
    grid: str = "both",
    body: str = EOS_RP.name,
    mosaic: bool = False,
    camera: Mapping[str, Any] | None = None,
    studio: Mapping[str, Any] | None = None,
) -> Shift:
    """Return the camera shift with some of its options changed.

    ``grid`` names the settings to visit (val, test or both), ``body`` another camera body;
    ``mosaic`` adds a Bayer mosaic at twice the image's size; ``camera`` and ``studio`` replace
    single numbers of the body and of the room.
    """
    for kind, name, choices in (("camera grid", grid, GRIDS), ("camera body", body, BODIES)):
        if name not in choices:
            raise UnknownName(kind, str(name), choices, f"There are {', '.join(choices)}.")
    changed_body = _changed(BODIES[body], camera or {}, "camera")
    changed_studio = _changed(ES_STUDIO, studio or {}, "studio")
    together = _sweep(changed_studio, changed_body, bool(mosaic))
    settings = es_grid.grid(*GRIDS[grid])
    return replace(SHIFT, settings=settings, apply=_apply(together), _sweep=together)


def _changed(obj: T, numbers: Mapping[str, Any], option: str) -> T:
    names = [field.name for field in fields(obj)]
    for key in numbers:
        if key not in names:
            raise UnknownName(f"number of the {option}", key, names, f"There are {', '.join(names)}.")
    frozen: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in numbers.items()}
    return replace(obj, **frozen)


# An image, and what an automatic exposure chose for it; nothing was chosen at a manual setting.
Photograph = tuple[ImageF32, Mapping[str, Any]]
Together = Callable[[ImageF32, Sequence[Any], np.random.Generator], Iterator[Photograph]]


def _sweep(studio: Studio, body: Body, mosaic: bool) -> Together:
    def together(image: ImageF32, stops: Sequence[Any], rng: np.random.Generator) -> Iterator[Photograph]:
        scene = put_on_screen(image, rng, studio, body, mosaic)
        exposures = [scene.exposure(checked(params, studio)) for params in stops]
        blurred = scene.blurred(sorted({exposure.aperture for exposure in exposures}))
        for params, exposure in zip(stops, exposures, strict=True):
            image_u8 = scene.shoot(
                params["light"], exposure, blurred[exposure.aperture], params.get("shot", 0)
            )
            yield image_u8, _chosen(exposure) if params["mode"] == "auto" else {}

    return together


def _chosen(exposure: Exposure) -> dict[str, Any]:
    return {"iso": round(exposure.iso), "shutter": exposure.shutter, "aperture": exposure.aperture}


def _apply(together: Together) -> Callable[[ImageF32, Any, np.random.Generator], Photograph]:
    return lambda image, params, rng: next(together(image, [params], rng))


def checked(params: Mapping[str, Any], studio: Studio) -> Mapping[str, Any]:
    """Return the params if they name a setting of this studio; raise an error that names what is
    wrong if they do not.
    """
    automatic = params.get("mode") == "auto"
    wanted = ("light", "mode", "shot") if automatic else ("light", "mode", *("iso", "shutter", "aperture"))
    missing = [key for key in wanted if key not in params]
    if missing:
        raise SoritesError(
            f"camera: a setting names {', '.join(wanted)}; {dict(params)} lacks {', '.join(missing)}"
        )
    for kind, key, choices in (
        ("light", "light", tuple(studio.white)),
        ("camera mode", "mode", ("manual", "auto")),
    ):
        if params[key] not in choices:
            raise UnknownName(kind, str(params[key]), choices, f"There are {' and '.join(choices)}.")
    if automatic and params["shot"] not in range(1, es_grid.SHOTS + 1):
        raise SoritesError(
            f"camera: automatic shots are numbered 1 to {es_grid.SHOTS}, got {params['shot']!r}"
        )
    return params


@add_shift(family="camera", unit="setting", settings=es_grid.grid("val", "test"), configure=options)
def camera(image: ImageF32, params: Mapping[str, Any], rng: np.random.Generator) -> Photograph:
    """Photograph the image on a screen in a dark room: ISO, shutter and aperture or automatic
    exposure, lamp on or off.
    """
    return next(_default_sweep(image, [params], rng))


_default_sweep = _sweep(ES_STUDIO, EOS_RP, False)
SHIFT = camera
SHIFT.sweeper(_default_sweep)


# The dials of a camera one at a time, in stops: more light, less light, more ISO, a wider aperture.


# The stops at which any image is white or black to the last bit.
FURTHEST = 16.0


def _light(image: ImageF32, rng: np.random.Generator) -> Light:
    return linear(image)


@add_dial(_light, family="camera", unit="stops", levels=(1, 2, 3, 4, 5, 6), limit=FURTHEST)
def exposure_stops(image: ImageF32, severity: float, light: Light) -> ImageF32:
    """Over-expose: double the light ``severity`` times and clip it at white."""
    return to_display(light * np.float32(2**severity))


@add_dial(_light, family="camera", unit="stops", levels=(1, 2, 3, 4, 5, 6, 7, 8), limit=FURTHEST)
def exposure_stops_down(image: ImageF32, severity: float, light: Light) -> ImageF32:
    """Under-expose: halve the light ``severity`` times; what 8 bits cannot tell from black is lost."""
    return to_display(light * np.float32(2**-severity))


@dataclass(frozen=True)
class _Noise:
    light: Light
    field: Light
    """One normal deviate per value."""


def _noise(image: ImageF32, rng: np.random.Generator) -> _Noise:
    return _Noise(linear(image), rng.standard_normal(image.shape, dtype=np.float32))


@add_dial(_noise, family="camera", unit="stops", levels=(2, 4, 6, 8, 10, 12), limit=FURTHEST)
def iso_noise(image: ImageF32, severity: float, noise: _Noise) -> ImageF32:
    """Make up for less light by ISO: add the photon and read noise that ISO 100 x 2^``severity``
    has beyond ISO 100.
    """
    slope, floor = (
        np.subtract(*pair).astype(np.float32) for pair in zip(_variance(severity), _variance(0), strict=True)
    )
    noisy = noise.light * slope + floor
    np.sqrt(noisy, out=noisy)
    noisy *= noise.field
    noisy += noise.light
    return to_display(noisy)


def _variance(stops: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the photon-transfer line: noise variance per unit of light and at black, per channel,
    as shares of saturation.
    """
    iso = EOS_RP.base_iso * 2**stops
    gain = np.array(EOS_RP.balance) / EOS_RP.saturation_e(iso)
    return gain, (gain * EOS_RP.noise_e(iso)) ** 2


# The stops from f/22 to f/1.4.
DEEP = 8.0
# The circle of confusion at f/22 of objects off the plane of focus, as a share of the image's
# shorter side.
SHARPEST = 1 / 224


@dataclass(frozen=True)
class _Spectrum:
    values: NDArray[np.complex64]
    frequency: Light
    """The spatial frequency of each value, in cycles per pixel."""
    padded: tuple[int, int]
    margin: int


def _spectrum(image: ImageF32, rng: np.random.Generator) -> _Spectrum:
    margin = min(math.ceil(2 ** (DEEP / 2) * SHARPEST * min(image.shape[:2])) + 2, min(image.shape[:2]) - 1)
    wide = np.pad(linear(image), ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    padded = fft.next_fast_len(wide.shape[0]), fft.next_fast_len(wide.shape[1], real=True)
    frequency = np.hypot(fft.fftfreq(padded[0])[:, None], fft.rfftfreq(padded[1])).astype(np.float32)
    return _Spectrum(fft.rfft2(wide, s=padded, axes=(0, 1)), frequency, padded, margin)


@add_dial(_spectrum, family="camera", unit="stops", levels=(2, 3, 4, 5, 6, 7, 8), limit=DEEP)
def aperture(image: ImageF32, severity: float, spectrum: _Spectrum) -> ImageF32:
    """Open the lens by ``severity`` stops from f/22, at equal light, on something out of focus:
    depth of field is lost.

    The circle of confusion grows as 1 / N; what it adds to the one at f/22 is d sqrt(2^severity - 1), a disk.
    """
    diameter = SHARPEST * min(image.shape[:2]) * math.sqrt(2**severity - 1)
    blurred = spectrum.values * disk_transfer(diameter, spectrum.frequency)[..., None]
    light = fft.irfft2(blurred, s=spectrum.padded, axes=(0, 1))
    inside = (
        slice(spectrum.margin, spectrum.margin + image.shape[0]),
        slice(spectrum.margin, spectrum.margin + image.shape[1]),
    )
    return to_display(np.ascontiguousarray(light[inside]))


def disk_transfer(diameter: float, frequency: Light) -> Light:
    """Return the share of each frequency (cycles per pixel) that a uniform disk leaves: 2 J1(x) / x
    with x = pi d f.
    """
    from scipy.special import j1

    x = np.maximum(frequency * np.float32(math.pi * diameter), np.float32(1e-6))
    return np.asarray(2 * j1(x) / x, np.float32)

"""The published camera grid of ImageNet-ES (64 + 27 manual settings, five automatic shots, light on and off),
and continuous shifts of exposure, ISO and aperture.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024. ``docs/camera.md``
describes how the parameters were fitted.
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
from sorites.core.rng import digest
from sorites.optics import convolve
from sorites.optics.camera import BODIES, EOS_RP, Body, Exposure, Light, blur, blur_size
from sorites.optics.develop import develop, jpeg, linear_from_srgb, program, to_display
from sorites.optics.display import flicker_level
from sorites.optics.sensor import Draw, raw, through_mosaic
from sorites.shifts.base import add_continuous_shift

# The studio of ImageNet-ES: an image on a screen in a dark room, and a camera in front of it.

# The minimum side of an image in px.
MIN_SIDE_PX = 16
# The luminance of a grey wall around a print, relative to the white of the print.
WALL = 0.18
# The luminance weights of linear red, green and blue (ITU-R BT.709).
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


@dataclass(frozen=True)
class Studio:
    """The parameters of the room and of the image in the frame.

    Luminances are in cd/m2, by state of the light ("on", "off").
    """

    white: Mapping[str, float]
    """The luminance of white on the screen."""
    veil: Mapping[str, tuple[float, float, float]]
    """Ambient light reflected by the screen: red, green, blue."""
    gamma: float
    span_px: int
    """Sensor pixels across the shorter side of the image."""
    confusion_um: float
    """The circle of confusion of the focus error at f/5, on the sensor; smaller at smaller apertures."""
    weight: float
    """The weight of the image in the metering of the frame."""
    surround: Mapping[str, float]
    """The luminance of the rest of the frame."""
    wander: float
    """The variation of metering between shots, in stops (rms)."""
    widest: float
    """The largest aperture of the lens at the focal length used."""
    quality: int
    """The JPEG quality of the output."""
    flicker: float = 0.0
    """The depth of the screen's flicker, relative to its mean light."""
    flicker_hz: float = 120.0
    """The frequency of the flicker."""

    def flicker_level(self, shutter: float, phase: float) -> float:
        """Return the relative light of the screen in a photograph whose middle has this phase."""
        return flicker_level(self.flicker, self.flicker_hz, shutter, phase)


# The studio of ImageNet-ES; ``docs/camera.md`` describes the fit.
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
    """An image in front of the camera, with everything that its shots share."""

    studio: Studio
    body: Body
    mosaic: bool
    light: Light
    """The light of the screen, white = 1."""
    wander: tuple[float, ...]
    """The metering error of each automatic shot, in stops."""
    rng: np.random.Generator
    phase: float = 0.0
    """The phase of the screen's flicker, in radians; each photograph adds its own."""

    @functools.cached_property
    def draw(self) -> Draw:
        """The random draw of the sensor, shared by all shots."""
        height, width = self.light.shape[:2]
        return Draw.of((2 * height, 2 * width, 3) if self.mosaic else (height, width, 3), self.rng)

    @functools.cached_property
    def area(self) -> float:
        """The number of sensor pixels per pixel of the image, at least one."""
        return max(1.0, float(self.studio.span_px / min(self.light.shape[:2])) ** 2)

    def metered(self, lamp: str, shot: int) -> Exposure:
        """Return the exposure chosen by evaluative metering of the image and the dark rest of the frame."""
        studio = self.studio
        image = self.light.reshape(-1, 3).mean(0, dtype=np.float64) * studio.white[lamp] + studio.veil[lamp]
        frame = studio.weight * float(image @ LUMINANCE) + (1 - studio.weight) * studio.surround[lamp]
        return program(frame * 2 ** self.wander[shot - 1], self.body, studio.widest)

    def exposure(self, params: Mapping[str, Any]) -> Exposure:
        """Return the exposure of a setting: given, or metered in the mode "auto"."""
        if params["mode"] == "auto":
            return self.metered(params["light"], params["shot"])
        return self.body.check(Exposure(params["iso"], params["shutter"], params["aperture"]))

    def blurred(self, apertures: Sequence[float]) -> dict[float, Light]:
        """Return the light blurred by the lens at each aperture.

        All apertures share one forward transform, and the kernel size does not depend on the apertures.
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
        """Take a photograph, 0..1; ``light`` is the result of ``blurred`` for the aperture."""
        collected = self.body.electrons(exposure) / np.array(self.body.balance)
        row = light.shape[1]  # processing whole rows is faster than looping over three channels
        white = self.studio.white[lamp] * self._flicker(lamp, exposure, shot)
        electrons = light.reshape(len(light), -1) * np.tile(white * collected, row).astype(np.float32)
        electrons += np.tile(np.array(self.studio.veil[lamp]) * collected, row).astype(np.float32)
        area = self.area * self.body.averaged(exposure.iso)
        take = through_mosaic if self.mosaic else raw
        numbers = take(electrons.reshape(light.shape), exposure.iso, self.draw.again(shot), self.body, area)
        return jpeg(develop(numbers, self.body, exposure.iso, area), self.studio.quality)

    def _flicker(self, lamp: str, exposure: Exposure, shot: int) -> float:
        """Return the relative light of the screen, which depends on when a photograph was taken."""
        if self.studio.flicker == 0:
            return 1.0
        later = int.from_bytes(digest(f"{lamp} {exposure} {shot}", "flicker", size=4), "big") / 2**32
        return self.studio.flicker_level(exposure.shutter, self.phase + 2 * math.pi * later)


def put_on_screen(
    image: ImageF32, rng: np.random.Generator, studio: Studio, body: Body, mosaic: bool = False
) -> StudioScene:
    """Return the scene of an image on the screen with the camera in front of it."""
    height, width = image.shape[:2]
    if min(height, width) < MIN_SIDE_PX:
        raise SoritesError(
            f"an image of {width}x{height} px is too small for the camera: expected at least {MIN_SIDE_PX} px"
            " per side"
        )
    wander = tuple((rng.standard_normal(es_grid.AUTO_SHOTS) * studio.wander).tolist())
    phase = float(rng.uniform(0, 2 * math.pi)) if studio.flicker else 0.0
    return StudioScene(studio, body, mosaic, image ** np.float32(studio.gamma), wander, rng, phase)


T = TypeVar("T", Body, Studio)
# The published splits whose manual settings each value of the option ``grid`` uses.
GRIDS = {"val": ("val",), "test": ("test",), "both": ("val", "test")}


def options(
    *,
    grid: str = "both",
    body: str = EOS_RP.name,
    mosaic: bool = False,
    camera: Mapping[str, Any] | None = None,
    studio: Mapping[str, Any] | None = None,
    lights: Mapping[str, float] | None = None,
) -> Shift:
    """Return the camera shift with other options.

    Args:
        grid: The settings to use: val, test or both.
        body: The name of the camera body.
        mosaic: Simulate a Bayer mosaic at twice the size of the image.
        camera: Values of ``Body`` to replace.
        studio: Values of ``Studio`` to replace.
        lights: Light levels by name instead of the lamp on and off: the image is a print in a room that is
            this bright, relative to the screen's white with the lamp on.
    """
    for kind, name, choices in (("camera grid", grid, GRIDS), ("camera body", body, BODIES)):
        if name not in choices:
            raise UnknownName(kind, str(name), choices, f"There are {', '.join(choices)}.")
    changed_body = _replace_values(BODIES[body], camera or {}, "camera")
    changed_studio = _replace_values(ES_STUDIO, studio or {}, "studio")
    changed_studio = lit(changed_studio, lights) if lights is not None else changed_studio
    sweep = _sweep(changed_studio, changed_body, bool(mosaic))
    settings = es_grid.grid(*GRIDS[grid], lights=lights or es_grid.LIGHTS)
    return replace(SHIFT, settings=settings, apply=_apply(sweep), _sweep=sweep)


def lit(studio: Studio, lights: Mapping[str, float]) -> Studio:
    """Return the studio with a print instead of the screen, at several light levels.

    Image, veil and surround are proportional to the level; 1 is as bright as the screen with the lamp on. The
    surround is a grey wall in the same light, unless ``studio.surround`` has the names of the lights.

    Raises:
        SoritesError: There is no level, or one is not a number above 0.
    """
    wrong = [name for name, level in lights.items() if not _is_level(level)]
    if wrong or not lights:
        raise SoritesError(
            "camera: lights must be levels above 0 by name, such as {dim = 0.1, bright = 4}, got"
            f" {dict(lights)}"
        )
    veil = np.array(studio.veil["on"])
    return replace(
        studio,
        white={name: studio.white["on"] * level for name, level in lights.items()},
        veil={name: tuple((veil * level).tolist()) for name, level in lights.items()},
        surround={
            name: studio.surround.get(name, WALL * studio.white["on"] * level)
            for name, level in lights.items()
        },
    )


def _is_level(level: object) -> bool:
    return isinstance(level, int | float) and math.isfinite(level) and level > 0


def _replace_values(obj: T, numbers: Mapping[str, Any], option: str) -> T:
    names = [field.name for field in fields(obj)]
    for key in numbers:
        if key not in names:
            raise UnknownName(f"value of the {option}", key, names, f"There are {', '.join(names)}.")
    frozen: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in numbers.items()}
    return replace(obj, **frozen)


# An image, and the exposure chosen for it by automatic metering (empty for manual settings).
Photograph = tuple[ImageF32, Mapping[str, Any]]
Sweep = Callable[[ImageF32, Sequence[Any], np.random.Generator], Iterator[Photograph]]


def _sweep(studio: Studio, body: Body, mosaic: bool) -> Sweep:
    def sweep(image: ImageF32, settings: Sequence[Any], rng: np.random.Generator) -> Iterator[Photograph]:
        scene = put_on_screen(image, rng, studio, body, mosaic)
        exposures = [scene.exposure(checked(params, studio)) for params in settings]
        blurred = scene.blurred(sorted({exposure.aperture for exposure in exposures}))
        for params, exposure in zip(settings, exposures, strict=True):
            photograph = scene.shoot(
                params["light"], exposure, blurred[exposure.aperture], params.get("shot", 0)
            )
            yield photograph, _as_params(exposure) if params["mode"] == "auto" else {}

    return sweep


def _as_params(exposure: Exposure) -> dict[str, Any]:
    return {"iso": round(exposure.iso), "shutter": exposure.shutter, "aperture": exposure.aperture}


def _apply(sweep: Sweep) -> Callable[[ImageF32, Any, np.random.Generator], Photograph]:
    return lambda image, params, rng: next(sweep(image, [params], rng))


def checked(params: Mapping[str, Any], studio: Studio) -> Mapping[str, Any]:
    """Return the params if they are a valid setting of this studio; raise an error otherwise."""
    automatic = params.get("mode") == "auto"
    required = ("light", "mode", "shot") if automatic else ("light", "mode", *("iso", "shutter", "aperture"))
    missing = [key for key in required if key not in params]
    if missing:
        raise SoritesError(
            f"camera: a setting needs {', '.join(required)}; {dict(params)} lacks {', '.join(missing)}"
        )
    for kind, key, choices in (
        ("light", "light", tuple(studio.white)),
        ("camera mode", "mode", ("manual", "auto")),
    ):
        if params[key] not in choices:
            raise UnknownName(kind, str(params[key]), choices, f"There are {' and '.join(choices)}.")
    if automatic and params["shot"] not in range(1, es_grid.AUTO_SHOTS + 1):
        raise SoritesError(
            f"camera: automatic shots are numbered 1 to {es_grid.AUTO_SHOTS}, got {params['shot']!r}"
        )
    return params


@add_shift(
    family="camera",
    unit="setting",
    settings=es_grid.grid("val", "test"),
    version=convolve.VERSION,
    configure=options,
    stage="sensor",
)
def camera(image: ImageF32, params: Mapping[str, Any], rng: np.random.Generator) -> Photograph:
    """Photograph the image on a screen in a dark room: ISO, shutter and aperture or automatic exposure, with
    the light on or off.
    """
    return next(_default_sweep(image, [params], rng))


_default_sweep = _sweep(ES_STUDIO, EOS_RP, False)
SHIFT = camera
SHIFT.sweeper(_default_sweep)


# Continuous shifts of a single camera parameter, in stops: more or less light, higher ISO, wider aperture.

# From this many stops on, every image is completely white or black.
MAX_STOPS = 16.0


def _light(image: ImageF32, rng: np.random.Generator) -> Light:
    return linear_from_srgb(image)


@add_continuous_shift(
    _light, family="camera", unit="stops", levels=(1, 2, 3, 4, 5, 6), limit=MAX_STOPS, stage="sensor"
)
def exposure_stops(image: ImageF32, severity: float, light: Light) -> ImageF32:
    """Over-expose: double the light ``severity`` times and clip at white; no sensor noise is added
    (``iso_noise`` does).
    """
    return to_display(light * np.float32(2**severity))


@add_continuous_shift(
    _light, family="camera", unit="stops", levels=(1, 2, 3, 4, 5, 6, 7, 8), limit=MAX_STOPS, stage="sensor"
)
def exposure_stops_down(image: ImageF32, severity: float, light: Light) -> ImageF32:
    """Under-expose: halve the light ``severity`` times; details below 8-bit resolution are lost, and no
    sensor noise is added (``iso_noise`` does).
    """
    return to_display(light * np.float32(2**-severity))


@dataclass(frozen=True)
class _Noise:
    light: Light
    field: Light
    """A standard normal deviate per value."""


def _noise(image: ImageF32, rng: np.random.Generator) -> _Noise:
    return _Noise(linear_from_srgb(image), rng.standard_normal(image.shape, dtype=np.float32))


@add_continuous_shift(
    _noise, family="camera", unit="stops", levels=(2, 4, 6, 8, 10, 12), limit=MAX_STOPS, stage="sensor"
)
def iso_noise(image: ImageF32, severity: float, noise: _Noise) -> ImageF32:
    """Compensate low light by ISO: add the photon and read noise of ISO 100 x 2^``severity`` relative to
    ISO 100.
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
    """Return the photon-transfer line per channel: noise variance per unit of light and at black, relative to
    saturation.
    """
    iso = EOS_RP.base_iso * 2**stops
    gain = np.array(EOS_RP.balance) / EOS_RP.saturation_e(iso)
    return gain, (gain * EOS_RP.noise_e(iso)) ** 2


# The number of stops from f/22 to f/1.4.
MAX_APERTURE_STOPS = 8.0
# The circle of confusion at f/22 of objects outside the plane of focus, relative to the shorter side.
SMALLEST_CONFUSION = 1 / 224


@dataclass(frozen=True)
class _Spectrum:
    values: NDArray[np.complex64]
    frequency: Light
    """The spatial frequency of each value, in cycles per pixel."""
    padded: tuple[int, int]
    margin: int


def _spectrum(image: ImageF32, rng: np.random.Generator) -> _Spectrum:
    margin = min(
        math.ceil(2 ** (MAX_APERTURE_STOPS / 2) * SMALLEST_CONFUSION * min(image.shape[:2])) + 2,
        min(image.shape[:2]) - 1,
    )
    padded_light = np.pad(
        linear_from_srgb(image), ((margin, margin), (margin, margin), (0, 0)), mode="reflect"
    )
    padded = fft.next_fast_len(padded_light.shape[0]), fft.next_fast_len(padded_light.shape[1], real=True)
    frequency = np.hypot(fft.fftfreq(padded[0])[:, None], fft.rfftfreq(padded[1])).astype(np.float32)
    return _Spectrum(fft.rfft2(padded_light, s=padded, axes=(0, 1)), frequency, padded, margin)


@add_continuous_shift(
    _spectrum,
    family="camera",
    unit="stops",
    levels=(2, 3, 4, 5, 6, 7, 8),
    limit=MAX_APERTURE_STOPS,
    stage="optics",
)
def aperture(image: ImageF32, severity: float, spectrum: _Spectrum) -> ImageF32:
    """Open the aperture by ``severity`` stops from f/22, at equal exposure, on an object out of focus.

    The circle of confusion grows as 1 / N; the additional blur relative to f/22 is a disk of diameter
    d sqrt(2^severity - 1).
    """
    diameter = SMALLEST_CONFUSION * min(image.shape[:2]) * math.sqrt(2**severity - 1)
    blurred = spectrum.values * disk_transfer(diameter, spectrum.frequency)[..., None]
    light = fft.irfft2(blurred, s=spectrum.padded, axes=(0, 1))
    inside = (
        slice(spectrum.margin, spectrum.margin + image.shape[0]),
        slice(spectrum.margin, spectrum.margin + image.shape[1]),
    )
    return to_display(np.ascontiguousarray(light[inside]))


def disk_transfer(diameter: float, frequency: Light) -> Light:
    """Return the transfer function of a uniform disk: 2 J1(x) / x with x = pi d f, f in cycles per pixel."""
    from scipy.special import j1

    x = np.maximum(frequency * np.float32(math.pi * diameter), np.float32(1e-6))
    return np.asarray(2 * j1(x) / x, np.float32)

"""Rendering of the virtual camera: a screen in perspective, through a lens with vignetting, in the light of
the lamps.

Light, sensor, meter and development are those of the simulated camera (``sorites.shifts.camera``). Here a
whole frame is rendered instead of the image alone: the camera is slightly askew, and its frame includes the
screen and its dark surroundings.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites.apps.studio.markers import vision
from sorites.apps.studio.virtual.dng import encode_dng
from sorites.core import ImageU8
from sorites.core.rng import rng_for
from sorites.optics import convolve
from sorites.optics.camera import EOS_RP, Body, Exposure, Light, blur, blur_size
from sorites.optics.develop import develop, program
from sorites.optics.sensor import Draw, raw, sampled
from sorites.shifts.camera import ES_STUDIO, LUMINANCE, Studio

Matrix = NDArray[np.float64]
# Image area in screen pixels that the simulated studio's metering weight refers to.
NOMINAL_PX = 500 * 375
# Shorter side of such an image, which covers ``span_px`` pixels of the sensor.
NOMINAL_SIDE = 375


@dataclass(frozen=True)
class View:
    """Position of the camera, which looks at the middle of ``stage`` (left, top, width, height in pixels
    of the screen).
    """

    frame: tuple[int, int] = (864, 576)
    stage: tuple[int, int, int, int] = (390, 110, 500, 500)
    yaw: float = 1.6
    pitch: float = -1.1
    roll: float = 0.5
    """Yaw, pitch and roll are the rotation of the camera in degrees."""
    margin: float = 1.1
    """Size of the frame relative to the stage."""
    distance: float = 2.6
    """Distance of the camera, in widths of its field of view."""
    bend: float = -0.002
    """Radial distortion at the corner of the frame; negative is barrel distortion."""
    vignetting: float = 0.08
    """Share of light lost at the corner of the frame."""

    @functools.cached_property
    def scale(self) -> float:
        """Pixels of the frame per pixel of the screen, in the middle."""
        return min(self.frame[0] / self.stage[2], self.frame[1] / self.stage[3]) / self.margin

    @functools.cached_property
    def homography(self) -> Matrix:
        """The matrix from pixels of the screen to pixels of the frame, without lens distortion."""
        width, height = self.frame
        turn = _rotation(self.yaw, self.pitch, self.roll)
        far = self.distance * width / self.scale
        middle = (self.stage[0] + (self.stage[2] - 1) / 2, self.stage[1] + (self.stage[3] - 1) / 2)
        placed = np.array([[1, 0, -middle[0]], [0, 1, -middle[1]], [0, 0, 1.0]])
        pose = np.column_stack([turn[:, 0], turn[:, 1], [0, 0, far]])
        lens = np.array(
            [[self.scale * far, 0, (width - 1) / 2], [0, self.scale * far, (height - 1) / 2], [0, 0, 1.0]]
        )
        matrix = lens @ pose @ placed
        return np.asarray(matrix / matrix[2, 2], np.float64)

    @functools.cached_property
    def radius(self) -> Light:
        """The squared distance of every pixel of the frame from its middle, 1 in the corner."""
        width, height = self.frame
        y, x = np.mgrid[:height, :width].astype(np.float32)
        x, y = x - np.float32((width - 1) / 2), y - np.float32((height - 1) / 2)
        return np.asarray((x * x + y * y) / np.float32((width * width + height * height) / 4), np.float32)

    @functools.cached_property
    def maps(self) -> tuple[Light, Light]:
        """For every pixel of the frame, the position on the screen that it sees."""
        width, height = self.frame
        y, x = np.mgrid[:height, :width].astype(np.float64)
        stretch = 1 + self.bend * (self.radius - 0.5)
        points = np.stack(
            [
                (x - (width - 1) / 2) * stretch + (width - 1) / 2,
                (y - (height - 1) / 2) * stretch + (height - 1) / 2,
                np.ones_like(x),
            ]
        )
        on_screen = np.linalg.inv(self.homography) @ points.reshape(3, -1)
        return tuple((on_screen[i] / on_screen[2]).reshape(height, width).astype(np.float32) for i in (0, 1))

    @functools.cached_property
    def falloff(self) -> Light:
        """The share of light that reaches each pixel of the frame."""
        return (1 - np.float32(self.vignetting) * self.radius)[..., None]

    @functools.cached_property
    def reflection(self) -> Light:
        """The lamp's light reflected by the screen: brighter toward the top, 1 on average."""
        height = self.frame[1]
        slope = 1 + 0.2 * np.cos(np.linspace(0, math.pi, height, dtype=np.float32))
        return np.asarray(slope / slope.mean(), np.float32)[:, None, None]


def _rotation(yaw: float, pitch: float, roll: float) -> Matrix:
    cy, sy, cp, sp, cr, sr = (
        f(math.radians(angle)) for angle in (yaw, pitch, roll) for f in (math.cos, math.sin)
    )
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_x = np.array([[1, 0, 0], [0, cp, -sp], [0, sp, cp]])
    about_z = np.array([[cr, -sr, 0], [sr, cr, 0], [0, 0, 1]])
    return np.asarray(about_z @ about_x @ about_y, np.float64)


@dataclass(frozen=True)
class Room:
    """The camera in front of the screen; ``noise=False`` renders the expected value of the sensor."""

    view: View = View()
    body: Body = EOS_RP
    studio: Studio = ES_STUDIO
    noise: bool = True

    @functools.cached_property
    def area(self) -> float:
        """Sensor pixels per pixel of the frame."""
        return max(1.0, (self.studio.span_px / NOMINAL_SIDE / self.view.scale) ** 2)

    @functools.cached_property
    def _curve(self) -> Light:
        return np.asarray((np.arange(256) / 255) ** self.studio.gamma, np.float32)

    def metered(self, screen: ImageU8, lamp: float, wander: float) -> Exposure:
        """Return the automatic exposure from the whole frame, which is mostly dark, so that the image is
        over-exposed.
        """
        lit = sum(
            weight * float(np.bincount(screen[..., channel].ravel(), minlength=256) @ self._curve)
            for channel, weight in enumerate(LUMINANCE)
        )
        per_pixel = self.studio.weight / NOMINAL_PX
        veil = float(np.asarray(_between(self.studio.veil, lamp)) @ LUMINANCE)
        frame = per_pixel * lit * float(_between(self.studio.white, lamp)) + self.studio.weight * veil
        frame += (1 - self.studio.weight) * float(_between(self.studio.surround, lamp))
        return program(frame * 2**wander, self.body, self.studio.widest)

    def light(self, screen: ImageU8) -> Light:
        """Return the light of the screen on the frame (white = 1) before the lens blurs it."""
        cv2 = vision()
        on_frame = cv2.remap(
            cv2.LUT(screen, self._curve), *self.view.maps, cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT
        )
        return np.asarray(np.maximum(on_frame, 0) * self.view.falloff, np.float32)

    def blurred(self, light: Light, f_number: float) -> Light:
        """Return the light blurred by the lens at an aperture."""
        pitch = self.body.pixel_um * math.sqrt(self.area)
        size = max(blur_size(number, pitch) for number in self.body.aperture)
        blurred = next(iter(convolve.sweep(light, [blur(f_number, pitch, 0.0, size)], "reflect")))
        return np.maximum(blurred, 0)

    def flickering(self, light: Light, exposure: Exposure, rng: np.random.Generator) -> Light:
        """Return the light of the screen at the moment of a photograph."""
        if self.studio.flicker == 0:
            return light
        phase = float(rng.uniform(0, 2 * math.pi))
        return light * np.float32(self.studio.flicker_level(exposure.shutter, phase))

    def electrons(self, light: Light, lamp: float, exposure: Exposure) -> Light:
        """Return the mean electrons of each pixel and colour of the frame, from blurred light."""
        collected = self.body.electrons(exposure) / np.array(self.body.balance)
        electrons = light * (float(_between(self.studio.white, lamp)) * collected).astype(np.float32)
        veil = np.asarray(_between(self.studio.veil, lamp)) * collected
        electrons += self.view.reflection * veil.astype(np.float32) * self.view.falloff
        return electrons

    def mosaic(
        self, light: Light, lamp: float, exposure: Exposure, rng: np.random.Generator
    ) -> NDArray[np.uint16]:
        """Return the sensor values of blurred light through a Bayer mosaic; a pixel of the frame is one of
        the sensor.
        """
        sites = sampled(self.electrons(light, lamp, exposure))
        return raw(sites, exposure.iso, Draw.of(sites.shape, rng), self.body).astype(np.uint16)

    def developed(self, light: Light, lamp: float, exposure: Exposure, rng: np.random.Generator) -> ImageU8:
        """Return the 8-bit frame of blurred light."""
        electrons = self.electrons(light, lamp, exposure)
        area = self.area * self.body.averaged(exposure.iso)
        if self.noise:
            numbers = raw(electrons, exposure.iso, Draw.of(electrons.shape, rng), self.body, area)
        else:
            numbers = np.clip(
                electrons * np.float32(self.body.dn_per_e(exposure.iso)) + self.body.black_dn,
                0,
                self.body.white_dn,
            )
        return (develop(numbers, self.body, exposure.iso, area) * np.float32(255) + np.float32(0.5)).astype(
            np.uint8
        )


def _between(by_state: object, lamp: float) -> NDArray[np.float64]:
    """Interpolate a quantity of the studio between lamps off (0) and on (1)."""
    states: dict[str, float] = dict(by_state)  # type: ignore[call-overload]
    return np.asarray(states["off"]) * (1 - lamp) + np.asarray(states["on"]) * lamp


MODEL, LENS = "Sorites virtual camera", "virtual 24-105mm f/5"
# Returns the number of the shown item and the pixels of the screen.
Seen = Callable[[], tuple[int, ImageU8 | None]]
_RATIONALS = 1_000_000


class Photographer:
    """Takes the photographs of the virtual camera.

    Blurred light is cached for the latest images, because their settings are shot one after another.

    Args:
        room: The camera and what is in front of it.
        seen: Returns what the screen shows.
        lamp: Returns the light of the lamps, from 0 to 1.
        seed: Random seed.
        quality: JPEG quality.
        aim: Returns the view for a screen of this width and height, which may change; default: that of the
            room.

    Attributes:
        last: Hash of the screen, lamp light and exposure of the last photograph.
        busy_s: Time spent rendering.
    """

    def __init__(
        self,
        room: Room,
        seen: Seen,
        lamp: Callable[[], float],
        seed: int = 0,
        quality: int = 95,
        aim: Callable[[tuple[int, int]], View] | None = None,
    ) -> None:
        self.room, self.seen, self.lamp, self._aim = room, seen, lamp, aim
        self._aimed = functools.lru_cache(maxsize=2)(self._look_at)
        self.seed, self.quality = seed, quality
        self.busy_s = 0.0
        self.last: tuple[str, float, Exposure] | None = None
        self._taken: Counter[str] = Counter()
        self._light = functools.lru_cache(maxsize=2)(self._render_light)
        self._blurred = functools.lru_cache(maxsize=6)(self._render_blur)
        self._screens: dict[str, ImageU8] = {}

    def photograph(self, chosen: Exposure | None, wrong: bool = False, negative: bool = False) -> bytes:
        """Photograph the current screen, and return the file.

        Args:
            chosen: The exposure; the camera meters without one.
            wrong: Shoot at another ISO than set, as a fault.
            negative: Return a DNG with the values of the sensor instead of a JPEG.
        """
        _, screen = self.seen()
        lamp = self.lamp()
        start = time.perf_counter()
        if screen is None:
            screen = np.zeros((720, 1280, 3), np.uint8)
        key = self._key(screen)
        rng = self._rng(key, lamp, chosen)
        exposure = self._exposure(screen, lamp, chosen, rng)
        if wrong:
            exposure = Exposure(exposure.iso * 4, exposure.shutter, exposure.aperture)
        self.last = (key, lamp, exposure)
        room = self._room_of(key)
        light = room.flickering(self._blurred(key, exposure.aperture), exposure, rng)
        if negative:
            data = encode_dng(room.mosaic(light, lamp, exposure, rng), room.body, exposure)
        else:
            data = as_jpeg(room.developed(light, lamp, exposure, rng), exposure, self.quality)
        self.busy_s += time.perf_counter() - start
        return data

    def live(self) -> bytes:
        """Return a frame of the live view."""
        _, screen = self.seen()
        pixels = np.zeros((72, 128, 3), np.uint8) if screen is None else screen
        file = io.BytesIO()
        Pillow.fromarray(pixels).resize((640, 360)).save(file, "JPEG", quality=80)
        return file.getvalue()

    def _key(self, screen: ImageU8) -> str:
        """Return a hash of the screen, and cache its pixels under it."""
        key = hashlib.blake2b(screen.tobytes(), digest_size=8).hexdigest()
        if key not in self._screens:
            self._screens = {**dict(list(self._screens.items())[-1:]), key: screen}
        return key

    def move(self, view: View) -> None:
        """Move the camera."""
        self.room = replace(self.room, view=view)
        for remembered in (self._aimed, self._light, self._blurred):
            remembered.cache_clear()

    def _room_of(self, key: str) -> Room:
        """Return the room with the camera aimed at a screen."""
        height, width = self._screens[key].shape[:2]
        return self._aimed((width, height))

    def _look_at(self, size: tuple[int, int]) -> Room:
        return self.room if self._aim is None else replace(self.room, view=self._aim(size))

    def _render_light(self, key: str) -> Light:
        return self._room_of(key).light(self._screens[key])

    def _render_blur(self, key: str, f_number: float) -> Light:
        return self._room_of(key).blurred(self._light(key), f_number)

    def _rng(self, key: str, lamp: float, chosen: Exposure | None) -> np.random.Generator:
        """Return the generator of a shot, determined by screen, lamp, exposure and the number of earlier
        equal shots.
        """
        name = f"{key} {lamp:.3f} {chosen}"
        self._taken[name] += 1
        return rng_for(self.seed, name, f"shot {self._taken[name]}")

    def _exposure(
        self, screen: ImageU8, lamp: float, chosen: Exposure | None, rng: np.random.Generator
    ) -> Exposure:
        wander = float(rng.standard_normal()) * self.room.studio.wander
        return self.room.metered(screen, lamp, wander) if chosen is None else self.room.body.check(chosen)


def as_jpeg(frame: ImageU8, exposure: Exposure, quality: int) -> bytes:
    """Encode a frame as JPEG with the exposure in its EXIF."""
    exif = Pillow.Exif()
    exif[0x010F], exif[0x0110] = "Sorites", MODEL
    details = exif.get_ifd(0x8769)
    details[0x8827] = round(exposure.iso)
    details[0x829A] = float(Fraction(exposure.shutter).limit_denominator(_RATIONALS))
    details[0x829D] = float(exposure.aperture)
    details[0x9003] = time.strftime("%Y:%m:%d %H:%M:%S")
    details[0xA434] = LENS
    file = io.BytesIO()
    Pillow.fromarray(frame).save(file, "JPEG", quality=quality, subsampling=0, exif=exif)
    return file.getvalue()

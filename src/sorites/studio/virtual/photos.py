"""Photographs of the virtual camera: what is on the screen, in the lamp's light, at the camera's settings, as a JPEG file."""

from __future__ import annotations

import functools
import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from PIL import Image as Pillow

from sorites.core import Picture
from sorites.optics.camera import Exposure, Light
from sorites.rng import rng_for
from sorites.studio.virtual.scene import Room

MODEL, LENS = "Sorites virtual camera", "virtual 24-105mm f/5"
Seen = Callable[[], tuple[int, Picture | None]]
"""Returns the number of what a screen shows and its pixels."""
_RATIONALS = 1_000_000


class Photographer:
    """Takes the photographs; ``last`` is what the last one shows: a hash of the screen, the lamp, the exposure.

    The light through the lens is kept for the last picture, as its settings come one after another.
    """

    def __init__(self, room: Room, seen: Seen, lamp: Callable[[], float], seed: int = 0, quality: int = 95) -> None:
        self.room, self.seen, self.lamp = room, seen, lamp
        self.seed, self.quality = seed, quality
        self.busy_s = 0.0
        self.last: tuple[str, float, Exposure] | None = None
        self._taken: Counter[str] = Counter()
        self._light = functools.lru_cache(maxsize=2)(self._fresh_light)
        self._blurred = functools.lru_cache(maxsize=6)(self._fresh_blur)
        self._screens: dict[str, Picture] = {}

    def photograph(self, chosen: Exposure | None, wrong: bool = False) -> bytes:
        """Return a photograph of this moment; without an exposure the camera meters. ``wrong`` shoots at another ISO than set."""
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
        frame = self.room.developed(self._blurred(key, exposure.aperture), lamp, exposure, rng)
        data = as_jpeg(frame, exposure, self.quality)
        self.busy_s += time.perf_counter() - start
        return data

    def live(self) -> bytes:
        """Return a frame of the live view: as an automatic shot, smaller."""
        _, screen = self.seen()
        pixels = np.zeros((72, 128, 3), np.uint8) if screen is None else screen
        file = io.BytesIO()
        Pillow.fromarray(pixels).resize((640, 360)).save(file, "JPEG", quality=80)
        return file.getvalue()

    def _key(self, screen: Picture) -> str:
        """Return a name for what the screen shows, and keep its pixels under it for a while."""
        key = hashlib.blake2b(screen.tobytes(), digest_size=8).hexdigest()
        if key not in self._screens:
            self._screens = {**dict(list(self._screens.items())[-1:]), key: screen}
        return key

    def _fresh_light(self, key: str) -> Light:
        return self.room.light(self._screens[key])

    def _fresh_blur(self, key: str, f_number: float) -> Light:
        return self.room.blurred(self._light(key), f_number)

    def _rng(self, key: str, lamp: float, chosen: Exposure | None) -> np.random.Generator:
        """Return the randomness of a shot: it follows from what is photographed, how, and how often that was done before."""
        name = f"{key} {lamp:.3f} {chosen}"
        self._taken[name] += 1
        return rng_for(self.seed, name, f"shot {self._taken[name]}")

    def _exposure(self, screen: Picture, lamp: float, chosen: Exposure | None, rng: np.random.Generator) -> Exposure:
        wander = float(rng.standard_normal()) * self.room.studio.wander
        return self.room.metered(screen, lamp, wander) if chosen is None else self.room.body.check(chosen)


def as_jpeg(frame: Picture, exposure: Exposure, quality: int) -> bytes:
    """Return a frame as a JPEG file whose EXIF says how it was taken."""
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

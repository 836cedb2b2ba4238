"""Develop sensor values of RAW files, and expose them again digitally.

The steps of a camera are kept apart. Sensor: light, exposure, saturation. Image signal processor (ISP): white
balance, colour matrix, tone curve, sRGB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import EOS_RP, Body
from sorites.optics.develop import Light, to_display, tone

Matrix = NDArray[np.float64]
# Entries of the tone curve between black and white.
STEPS = 4096


class SensorValues(Protocol):
    """Values of a Bayer sensor, as ``sorites.io.raw_files.RawImage`` has them."""

    @property
    def channels(self) -> NDArray[np.int64]:
        """Colour of each pixel of a 2 x 2 block."""

    @property
    def black(self) -> tuple[float, float, float]:
        """Digital number of no light, by colour."""

    @property
    def white(self) -> float:
        """Digital number at which values saturate."""

    @property
    def balance(self) -> tuple[float, float, float]:
        """White-balance gains."""

    @property
    def matrix(self) -> Matrix:
        """From balanced colours to linear sRGB."""

    def sites(self) -> NDArray[np.uint16]:
        """Return the pixels of each place in the 2 x 2 block as a plane."""


@dataclass(frozen=True)
class Negative:
    """The linear light of a RAW file: H x W x 3, where 1 is saturation, before white balance.

    One value per 2 x 2 block of the mosaic, with the mean of its green pixels: nothing is interpolated.
    """

    light: Light
    balance: tuple[float, float, float]
    matrix: Matrix

    @property
    def saturated(self) -> float:
        """Share of the values at saturation, whose light is unknown."""
        return float((self.light >= 1).mean())

    def exposed(self, stops: float) -> Negative:
        """Return the negative with 2^``stops`` times the light, saturated again.

        Noise is multiplied too, so that a darker one is cleaner than a photograph with less light, and
        values that were saturated become grey.
        """
        return replace(self, light=np.minimum(self.light * np.float32(2.0**stops), np.float32(1)))


@dataclass(frozen=True)
class Isp:
    """Development of a negative.

    Attributes:
        body: The camera with the tone curve.
        tone_share: How much of the tone curve is applied; at 0 the result is plain sRGB.
        warmth: Stops by which red is raised and blue lowered against the camera's white balance.
    """

    body: Body = EOS_RP
    tone_share: float = 1.0
    warmth: float = 0.0

    def develop(self, negative: Negative) -> Light:
        """Return display values 0..1."""
        gains = np.array(negative.balance) * 2.0 ** (self.warmth * np.array([0.5, 0.0, -0.5]))
        balanced = np.minimum(negative.light * gains.astype(np.float32), np.float32(1))
        light = np.clip(balanced @ negative.matrix.T.astype(np.float32), 0, 1)
        display = to_display(light)
        if self.tone_share == 0:
            return display
        curve = tone(np.linspace(0, 1, STEPS + 1) ** 2, self.body)
        toned = np.interp(np.sqrt(light), np.linspace(0, 1, STEPS + 1), curve).astype(np.float32)
        share = np.float32(self.tone_share)
        return np.asarray(toned * share + display * (1 - share), np.float32)


def negative_of(raw: SensorValues) -> Negative:
    """Return the linear light of sensor values."""
    values = raw.sites().astype(np.float32)
    planes = []
    for colour in range(3):
        sites = values[raw.channels.ravel() == colour].mean(0)
        planes.append((sites - np.float32(raw.black[colour])) / np.float32(raw.white - raw.black[colour]))
    light = np.clip(np.stack(planes, axis=2), 0, 1)
    return Negative(np.ascontiguousarray(light), raw.balance, raw.matrix)

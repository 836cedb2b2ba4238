"""Development turns raw numbers into an 8-bit picture: subtract black, balance white, apply the tone curve, store as JPEG."""

from __future__ import annotations

import functools
import io

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import Body, Light
from sorites.optics.srgb import encoded

FINE = 4
"""Number of steps of the developing table per digital number."""


def tone(share: NDArray[np.float64], body: Body) -> NDArray[np.float64]:
    """Apply the camera's tone curve, from a share of saturation 0..1 to a display value 0..1. It rises and keeps 0 and 1."""
    display = encoded(1 - (1 - np.clip(share, 0, 1)) ** body.shoulder)
    return display - body.contrast * np.sin(2 * np.pi * display) / (2 * np.pi)


@functools.lru_cache(maxsize=64)
def curves(body: Body, iso: float, area: float) -> Light:
    """Return, flat and channel by channel, the display value of every raw number in steps of 1 / ``FINE`` DN.

    A camera develops its full-size picture and scales it down afterwards. The display value at a raw mean is therefore the mean
    of the curve over the noise of single pixels (when ``area`` is 1, no noise is left to average).
    """
    numbers = np.arange(body.white_dn * FINE + 1) / FINE
    knots = np.unique(np.concatenate([body.black_dn + np.linspace(-1, 1, 129) * 32, np.linspace(0, body.white_dn, 513)]))
    return np.concatenate([np.interp(numbers, knots, _averaged(knots, body, iso, area, k)) for k in range(3)]).astype(np.float32)


def _averaged(dn: NDArray[np.float64], body: Body, iso: float, area: float, channel: int) -> NDArray[np.float64]:
    """Return the tone curve of one channel at raw numbers ``dn``, averaged over the noise that is left."""
    gain, range_ = body.balance[channel], body.white_dn - body.black_dn
    electrons = (dn - body.black_dn) / body.dn_per_e(iso)
    remaining = 1 - 1 / area
    sigma = np.sqrt(remaining * (np.maximum(electrons, 0) + body.noise_e(iso) ** 2)) * body.dn_per_e(iso)
    room = np.maximum(body.white_dn / gain + body.black_dn * (1 - 1 / gain) - dn, 0) / 3
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    spread = dn[:, None] + np.minimum(sigma, room)[:, None] * np.clip(nodes, -3, 3)
    seen: NDArray[np.float64] = tone((spread - body.black_dn) * gain / range_, body) @ (weights / weights.sum())
    return seen


def develop(raw: Light, body: Body, iso: float, area: float = 1.0) -> Light:
    """Convert raw numbers, H x W x 3, to display values 0..1."""
    table = curves(body, iso, area).reshape(3, -1)
    places = (raw * np.float32(FINE) + np.float32(0.5)).astype(np.int32)
    display = np.empty_like(raw)
    for channel in range(3):
        np.take(table[channel], places[..., channel], out=display[..., channel], mode="clip")
    return display


def jpeg(display: Light, quality: int) -> Light:
    """Encode display values as an 8-bit JPEG file and decode it again."""
    from PIL import Image

    file = io.BytesIO()
    eight = (display * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    Image.fromarray(eight).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file), np.float32) * np.float32(1 / 255)

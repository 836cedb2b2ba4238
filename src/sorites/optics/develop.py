"""From raw numbers to an 8-bit picture: black subtracted, white balanced, toned, stored as JPEG."""

from __future__ import annotations

import functools
import io

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import Body, Light
from sorites.optics.srgb import encoded

FINE = 4
"""Steps of the developing table per digital number."""


def tone(share: NDArray[np.float64], body: Body) -> NDArray[np.float64]:
    """The camera's curve: a share of saturation, 0..1, to a display value, 0..1. Rising; 0 to 0 and 1 to 1."""
    display = encoded(1 - (1 - np.clip(share, 0, 1)) ** body.shoulder)
    return display - body.contrast * np.sin(2 * np.pi * display) / (2 * np.pi)


@functools.lru_cache(maxsize=64)
def curves(body: Body, iso: float, area: float) -> Light:
    """Per channel, the display value of every raw number in steps of 1 / ``FINE`` DN, flat.

    A camera develops its full-size picture and only then is it scaled down, so what is seen at a raw mean is the mean of the
    curve over the noise of single pixels (none is left over when ``area`` is 1).
    """
    numbers = np.arange(body.white_dn * FINE + 1) / FINE
    knots = np.unique(np.concatenate([body.black_dn + np.linspace(-1, 1, 129) * 32, np.linspace(0, body.white_dn, 513)]))
    return np.concatenate([np.interp(numbers, knots, _seen(knots, body, iso, area, k)) for k in range(3)]).astype(np.float32)


def _seen(dn: NDArray[np.float64], body: Body, iso: float, area: float, channel: int) -> NDArray[np.float64]:
    gain, range_ = body.balance[channel], body.white_dn - body.black_dn
    electrons = (dn - body.black_dn) / body.dn_per_e(iso)
    left = 1 - 1 / area
    sigma = np.sqrt(left * (np.maximum(electrons, 0) + body.noise_e(iso) ** 2)) * body.dn_per_e(iso)
    room = np.maximum(body.white_dn / gain + body.black_dn * (1 - 1 / gain) - dn, 0) / 3
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    spread = dn[:, None] + np.minimum(sigma, room)[:, None] * np.clip(nodes, -3, 3)
    seen: NDArray[np.float64] = tone((spread - body.black_dn) * gain / range_, body) @ (weights / weights.sum())
    return seen


def develop(raw: Light, body: Body, iso: float, area: float = 1.0) -> Light:
    """Display values 0..1 from raw numbers, H x W x 3."""
    table = curves(body, iso, area).reshape(3, -1)
    places = (raw * np.float32(FINE) + np.float32(0.5)).astype(np.int32)
    made = np.empty_like(raw)
    for channel in range(3):
        np.take(table[channel], places[..., channel], out=made[..., channel], mode="clip")
    return made


def jpeg(display: Light, quality: int) -> Light:
    """Through an 8-bit JPEG file and back."""
    from PIL import Image

    file = io.BytesIO()
    eight = (display * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    Image.fromarray(eight).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file), np.float32) * np.float32(1 / 255)

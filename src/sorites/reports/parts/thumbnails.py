"""Pictures small enough to stand inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np

from sorites.core import Picture

SIDE = 160
"""Longer side of a thumbnail, px."""


def data_uri(picture: Picture, side: int = SIDE) -> str:
    """A small WebP, never enlarged."""
    from PIL import Image

    small = Image.fromarray(np.ascontiguousarray(picture))
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    held = io.BytesIO()
    small.save(held, "WEBP", quality=74, method=4)
    return "data:image/webp;base64," + base64.b64encode(held.getvalue()).decode()

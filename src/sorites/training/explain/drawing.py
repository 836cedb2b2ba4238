"""Explanations as pictures: heat laid over what the model saw, and guided gradients as a relief on grey."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture

STOPS = np.array([[20, 30, 110], [30, 140, 190], [120, 205, 120], [250, 210, 60], [215, 40, 35]], np.float32)
"""Colours from no evidence to the most: blue, cyan, green, yellow, red."""
PALE = 0.35
"""The share of the heat over the picture where there is none, and more by as much as there is."""
BRIGHTEST = 98.0
"""The percentile of the guided gradient that is drawn at full strength."""


def heat(seen: NDArray[np.float32], cam: NDArray[np.float32]) -> Picture:
    """Return a picture (H x W x 3 in 0..255) under the heat of its map (H x W), which is scaled to its own maximum."""
    top = float(cam.max())
    share = cam / top if top > 0 else np.zeros_like(cam)
    at = share * (len(STOPS) - 1)
    low = np.clip(at.astype(int), 0, len(STOPS) - 2)
    colour = STOPS[low] + (STOPS[low + 1] - STOPS[low]) * (at - low)[..., None]
    over = (PALE + 0.3 * share)[..., None]
    grey = seen.mean(-1, keepdims=True) * 0.6 + seen * 0.4
    return _rounded((1 - over) * grey + over * colour)


def relief(guided: NDArray[np.float32]) -> Picture:
    """Return a guided gradient (H x W x 3) on grey: brighter where more of a colour speaks for the class."""
    strong = float(np.percentile(np.abs(guided), BRIGHTEST)) or float(np.abs(guided).max())
    return _rounded(127.5 + 127.5 * (guided / strong if strong > 0 else guided))


def _rounded(values: NDArray[np.float32]) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)

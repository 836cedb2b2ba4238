"""Real pictures of the toy world, drawn from geometry: a warm shape on cool ground, plain, in snow or at night."""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray

from sorites.errors import UnknownName

SHAPES = ("disc", "square", "triangle", "cross")
STYLES = ("plain", "snow", "night")
SIDE = 16
FINE = 4
"""Points per pixel and axis at which an outline is drawn."""

Picture = NDArray[np.float32]


def caption(shape: str, style: str = "plain") -> str:
    """Return the words for a picture, as sliders and generation ask for it."""
    return f"a picture of a {shape}" if style == "plain" else f"a picture of a {shape} in {style}"


def draw(shape: str, style: str, rng: np.random.Generator) -> Picture:
    """Return one picture, 16 x 16 x 3 in 0..1."""
    if style not in STYLES:
        raise UnknownName("style of the toy world", style, STYLES)
    inside = outline(shape, rng)[..., None]
    colour = np.array(colorsys.hsv_to_rgb(rng.uniform(0.02, 0.14), rng.uniform(0.8, 1.0), rng.uniform(0.85, 1.0)))
    ground = rng.uniform(0.3, 0.42) + rng.uniform(-0.04, 0.04, 3) + np.array([-0.05, 0.0, 0.05])
    picture = inside * colour + (1 - inside) * ground
    if style == "snow":
        picture = _snow(picture, inside, rng)
    elif style == "night":
        picture = _night(picture, inside, rng)
    return np.asarray(np.clip(picture, 0.0, 1.0), np.float32)


def outline(shape: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return how much of each pixel the shape covers, at a place and of a size that vary a little."""
    if shape not in SHAPES:
        raise UnknownName("shape of the toy world", shape, SHAPES)
    centre = SIDE / 2 + rng.uniform(-1.0, 1.0, 2)
    radius = rng.uniform(4.8, 5.6)
    axis = (np.arange(SIDE * FINE) + 0.5) / FINE
    y, x = (axis[:, None] - centre[0]) / radius, (axis[None, :] - centre[1]) / radius
    fine = _INSIDE[shape](x, y).astype(float)
    covered: NDArray[np.float64] = fine.reshape(SIDE, FINE, SIDE, FINE).mean((1, 3))
    return covered


def _disc(x: Picture, y: Picture) -> NDArray[np.bool_]:
    return x**2 + y**2 < 1


def _square(x: Picture, y: Picture) -> NDArray[np.bool_]:
    return np.maximum(abs(x), abs(y)) < 0.9


def _triangle(x: Picture, y: Picture) -> NDArray[np.bool_]:
    return (y < 0.85) & (abs(x) < (y + 1.05) * 0.55)


def _cross(x: Picture, y: Picture) -> NDArray[np.bool_]:
    return (np.minimum(abs(x), abs(y)) < 0.32) & (np.maximum(abs(x), abs(y)) < 1.05)


_INSIDE = {"disc": _disc, "square": _square, "triangle": _triangle, "cross": _cross}


def _snow(picture: NDArray[np.float64], inside: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Whiten the ground, pale the shape a little, and let flakes fall over both."""
    veil = 0.8 * (1 - inside) + 0.15 * inside
    flakes = (rng.uniform(size=(SIDE, SIDE, 1)) < 0.12) * rng.uniform(0.6, 0.95, (SIDE, SIDE, 1))
    paled = picture * (1 - veil) + np.array([0.88, 0.92, 0.98]) * veil
    return np.asarray(paled * (1 - flakes) + flakes)


def _night(picture: NDArray[np.float64], inside: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Take most of the light away, the warm part more, and set stars beside the shape."""
    dark = picture * (np.array([0.5, 0.5, 0.6]) * inside + np.array([0.12, 0.15, 0.4]) * (1 - inside))
    stars = (rng.uniform(size=(SIDE, SIDE, 1)) < 0.05) * (1 - inside) * rng.uniform(0.5, 0.9, (SIDE, SIDE, 1))
    return np.asarray(dark * (1 - stars) + stars * np.array([1.0, 0.95, 0.75]))

"""Toy world for tests and demos: images drawn from geometry, and classifiers for them.

An image shows a warm shape on cool ground, plain, in snow or at night.
"""

from __future__ import annotations

import colorsys
import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError, UnknownName

SHAPES = ("disc", "square", "triangle", "cross")
STYLES = ("plain", "snow", "night")
SIDE = 16
# Supersampling factor of outlines.
SUPERSAMPLING = 4

ImageU8 = NDArray[np.float32]


def draw(shape: str, style: str, rng: np.random.Generator) -> ImageU8:
    """Return one image, 16 x 16 x 3 in 0..1."""
    if style not in STYLES:
        raise UnknownName("style of the toy world", style, STYLES)
    inside = outline(shape, rng)[..., None]
    colour = np.array(
        colorsys.hsv_to_rgb(rng.uniform(0.02, 0.14), rng.uniform(0.8, 1.0), rng.uniform(0.85, 1.0))
    )
    ground = rng.uniform(0.3, 0.42) + rng.uniform(-0.04, 0.04, 3) + np.array([-0.05, 0.0, 0.05])
    image = inside * colour + (1 - inside) * ground
    if style == "snow":
        image = _snow(image, inside, rng)
    elif style == "night":
        image = _night(image, inside, rng)
    return np.asarray(np.clip(image, 0.0, 1.0), np.float32)


def outline(shape: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the coverage of each pixel by the shape, at a slightly random position and size."""
    if shape not in SHAPES:
        raise UnknownName("shape of the toy world", shape, SHAPES)
    centre = SIDE / 2 + rng.uniform(-1.0, 1.0, 2)
    radius = rng.uniform(4.8, 5.6)
    axis = (np.arange(SIDE * SUPERSAMPLING) + 0.5) / SUPERSAMPLING
    y, x = (axis[:, None] - centre[0]) / radius, (axis[None, :] - centre[1]) / radius
    fine = _INSIDE[shape](x, y).astype(float)
    covered: NDArray[np.float64] = fine.reshape(SIDE, SUPERSAMPLING, SIDE, SUPERSAMPLING).mean((1, 3))
    return covered


def _disc(x: ImageU8, y: ImageU8) -> NDArray[np.bool_]:
    return x**2 + y**2 < 1


def _square(x: ImageU8, y: ImageU8) -> NDArray[np.bool_]:
    return np.maximum(abs(x), abs(y)) < 0.9


def _triangle(x: ImageU8, y: ImageU8) -> NDArray[np.bool_]:
    return (y < 0.85) & (abs(x) < (y + 1.05) * 0.55)


def _cross(x: ImageU8, y: ImageU8) -> NDArray[np.bool_]:
    return (np.minimum(abs(x), abs(y)) < 0.32) & (np.maximum(abs(x), abs(y)) < 1.05)


_INSIDE = {"disc": _disc, "square": _square, "triangle": _triangle, "cross": _cross}


def _snow(
    image: NDArray[np.float64], inside: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Whiten the ground, pale the shape a little, and add flakes."""
    veil = 0.8 * (1 - inside) + 0.15 * inside
    flakes = (rng.uniform(size=(SIDE, SIDE, 1)) < 0.12) * rng.uniform(0.6, 0.95, (SIDE, SIDE, 1))
    paled = image * (1 - veil) + np.array([0.88, 0.92, 0.98]) * veil
    return np.asarray(paled * (1 - flakes) + flakes)


def _night(
    image: NDArray[np.float64], inside: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Darken the image, the warm part more, and add stars around the shape."""
    dark = image * (np.array([0.5, 0.5, 0.6]) * inside + np.array([0.12, 0.15, 0.4]) * (1 - inside))
    stars = (rng.uniform(size=(SIDE, SIDE, 1)) < 0.05) * (1 - inside) * rng.uniform(0.5, 0.9, (SIDE, SIDE, 1))
    return np.asarray(dark * (1 - stars) + stars * np.array([1.0, 0.95, 0.75]))


# Classifiers, trained on drawn images and independent of the pipeline

KINDS = ("all", "plain")
FILE = Path(__file__).with_name("judges.safetensors")


def network() -> Any:
    """Return an untrained classifier: three convolutions and a joint head for shapes and styles."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 48, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(48 * 16, 48),
        nn.ReLU(),
        nn.Linear(48, len(SHAPES) + len(STYLES)),
    )


@functools.cache
def load_classifier(kind: str = "all") -> Any:
    """Return a trained classifier from the bundled weights: ``all`` styles or ``plain`` only."""
    from safetensors.torch import load_file

    if kind not in KINDS:
        raise UnknownName("classifier of the toy world", kind, KINDS)
    if not FILE.is_file():
        raise SoritesError(f"{FILE} is missing; reinstall Sorites")
    start = f"{kind}."
    weights = {
        name.removeprefix(start): part.float()
        for name, part in load_file(FILE).items()
        if name.startswith(start)
    }
    classifier = network()
    classifier.load_state_dict(weights)
    return classifier.eval().requires_grad_(False)

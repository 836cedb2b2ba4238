"""A source whose samples have dials of their own, a model, and the severity at which that model
must fail, in closed form.

Shapes are drawn on grey; ``fade`` takes their light away, and a model that looks for bright pixels
sees nothing from a known severity on. Every second sample has a dial ``drift`` too, which moves its
shape out of the image.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from sorites.core import Generated, ImageF32, ImageU8, Model, Outputs, OwnDial, Sample, to_uint8
from sorites.core.labels import Labels
from sorites.core.rng import rng_for
from sorites.core.table import KEY, read
from sorites.suites.suite import Suite, parse

CLASSES = ("square", "disc", "ring", "cross")
FILLED = np.array([1.0, 0.785, 0.5, 0.3])
"""The share of its own rectangle that each shape fills."""
LEVELS = (0.5, 1.0, 1.5, 2.0)
GROUND, LOOKED_FOR = 0.2, 0.6
HEIGHT, WIDTH = 40, 48


def light(number: int) -> float:
    """Return how much brighter than its ground a shape is."""
    return float(rng_for(0, f"shape_{number:02d}", "light").uniform(0.45, 0.78))


def last_seen(number: int) -> float:
    """Return the severity of ``fade`` at which the shape is as bright as the model asks."""
    return 2 * (1 - (LOOKED_FOR - GROUND) / light(number))


def drawn(number: int, fade: float = 0.0, drift: float = 0.0) -> ImageF32:
    """Draw the shape of a sample: its class, place and size belong to its number."""
    rng = rng_for(0, f"shape_{number:02d}", "place")
    radius, top, left = rng.uniform(8, 12), rng.uniform(14, 26), rng.uniform(14, 34) + 20 * drift
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    down, across = np.abs(y - top), np.abs(x - left)
    far, inside = np.hypot(down, across), np.maximum(down, across) < radius
    shape = (
        inside,
        far < radius,
        (far < radius) & (far > 0.6 * radius),
        inside & (np.minimum(down, across) < 0.17 * radius),
    )
    image = np.full((HEIGHT, WIDTH, 3), GROUND, np.float32)
    image[shape[number % 4]] += light(number) * (1 - fade / 2)
    return image


def load(number: int) -> ImageU8:
    return to_uint8(drawn(number))


def faded(severities: Sequence[float], number: int) -> Iterator[ImageF32]:
    return (drawn(number, fade=severity) for severity in severities)


def drifted(severities: Sequence[float], number: int) -> Iterator[ImageF32]:
    return (drawn(number, drift=severity) for severity in severities)


def fading(argument: str | None, labels: Labels) -> Iterator[Sample]:
    """Give COUNT,VERSION samples with one dial or two."""
    count, _, version = (argument or "40").partition(",")
    for number in range(int(count)):
        fade = OwnDial("fade", LEVELS, functools.partial(faded, number=number), "light", version=version or 1)
        drift = OwnDial("drift", (1.0,), functools.partial(drifted, number=number), "shape")
        dials = (fade, drift) if number % 2 == 0 else (fade,)
        label = labels.find(CLASSES[number % 4])
        yield Sample(
            f"shape_{number:02d}",
            Generated(load, (number,), version),
            label,
            dials=dials,
        )


def logits(images: Sequence[ImageU8]) -> np.ndarray:
    """Return how near the share of bright pixels in their own rectangle is to that of each shape."""
    return np.stack([-8 * np.abs(_filled(image) - FILLED) for image in images]).astype(np.float32)


logits.sorites = {"labels": list(CLASSES)}  # type: ignore[attr-defined]


def _filled(image: ImageU8) -> float:
    bright = image[..., 0] >= round(LOOKED_FOR * 255)
    rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
    return float(bright[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].mean()) if len(rows) else 0.0


def model() -> Model:
    """Return ``logits`` as a model."""
    return Model("bright", lambda images: Outputs(logits(images)), labels=CLASSES, version="1")


def suite(**more: object) -> Suite:
    """Return a suite of forty samples that takes all of their dials, or with other keys."""
    return parse({"name": "own", "source": "fading:40", "labels": list(CLASSES), **more}, "test")


def rows(folder: Path) -> pl.DataFrame:
    """Return the table of a run in the order of its key."""
    return read(folder).collect().sort(KEY)

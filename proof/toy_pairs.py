"""Sliders learnt from pairs of scenes of the toy world before and after haze, against haze itself.

The recipe and the limits were set on the disc; the other three shapes were measured afterwards, unchanged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from proof._lines import Line
from sorites import core
from sorites.apps.generation.image_pairs import Pair, learn_slider
from sorites.apps.generation.recipes import TOY_PAIRS
from sorites.core import ImageF32, ImageU8, to_float, to_uint8
from sorites.core.rng import rng_for
from sorites.diffusion.inversion import METHODS, PhotoEdit, edit_photograph
from sorites.diffusion.pipeline import load
from sorites.diffusion.sampler import SamplerOptions, along, sample
from sorites.diffusion.toy import world

PAIRS, SCENES = 40, 6
# The error that is allowed, as a share of the size of haze itself.
DRAWN = 0.3
MOVED = {"edit_friendly": 0.45, "ddim": 0.3}


def run() -> Iterator[Line]:
    for shape in world.SHAPES:
        yield from _shape(shape)


def _shape(shape: str) -> Iterator[Line]:
    haze, pipe, words = core.shift("haze"), load("toy"), f"a picture of a {shape}"
    levels = haze.levels
    shares = [level / levels[-1] for level in levels]
    pairs = [
        Pair(image, to_uint8(_hazed(image, level, f"{shape}{number}")), share)
        for number in range(PAIRS)
        for image in [_scene(shape, number, 31)]
        for level, share in zip(levels, shares, strict=True)
    ]
    slider = learn_slider(pipe, shape, "haze", pairs, TOY_PAIRS, Path(tempfile.mkdtemp()) / "state")
    drawing = SamplerOptions(20, 2.0, negative="")
    requests = [along(words, seed, slider, (0.0, *shares)) for seed in range(1, SCENES + 1)]
    drawn = [(to_uint8(row[0]), row[1:]) for row in sample(pipe, requests, drawing)]
    yield _line(f"{shape}, drawn images", drawn, DRAWN)
    for method in METHODS:
        how = PhotoEdit(method, SamplerOptions(20, 1.0, negative="", start=750))
        scenes = [_scene(shape, number, 77) for number in range(SCENES)]
        moved = [
            (photo, edit_photograph(pipe, photo, words, slider, shares, how, str(number)))
            for number, photo in enumerate(scenes)
        ]
        yield _line(f"{shape}, scenes by {method}", moved, MOVED[method])


def _scene(shape: str, number: int, salt: int) -> ImageU8:
    return to_uint8(world.draw(shape, "plain", np.random.default_rng([salt, number])))


def _hazed(image: ImageU8, severity: float, key: str) -> ImageF32:
    found = core.shift("haze")(to_float(image), severity, rng_for(0, key, "haze"))
    return np.asarray(np.clip(found, 0, 1), np.float32)


def _line(name: str, rows: Sequence[tuple[ImageU8, Sequence[ImageF32]]], most: float) -> Line:
    """Return the size of the error as a share of the size of haze, with both by level."""
    levels = core.shift("haze").levels
    sizes = np.array(
        [
            [
                (_size(image - wanted), _size(to_float(clean) - wanted))
                for image, wanted in zip(images, [_hazed(clean, s, f"{i}") for s in levels], strict=True)
            ]
            for i, (clean, images) in enumerate(rows)
        ]
    ).mean(0)
    texts = (", ".join(f"{value:.3f}" for value in column) for column in sizes.T)
    note = "error {}; haze {}".format(*texts)
    return Line(
        f"{name}: error over the size of haze", float(sizes[:, 0].sum() / sizes[:, 1].sum()), note, most=most
    )


def _size(difference: ImageF32) -> float:
    return float(np.sqrt(np.square(difference).mean()))

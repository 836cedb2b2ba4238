"""The ``toy`` encoder: features of the toy world's classifier and a small text tower, trained in seconds."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from sorites import core
from sorites.core import Encoder, Features, ImageU8, Model, add_encoder, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.diffusion.toy.world import SHAPES, STYLES, draw
from sorites.encoders.towers import Lesson, Towers, teach

VERSION = 1
# Training images of each shape in each style.
IMAGES_PER_PAIR = 60
# Images per pass where their number matters.
BATCH = 32
PAIRS = [(i, j) for i in range(len(SHAPES)) for j in range(len(STYLES))]


@add_encoder
def toy(argument: str | None) -> Encoder:
    """toy: a small image-text model for the shapes and styles of the toy world, trained on its images."""
    if argument is not None:
        raise SoritesError(f"encoder toy takes no argument, got {argument!r}")
    backbone, towers = _towers()

    def images(images_u8: Sequence[ImageU8], framed: bool = False) -> Features:
        return towers.images(_features(backbone, images_u8))

    key = digest(VERSION, backbone.cache_key(), IMAGES_PER_PAIR).hex()
    return Encoder(
        "toy", images, towers.texts, key, SHAPES, tuple(tuple(_wordings("{}", style)) for style in STYLES)
    )


@functools.cache
def _towers() -> tuple[Model, Towers]:
    backbone, rng = core.model("toy:all").with_batch(BATCH), np.random.default_rng(7)
    images = [to_uint8(draw(SHAPES[i], STYLES[j], rng)) for i, j in PAIRS for _ in range(IMAGES_PER_PAIR)]
    of_class, of_style = np.array(PAIRS, np.int64).T.copy()
    caption = np.repeat(np.arange(len(PAIRS)), IMAGES_PER_PAIR)
    wordings = [_wordings(SHAPES[i], STYLES[j]) for i, j in PAIRS]
    return backbone, teach(Lesson(_features(backbone, images), caption, wordings, (of_class, of_style)))


def _wordings(shape: str, style: str) -> list[str]:
    suffix = "" if style == STYLES[0] else f" in {style}"
    return [f"a photo of a {shape}{suffix}", f"a picture of a {shape}{suffix}", f"{shape}{suffix}"]


def _features(backbone: Model, images: Sequence[ImageU8]) -> Features:
    features = backbone(list(images), True).features
    if features is None:
        raise SoritesError(f"model {backbone.name} returns no features")
    return features

"""The referee of the toy world, trained here in seconds: features of its classifier and a small
text tower.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from sorites import core
from sorites.core import Features, Model, Picture, Referee, add_referee, to_picture
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.diffusion.toy.world import SHAPES, STYLES, draw
from sorites.encoders.towers import Lesson, Towers, teach

VERSION = 1
# Pictures of each shape in each style that it is trained on.
EACH = 60
PAIRS = [(i, j) for i in range(len(SHAPES)) for j in range(len(STYLES))]


@add_referee
def toy(argument: str | None) -> Referee:
    """toy: a small image-text model for the shapes and styles of the toy world, trained here on its
    real pictures.
    """
    if argument is not None:
        raise SoritesError(f"referee toy takes no argument, got {argument!r}. Type: toy")
    backbone, towers = _towers()

    def images(pictures: Sequence[Picture], framed: bool = False) -> Features:
        return towers.images(_features(backbone, pictures))

    key = digest(VERSION, backbone.cache_key(), EACH).hex()
    return Referee(
        "toy", images, towers.texts, key, SHAPES, tuple(tuple(_wordings("{}", style)) for style in STYLES)
    )


@functools.cache
def _towers() -> tuple[Model, Towers]:
    backbone, rng = core.model("toy:all"), np.random.default_rng(7)
    pictures = [to_picture(draw(SHAPES[i], STYLES[j], rng)) for i, j in PAIRS for _ in range(EACH)]
    of_class, of_style = np.array(PAIRS, np.int64).T.copy()
    caption = np.repeat(np.arange(len(PAIRS)), EACH)
    wordings = [_wordings(SHAPES[i], STYLES[j]) for i, j in PAIRS]
    return backbone, teach(Lesson(_features(backbone, pictures), caption, wordings, (of_class, of_style)))


def _wordings(shape: str, style: str) -> list[str]:
    told = "" if style == STYLES[0] else f" in {style}"
    return [f"a photo of a {shape}{told}", f"a picture of a {shape}{told}", f"{shape}{told}"]


def _features(backbone: Model, pictures: Sequence[Picture]) -> Features:
    found = backbone(list(pictures), True).features
    if found is None:
        raise SoritesError(f"model {backbone.name} gives no features")
    return found

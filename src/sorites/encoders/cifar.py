"""The ``cifar`` encoder: frozen EfficientNet-lite0 features and a small text tower, trained on first use.

It is trained on CIFAR-10's training photographs, rendered in thirteen styles by the shift ``style``,
with captions that name class and style. It knows all ten classes, including the four that the
classifiers it evaluates were not trained on. Some pairs of class and style are held out to test its
alignment. Training takes about a minute; the weights are stored in the user's cache.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import Encoder, Examples, Features, ImageU8, Model, Sample, add_encoder, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.core.rng import digest, hashed_order, rng_for
from sorites.encoders.towers import Lesson, Towers, teach
from sorites.io.files import cache, cached

# Enters the hash that orders the training images, so its value must never change.
ORDER_SEED = "referee"

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PHOTO = "photo"

# Caption templates by style; every style except the photograph is a setting of the shift ``style``.
STYLES: dict[str, tuple[str, ...]] = {
    PHOTO: ("a photo of a {}", "a picture of a {}"),
    "gray": ("a gray photo of a {}", "a {} in black and white"),
    "sepia": ("a sepia photo of a {}", "an old brown picture of a {}"),
    "sunset": ("a photo of a {} at sunset", "a {} in orange light"),
    "night": ("a photo of a {} at night", "a {} in the dark"),
    "foggy": ("a photo of a {} in fog", "a misty picture of a {}"),
    "inverted": ("a negative of a {}", "a {} with inverted colours"),
    "posterised": ("a poster of a {}", "a {} in few flat colours"),
    "blurred": ("a blurred photo of a {}", "a {} out of focus"),
    "pixelated": ("a pixelated photo of a {}", "a mosaic of a {}"),
    "noisy": ("a noisy photo of a {}", "a grainy picture of a {}"),
    "embossed": ("a relief of a {}", "an embossed {}"),
    "sketch": ("a sketch of a {}", "a pencil drawing of a {}"),
}

HELD_OUT_PARTS = ("test", "validation")


def part_of(label: int, style: int) -> str:
    """Return the part that a class in a style belongs to: "training", "test" or "validation" (to choose
    hyperparameters).

    Four styles are held out from half of the classes for testing and four others for validation, so
    that a style alone does not reveal more than one class of five. Photographs and the other four
    styles are trained with every class.
    """
    turn = style % 3 - 1
    return HELD_OUT_PARTS[turn] if style and turn >= 0 and (label + style // 3) % 2 == 0 else "training"


VERSION = 1
DEFAULT_TRAINING_IMAGES = 6000
# Images in each of the two held-out parts.
HELD_OUT_IMAGES = 1000
IMAGES_PER_BATCH = 32


@dataclass(frozen=True)
class StyledSample:
    """A photograph to be rendered in a style."""

    sample: Sample
    label: int
    style: int

    def image(self) -> ImageU8:
        photo, name = self.sample.load(), list(STYLES)[self.style]
        if name == PHOTO:
            return photo
        return to_uint8(
            core.shift("style")(to_float(photo), {"style": name}, rng_for(0, self.sample.id, "style"))
        )


@add_encoder
def cifar(argument: str | None) -> Encoder:
    """cifar or cifar:N: a small image-text model for CIFAR-10, trained on N images (default 6000)."""
    count = DEFAULT_TRAINING_IMAGES if argument is None else int(argument) if argument.isdecimal() else 0
    if not 1000 <= count <= 40_000:
        raise SoritesError(f"encoder cifar: expected a number of images from 1000 to 40000, got {argument!r}")
    backbone = core.model("lite0").with_batch(IMAGES_PER_BATCH)
    key = digest(
        VERSION, backbone.cache_key(), core.shift("style").version, count, HELD_OUT_IMAGES, STYLES, CLASSES
    ).hex()
    towers = _load_or_train(backbone, count, cache("encoders", f"cifar-{count}-{key[:12]}.safetensors"))

    def images(images_u8: Sequence[ImageU8], framed: bool = False) -> Features:
        return towers.images(_features(backbone, images_u8, framed))

    return Encoder(
        "cifar",
        images,
        towers.texts,
        key,
        CLASSES,
        tuple(STYLES.values()),
        functools.partial(_examples, backbone, towers),
    )


def _features(backbone: Model, images: Sequence[ImageU8], framed: bool) -> Features:
    features = backbone(images, framed).features
    if features is None:
        raise SoritesError(f"model {backbone.name} returns no features")
    return features


def styled(part: str, count: int) -> list[StyledSample]:
    """Return ``count`` photographs of one part, each in one of the styles that its class has there.

    The parts have no photographs in common.
    """
    ordered = hashed_order(
        core.source("cifar:train", labels(CLASSES)), lambda sample: [ORDER_SEED, sample.id]
    )
    start = (
        HELD_OUT_PARTS.index(part) * HELD_OUT_IMAGES
        if part in HELD_OUT_PARTS
        else len(HELD_OUT_PARTS) * HELD_OUT_IMAGES
    )
    return [_with_style(sample, part) for sample in ordered[start : start + count]]


def _with_style(sample: Sample, part: str) -> StyledSample:
    label = sample.label if sample.label is not None else 0
    styles = [style for style in range(len(STYLES)) if part_of(label, style) == part]
    turn = int.from_bytes(digest("look", sample.id, size=4), "little") % len(styles)
    return StyledSample(sample, label, styles[turn])


def _features_of(backbone: Model, samples: Sequence[StyledSample]) -> Features:
    def parts() -> Iterator[Features]:
        for start in range(0, len(samples), IMAGES_PER_BATCH):
            yield _features(
                backbone, [sample.image() for sample in samples[start : start + IMAGES_PER_BATCH]], True
            )

    return np.concatenate(list(parts()))


def _examples(backbone: Model, towers: Towers, part: str, limit: int | None = None) -> Examples:
    """Return features, classes and styles of the first ``limit`` images of a held-out part (default: all)."""
    samples = styled(part, min(limit or HELD_OUT_IMAGES, HELD_OUT_IMAGES))
    return Examples(
        towers.images(_features_of(backbone, samples)), _column(samples, "label"), _column(samples, "style")
    )


def _column(samples: Sequence[StyledSample], name: str) -> NDArray[np.int64]:
    return np.array([getattr(sample, name) for sample in samples], np.int64)


def _load_or_train(backbone: Model, count: int, path: Path) -> Towers:
    """Return the towers from the cache, training them the first time."""
    return cached(path, lambda: _serialize(_train(backbone, count)), _read)


def _read(path: Path) -> Towers:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        vocabulary, names = json.loads(file.metadata()["vocabulary"]), file.keys()
        return Towers(tuple(vocabulary), **{name: file.get_tensor(name) for name in names})


def _serialize(towers: Towers) -> bytes:
    from safetensors.numpy import save

    return save(towers.tensors(), metadata={"vocabulary": json.dumps(towers.vocabulary)})


def _train(backbone: Model, count: int) -> Towers:
    samples = styled("training", count)
    pairs = [(i, j) for i in range(len(CLASSES)) for j in range(len(STYLES)) if part_of(i, j) == "training"]
    index_of = {pair: i for i, pair in enumerate(pairs)}
    captions = [
        [template.replace("{}", CLASSES[i]) for template in list(STYLES.values())[j]] for i, j in pairs
    ]
    caption = np.array([index_of[sample.label, sample.style] for sample in samples], np.int64)
    of_class, of_style = np.array(pairs, np.int64).T.copy()
    return teach(Lesson(_features_of(backbone, samples), caption, captions, (of_class, of_style)))

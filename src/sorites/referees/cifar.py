"""The referee of the embedded case, made here: EfficientNet-lite0's frozen features and a small tower of words.

It is taught on CIFAR-10's training photographs, drawn in thirteen looks by the shift ``style``, with captions that name class and
look. It knows all ten classes, also the four that the classifiers it judges never saw. Some pairs of class and look it is
never shown: on those its alignment is measured. Taught once, in about a minute; then kept in the user's cache.
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
from sorites.core import Model, Picture, Sample, to_image, to_picture
from sorites.errors import SoritesError
from sorites.files import cache, make_once
from sorites.labels import labels
from sorites.referees._captions import CLASSES, LOOKS, PARTS, PHOTO, part_of
from sorites.referees._referee import Examples, Features, Referee, add_referee
from sorites.referees._towers import Lesson, Towers, teach
from sorites.rng import digest, fair_order, rng_for

VERSION = 1
PICTURES = 6000
HELD_OUT = 1000
"""Pictures of each of the two parts that it is not taught on."""
BATCH = 32


@dataclass(frozen=True)
class Drawn:
    """A photograph to be seen in a look."""

    sample: Sample
    label: int
    look: int

    def picture(self) -> Picture:
        photo, name = self.sample.load(), list(LOOKS)[self.look]
        if name == PHOTO:
            return photo
        return to_picture(core.shift("style")(to_image(photo), {"style": name}, rng_for(0, self.sample.id, "style")))


@add_referee
def cifar(argument: str | None) -> Referee:
    """cifar or cifar:N: a small image-text model for CIFAR-10, taught here on N pictures (6000)."""
    count = PICTURES if argument is None else int(argument) if argument.isdecimal() else 0
    if not 1000 <= count <= 40_000:
        raise SoritesError(f"referee cifar: wanted a number of pictures from 1000 to 40000, got {argument!r}")
    backbone = core.model("lite0")
    key = digest(VERSION, backbone.version, core.shift("style").version, count, HELD_OUT, LOOKS, CLASSES).hex()
    towers = _taught(backbone, count, cache("referees", f"cifar-{count}-{key[:12]}.safetensors"))

    def images(pictures: Sequence[Picture], framed: bool = False) -> Features:
        return towers.images(_features(backbone, pictures, framed))

    return Referee(
        "cifar",
        images,
        towers.texts,
        key,
        CLASSES,
        tuple(LOOKS.values()),
        functools.partial(_examples, backbone, towers),
    )


def _features(backbone: Model, pictures: Sequence[Picture], framed: bool) -> Features:
    found = backbone(pictures, framed).features
    if found is None:
        raise SoritesError(f"model {backbone.name} gives no features")
    return found


def drawn(part: str, count: int) -> list[Drawn]:
    """Photographs of one part, each in one of the looks that its class has there. The parts share no photograph."""
    ordered = fair_order(core.source("cifar:train", labels(CLASSES)), lambda sample: ["referee", sample.id])
    start = PARTS.index(part) * HELD_OUT if part in PARTS else len(PARTS) * HELD_OUT
    return [_in_a_look(sample, part) for sample in ordered[start : start + count]]


def _in_a_look(sample: Sample, part: str) -> Drawn:
    label = sample.label if sample.label is not None else 0
    looks = [look for look in range(len(LOOKS)) if part_of(label, look) == part]
    turn = int.from_bytes(digest("look", sample.id, size=4), "little") % len(looks)
    return Drawn(sample, label, looks[turn])


def _seen(backbone: Model, some: Sequence[Drawn]) -> Features:
    def parts() -> Iterator[Features]:
        for start in range(0, len(some), BATCH):
            yield _features(backbone, [one.picture() for one in some[start : start + BATCH]], True)

    return np.concatenate(list(parts()))


def _examples(backbone: Model, towers: Towers, part: str, limit: int | None = None) -> Examples:
    """The pictures of a held-out part, or the first of them, as features, with their classes and looks."""
    some = drawn(part, min(limit or HELD_OUT, HELD_OUT))
    return Examples(towers.images(_seen(backbone, some)), _column(some, "label"), _column(some, "look"))


def _column(some: Sequence[Drawn], name: str) -> NDArray[np.int64]:
    return np.array([getattr(one, name) for one in some], np.int64)


def _taught(backbone: Model, count: int, path: Path) -> Towers:
    """Read from the cache, or taught and put there."""
    make_once(path, lambda: _packed(_teach(backbone, count)))
    from safetensors import safe_open

    with safe_open(path, "numpy") as held:
        vocabulary, names = json.loads(held.metadata()["vocabulary"]), held.keys()
        return Towers(tuple(vocabulary), **{name: held.get_tensor(name) for name in names})


def _packed(towers: Towers) -> bytes:
    from safetensors.numpy import save

    return save(towers.tensors(), metadata={"vocabulary": json.dumps(towers.vocabulary)})


def _teach(backbone: Model, count: int) -> Towers:
    some = drawn("training", count)
    pairs = [(label, look) for label in range(len(CLASSES)) for look in range(len(LOOKS)) if part_of(label, look) == "training"]
    place = {pair: i for i, pair in enumerate(pairs)}
    captions = [[way.replace("{}", CLASSES[label]) for way in list(LOOKS.values())[look]] for label, look in pairs]
    caption = np.array([place[one.label, one.look] for one in some], np.int64)
    of_class, of_look = np.array(pairs, np.int64).T.copy()
    return teach(Lesson(_seen(backbone, some), caption, captions, (of_class, of_look)))

"""The images that a model is trained on: labelled, by their place, each with a generator of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sorites.core import ImageU8, Sample
from sorites.core.errors import SoritesError
from sorites.core.rng import digest


class Images(Protocol):
    """Labelled images by their place, 0 to N - 1.

    ``image`` gets a generator that belongs to the seed, the epoch and the place, so that what is
    drawn for an image follows from nothing else: not from the batch, the workers, or where a
    stopped training goes on.
    """

    def __len__(self) -> int: ...

    def id(self, place: int) -> str: ...

    def label(self, place: int) -> int: ...

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        """Return the image in 8 bits (H x W x 3) at its own size."""
        ...


@dataclass(frozen=True)
class SampleImages:
    """The images of samples as they are."""

    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        without = next((sample.id for sample in self.samples if sample.label is None), None)
        if without is not None:
            raise SoritesError(
                f"wanted a label for every training image; {without} has none that is in the labels."
            )

    def __len__(self) -> int:
        return len(self.samples)

    def id(self, place: int) -> str:
        return self.samples[place].id

    def label(self, place: int) -> int:
        label = self.samples[place].label
        assert label is not None
        return label

    def image(self, place: int, rng: np.random.Generator) -> ImageU8:
        return self.samples[place].load()


# Splits of training data: as FOCUS drew its own, by the hash of ids, and by the object that is shown.


# The seed and the share of training images of the published split of FOCUS (Kattakinda & Feizi,
# ICML 2022).
FOCUS_SEED, FOCUS_SHARE = 7342984, 0.7

# The fewest objects that make a coarse class: with fewer, a split by object leaves some class on one
# side only.
LEAST = 4


@dataclass(frozen=True)
class Split:
    """The places of the training images and those of the others, of which no object is shown on both sides.

    ``objects`` names what each place shows; it has one entry per place of the whole list.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    objects: Sequence[str]

    def __post_init__(self) -> None:
        for side, places in (("training", self.train), ("other", self.test)):
            if not places:
                raise SoritesError(
                    f"wanted images on both sides of a split; the {side} side has none of"
                    f" {len(self.objects)}."
                )
        both = {self.objects[place] for place in self.train} & {self.objects[place] for place in self.test}
        if both:
            raise SoritesError(
                f"wanted each object on one side of a split; {len(both)} objects are shown on both, such as"
                f" {min(both)}. A model would be tested on objects that it was trained on. Split by object:"
                " sorites.training.images.by_object"
            )


def permuted(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the places of the first ``share`` of a random order and of the rest, as torch's
    ``random_split`` draws them.

    The order is torch's own permutation, and the first part has the share rounded down: the
    released code of FOCUS does so with the seed 7342984 and the share 0.7. It knows nothing of
    objects: lay ``Split`` on it where several images show one.
    """
    import torch

    _refuse_share(share)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    first = int(count * share)
    return order[:first], order[first:]


def by_hash(ids: Sequence[str], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the places of ``share`` of the ids and of the rest, each in the order of the list.

    Which ids are taken follows from the seed and the ids alone: neither the order of the list nor
    the other ids matter to their order, so that the first part of a longer list agrees with that of
    a shorter one as far as it can.
    """
    _refuse_share(share)
    order = sorted(range(len(ids)), key=lambda place: digest("split", seed, ids[place]))
    first = set(order[: int(len(ids) * share)])
    return [place for place in range(len(ids)) if place in first], [
        place for place in range(len(ids)) if place not in first
    ]


def by_object(objects: Sequence[str], classes: Sequence[int], share: float, seed: int) -> Split:
    """Return a split of places in which each object stands on one side, with ``share`` of the objects
    of every class in training.

    Objects are taken in the order of their hash with the seed. A class of two objects or more has at
    least one on each side.
    """
    _refuse_share(share)
    if len(objects) != len(classes):
        raise SoritesError(f"wanted a class for each of {len(objects)} images, got {len(classes)}.")
    class_of = dict(zip(objects, classes, strict=True))
    taken: set[str] = set()
    for class_ in sorted(set(classes)):
        own = sorted(
            (obj for obj, its in class_of.items() if its == class_),
            key=lambda obj: digest("thing", seed, obj),
        )
        if len(own) < 2:
            raise SoritesError(
                f"wanted at least two objects of each class to split by object; class {class_} has only"
                f" {own[0]}. Take coarser classes: sorites.training.images.coarse"
            )
        taken.update(own[: min(len(own) - 1, max(1, math.floor(len(own) * share + 0.5)))])
    sides = ([place for place, obj in enumerate(objects) if (obj in taken) == side] for side in (True, False))
    train, test = (tuple(side) for side in sides)
    return Split(train, test, objects)


def coarse(objects: Sequence[str], least: int = LEAST) -> Mapping[str, str]:
    """Map objects to coarse classes, the first folder of their ids; classes of fewer than ``least``
    objects are left out.

    Of the built-in cut-outs these are animals, food, hobbies and so on: few enough that both sides
    of a split by object show each.
    """
    folder = {obj: obj.partition("/")[0] for obj in set(objects) if "/" in obj}
    sizes = Counter(folder.values())
    kept = {obj: class_ for obj, class_ in sorted(folder.items()) if sizes[class_] >= least}
    if len(set(kept.values())) < 2:
        raise SoritesError(
            f"wanted two classes or more with {least} objects each, named by the first folder of the objects'"
            " ids."
        )
    return kept


def objects_of(samples: Sequence[Sample]) -> list[str]:
    """Return what each sample shows: the id of a sample belongs to the object, and all its images
    share it.
    """
    return [sample.id for sample in samples]


def _refuse_share(share: float) -> None:
    if not 0 < share < 1:
        raise SoritesError(f"wanted the share of training images between 0 and 1, got {share}.")

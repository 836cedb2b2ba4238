"""Labelled training images addressed by index, and train/test splits of them."""

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
    """Labelled images with indices 0 to N - 1.

    ``image`` receives a generator seeded by training seed, epoch and index, so that random draws do not
    depend on the batch, the number of workers, or where a training was resumed.
    """

    def __len__(self) -> int: ...

    def id(self, index: int) -> str: ...

    def label(self, index: int) -> int: ...

    def image(self, index: int, rng: np.random.Generator) -> ImageU8:
        """Return the image as uint8, H x W x 3, at its original size."""
        ...


@dataclass(frozen=True)
class SampleImages:
    """Unmodified images of samples."""

    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        unlabelled = next((sample.id for sample in self.samples if sample.label is None), None)
        if unlabelled is not None:
            raise SoritesError(
                f"Every training image needs a label; the label of {unlabelled} is not among data.labels."
            )

    def __len__(self) -> int:
        return len(self.samples)

    def id(self, index: int) -> str:
        return self.samples[index].id

    def label(self, index: int) -> int:
        label = self.samples[index].label
        assert label is not None
        return label

    def image(self, index: int, rng: np.random.Generator) -> ImageU8:
        return self.samples[index].load()


# Train/test splits.


# Seed and training share of the published FOCUS split (Kattakinda & Feizi, ICML 2022).
FOCUS_SEED, FOCUS_SHARE = 7342984, 0.7

# Smaller coarse classes are dropped, since a split by object could leave them on one side only.
MIN_OBJECTS_PER_CLASS = 4


@dataclass(frozen=True)
class Split:
    """Indices of training and test images that share no object.

    ``objects`` names the object shown by each image of the whole list.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    objects: Sequence[str]

    def __post_init__(self) -> None:
        for side, indices in (("training", self.train), ("other", self.test)):
            if not indices:
                raise SoritesError(
                    f"Both sides of a split need images; the {side} side has none of {len(self.objects)}."
                )
        both = {self.objects[index] for index in self.train} & {self.objects[index] for index in self.test}
        if both:
            raise SoritesError(
                f"{len(both)} objects are on both sides of the split, such as {min(both)}, so a "
                "model would be tested on objects it was trained on. Use "
                "sorites.training.images.by_object."
            )


def permuted(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the indices of a random ``share`` and of the rest, as torch's ``random_split`` draws them.

    The first part has the share rounded down. The released code of FOCUS splits like this with seed 7342984
    and share 0.7. Objects are ignored: check the result with ``Split`` if several images show one object.
    """
    import torch

    _check_share(share)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    first = int(count * share)
    return order[:first], order[first:]


def by_hash(ids: Sequence[str], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the indices of ``share`` of the ids and of the rest, each in list order.

    Ids are ranked by their hash with the seed, so neither the order of the list nor other ids affect the
    ranking, and splits of a list and of a longer version of it largely agree.
    """
    _check_share(share)
    order = sorted(range(len(ids)), key=lambda index: digest("split", seed, ids[index]))
    first = set(order[: int(len(ids) * share)])
    return [index for index in range(len(ids)) if index in first], [
        index for index in range(len(ids)) if index not in first
    ]


def by_object(objects: Sequence[str], classes: Sequence[int], share: float, seed: int) -> Split:
    """Split images by object, with ``share`` of the objects of each class in training.

    Objects are ranked by their hash with the seed. Each class needs two objects and has at least one on each
    side.
    """
    _check_share(share)
    if len(objects) != len(classes):
        raise SoritesError(f"Expected one class for each of {len(objects)} images, got {len(classes)}.")
    class_of = dict(zip(objects, classes, strict=True))
    training_objects: set[str] = set()
    for class_ in sorted(set(classes)):
        ranked = sorted(
            (obj for obj, object_class in class_of.items() if object_class == class_),
            key=lambda obj: digest("thing", seed, obj),  # the word orders the split: never change it
        )
        if len(ranked) < 2:
            raise SoritesError(
                f"A split by object needs at least two objects of each class; class {class_} has "
                f"only {ranked[0]}. Use coarser classes: sorites.training.images.coarse"
            )
        training_objects.update(ranked[: min(len(ranked) - 1, max(1, math.floor(len(ranked) * share + 0.5)))])
    sides = (
        [index for index, obj in enumerate(objects) if (obj in training_objects) == side]
        for side in (True, False)
    )
    train, test = (tuple(side) for side in sides)
    return Split(train, test, objects)


def coarse(objects: Sequence[str], least: int = MIN_OBJECTS_PER_CLASS) -> Mapping[str, str]:
    """Map objects to coarse classes, the first folder of their ids.

    Classes with fewer than ``least`` objects are dropped.

    For the built-in cut-outs these are animals, food, hobbies and so on, few enough that both sides of a
    split by object show each class.
    """
    folder = {obj: obj.partition("/")[0] for obj in set(objects) if "/" in obj}
    sizes = Counter(folder.values())
    class_of = {obj: class_ for obj, class_ in sorted(folder.items()) if sizes[class_] >= least}
    if len(set(class_of.values())) < 2:
        raise SoritesError(
            f"Need at least two classes with {least} objects each, where the class is the first "
            "folder of an object's id."
        )
    return class_of


def objects_of(samples: Sequence[Sample]) -> list[str]:
    """Return the object shown by each sample.

    Samples are identified by their object, so this is the sample id.
    """
    return [sample.id for sample in samples]


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise SoritesError(f"The share of training images must be between 0 and 1, got {share}.")

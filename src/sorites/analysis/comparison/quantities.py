"""Quantities compared of two detectors under one setting: mAP, recall and precision, by class and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sorites.analysis.comparison.swaps import Counts, Draws, Plan
from sorites.metrics.detection import coco
from sorites.metrics.detection.operating import Judged, area_of, judged_at
from sorites.metrics.detection.scenes import Boxes, Floats, Ints, Scene

# The class of a cell of all classes.
EVERY = None
# Counts converted to floats at a time.
VALUES_PER_BLOCK = 1 << 24
# Draws are computed in single precision; further decimals are noise.
DECIMALS = 6

Label = int | None


@dataclass(frozen=True)
class Quantity:
    """A number of a detector: mAP, or recall or precision from a confidence on; of objects of a size.

    Recall is the share of objects that are found at IoU .5, precision the share of boxes that find one.
    """

    name: str
    conf: float = 0.0
    size: str | None = None

    @property
    def number(self) -> str:
        """The name of the mAP among COCO's numbers."""
        return "map" if self.size is None else f"map_{self.size}"


@dataclass(frozen=True)
class Paired:
    """The images of one setting, evaluated by both detectors.

    Attributes:
        base: Those of the base detector.
        new: Those of the new detector.
        samples: The number of samples of the comparison; codes of samples are below it.
    """

    base: Scene
    new: Scene
    samples: int

    def both(self) -> Scene:
        """Return all images as one scene; samples of the new detector have the codes from ``samples`` on."""
        offset = len(self.base)

        def joined(one: Boxes, two: Boxes) -> Boxes:
            moved = replace(two, image=two.image + offset)
            names = ("image", "label", "xyxy", "conf", "area", "crowd", "place")
            return Boxes(*(np.concatenate([getattr(one, name), getattr(moved, name)]) for name in names))

        return Scene(
            self.base.keys,
            np.concatenate([self.base.sample, self.new.sample + self.samples]),
            np.concatenate([self.base.start, self.new.start]),
            np.concatenate([self.base.image, self.new.image]),
            joined(self.base.found, self.new.found),
            joined(self.base.objects, self.new.objects),
            self.base.counts,
        )


@dataclass(frozen=True)
class Cell:
    """One quantity of both detectors for one class, or for all, under a setting or a shift.

    Attributes:
        draws: Its values in all draws.
        samples: The codes of the samples with an object or a counted box of it.
        objects: The number of objects.
        hits: The number of them that the base detector finds.
        settings: The number of settings that the values are averaged over.
    """

    draws: Draws
    samples: Ints
    objects: int
    hits: int
    settings: int = 1

    @property
    def worth(self) -> float | None:
        """Return the amount that one object found by the base detector adds to its value.

        None if it finds none, or if the value is a mean over settings, whose objects are lost together.
        """
        return self.draws.base / self.hits if self.hits and self.settings == 1 else None


def measure(paired: Paired, quantity: Quantity, plan: Plan, counts: Counts) -> Mapping[Label, Cell]:
    """Return the cell of all classes (EVERY) and of each class that has objects.

    Args:
        paired: The images of a setting.
        quantity: What to compute.
        plan: The draws of the comparison.
        counts: Those of ``plan``, computed once.
    """
    compute = _precisions if quantity.name == "map" else _shares
    labels, exact, drawn = compute(paired, quantity, counts)
    found = judged_at(paired.base, quantity.conf, quantity.size)
    hit_labels = found.objects.label[found.hit]
    cells = {}
    for label, values, row in zip(labels, exact, drawn, strict=True):
        draws = replace(plan.split(np.round(row, DECIMALS)), base=float(values[0]), new=float(values[1]))
        hits = len(hit_labels) if label is EVERY else int((hit_labels == label).sum())
        cells[label] = Cell(draws, *_extent(paired, quantity, label), hits)
    return cells


def _extent(paired: Paired, quantity: Quantity, label: Label) -> tuple[Ints, int]:
    """Return the samples with an object or a counted box of a cell, and the number of its objects."""
    low, high = coco.AREAS[area_of(quantity.size)]
    samples, objects = [], 0
    for scene in (paired.base, paired.new):
        counted = ~scene.objects.crowd & (scene.objects.area >= low) & (scene.objects.area <= high)
        boxes = scene.found.conf >= quantity.conf
        if label is not EVERY:
            counted &= scene.objects.label == label
            boxes &= scene.found.label == label
        samples += [scene.sample[scene.objects.image[counted]], scene.sample[scene.found.image[boxes]]]
        objects = int(counted.sum())
    return np.unique(np.concatenate(samples)), objects


Values = tuple[list[Label], Floats, NDArray[np.floating]]


def _precisions(paired: Paired, quantity: Quantity, counts: Counts) -> Values:
    """Return the mAP over classes and of each class: exact ones of both sides, and those of all draws."""
    name = quantity.number
    classes = coco.by_class(paired.both(), [name])
    labels = [matches.label for matches in classes]
    drawn = coco.resampled_values(classes, name, counts)
    exact = np.full((len(labels), 2), np.nan)
    for side, scene in enumerate((paired.base, paired.new)):
        own = coco.by_class(scene, [name])
        for matches, value in zip(own, coco.values(own, name), strict=True):
            exact[labels.index(matches.label), side] = value
    with_objects = np.isfinite(exact).all(axis=1)
    kept = [label for label, defined in zip(labels, with_objects, strict=True) if defined]
    whole = coco.over_classes(drawn[with_objects]) if kept else np.full(counts.shape[1], np.nan)
    mean = exact[with_objects].mean(axis=0) if kept else np.full(2, np.nan)
    return (
        [EVERY, *kept],
        np.concatenate([mean[None], exact[with_objects]]),
        np.concatenate([whole[None], drawn[with_objects]]),
    )


def _shares(paired: Paired, quantity: Quantity, counts: Counts) -> Values:
    """Return recall or precision over all objects and of each class."""
    both, samples = paired.both(), paired.samples
    judged = judged_at(both, quantity.conf, quantity.size)
    labels = [int(label) for label in np.unique(judged.objects.label)]
    parts = _recall(judged) if quantity.name == "recall" else _precision(judged)
    hits, total = (_sums(both, *part, labels, 2 * samples) for part in parts)
    exact = np.stack(
        [
            np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
            for side in (slice(0, samples), slice(samples, None))
            for above, below in [(hits[:, side].sum(axis=1), total[:, side].sum(axis=1))]
        ],
        axis=1,
    )
    drawn = np.full((len(labels) + 1, counts.shape[1]), np.nan, np.float64)
    above_rows, below_rows = csr_array(hits), csr_array(total)
    width = max(1, VALUES_PER_BLOCK // max(len(counts), 1))
    for start in range(0, counts.shape[1], width):
        weights = counts[:, start : start + width].astype(np.float64)
        above, below = above_rows @ weights, below_rows @ weights
        np.divide(above, below, out=drawn[:, start : start + width], where=below > 0)
    return [EVERY, *labels], exact, drawn


Part = tuple[Ints, Ints]


def _recall(judged: Judged) -> tuple[Part, Part]:
    objects, hit = judged.objects, judged.hit
    return (objects.image[hit], objects.label[hit]), (objects.image, objects.label)


def _precision(judged: Judged) -> tuple[Part, Part]:
    found, right = judged.found, judged.right
    return (found.image[right], found.label[right]), (found.image, found.label)


def _sums(scene: Scene, image: Ints, label: Ints, labels: list[int], samples: int) -> Floats:
    """Count boxes or objects by sample: a row of all classes, then one of each class."""
    sums = np.zeros((len(labels) + 1, samples))
    np.add.at(sums[0], scene.sample[image], 1)
    for row, name in enumerate(labels, start=1):
        np.add.at(sums[row], scene.sample[image[label == name]], 1)
    return sums

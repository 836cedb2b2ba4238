"""Linear heads on frozen features: how much does training on objects in uncommon settings help?

FOCUS fine-tunes heads on images of all settings and reports the gain by the number of uncommon attributes, P0
to P3 (section 4.3). This module repeats that with a split by object, and adds a control: a head trained on
all settings also sees more images, so a third head gets one image of each object in any setting, which is as
many images as the head trained on common settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import Model, Sample
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.models.cifar6 import fit_linear_head
from sorites.training.images import Split, by_object, coarse, objects_of, permuted

Arm = Literal["common", "all", "equal"]
# Training sets: common settings only, all settings, or one image of each object in any setting. "equal" has
# the same objects and the same number of images as "common".
ARMS: tuple[Arm, ...] = ("common", "all", "equal")

TRAIN_SHARE, IMAGES_PER_BATCH = 0.7, 16
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class HeadData:
    """Features of images with their object, class number, and number of uncommon attributes (level)."""

    features: NDArray[np.float32]
    objects: tuple[str, ...]
    classes: NDArray[np.int64]
    levels: NDArray[np.int64]
    names: tuple[str, ...]

    def split(self, seed: int) -> Split:
        return by_object(self.objects, self.classes.tolist(), TRAIN_SHARE, seed)


def features(samples: Sequence[Sample], model: Model) -> NDArray[np.float32]:
    """Return a model's features of images, N x D."""
    batches = (
        samples[start : start + IMAGES_PER_BATCH] for start in range(0, len(samples), IMAGES_PER_BATCH)
    )
    outputs = [model([sample.load() for sample in batch], False).features for batch in batches]
    parts = [part for part in outputs if part is not None]
    if len(parts) < len(outputs):
        raise SoritesError(
            f"{model.name} provides no features to train a head on. Use another model, such as lite0."
        )
    return np.concatenate(parts)


def head_data(
    samples: Sequence[Sample], features: NDArray[np.float32], class_of: Mapping[str, str] | None = None
) -> HeadData:
    """Combine samples of the source ``context`` with their features; objects without a class are dropped.

    Args:
        samples: Composites: the id of a sample is its object, its severity the number of uncommon attributes.
        features: Features of the samples, N x D.
        class_of: Classes by object; by default coarse ones.
    """
    classes_by_object = coarse(objects_of(samples)) if class_of is None else class_of
    indices = [index for index, sample in enumerate(samples) if sample.id in classes_by_object]
    selected = [samples[index] for index in indices]
    names = tuple(sorted(set(classes_by_object.values())))
    classes = [names.index(classes_by_object[sample.id]) for sample in selected]
    levels = [round(sample.setting.severity or 0) for sample in selected]
    return HeadData(
        features[indices], tuple(objects_of(selected)), np.array(classes), np.array(levels), names
    )


def chosen(data: HeadData, train: Sequence[int], arm: Arm, seed: int) -> Indices:
    """Return the training indices of an arm. The image of an object in the "equal" arm is chosen by hash."""
    indices: Indices = np.array(train)
    if arm == "all":
        return indices
    if arm == "common":
        common: Indices = indices[data.levels[indices] == 0]
        return common
    drawn = {
        data.objects[index]: index for index in sorted(train, key=lambda index: digest("equal", seed, index))
    }
    return np.array(sorted(drawn.values()))


def right(data: HeadData, train: Indices, test: Sequence[int]) -> NDArray[np.bool_]:
    """Fit a head on the training images and return which test images it classifies correctly."""
    weight, bias = fit_linear_head(data.features[train], data.classes[train], len(data.names))
    test_indices = np.array(test)
    verdicts: NDArray[np.bool_] = (data.features[test_indices] @ weight.T + bias).argmax(1) == data.classes[
        test_indices
    ]
    return verdicts


def accuracies(data: HeadData, seeds: Iterable[int]) -> pl.DataFrame:
    """Return the accuracy by split seed, arm and level (the number of uncommon attributes)."""
    rows = []
    for seed in seeds:
        split = data.split(seed)
        levels = data.levels[np.array(split.test)]
        for arm in ARMS:
            correct = right(data, chosen(data, split.train, arm, seed), split.test)
            for level in np.unique(levels):
                at_level = correct[levels == level]
                rows.append((seed, arm, int(level), float(at_level.mean()), len(at_level)))
    return pl.DataFrame(rows, schema=["seed", "arm", "level", "accuracy", "n"], orient="row")


def gains(accuracies: pl.DataFrame) -> pl.DataFrame:
    """Return the gain over the "common" head in points, with Student's 95 % interval over seeds."""
    from scipy.stats import t

    base = accuracies.filter(pl.col("arm") == "common").select("seed", "level", base="accuracy")
    others = accuracies.filter(pl.col("arm") != "common").join(base, on=["seed", "level"])
    points = others.with_columns(gain=100 * (pl.col("accuracy") - pl.col("base")))
    counted = points.group_by("arm", "level").agg(
        pl.col("gain").mean(), spread=pl.col("gain").std(), seeds=pl.len()
    )
    half = [
        t.ppf(0.975, n - 1) * s / n**0.5 if n > 1 else None
        for s, n in counted.select("spread", "seeds").rows()
    ]
    with_half = counted.with_columns(half=pl.Series(half, dtype=pl.Float64))
    bounded = with_half.with_columns(
        low=pl.col("gain") - pl.col("half"), high=pl.col("gain") + pl.col("half")
    )
    return bounded.select("arm", "level", "gain", "low", "high", "seeds").sort("arm", "level")


def leak(data: HeadData, seeds: Iterable[int]) -> pl.DataFrame:
    """Return the accuracy of a head by seed, for a split by object and for a split by image.

    A split by image leaks, because images of one object are on both sides; ``Split`` refuses such splits.
    Neither split is stratified by class.
    """
    rows = []
    for seed in seeds:
        split = by_object(data.objects, [0] * len(data.objects), TRAIN_SHARE, seed)
        train, test = permuted(len(data.objects), TRAIN_SHARE, seed)
        honest = right(data, np.array(split.train), split.test).mean()
        rows.append((seed, float(honest), float(right(data, np.array(train), test).mean())))
    return pl.DataFrame(rows, schema=["seed", "object", "image"], orient="row")

"""Linear heads on frozen features of objects in common and uncommon settings: what training on the
uncommon ones gives.

FOCUS fine-tunes heads on images of all settings and reports the gain by the number of uncommon
ones, P0 to P3 (section 4.3). Here the same is asked with a split by object, and with a control: a
head that sees all settings also sees more images, so a third one is trained on equally many as
the head of common settings alone, one of each object.
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
from sorites.models.cifar6 import fitted
from sorites.training.images import Split, by_object, coarse, objects_of, permuted

Arm = Literal["common", "all", "equal"]
# Heads trained on the common settings alone, on all, and on one image of each object in whatever
# setting: the last has as many images as the first, and shows the same objects.
ARMS: tuple[Arm, ...] = ("common", "all", "equal")

SHARE, BATCH = 0.7, 16
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Shown:
    """Features of images, and of each the object, its class as a number, and how many of its
    settings are uncommon.
    """

    features: NDArray[np.float32]
    objects: tuple[str, ...]
    classes: NDArray[np.int64]
    levels: NDArray[np.int64]
    names: tuple[str, ...]

    def split(self, seed: int) -> Split:
        """Return a split by object."""
        return by_object(self.objects, self.classes.tolist(), SHARE, seed)


def features(samples: Sequence[Sample], model: Model) -> NDArray[np.float32]:
    """Return the features that a model gives of images, N x D."""
    batches = (samples[start : start + BATCH] for start in range(0, len(samples), BATCH))
    found = [model([sample.load() for sample in batch], False).features for batch in batches]
    kept = [part for part in found if part is not None]
    if len(kept) < len(found):
        raise SoritesError(
            f"{model.name} gives no features, and a head is trained on them. Take another model, such as"
            " lite0."
        )
    return np.concatenate(kept)


def shown(
    samples: Sequence[Sample], found: NDArray[np.float32], class_of: Mapping[str, str] | None = None
) -> Shown:
    """Return composites with the features ``found`` of them; objects that are of none of the classes
    are left out.

    ``samples`` are those of the source ``context``: a sample's id names the object, and its severity
    counts what is uncommon. ``class_of`` maps objects to classes; by default these are the coarse
    ones.
    """
    known = coarse(objects_of(samples)) if class_of is None else class_of
    places = [place for place, sample in enumerate(samples) if sample.id in known]
    some = [samples[place] for place in places]
    names = tuple(sorted(set(known.values())))
    classes = [names.index(known[sample.id]) for sample in some]
    levels = [round(sample.setting.severity or 0) for sample in some]
    return Shown(found[places], tuple(objects_of(some)), np.array(classes), np.array(levels), names)


def chosen(data: Shown, train: Sequence[int], arm: Arm, seed: int) -> Places:
    """Return the training places of an arm; which image of an object the control has is drawn by
    the hash of its place.
    """
    places: Places = np.array(train)
    if arm == "all":
        return places
    if arm == "common":
        common: Places = places[data.levels[places] == 0]
        return common
    drawn = {
        data.objects[place]: place for place in sorted(train, key=lambda place: digest("equal", seed, place))
    }
    return np.array(sorted(drawn.values()))


def right(data: Shown, train: Places, test: Sequence[int]) -> NDArray[np.bool_]:
    """Return which of the test images a head fitted on the training ones gets right."""
    weight, bias = fitted(data.features[train], data.classes[train], len(data.names))
    there = np.array(test)
    verdicts: NDArray[np.bool_] = (data.features[there] @ weight.T + bias).argmax(1) == data.classes[there]
    return verdicts


def accuracies(data: Shown, seeds: Iterable[int]) -> pl.DataFrame:
    """Return the accuracy of each arm by seed of the split and number of uncommon settings: seed,
    arm, level, accuracy, n.
    """
    rows = []
    for seed in seeds:
        split = data.split(seed)
        levels = data.levels[np.array(split.test)]
        for arm in ARMS:
            good = right(data, chosen(data, split.train, arm, seed), split.test)
            for level in np.unique(levels):
                there = good[levels == level]
                rows.append((seed, arm, int(level), float(there.mean()), len(there)))
    return pl.DataFrame(rows, schema=["seed", "arm", "level", "accuracy", "n"], orient="row")


def gains(found: pl.DataFrame) -> pl.DataFrame:
    """Return the gain over the head of common settings by arm and level, in points, with Student's
    95 % interval over seeds.
    """
    from scipy.stats import t

    base = found.filter(pl.col("arm") == "common").select("seed", "level", base="accuracy")
    apart = found.filter(pl.col("arm") != "common").join(base, on=["seed", "level"])
    points = apart.with_columns(gain=100 * (pl.col("accuracy") - pl.col("base")))
    counted = points.group_by("arm", "level").agg(
        pl.col("gain").mean(), spread=pl.col("gain").std(), seeds=pl.len()
    )
    half = [
        t.ppf(0.975, n - 1) * s / n**0.5 if n > 1 else None
        for s, n in counted.select("spread", "seeds").rows()
    ]
    wide = counted.with_columns(half=pl.Series(half, dtype=pl.Float64))
    ends = wide.with_columns(low=pl.col("gain") - pl.col("half"), high=pl.col("gain") + pl.col("half"))
    return ends.select("arm", "level", "gain", "low", "high", "seeds").sort("arm", "level")


def leak(data: Shown, seeds: Iterable[int]) -> pl.DataFrame:
    """Return the accuracy of a head by seed for a split by object and one by image: seed, object, image.

    The second is what ``Split`` refuses: images of an object stand on both sides, and the head is
    asked what it has seen. Neither looks at classes.
    """
    rows = []
    for seed in seeds:
        split = by_object(data.objects, [0] * len(data.objects), SHARE, seed)
        train, test = permuted(len(data.objects), SHARE, seed)
        honest = right(data, np.array(split.train), split.test).mean()
        rows.append((seed, float(honest), float(right(data, np.array(train), test).mean())))
    return pl.DataFrame(rows, schema=["seed", "object", "image"], orient="row")

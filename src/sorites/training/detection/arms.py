"""Compare detectors that were trained with different augmentations: mAP and gains, paired over images.

mAP is not a mean over images, so intervals come from random halves of the samples, the same for all
detectors (see ``metrics.detection.coco.interval``). A gain is computed on each half from two trainings of one
seed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table
from sorites.metrics.detection.coco import interval
from sorites.metrics.detection.mean_ap import RESAMPLES, Estimate, averaged, combined, counts_of, numbers
from sorites.metrics.detection.scenes import Album, Scene, box_rows
from sorites.metrics.intervals import t_quantile
from sorites.metrics.rows import SETTING_KEY, with_settings_key

# The columns of a table of arms, after those it is grouped by.
COLUMNS = ("arm", "shifts", "value", "n", "seeds", "low", "high")
# An arm and a seed.
Training = tuple[str, int]
# The values of some columns that identify a group of settings.
Group = tuple[object, ...]


@dataclass(frozen=True)
class BoxResults:
    """The mAP of every training under every setting, on the images that all of them were evaluated on.

    Attributes:
        estimates: One per training and setting; keys are arm, seed, family, shift and severity.
    """

    estimates: tuple[Estimate, ...]

    def arms(self) -> list[str]:
        """Return the names of the arms in the order of their trainings."""
        return list(dict.fromkeys(str(estimate.keys["arm"]) for estimate in self.estimates))

    def precisions(self, by: Sequence[str]) -> pl.DataFrame:
        """Return the mAP of each arm by these columns: value, n samples, seeds, shifts, low, high."""
        groups = self._by_arm(by)
        rows = [
            self._row(by, group, arm, list(seeds.values()), 0.0)
            for group, arms in groups.items()
            for arm, seeds in arms.items()
        ]
        return _frame(rows, by)

    def gains(self, over: str, by: Sequence[str]) -> pl.DataFrame:
        """Return the mAP of every other arm minus that of arm ``over``, on the same images and seeds.

        Raises:
            UnknownName: There is no such arm.
        """
        if over not in self.arms():
            raise UnknownName("arm", over, self.arms(), f"Available: {', '.join(self.arms())}.")
        rows = []
        for group, arms in self._by_arm(by).items():
            base = arms.get(over, {})
            for arm, seeds in arms.items():
                pairs = [
                    combined(own, base[seed], lambda new, old: new - old)
                    for seed, own in seeds.items()
                    if seed in base
                ]
                if arm != over and pairs:
                    rows.append(self._row(by, group, arm, pairs, -1.0))
        return _frame(rows, by).with_columns(over=pl.lit(over))

    def _by_arm(self, by: Sequence[str]) -> dict[Group, dict[str, dict[int, Estimate]]]:
        """Return the mean over the settings of each group, by arm and seed."""
        groups: dict[Group, dict[str, dict[int, Estimate]]] = {}
        for mean in averaged(self.estimates, [*by, "arm", "seed"]):
            arms = groups.setdefault(tuple(mean.keys[key] for key in by), {})
            arms.setdefault(str(mean.keys["arm"]), {})[int(str(mean.keys["seed"]))] = mean
        return groups

    @functools.cached_property
    def _shifts(self) -> Mapping[tuple[object, object], list[str]]:
        """The shifts by family and severity."""
        found: dict[tuple[object, object], set[str]] = {}
        for estimate in self.estimates:
            key = estimate.keys["family"], estimate.keys["severity"]
            found.setdefault(key, set()).add(str(estimate.keys["shift"]))
        return {key: sorted(shifts) for key, shifts in found.items()}

    def _row(
        self, by: Sequence[str], group: Group, arm: str, seeds: Sequence[Estimate], least: float
    ) -> dict[str, object]:
        """Return the mean over seeds with its interval, over images and seeds."""
        value = float(np.mean([estimate.value for estimate in seeds]))
        draws = np.mean([estimate.draws for estimate in seeds], axis=0)
        samples = np.unique(np.concatenate([estimate.samples for estimate in seeds]))
        low, high = interval(draws, value, len(samples))
        if low is not None and high is not None:
            more = _half_over_seeds([estimate.value for estimate in seeds])
            low, high = value - math.hypot(value - low, more), value + math.hypot(high - value, more)
            low, high = max(low, least), min(high, 1.0)
        keys = dict(zip(by, group, strict=True))
        own = [str(keys["shift"])] if "shift" in keys else self._shifts[keys["family"], keys["severity"]]
        numbers_ = {"value": value, "n": len(samples), "seeds": len(seeds), "low": low, "high": high}
        return {**keys, "arm": arm, "shifts": own, **numbers_}


def _half_over_seeds(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of a mean over seeds by Student's t; 0 with one seed."""
    if len(values) < 2:
        return 0.0
    return t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _frame(rows: Sequence[Mapping[str, object]], by: Sequence[str]) -> pl.DataFrame:
    kinds: dict[str, pl.DataType | type[pl.DataType]] = {
        **dict.fromkeys(by, pl.String),
        "severity": pl.Float64,
        "arm": pl.String,
        "shifts": pl.List(pl.String),
        **dict.fromkeys(("value", "low", "high"), pl.Float64),
        **dict.fromkeys(("n", "seeds"), pl.Int64),
    }
    names = [*by, *COLUMNS]
    schema = {name: kinds[name] for name in names}
    return pl.DataFrame([{name: row[name] for name in names} for row in rows], schema=schema).sort(
        [*by, "arm"], nulls_last=True
    )


def box_results(table: Table, trainings: Mapping[str, Training]) -> BoxResults:
    """Compute the mAP of all trainings under all settings, and its values on halves of the samples.

    Args:
        table: The rows of one run of all detectors.
        trainings: The arm and seed of each model of the table.

    Raises:
        SoritesError: There is no setting with images that all detectors were evaluated on.
    """
    rows, _, _ = box_rows(with_settings_key(table), ("model", "family", *SETTING_KEY))
    album = Album(rows.filter(pl.col("model").is_in(list(trainings))))
    counts = counts_of(album, RESAMPLES)
    estimates = tuple(_estimates(album, counts, trainings))
    if not estimates:
        raise SoritesError(
            "No image with ground-truth boxes was evaluated with every detector. Check the run for errors,"
            " and use a suite whose source has boxes."
        )
    return BoxResults(estimates)


def _estimates(
    album: Album, counts: NDArray[np.uint8], trainings: Mapping[str, Training]
) -> Iterator[Estimate]:
    shifts = album.rows.select(pl.col("shift").unique()).collect(engine="streaming")["shift"].sort()
    for shift in shifts:
        by_setting: dict[tuple[object, ...], dict[str, Scene]] = {}
        for scene in album.scenes(("model", "family", *SETTING_KEY), pl.col("shift") == shift):
            setting = tuple(scene.keys[key] for key in SETTING_KEY)
            by_setting.setdefault(setting, {})[str(scene.keys["model"])] = scene
        for scenes in by_setting.values():
            if len(scenes) == len(trainings):
                yield from _at_setting(scenes, counts, trainings)


def _at_setting(
    scenes: Mapping[str, Scene], counts: NDArray[np.uint8], trainings: Mapping[str, Training]
) -> Iterator[Estimate]:
    """Yield the mAP of each training on the images of a setting that all trainings have."""
    shared = functools.reduce(np.intersect1d, [scene.image for scene in scenes.values()])
    for model, scene in scenes.items():
        arm, seed = trainings[model]
        (estimate,) = numbers(scene.only(np.isin(scene.image, shared)), ["map"], counts, False)
        clean = scene.keys["shift"] == CLEAN
        keys = {
            "arm": arm,
            "seed": seed,
            "shift": scene.keys["shift"],
            "family": CLEAN if clean else scene.keys["family"],
            "severity": 0.0 if clean else scene.keys["severity"],
        }
        if np.isfinite(estimate.value):
            yield replace(estimate, keys=keys)

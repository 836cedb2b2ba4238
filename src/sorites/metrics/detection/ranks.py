"""Ranks of detectors, shared where the data cannot separate them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics.comparison import RANK_RATE
from sorites.metrics.detection.coco import interval, number_named
from sorites.metrics.detection.mean_ap import BY, RESAMPLES, Estimate, answer_columns, counts_of, numbers
from sorites.metrics.detection.scenes import CLASS, Album, Ints, Scene, box_rows
from sorites.metrics.intervals import checked_resamples
from sorites.metrics.rows import answer_frame, with_clean

Group = tuple[object, ...]
# The least difference that counts, because equal sums may differ in the last digits.
LEAST = 1e-9


@dataclass(frozen=True)
class _Entry:
    """The number of a detector in one group, and the images that it was computed on."""

    estimate: Estimate
    images: Ints

    @property
    def model(self) -> object:
        return self.estimate.keys["model"]


@add_metric
def map_rank(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Rank of each detector: 1 + the number of detectors that are clearly better on the same images.

    A detector is clearly better when the interval of the paired difference of mAP is above 0. Both numbers
    are computed on the images that both were judged on and on the same random halves of the samples; the
    interval is that of ``map_drop``, corrected by Bonferroni over the pairs of detectors of a group, so that
    equal detectors share a rank in about 95 % of cases. ``map`` is the mAP of a detector on all of its
    images and ``sigma`` the standard error of it. Models are compared within the other columns of ``by``;
    ``model`` is added where it is left out. By shift and severity, every shift starts with the clean images
    at severity 0.
    """
    checked_resamples(resamples, or_none=False)
    columns = [by] if isinstance(by, str) else list(by)
    columns = columns if "model" in columns else [*columns, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(columns) else table
    rows, keys, classed = box_rows(curves, columns)
    ranking = _Ranking(Album(rows), number_named(number), keys, classed, resamples)
    records = [
        {
            **entry.estimate.keys,
            "value": 1 + behind,
            "n": entry.estimate.more["n"],
            "map": entry.estimate.value,
            "sigma": _sigma(entry.estimate),
        }
        for group in ranking.groups().values()
        for entry, behind in zip(group, ranking.behind(group), strict=True)
    ]
    order = answer_columns(columns, keys, classed)
    known = {**rows.collect_schema(), CLASS: pl.Int32()}
    counts = dict.fromkeys(("value", "n"), pl.Int64()) | dict.fromkeys(("map", "sigma"), pl.Float64())
    frame = pl.DataFrame(records, schema={**{name: known[name] for name in order}, **counts})
    return answer_frame(frame, order, "value", "n", "map", "sigma")


def _sigma(estimate: Estimate) -> float | None:
    finite = estimate.draws[np.isfinite(estimate.draws)]
    return float(np.std(finite)) if len(finite) else None


class _Ranking:
    """Compares the detectors of each group in pairs, on the images that both have."""

    def __init__(self, album: Album, number: str, keys: Sequence[str], classed: bool, resamples: int) -> None:
        self.album, self.number, self.keys, self.classed = album, number, list(keys), classed
        self.counts = counts_of(album, resamples)

    def groups(self) -> dict[Group, list[_Entry]]:
        """Return the detectors of each group."""
        found: dict[Group, list[_Entry]] = {}
        for scene in self.album.scenes(self.keys):
            for estimate in self._numbers(scene):
                if np.isfinite(estimate.value):
                    others = tuple(value for key, value in estimate.keys.items() if key != "model")
                    found.setdefault(others, []).append(_Entry(estimate, np.sort(scene.image)))
        return found

    def _numbers(self, scene: Scene) -> list[Estimate]:
        return numbers(scene, [self.number], self.counts, self.classed)

    def behind(self, group: Sequence[_Entry]) -> list[int]:
        """Return how many detectors of a group are clearly better than each."""
        found = [0] * len(group)
        level = 1 - RANK_RATE / max(len(group) * (len(group) - 1), 1)
        for one, two in combinations(range(len(group)), 2):
            ahead = self._ahead(group[one], group[two], level)
            found[one if ahead < 0 else two] += ahead != 0
        return found

    def _ahead(self, one: _Entry, two: _Entry, level: float) -> int:
        """Return 1 if the first is clearly better, -1 if the second is, else 0."""
        mine, theirs = one.estimate, two.estimate
        if not np.array_equal(one.images, two.images):
            shared = list(self._on_shared_images(one, two))
            if len(shared) < 2:
                return 0
            mine, theirs = shared
        value = mine.value - theirs.value
        low, high = interval(mine.draws - theirs.draws, value, len(mine.samples), level)
        if low is None or high is None:
            return 0
        return int(low > LEAST) - int(high < -LEAST)

    def _on_shared_images(self, one: _Entry, two: _Entry) -> Iterator[Estimate]:
        """Yield both numbers on the images that both detectors were judged on."""
        shared = np.intersect1d(one.images, two.images)
        for entry in (one, two):
            conditions = [
                pl.col(key).eq_missing(pl.lit(entry.estimate.keys[key], self.album.kinds[key]))
                for key in self.keys
            ]
            for scene in self.album.scenes(self.keys, *conditions):
                keep: NDArray[np.bool_] = np.isin(scene.image, shared)
                for estimate in self._numbers(scene.only(keep)):
                    same = estimate.keys == entry.estimate.keys
                    if same and np.isfinite(estimate.value):
                        yield estimate

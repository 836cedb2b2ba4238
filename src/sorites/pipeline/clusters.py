"""Measure how well features cluster by class at each setting: clean, the best, worst and automatic one of a camera, or a dial.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figures 11 and 12. The settings come from the
table and the features from the run folder; both are arguments here, so that a page of several runs can ask the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import CLEAN
from sorites.errors import SoritesError
from sorites.metrics._clusters import Array, distances, nearest_centroid, prepared, silhouette
from sorites.metrics._intervals import Z, wilson_interval
from sorites.metrics._rows import SHIFTED, judged_rows, select_rows
from sorites.metrics.camera_settings import AUTO, DIALS, SETTING, setting_accuracy, with_settings
from sorites.pipeline.features import Features, Vectors, features_of
from sorites.rng import digest
from sorites.table import Table, read

MOST = 1000
"""The most samples per setting; of more, a fair thousand is taken. ImageNet-ES has as many per split."""
AT_ONCE = 20_000
"""About this many feature vectors are held at a time."""
NUMBERS = ("silhouette", "nearest centroid", "from clean")
PLACE = {
    "model": pl.String, "shift": pl.String, "what": pl.String, "light": pl.String, "severity": pl.Float64,
    **dict.fromkeys(DIALS, pl.Float64),
}  # fmt: skip
SCHEMA = pl.Schema(
    {**PLACE, "number": pl.String, "value": pl.Float64, "n": pl.Int64, "low": pl.Float64, "high": pl.Float64, "classes": pl.Int64}
)


@dataclass(frozen=True)
class Place:
    """One setting for one model, and its images there: one per sample, with its label and whether it is right."""

    model: str
    shift: str
    what: str
    """``clean``, ``best``, ``worst``, ``auto``, ``manual`` (any other camera setting) or ``severity``."""
    images: pl.DataFrame = field(repr=False)
    light: str | None = None
    severity: float | None = None
    dials: tuple[float | None, ...] = (None, None, None)

    def names(self) -> dict[str, Any]:
        """Return what a row of the answer says of the place."""
        told = {"model": self.model, "shift": self.shift, "what": self.what, "light": self.light, "severity": self.severity}
        return told | dict(zip(DIALS, self.dials, strict=True))


def run_clusters(run: str | Path, distance: str = "cosine", every: bool = False) -> pl.DataFrame:
    """Return the cluster numbers of a run folder that kept features."""
    features = features_of(run)
    table = read(run)
    if features is None:
        raise SoritesError(f"{run} kept no features: type the run's command again with --keep-features")
    models = sorted(table.select(pl.col("model").unique()).collect(engine="streaming")["model"].drop_nulls())
    return pl.concat([clusters(places(table, model, every), features, distance) for model in models])


def clusters(at: Sequence[Place], features: Features, distance: str = "cosine") -> pl.DataFrame:
    """Return three numbers per place, each with ``n`` and its 95 % interval; ``classes`` counts the classes there.

    ``silhouette`` runs from -1 to 1 (jackknife interval). ``nearest centroid`` is the share of pictures nearest to the centroid
    of their class, themselves left out (Wilson). ``from clean`` is the mean distance of a picture's features from those of its
    own clean picture (normal, over samples). A number that cannot be had, as with one class, is null.
    """
    clean = next((place.images for place in at if place.what == CLEAN), None)
    rows: list[dict[str, Any]] = []
    for some in _batches(at):
        held = features(some[0].model, _images([*(place.images for place in some), *([] if clean is None else [clean])]))
        rows += [row for place in some for row in _numbers(place, clean, held, distance)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _batches(at: Sequence[Place]) -> Iterator[list[Place]]:
    some: list[Place] = []
    for place in at:
        if some and sum(held.images.height for held in some) + place.images.height > AT_ONCE:
            yield some
            some = []
        some.append(place)
    if some:
        yield some


def _images(frames: Sequence[pl.DataFrame]) -> Collection[str]:
    return {image for frame in frames for image in frame["image_id"]}


def vectors(place: Place, held: Vectors) -> tuple[pl.DataFrame, Array]:
    """Return the images of a place whose features were kept, and these as rows in the same order."""
    there = place.images.filter(pl.col("image_id").is_in(list(held)))
    rows = [held[image] for image in there["image_id"]]
    return there, np.stack(rows).astype(np.float64) if rows else np.zeros((0, 0))


def _numbers(place: Place, clean: pl.DataFrame | None, held: Vectors, distance: str) -> Iterator[dict[str, Any]]:
    there, raw = vectors(place, held)
    if not there.height:
        return
    rows, labels = prepared(raw, distance), there["label"].to_numpy()
    answers = {
        "silhouette": _silhouette(rows, labels, distance),
        "nearest centroid": _centroid(rows, labels),
        "from clean": _moved(there, rows, clean, held, distance) if place.what != CLEAN else None,
    }
    shared = {**place.names(), "classes": len(set(labels))}
    for name, (value, n, low, high) in ((name, answer) for name, answer in answers.items() if answer is not None):
        yield {**shared, "number": name, "value": value, "n": n, "low": low, "high": high}


Answer = tuple[float | None, int, float | None, float | None]


def _silhouette(rows: Array, labels: Any, distance: str) -> Answer:
    found = silhouette(distances(rows, distance), labels)
    if found is None:
        return None, len(rows), None, None
    value, error = found
    return (value, len(rows), None, None) if error is None else (value, len(rows), *_within(value, error, -1, 1))


def _within(value: float, error: float, least: float, most: float) -> tuple[float, float]:
    return max(least, value - Z * error), min(most, value + Z * error)


def _centroid(rows: Array, labels: Any) -> Answer:
    found = nearest_centroid(rows, labels)
    if found is None:
        return None, 0, None, None
    low, high = pl.DataFrame().select(**wilson_interval(pl.lit(found[0]), pl.lit(found[1]))).row(0)
    return *found, low, high


def _moved(there: pl.DataFrame, rows: Array, clean: pl.DataFrame | None, held: Vectors, distance: str) -> Answer | None:
    start = {} if clean is None else dict(clean.select("sample_id", "image_id").iter_rows())
    pairs = [(i, held[start[sample]]) for i, sample in enumerate(there["sample_id"]) if start.get(sample) in held]
    if not pairs:
        return None
    here, before = rows[[i for i, _ in pairs]], prepared(np.stack([row for _, row in pairs]), distance)
    apart = np.linalg.norm(here - before, axis=1) if distance == "euclidean" else 1 - (here * before).sum(axis=1)
    mean, n = float(apart.mean()), len(apart)
    if n < 2:
        return mean, n, None, None
    return mean, n, *_within(mean, float(apart.std(ddof=1)) / n**0.5, 0, np.inf if distance == "euclidean" else 2)


def places(table: Table, model: str, every: bool = False) -> list[Place]:
    """Return the places of a model in order: clean, then those of its camera by light, then every severity of its dials.

    Of a camera the best, the worst and the automatic setting are taken under each light, ``every`` takes the others too; the best
    is that of ``setting_table``. Of several automatic shots of a sample the first counts. Grids that are no camera have none.
    """
    wanted = judged_rows(select_rows(table.lazy().filter(pl.col("model") == model), ())[0])
    rows = wanted.drop_nulls("label").select(COLUMNS).collect(engine="streaming")
    clean = _of(rows.filter(pl.col("shift") == CLEAN))
    found = [Place(model, CLEAN, CLEAN, clean)] if clean.height else []
    found += _of_camera(with_settings(rows).collect(), model, every)
    for (shift, severity), part in (
        rows.filter(SHIFTED).sort("shift", "severity").group_by("shift", "severity", maintain_order=True)
    ):
        found.append(Place(model, str(shift), "severity", _of(part), severity=float(severity)))
    return found


def _of_camera(rows: pl.DataFrame, model: str, every: bool) -> Iterator[Place]:
    """Yield the settings of a camera, first those with the lamp on; equal ones are ordered as ``setting_table`` orders them."""
    settings = (
        setting_accuracy(rows, ["shift", *SETTING]).filter(pl.col("n") > 0).sort("shift", "light", descending=[False, True])
    )
    held = rows.partition_by("shift", *SETTING, as_dict=True)
    for (shift, light), part in settings.group_by("shift", "light", maintain_order=True):
        manual, auto = part.filter(~AUTO), part.filter(AUTO)
        ends = {
            what: manual.sort("value", *DIALS, descending=[what == "best", False, False, False]) for what in ("best", "worst")
        }
        chosen = [(what, row) for what, ordered in ends.items() for row in ordered.head(1).to_dicts()]
        chosen += [("auto", row) for row in auto.to_dicts()]
        rest = [row for row in manual.sort(DIALS).to_dicts() if row not in [row for _, row in chosen]]
        for what, row in [*chosen, *(("manual", row) for row in rest if every)]:
            images = _of(held[shift, *(row[name] for name in SETTING)])
            dials = tuple(row[name] for name in DIALS)
            yield Place(model, str(shift), what, images, None if light is None else str(light), dials=dials)


COLUMNS = (
    "run_id", "source", "sample_id", "image_id", "label", "correct", "shift", "severity", "params", "model", "output", "valid",
    "probe", "error",
)  # fmt: skip


def _of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one image per sample, at most ``MOST`` of them, sorted by sample."""
    shot = pl.col("params").str.json_path_match("$.shot").cast(pl.Int64, strict=False)
    columns = ("source", "sample_id", "image_id", "label", "correct", "run_id")
    ordered = rows.select(*columns, shot=shot).sort("source", "sample_id", "shot", "image_id")
    first = ordered.unique(["source", "sample_id"], keep="first", maintain_order=True).drop("shot")
    if first.height <= MOST:
        return first
    fair = sorted(range(first.height), key=lambda i: digest(first["sample_id"][i]))[:MOST]
    return first[sorted(fair)]

"""COCO metrics of detectors: mAP by group, its mean over settings, drops, relative errors and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.table import Table
from sorites.metrics.corruption import checked_reference, is_curve, with_reference
from sorites.metrics.detection.coco import (
    AREAS,
    NUMBERS,
    by_class,
    half_samples,
    interval,
    number_named,
    over_classes,
    resampled_means,
    resampled_values,
    values,
)
from sorites.metrics.detection.scenes import CLASS, COUNTS, Album, Ints, Scene, box_rows
from sorites.metrics.intervals import checked_resamples
from sorites.metrics.rows import (
    IMAGE_COLUMNS,
    REAL_SAMPLES,
    SETTING_KEY,
    SHIFTED,
    WHOLE,
    answer_frame,
    with_clean,
    with_settings_key,
)

RESAMPLES = 1000
Draws = NDArray[np.floating]


@dataclass(frozen=True)
class Estimate:
    """A number of one group with its values on random halves of the samples.

    Attributes:
        keys: The values of the group columns.
        value: The number.
        draws: Its value on each half.
        samples: The codes of the samples it is computed from.
        more: Further columns of the answer.
    """

    keys: Mapping[str, object]
    value: float
    draws: Draws
    samples: Ints
    more: Mapping[str, object] = field(default_factory=dict)


def counts_of(album: Album, resamples: int) -> NDArray[np.uint8]:
    """Return which samples are in each random half; empty without samples."""
    return half_samples(album.sources, checked_resamples(resamples) if album.samples else 0)


def numbers(scene: Scene, names: Sequence[str], counts: NDArray[np.uint8], classed: bool) -> list[Estimate]:
    """Return COCO's numbers of a scene, one estimate per number, or per number and class."""
    classes = by_class(scene, names)
    labels = [matches.label for matches in classes]
    estimates = []
    for name in names:
        class_values, draws = values(classes, name), resampled_values(classes, name, counts)
        estimates += by_label(
            scene, labels, class_values, draws, classed, {"number": name}, AREAS[NUMBERS[name].area]
        )
    return estimates


def by_label(
    scene: Scene,
    labels: Sequence[int],
    class_values: Draws,
    draws: Draws,
    classed: bool,
    more: Mapping[str, object],
    sizes: tuple[float, float] = AREAS[0],
) -> list[Estimate]:
    """Return one estimate per class, or one for the mean over classes.

    Args:
        scene: The images of a group.
        labels: The classes.
        class_values: The value of each class.
        draws: The values of each class and resample.
        classed: Whether to return one estimate per class.
        more: Further columns of the answer.
        sizes: The area range in px squared of the objects that are counted.
    """
    columns = {"n": len(scene), **scene.counts, **more}
    area = scene.objects.area
    objects = scene.objects.label[~scene.objects.crowd & (area >= sizes[0]) & (area <= sizes[1])]
    samples = np.unique(scene.sample)
    if not classed:
        mean = float(over_classes(class_values)) if len(class_values) else float("nan")
        return [
            Estimate(scene.keys, mean, resampled_means(draws), samples, {"objects": len(objects), **columns})
        ]
    each = zip(labels, class_values, draws, strict=True)
    return [
        Estimate(
            {**scene.keys, CLASS: label},
            float(value),
            class_draws,
            samples,
            {"objects": int((objects == label).sum()), **columns},
        )
        for label, value, class_draws in each
    ]


def averaged(estimates: Iterable[Estimate], by: Sequence[str], *extra: str) -> list[Estimate]:
    """Return means over the settings of each shift, then over shifts, of the estimates that agree in
    ``by``.

    Args:
        estimates: The estimates; those without a value are left out.
        by: The group columns.
        extra: Columns among ``more`` that are averaged too.
    """
    finite = [estimate for estimate in estimates if np.isfinite(estimate.value)]
    per_shift = _average(finite, [*dict.fromkeys([*by, "shift"])], extra)
    return _average(per_shift, by, extra)


def _average(estimates: Iterable[Estimate], by: Sequence[str], extra: Sequence[str]) -> list[Estimate]:
    groups: dict[tuple[object, ...], list[Estimate]] = {}
    for estimate in estimates:
        groups.setdefault(tuple(estimate.keys[key] for key in by), []).append(estimate)
    means = []
    for group in groups.values():
        more = {name: float(np.mean([estimate.more[name] for estimate in group])) for name in extra}
        keys = group[0].keys
        samples = np.unique(np.concatenate([estimate.samples for estimate in group]))
        value, draws = (
            float(np.mean([estimate.value for estimate in group])),
            np.mean([estimate.draws for estimate in group], axis=0),
        )
        means.append(Estimate(keys, value, draws, samples, {**more, "n": len(samples)}))
    return means


def combined(
    first: Estimate, second: Estimate, function: Callable[[Any, Any], Any], **more: object
) -> Estimate:
    """Return an estimate computed from two that share their resamples."""
    value = float(function(first.value, second.value))
    return Estimate(
        first.keys, value, function(first.draws, second.draws), first.samples, {**first.more, **more}
    )


def answer(
    estimates: Iterable[Estimate],
    album: Album,
    keys: Sequence[str],
    *columns: str,
    then: str | None = None,
    least: float = 0.0,
) -> pl.DataFrame:
    """Return estimates as a frame: by, ``then``, value, n, low, high and further columns.

    Args:
        estimates: The estimates.
        album: The rows they were computed from.
        keys: The group columns.
        columns: Further columns.
        then: A further column that identifies a row; its values keep their order.
        least: The lower limit of intervals; the upper limit is 1, or none if this is minus
            infinity.
    """
    upper_limit = 1.0 if np.isfinite(least) else np.inf
    rows: list[dict[str, object]] = []
    for estimate in estimates:
        low, high = interval(estimate.draws, estimate.value, len(estimate.samples))
        bounds = {
            "low": None if low is None else max(low, least),
            "high": None if high is None else min(high, upper_limit),
        }
        rows.append(
            {
                **estimate.keys,
                **estimate.more,
                **bounds,
                "value": estimate.value if np.isfinite(estimate.value) else None,
            }
        )
    names = [*keys, *([then] if then else ()), "value", "n", "low", "high", *columns]
    integers = dict.fromkeys(("n", "objects", *COUNTS), pl.Int64)
    kinds: dict[str, Any] = {
        **album.kinds,
        **integers,
        CLASS: pl.Int32,
        **({then: pl.String} if then else {}),
    }
    schema: dict[str, Any] = {name: kinds.get(name, pl.Float64) for name in names}
    frame = pl.DataFrame([{name: row.get(name) for name in names} for row in rows], schema=schema)
    if then is None:
        return answer_frame(frame, keys, *names[len(keys) :])
    return frame.sort(keys, maintain_order=True).drop(WHOLE, strict=False)


BY = ("model", "shift", "severity")


@add_metric
def map(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean average precision of detectors (COCO's mAP, or another of its twelve numbers); interval
    from halves of the samples.

    ``number`` is map, map50, map75, map_small, map_medium, map_large, ar1, ar10, ar100, ar_small,
    ar_medium or ar_large. ``n`` counts images and ``objects`` the ground-truth boxes without crowds.
    ``missing`` counts rows with an error, ``unknown`` rows without ground truth, ``left_out``
    ground-truth boxes with non-finite coordinates or without area.
    """
    estimates, album, keys = _estimates(table, by, [number_named(number)], resamples)
    return answer(estimates, album, keys, "objects", *COUNTS)


@add_metric
def map_numbers(table: Table, by: Sequence[str] = BY, resamples: int = RESAMPLES) -> pl.DataFrame:
    """COCO's twelve numbers of detectors, one row each in their usual order; interval from halves of
    the samples.

    A number without objects of its size is null; ``objects`` counts those of its size.
    """
    estimates, album, keys = _estimates(table, by, list(NUMBERS), resamples)
    return answer(estimates, album, keys, "objects", *COUNTS, then="number")


@add_metric
def mean_map(
    table: Table, by: Sequence[str] = ("model",), number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean of mAP over the settings of each shift, then over shifts, without clean images; interval
    from halves of the samples.

    ``n`` counts samples. This is the mean over all settings that benchmark papers report.
    """
    names = [number_named(number)]

    def at_setting(scene: Scene, counts: NDArray[np.uint8], classed: bool) -> list[Estimate]:
        return numbers(scene, names, counts, classed)

    means, album, columns = mean_over_settings(table, by, resamples, at_setting)
    return answer(means, album, columns)


@add_metric
def mean_map_numbers(
    table: Table, by: Sequence[str] = ("model",), resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean of COCO's twelve numbers over settings, then over shifts, as in ``mean_map``; one row per
    number.

    Settings without objects of a size are left out of its mean.
    """

    def at_setting(scene: Scene, counts: NDArray[np.uint8], classed: bool) -> list[Estimate]:
        return numbers(scene, list(NUMBERS), counts, classed)

    means, album, columns = mean_over_settings(table, by, resamples, at_setting, "number")
    return answer(means, album, columns, then="number")


AtSetting = Callable[[Scene, NDArray[np.uint8], bool], list[Estimate]]


def mean_over_settings(
    table: Table, by: Sequence[str], resamples: int, at_setting: AtSetting, name: str | None = None
) -> tuple[list[Estimate], Album, list[str]]:
    """Return means over the settings of each shift, then over shifts, without clean images.

    Args:
        table: The table.
        by: The group columns.
        resamples: The number of random halves.
        at_setting: Returns the estimates of the images of one setting.
        name: The column among ``more`` that tells several estimates of a setting apart.

    Returns:
        The means, the rows they were computed from, and the columns of an answer.
    """
    rows, keys, classed = box_rows(with_settings_key(table), by)
    album = Album(rows.filter(pl.col("shift") != CLEAN))
    counts = counts_of(album, resamples)
    cells = [*dict.fromkeys([*keys, *SETTING_KEY])]
    estimates = [
        _with_key(estimate, name)
        for scene in album.scenes(cells)
        for estimate in at_setting(scene, counts, classed)
    ]
    columns = answer_columns(by, keys, classed)
    return averaged(estimates, [*columns, *([name] if name else ())]), album, columns


def _with_key(estimate: Estimate, name: str | None) -> Estimate:
    """Return an estimate with one of its further columns as a group column."""
    if name is None:
        return estimate
    return replace(estimate, keys={**estimate.keys, name: estimate.more[name]})


@add_metric
def dial_map(
    table: Table, by: Sequence[str] = ("model",), number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean of mAP over all severities of a shift including 0, then over shifts as in ``mean_map``."""
    return mean_map(with_clean(table).filter(REAL_SAMPLES), by, number, resamples)


def _estimates(
    table: Table, by: Sequence[str], names: list[str], resamples: int
) -> tuple[list[Estimate], Album, list[str]]:
    rows, keys, classed = box_rows(table, by)
    album = Album(rows)
    counts = counts_of(album, resamples)
    estimates = [
        estimate for scene in album.scenes(keys) for estimate in numbers(scene, names, counts, classed)
    ]
    return estimates, album, answer_columns(by, keys, classed)


def answer_columns(by: Sequence[str], keys: Sequence[str], classed: bool) -> list[str]:
    """Return the columns of an answer in the order of ``by``."""
    columns = [by] if isinstance(by, str) else [*dict.fromkeys(by)]
    return columns if set(keys) <= set(columns) else [*keys, *columns]


Counts = NDArray[np.uint8]


class _SceneNumbers:
    """Numbers of scenes and of subsets of their images, with a small cache, because one clean scene is
    compared with many.
    """

    def __init__(self, album: Album, number: str, counts: Counts, classed: bool) -> None:
        self.album, self.number, self.counts, self.classed = album, number_named(number), counts, classed
        self._cache: dict[tuple[object, ...], list[Estimate]] = {}
        self._starts: dict[object, Scene | None] = {}

    def __call__(self, scene: Scene, keep: NDArray[np.bool_], name: object) -> dict[object, Estimate]:
        """Return the estimates of a subset of a scene's images by class; ``name`` identifies the scene in
        the cache.
        """
        key = (name, keep.tobytes())
        if key not in self._cache:
            if len(self._cache) > 16:
                self._cache.clear()
            self._cache[key] = numbers(scene.only(keep), [self.number], self.counts, self.classed)
        return {estimate.keys.get("class"): estimate for estimate in self._cache[key]}

    def clean(self, model: object) -> Scene | None:
        """Return the clean images of a model, or of all models if it is None."""
        if model not in self._starts:
            self._starts = {}
            conditions = [pl.col("model") == pl.lit(model, pl.String)] if model is not None else []
            self._starts[model] = next(
                self.album.scenes(["output"], pl.col("shift") == CLEAN, *conditions), None
            )
        return self._starts[model]

    def with_start(self, scene: Scene) -> Iterator[tuple[Estimate, Estimate]]:
        """Yield the estimates of a shifted scene and of its clean images, on the samples that have both."""
        model = scene.keys.get("model")
        clean = self.clean(model)
        if clean is None:
            return
        keep_shifted, keep_clean = np.isin(scene.start, clean.start), np.isin(clean.start, scene.start)
        starts = self(clean, keep_clean, ("clean", model))
        for label, estimate in self(scene, keep_shifted, tuple(scene.keys.values())).items():
            if label in starts:
                yield estimate, starts[label]


@add_metric
def map_drop(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Clean mAP minus shifted mAP on the same samples; ``clean`` and ``shifted`` contain the two;
    interval from halves of the samples.

    It is averaged over the settings of each shift, then over shifts. ``n`` counts samples.
    """
    rows, keys, classed = box_rows(with_settings_key(table), by)
    album = Album(rows)
    scene_numbers = _SceneNumbers(album, number, counts_of(album, resamples), classed)
    cells = [*dict.fromkeys([*keys, *SETTING_KEY])]
    estimates = [
        combined(start, estimate, np.subtract, clean=start.value, shifted=estimate.value)
        for scene in album.scenes(cells, pl.col("shift") != CLEAN)
        for estimate, start in _with_shifted_keys(scene_numbers.with_start(scene))
    ]
    columns = answer_columns(by, keys, classed)
    return answer(
        averaged(estimates, columns, "clean", "shifted"), album, columns, "clean", "shifted", least=-1.0
    )


def _with_shifted_keys(pairs: Iterator[tuple[Estimate, Estimate]]) -> Iterator[tuple[Estimate, Estimate]]:
    """Give both estimates the keys of the shifted one."""
    for estimate, start in pairs:
        yield (
            estimate,
            Estimate({**start.keys, **estimate.keys}, start.value, start.draws, estimate.samples, start.more),
        )


@add_metric
def map_corruption_error(
    table: Table,
    by: Sequence[str] = ("model", "shift"),
    reference: str | None = None,
    relative: bool = False,
    number: str = "map",
    resamples: int = RESAMPLES,
) -> pl.DataFrame:
    """Error 1 - mAP summed over severities, divided by that of the named ``reference`` on the same images;
    interval from halves of the samples.

    Without shift in ``by`` it is the mean over shifts (mCE). ``relative`` sums the increase over the
    clean error instead. A ``reference`` that ends in .csv is a file of errors, as for
    ``corruption_error``. The value is null where the reference makes no errors.
    """
    rows, keys, classed = box_rows(table, by, IMAGE_COLUMNS)
    checked_reference(rows, keys, by, reference)
    album = Album(rows)
    scene_numbers = _SceneNumbers(album, number, counts_of(album, resamples), classed)
    cells = [*dict.fromkeys([*keys, "shift", "severity", "level"])]
    columns = answer_columns(by, keys, classed)
    shifted = SHIFTED & (pl.col("severity") > 0)
    pairs: list[tuple[Estimate, Estimate]] = []
    for shift in (
        rows.filter(shifted).select(pl.col("shift").unique().sort()).collect(engine="streaming")["shift"]
    ):
        pairs += _pairs(scene_numbers, cells, shifted & (pl.col("shift") == shift), reference, relative)
    sums = _sum_pairs(pairs, [*dict.fromkeys([*columns, "shift"])])
    return answer(
        averaged([combined(mine, theirs, _ratio) for mine, theirs in sums], columns),
        album,
        columns,
        least=-np.inf,
    )


def _ratio(mine: NDArray[np.floating], theirs: NDArray[np.floating]) -> NDArray[np.floating]:
    safe = np.where(np.abs(theirs) > 1e-12, theirs, np.nan)
    return np.asarray(mine / safe)


def _pairs(
    scene_numbers: _SceneNumbers, cells: Sequence[str], where: pl.Expr, reference: str | None, relative: bool
) -> list[tuple[Estimate, Estimate]]:
    """Return the errors of each model and of the reference at the severities of one shift."""
    scenes = scene_numbers.album.scenes(cells, where)
    if is_curve(reference):
        return [
            errors
            for scene in scenes
            for errors in _against_curve(scene_numbers, scene, str(reference), relative)
        ]
    of_reference = pl.col("model") == pl.lit(reference, pl.String)
    theirs = {_but_model(scene): scene for scene in scene_numbers.album.scenes(cells, where, of_reference)}
    pairs = []
    for scene in scenes:
        other = theirs.get(_but_model(scene))
        if other is None:
            continue
        mine = _errors(scene_numbers, scene, np.isin(scene.image, other.image), relative)
        ours = _errors(scene_numbers, other, np.isin(other.image, scene.image), relative)
        pairs += [(estimate, ours[label]) for label, estimate in mine.items() if label in ours]
    return pairs


def _but_model(scene: Scene) -> tuple[object, ...]:
    return tuple(value for key, value in scene.keys.items() if key != "model")


def _errors(
    scene_numbers: _SceneNumbers, scene: Scene, keep: NDArray[np.bool_], relative: bool
) -> dict[object, Estimate]:
    """Return 1 - mAP of a subset of images by class, or its increase over that of their clean images."""
    if relative:
        pairs = scene_numbers.with_start(scene.only(keep))
        return {
            estimate.keys.get("class"): combined(estimate, start, lambda shifted, clean: clean - shifted)
            for estimate, start in pairs
        }
    estimates = scene_numbers(scene, keep, tuple(scene.keys.values()))
    return {
        label: combined(estimate, estimate, lambda shifted, _: 1 - shifted)
        for label, estimate in estimates.items()
    }


def _against_curve(
    scene_numbers: _SceneNumbers, scene: Scene, path: str, relative: bool
) -> Iterator[tuple[Estimate, Estimate]]:
    setting = pl.DataFrame(
        {key: [scene.keys[key]] for key in ("shift", "severity", "level")},
        schema_overrides={"level": pl.Int32},
    )
    theirs = with_reference(setting.lazy(), path, relative).collect()["theirs"].item()
    for estimate in _errors(scene_numbers, scene, np.ones(len(scene), bool), relative).values():
        yield (
            estimate,
            Estimate(estimate.keys, theirs, np.full(estimate.draws.shape, theirs), estimate.samples),
        )


def _sum_pairs(
    pairs: Sequence[tuple[Estimate, Estimate]], by: Sequence[str]
) -> list[tuple[Estimate, Estimate]]:
    groups: dict[tuple[object, ...], list[tuple[Estimate, Estimate]]] = {}
    for pair in pairs:
        groups.setdefault(tuple(pair[0].keys[key] for key in by), []).append(pair)
    return [
        (_sum([mine for mine, _ in group]), _sum([theirs for _, theirs in group]))
        for group in groups.values()
    ]


def _sum(estimates: Sequence[Estimate]) -> Estimate:
    samples = np.unique(np.concatenate([estimate.samples for estimate in estimates]))
    draws = np.sum([estimate.draws for estimate in estimates], axis=0)
    return Estimate(
        estimates[0].keys, float(np.sum([estimate.value for estimate in estimates])), draws, samples
    )

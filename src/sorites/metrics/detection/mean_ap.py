"""Numbers of scenes with their resamples, averaged and laid out as answers of box metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    drawn,
    interval,
    number_named,
    over_classes,
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
class Line:
    """A number of one group, its value in each resample, and what it was made of."""

    keys: Mapping[str, object]
    value: float
    draws: Draws
    samples: Ints
    more: Mapping[str, object] = field(default_factory=dict)


def counts_of(album: Album, resamples: int) -> NDArray[np.uint8]:
    """Return how often each sample stands in each resample; none where there are no samples to draw from."""
    return drawn(album.samples, checked_resamples(resamples) if album.samples else 0)


def numbers(scene: Scene, names: Sequence[str], counts: NDArray[np.uint8], classed: bool) -> list[Line]:
    """Return COCO's numbers of a scene, one line for each, or one for each class too."""
    classes = by_class(scene, names)
    labels = [one.label for one in classes]
    lines = []
    for name in names:
        found, draws = values(classes, name), resampled_values(classes, name, counts)
        lines += by_label(scene, labels, found, draws, classed, {"number": name}, AREAS[NUMBERS[name].area])
    return lines


def by_label(
    scene: Scene,
    labels: Sequence[int],
    found: Draws,
    draws: Draws,
    classed: bool,
    more: Mapping[str, object],
    sizes: tuple[float, float] = AREAS[0],
) -> list[Line]:
    """Return one line for each class, or one for the mean over classes; it counts the objects of
    these ``sizes`` in px squared.
    """
    told = {"n": len(scene), **scene.counts, **more}
    area = scene.objects.area
    objects = scene.objects.label[~scene.objects.crowd & (area >= sizes[0]) & (area <= sizes[1])]
    samples = np.unique(scene.sample)
    if not classed:
        mean = float(over_classes(found)) if len(found) else float("nan")
        return [Line(scene.keys, mean, over_classes(draws), samples, {"objects": len(objects), **told})]
    each = zip(labels, found, draws, strict=True)
    return [
        Line(
            {**scene.keys, CLASS: label},
            float(one),
            many,
            samples,
            {"objects": int((objects == label).sum()), **told},
        )
        for label, one, many in each
    ]


def averaged(lines: Iterable[Line], by: Sequence[str], *extra: str) -> list[Line]:
    """Return the means over the settings of each shift, then over shifts, of the lines that agree in ``by``.

    ``extra`` are numbers among ``more`` that are averaged too. A line without a value is left out.
    """
    sound = [line for line in lines if np.isfinite(line.value)]
    per_shift = _merged(sound, [*dict.fromkeys([*by, "shift"])], extra)
    return _merged(per_shift, by, extra)


def _merged(lines: Iterable[Line], by: Sequence[str], extra: Sequence[str]) -> list[Line]:
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line.keys[key] for key in by), []).append(line)
    made = []
    for group in groups.values():
        more = {name: float(np.mean([line.more[name] for line in group])) for name in extra}
        keys = group[0].keys
        samples = np.unique(np.concatenate([line.samples for line in group]))
        value, draws = (
            float(np.mean([line.value for line in group])),
            np.mean([line.draws for line in group], axis=0),
        )
        made.append(Line(keys, value, draws, samples, {**more, "n": len(samples)}))
    return made


def combined(one: Line, other: Line, how: Callable[[Any, Any], Any], **more: object) -> Line:
    """Return a number made of two that share their resamples."""
    value = float(how(one.value, other.value))
    return Line(one.keys, value, how(one.draws, other.draws), one.samples, {**one.more, **more})


def answer(
    lines: Iterable[Line],
    album: Album,
    keys: Sequence[str],
    *columns: str,
    then: str | None = None,
    least: float = 0.0,
) -> pl.DataFrame:
    """Lay lines out as by + ``then`` + value, n, low, high and further columns; ``then`` keeps the
    order in which it came.

    Intervals end at ``least`` and at 1, or nowhere where ``least`` is minus infinity.
    """
    most = 1.0 if np.isfinite(least) else np.inf
    rows: list[dict[str, object]] = []
    for line in lines:
        low, high = interval(line.draws, line.value)
        told = {
            "low": None if low is None else max(low, least),
            "high": None if high is None else min(high, most),
        }
        rows.append(
            {**line.keys, **line.more, **told, "value": line.value if np.isfinite(line.value) else None}
        )
    wanted = [*keys, *([then] if then else ()), "value", "n", "low", "high", *columns]
    whole = dict.fromkeys(("n", "objects", *COUNTS), pl.Int64)
    kinds: dict[str, Any] = {**album.kinds, **whole, CLASS: pl.Int32, **({then: pl.String} if then else {})}
    schema: dict[str, Any] = {name: kinds.get(name, pl.Float64) for name in wanted}
    frame = pl.DataFrame([{name: row.get(name) for name in wanted} for row in rows], schema=schema)
    if then is None:
        return answer_frame(frame, keys, *wanted[len(keys) :])
    return frame.sort(keys, maintain_order=True).drop(WHOLE, strict=False)


# Measure how well detectors find objects: COCO's numbers of each group, and their mean over a shift's
# settings.


BY = ("model", "shift", "severity")


@add_metric
def map(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean average precision of detectors (COCO's mAP, or another of its twelve numbers); bootstrap
    interval over samples.

    ``number`` is map, map50, map75, map_small, map_medium, map_large, ar1, ar10, ar100, ar_small,
    ar_medium or ar_large. ``n`` counts images and ``objects`` the ground-truth boxes that are no crowds.
    ``missing`` counts rows that have an error, ``unknown`` those whose ground-truth boxes are not known,
    ``left_out`` ground-truth boxes without finite numbers or without a size.
    """
    lines, album, keys = _all_lines(table, by, [number_named(number)], resamples)
    return answer(lines, album, keys, "objects", *COUNTS)


@add_metric
def map_numbers(table: Table, by: Sequence[str] = BY, resamples: int = RESAMPLES) -> pl.DataFrame:
    """COCO's twelve numbers of detectors, a row each, in their usual order; bootstrap interval over samples.

    A number without objects of its size is null; ``objects`` counts those of its size.
    """
    lines, album, keys = _all_lines(table, by, list(NUMBERS), resamples)
    return answer(lines, album, keys, "objects", *COUNTS, then="number")


@add_metric
def mean_map(
    table: Table, by: Sequence[str] = ("model",), number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean of mAP over the settings of each shift, then over shifts, without clean images;
    bootstrap interval over samples.

    ``n`` counts samples. The mean over all settings of a benchmark is what its papers print.
    """
    rows, keys, classed = box_rows(with_settings_key(table), by)
    album = Album(rows.filter(pl.col("shift") != CLEAN))
    counts = counts_of(album, resamples)
    cells = [*dict.fromkeys([*keys, *SETTING_KEY])]
    lines = [
        line
        for scene in album.scenes(cells)
        for line in numbers(scene, [number_named(number)], counts, classed)
    ]
    wanted = asked(by, keys, classed)
    return answer(averaged(lines, wanted), album, wanted)


@add_metric
def dial_map(
    table: Table, by: Sequence[str] = ("model",), number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Mean of mAP over all severities of a shift, 0 included, then over shifts like ``mean_map``."""
    return mean_map(with_clean(table).filter(REAL_SAMPLES), by, number, resamples)


def _all_lines(
    table: Table, by: Sequence[str], names: list[str], resamples: int
) -> tuple[list[Line], Album, list[str]]:
    rows, keys, classed = box_rows(table, by)
    album = Album(rows)
    counts = counts_of(album, resamples)
    lines = [line for scene in album.scenes(keys) for line in numbers(scene, names, counts, classed)]
    return lines, album, asked(by, keys, classed)


def asked(by: Sequence[str], keys: Sequence[str], classed: bool) -> list[str]:
    """Return the columns of an answer in the order in which they were asked for."""
    wanted = [by] if isinstance(by, str) else [*dict.fromkeys(by)]
    return wanted if set(keys) <= set(wanted) else [*keys, *wanted]


# Measure what a shift takes from detectors: drops of mAP, errors relative to a reference, and ranks.


Counts = NDArray[np.uint8]


class _Judge:
    """Numbers of scenes and of their parts; the last few are kept, since one clean scene is
    compared with many.
    """

    def __init__(self, album: Album, number: str, counts: Counts, classed: bool) -> None:
        self.album, self.number, self.counts, self.classed = album, number_named(number), counts, classed
        self._kept: dict[tuple[object, ...], list[Line]] = {}
        self._starts: dict[object, Scene | None] = {}

    def __call__(self, scene: Scene, keep: NDArray[np.bool_], name: object) -> dict[object, Line]:
        """Return the lines of some images of a scene by class; scenes of one ``name`` are one scene."""
        key = (name, keep.tobytes())
        if key not in self._kept:
            if len(self._kept) > 16:
                self._kept.clear()
            self._kept[key] = numbers(scene.only(keep), [self.number], self.counts, self.classed)
        return {line.keys.get("class"): line for line in self._kept[key]}

    def clean(self, model: object) -> Scene | None:
        """Return the clean images of a model, or of all where no model is named."""
        if model not in self._starts:
            self._starts = {}
            named = [pl.col("model") == pl.lit(model, pl.String)] if model is not None else []
            self._starts[model] = next(self.album.scenes(["output"], pl.col("shift") == CLEAN, *named), None)
        return self._starts[model]

    def with_start(self, scene: Scene) -> Iterator[tuple[Line, Line]]:
        """Yield the lines of a shifted scene and of its clean images, on the samples that have both."""
        model = scene.keys.get("model")
        clean = self.clean(model)
        if clean is None:
            return
        here, there = np.isin(scene.start, clean.start), np.isin(clean.start, scene.start)
        starts = self(clean, there, ("clean", model))
        for label, line in self(scene, here, tuple(scene.keys.values())).items():
            if label in starts:
                yield line, starts[label]


@add_metric
def map_drop(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Clean mAP minus shifted mAP on the same samples; ``clean`` and ``shifted`` hold the two;
    paired bootstrap over samples.

    It is averaged over the settings of each shift, then over shifts. ``n`` counts samples.
    """
    rows, keys, classed = box_rows(with_settings_key(table), by)
    album = Album(rows)
    judge = _Judge(album, number, counts_of(album, resamples), classed)
    cells = [*dict.fromkeys([*keys, *SETTING_KEY])]
    lines = [
        combined(start, line, np.subtract, clean=start.value, shifted=line.value)
        for scene in album.scenes(cells, pl.col("shift") != CLEAN)
        for line, start in _keyed(judge.with_start(scene))
    ]
    wanted = asked(by, keys, classed)
    return answer(averaged(lines, wanted, "clean", "shifted"), album, wanted, "clean", "shifted", least=-1.0)


def _keyed(pairs: Iterator[tuple[Line, Line]]) -> Iterator[tuple[Line, Line]]:
    """Give both lines the keys of the shifted one."""
    for line, start in pairs:
        yield line, Line({**start.keys, **line.keys}, start.value, start.draws, line.samples, start.more)


@add_metric
def map_corruption_error(
    table: Table,
    by: Sequence[str] = ("model", "shift"),
    reference: str | None = None,
    relative: bool = False,
    number: str = "map",
    resamples: int = RESAMPLES,
) -> pl.DataFrame:
    """Error 1 - mAP summed over severities, divided by that of the named ``reference`` on the same
    images; paired bootstrap.

    Without shift in ``by`` it is the mean over shifts (mCE). ``relative`` sums the rise over the
    clean error instead. A ``reference`` that ends in .csv is a file of errors, as for
    ``corruption_error``. The value is null where the reference makes no error.
    """
    rows, keys, classed = box_rows(table, by, IMAGE_COLUMNS)
    checked_reference(rows, keys, by, reference)
    album = Album(rows)
    judge = _Judge(album, number, counts_of(album, resamples), classed)
    cells = [*dict.fromkeys([*keys, "shift", "severity", "level"])]
    wanted = asked(by, keys, classed)
    along = SHIFTED & (pl.col("severity") > 0)
    pairs: list[tuple[Line, Line]] = []
    for shift in (
        rows.filter(along).select(pl.col("shift").unique().sort()).collect(engine="streaming")["shift"]
    ):
        pairs += _pairs(judge, cells, along & (pl.col("shift") == shift), reference, relative)
    sums = _summed(pairs, [*dict.fromkeys([*wanted, "shift"])])
    return answer(
        averaged([combined(mine, theirs, _ratio) for mine, theirs in sums], wanted),
        album,
        wanted,
        least=-np.inf,
    )


def _ratio(mine: NDArray[np.floating], theirs: NDArray[np.floating]) -> NDArray[np.floating]:
    safe = np.where(np.abs(theirs) > 1e-12, theirs, np.nan)
    return np.asarray(mine / safe)


def _pairs(
    judge: _Judge, cells: Sequence[str], where: pl.Expr, reference: str | None, relative: bool
) -> list[tuple[Line, Line]]:
    """Return the errors of each model and those of the reference at the severities of one shift."""
    scenes = judge.album.scenes(cells, where)
    if is_curve(reference):
        return [pair for scene in scenes for pair in _against_curve(judge, scene, str(reference), relative)]
    of_reference = pl.col("model") == pl.lit(reference, pl.String)
    theirs = {_but_model(scene): scene for scene in judge.album.scenes(cells, where, of_reference)}
    found = []
    for scene in scenes:
        other = theirs.get(_but_model(scene))
        if other is None:
            continue
        mine = _errors(judge, scene, np.isin(scene.image, other.image), relative)
        ours = _errors(judge, other, np.isin(other.image, scene.image), relative)
        found += [(line, ours[label]) for label, line in mine.items() if label in ours]
    return found


def _but_model(scene: Scene) -> tuple[object, ...]:
    return tuple(value for key, value in scene.keys.items() if key != "model")


def _errors(judge: _Judge, scene: Scene, keep: NDArray[np.bool_], relative: bool) -> dict[object, Line]:
    """Return 1 - mAP of some images by class, or its rise over that of their clean images,
    which is the drop.
    """
    if relative:
        pairs = judge.with_start(scene.only(keep))
        return {
            line.keys.get("class"): combined(line, start, lambda one, clean: clean - one)
            for line, start in pairs
        }
    lines = judge(scene, keep, tuple(scene.keys.values()))
    return {label: combined(line, line, lambda one, _: 1 - one) for label, line in lines.items()}


def _against_curve(judge: _Judge, scene: Scene, path: str, relative: bool) -> Iterator[tuple[Line, Line]]:
    place = pl.DataFrame(
        {key: [scene.keys[key]] for key in ("shift", "severity", "level")},
        schema_overrides={"level": pl.Int32},
    )
    theirs = with_reference(place.lazy(), path, relative).collect()["theirs"].item()
    for line in _errors(judge, scene, np.ones(len(scene), bool), relative).values():
        yield line, Line(line.keys, theirs, np.full(line.draws.shape, theirs), line.samples)


def _summed(pairs: Sequence[tuple[Line, Line]], by: Sequence[str]) -> list[tuple[Line, Line]]:
    groups: dict[tuple[object, ...], list[tuple[Line, Line]]] = {}
    for pair in pairs:
        groups.setdefault(tuple(pair[0].keys[key] for key in by), []).append(pair)
    return [
        (_total([one for one, _ in group]), _total([two for _, two in group])) for group in groups.values()
    ]


def _total(lines: Sequence[Line]) -> Line:
    samples = np.unique(np.concatenate([line.samples for line in lines]))
    draws = np.sum([line.draws for line in lines], axis=0)
    return Line(lines[0].keys, float(np.sum([line.value for line in lines])), draws, samples)


@add_metric
def map_rank(
    table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES
) -> pl.DataFrame:
    """Rank of each detector: 1 + the number of those whose mAP is better beyond one standard error
    on either side.

    ``sigma`` is the standard deviation over resamples; overlapping detectors share a rank. Models
    are compared within the other columns of ``by``; by shift and severity, every shift starts with
    the clean images at severity 0.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    wanted = wanted if "model" in wanted else [*wanted, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(wanted) else table
    rows, keys, classed = box_rows(curves, wanted)
    album = Album(rows)
    counts = counts_of(album, resamples)
    lines = [
        line
        for scene in album.scenes(keys)
        for line in numbers(scene, [number_named(number)], counts, classed)
    ]
    sound = [line for line in lines if np.isfinite(line.value)]
    placed = (
        answer([_with_sigma(line) for line in sound], album, wanted, "sigma")
        .rename({"value": "map"})
        .with_row_index("me")
    )
    field = [key for key in wanted if key != "model"]
    rivals = placed.select(*field, rival_low=pl.col("map") - pl.col("sigma"))
    met = placed.join(rivals, on=field, nulls_equal=True) if field else placed.join(rivals, how="cross")
    better = (pl.col("rival_low") > pl.col("map") + pl.col("sigma")).sum().cast(pl.Int64)
    places = placed.join(met.group_by("me").agg(value=1 + better), on="me")
    return answer_frame(places, wanted, "value", "n", "map", "sigma")


def _with_sigma(line: Line) -> Line:
    known = line.draws[np.isfinite(line.draws)]
    return Line(
        line.keys,
        line.value,
        line.draws,
        line.samples,
        {**line.more, "sigma": float(np.std(known)) if len(known) else 0.0},
    )

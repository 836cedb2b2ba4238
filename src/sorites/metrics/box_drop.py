"""Measure what a shift takes from detectors: drops of mAP, errors relative to a reference, and ranks.

The error of a detector is 1 - mAP. Whatever is compared is compared on the same pictures, and shares its resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.metrics._box_lines import RESAMPLES, Line, answer, averaged, combined, counts_of, numbers
from sorites.metrics._coco import number_named
from sorites.metrics._reference import is_curve, with_reference
from sorites.metrics._rows import IMAGE_COLUMNS, SHIFTED, answer_frame, with_clean
from sorites.metrics._scenes import Album, Scene, box_rows
from sorites.metrics._stops import STOP, with_stops
from sorites.metrics.box_map import BY, asked
from sorites.metrics.corruption import checked_reference
from sorites.table import Table

Counts = NDArray[np.uint8]


class _Judge:
    """Numbers of scenes and of their parts; the last few are kept, since one clean scene is compared with many."""

    def __init__(self, album: Album, number: str, counts: Counts, classed: bool) -> None:
        self.album, self.number, self.counts, self.classed = album, number_named(number), counts, classed
        self._kept: dict[tuple[object, ...], list[Line]] = {}
        self._starts: dict[object, Scene | None] = {}

    def __call__(self, scene: Scene, keep: NDArray[np.bool_], name: object) -> dict[object, Line]:
        """Return the lines of some pictures of a scene by class; scenes of one ``name`` are one scene."""
        key = (name, keep.tobytes())
        if key not in self._kept:
            if len(self._kept) > 16:
                self._kept.clear()
            self._kept[key] = numbers(scene.only(keep), [self.number], self.counts, self.classed)
        return {line.keys.get("class"): line for line in self._kept[key]}

    def clean(self, model: object) -> Scene | None:
        """Return the clean pictures of a model, or of all where no model is named."""
        if model not in self._starts:
            self._starts = {}
            named = [pl.col("model") == pl.lit(model, pl.String)] if model is not None else []
            self._starts[model] = next(self.album.scenes(["output"], pl.col("shift") == CLEAN, *named), None)
        return self._starts[model]

    def with_start(self, scene: Scene) -> Iterator[tuple[Line, Line]]:
        """Yield the lines of a shifted scene and of its clean pictures, on the samples that have both."""
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
def map_drop(table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES) -> pl.DataFrame:
    """Clean mAP minus shifted mAP on the same samples; ``clean`` and ``shifted`` hold the two; paired bootstrap over samples.

    It is averaged over the settings of each shift, then over shifts. ``n`` counts samples.
    """
    rows, keys, classed = box_rows(with_stops(table), by)
    album = Album(rows)
    judge = _Judge(album, number, counts_of(album, resamples), classed)
    cells = [*dict.fromkeys([*keys, *STOP])]
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
    """Error 1 - mAP summed over severities, divided by that of the named ``reference`` on the same pictures; paired bootstrap.

    Without shift in ``by`` it is the mean over shifts (mCE). ``relative`` sums the rise over the clean error instead. A
    ``reference`` that ends in .csv is a file of errors, as for ``corruption_error``. The value is null where the reference makes
    no error.
    """
    rows, keys, classed = box_rows(table, by, IMAGE_COLUMNS)
    checked_reference(rows, keys, by, reference)
    album = Album(rows)
    judge = _Judge(album, number, counts_of(album, resamples), classed)
    cells = [*dict.fromkeys([*keys, "shift", "severity", "level"])]
    wanted = asked(by, keys, classed)
    along = SHIFTED & (pl.col("severity") > 0)
    pairs: list[tuple[Line, Line]] = []
    for shift in rows.filter(along).select(pl.col("shift").unique().sort()).collect(engine="streaming")["shift"]:
        pairs += _pairs(judge, cells, along & (pl.col("shift") == shift), reference, relative)
    sums = _summed(pairs, [*dict.fromkeys([*wanted, "shift"])])
    return answer(averaged([combined(mine, theirs, _ratio) for mine, theirs in sums], wanted), album, wanted, least=-np.inf)


def _ratio(mine: NDArray[np.floating], theirs: NDArray[np.floating]) -> NDArray[np.floating]:
    safe = np.where(np.abs(theirs) > 1e-12, theirs, np.nan)
    return np.asarray(mine / safe)


def _pairs(judge: _Judge, cells: Sequence[str], where: pl.Expr, reference: str | None, relative: bool) -> list[tuple[Line, Line]]:
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
    """Return 1 - mAP of some pictures by class, or its rise over that of their clean pictures, which is the drop."""
    if relative:
        pairs = judge.with_start(scene.only(keep))
        return {line.keys.get("class"): combined(line, start, lambda one, clean: clean - one) for line, start in pairs}
    lines = judge(scene, keep, tuple(scene.keys.values()))
    return {label: combined(line, line, lambda one, _: 1 - one) for label, line in lines.items()}


def _against_curve(judge: _Judge, scene: Scene, path: str, relative: bool) -> Iterator[tuple[Line, Line]]:
    place = pl.DataFrame({key: [scene.keys[key]] for key in ("shift", "severity", "level")}, schema_overrides={"level": pl.Int32})
    theirs = with_reference(place.lazy(), path, relative).collect()["theirs"].item()
    for line in _errors(judge, scene, np.ones(len(scene), bool), relative).values():
        yield line, Line(line.keys, theirs, np.full(line.draws.shape, theirs), line.samples)


def _summed(pairs: Sequence[tuple[Line, Line]], by: Sequence[str]) -> list[tuple[Line, Line]]:
    groups: dict[tuple[object, ...], list[tuple[Line, Line]]] = {}
    for pair in pairs:
        groups.setdefault(tuple(pair[0].keys[key] for key in by), []).append(pair)
    return [(_total([one for one, _ in group]), _total([two for _, two in group])) for group in groups.values()]


def _total(lines: Sequence[Line]) -> Line:
    samples = np.unique(np.concatenate([line.samples for line in lines]))
    draws = np.sum([line.draws for line in lines], axis=0)
    return Line(lines[0].keys, float(np.sum([line.value for line in lines])), draws, samples)


@add_metric
def map_rank(table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES) -> pl.DataFrame:
    """Rank of each detector: 1 + the number of those whose mAP is better beyond one standard error on either side.

    ``sigma`` is the standard deviation over resamples; overlapping detectors share a rank. Models are compared within the other
    columns of ``by``; by shift and severity, every shift starts with the clean pictures at severity 0.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    wanted = wanted if "model" in wanted else [*wanted, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(wanted) else table
    rows, keys, classed = box_rows(curves, wanted)
    album = Album(rows)
    counts = counts_of(album, resamples)
    lines = [line for scene in album.scenes(keys) for line in numbers(scene, [number_named(number)], counts, classed)]
    sound = [line for line in lines if np.isfinite(line.value)]
    placed = answer([_with_sigma(line) for line in sound], album, wanted, "sigma").rename({"value": "map"}).with_row_index("me")
    field = [key for key in wanted if key != "model"]
    rivals = placed.select(*field, rival_low=pl.col("map") - pl.col("sigma"))
    met = placed.join(rivals, on=field, nulls_equal=True) if field else placed.join(rivals, how="cross")
    better = (pl.col("rival_low") > pl.col("map") + pl.col("sigma")).sum().cast(pl.Int64)
    places = placed.join(met.group_by("me").agg(value=1 + better), on="me")
    return answer_frame(places, wanted, "value", "n", "map", "sigma")


def _with_sigma(line: Line) -> Line:
    known = line.draws[np.isfinite(line.draws)]
    return Line(
        line.keys, line.value, line.draws, line.samples, {**line.more, "sigma": float(np.std(known)) if len(known) else 0.0}
    )

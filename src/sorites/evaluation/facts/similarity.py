"""Similarity of every shifted image of a run to its clean image, stored as facts beside the table.

Each measure has its own direction: lower LPIPS is nearer, higher SSIM is nearer.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
from PIL import Image as Pillow

from sorites import core
from sorites.core import CLEAN, ImageU8, Sample, SettingValue
from sorites.core.errors import BadImage, Damaged, SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar, Tick
from sorites.core.table import RunLike, repair, run_folder, write_facts
from sorites.evaluation.engines import Engine
from sorites.evaluation.images import Shot, captured_shot, shifted_shots
from sorites.evaluation.options import DEFAULT_MEASURES, SimilarityOptions
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import facts_file, read_facts
from sorites.evaluation.worker import Running, chosen_engine
from sorites.io.files import locked, sweep_temporaries
from sorites.suites.suite import LpipsMeasure

NAME = "similarity"
# Seconds between two checkpoints of the values.
CHECKPOINT_SECONDS = 30.0

# An image id, a measure, and its value; None where the image is too small for the measure.
Row = tuple[str, str, float | None]

# A measure, and the limit that a setting's mean must stay below.
Cut = tuple[str, float]


@dataclass(frozen=True)
class MeasureTask:
    """A task: the images of one sample under one shift that lack some measures, by image id."""

    unit: Unit
    missing: tuple[tuple[str, tuple[str, ...]], ...]

    def __len__(self) -> int:
        return len(self.missing)


def similarity(
    run: str | Path | RunLike,
    measures: Sequence[str] = DEFAULT_MEASURES,
    *,
    lpips_below: float | None = None,
    lpips_measure: str | None = None,
    engine: str | Engine | None = "local",
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float = 0.0,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Measure every shifted image of a run and store the values in the table's column ``degrees``.

    Images are recomputed, not stored. Values that were measured before are reused.

    Args:
        run: A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN. Also a ``Run``.
        measures: Measures to compute: psnr, ssim, lpips, exposure_error, clipped_share.
        lpips_below: Mark settings as invalid unless their mean LPIPS is below this. ImageNet-ES uses 0.8 (and
            0.6 and 1.0) before training. None keeps an earlier filter.
        lpips_measure: Measure for the LPIPS threshold; default: that of the run's suite.
        engine: Engine that runs the tasks: local (threads), processes, or ray (also on a cluster). Also an
            ``Engine``.
        workers: Number of tasks to run in parallel; default: one per core.
        address: Head of the Ray cluster, for the engine ray; default: RAY_ADDRESS, or a local Ray instance.
        gpus_per_worker: Fraction of a GPU for each worker of the engine ray.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: A progress bar.

    Returns:
        The file of facts.
    """
    options = SimilarityOptions(
        run=run,
        measures=measures,
        lpips_below=lpips_below,
        lpips_measure=lpips_measure,
        engine=engine,
        workers=workers,
        address=address,
        gpus_per_worker=gpus_per_worker,
        max_pixels=max_pixels,
    )
    return measure_similarity(options, bar)


def measure_similarity(options: SimilarityOptions, bar: Bar | None = None) -> Path:
    """Measure the images of a run, like ``similarity``, with options as one object."""
    folder = run_folder(options.run)
    record, plan = read_record(folder), plan_of(folder)
    engine = chosen_engine(options.chosen_engine(), plan)
    with options.reading(), locked(folder):
        sweep_temporaries(folder)
        return measure_images(
            Running(folder, plan, record.run_id),
            options.measures,
            lpips_below=options.lpips_below,
            lpips_measure=options.lpips_measure,
            engine=engine,
            workers=options.workers,
            bar=bar,
        )


def measure_images(
    run: Running,
    measures: Sequence[str],
    *,
    lpips_below: float | None = None,
    lpips_measure: str | None = None,
    engine: Engine,
    workers: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Measure the images of a run, like ``similarity``, within a running process."""
    plan, folder = run.plan, run.folder
    cut = _cut(lpips_below, lpips_measure, plan.suite.lpips_measure)
    names = [*measures, *(cut[:1] if cut else ())]
    measure_names = tuple(dict.fromkeys(core.measure(name).name for name in names))
    keys = keys_of(plan)
    if not keys.height:
        raise SoritesError(f"{folder} has no shifted images with a clean image to compare")
    values = MeasuredValues(folder, keys, measure_names)
    todo = values.todo(plan)
    tick = bar("measuring", sum(map(len, todo))) if bar and todo else lambda n: None
    values.gather(run.each(engine, todo, measure_unit, workers or engine.cores()), tick)
    path = values.write(cut=cut)
    if not path.exists():
        raise SoritesError(f"no image of {folder} could be measured; first error: {_first_error(plan, todo)}")
    return path


def _first_error(plan: Plan, todo: Sequence[MeasureTask]) -> str:
    shots = (shot for task in todo for shot in shots_of(plan, task))
    return next((shot.error for shot in shots if shot.error), "it is too small for these measures")


def _cut(below: float | None, measure: str | None, default: str) -> Cut | None:
    """Return the filter to apply, or None."""
    if measure not in (None, *get_args(LpipsMeasure)):
        raise SoritesError(
            f"{option('lpips_measure', None)}: expected one of {', '.join(get_args(LpipsMeasure))}, got"
            f" {measure!r}"
        )
    if below is None and measure is not None:
        raise SoritesError(
            f"{option('lpips_measure', measure)} needs {option('lpips_below', 0.8)} or another limit"
        )
    if below is not None and not 0 < below < float("inf"):
        raise SoritesError(f"{option('lpips_below', None)}: expected a number above 0, got {below}")
    return None if below is None else (measure or default, below)


def measure_unit(run: Running, todo: MeasureTask) -> list[Row]:
    """Return the missing values of the images of a task; images that cannot be computed have none."""
    plan, missing = run.plan, dict(todo.missing)
    todo = replace(todo, unit=run.here(todo.unit))
    with run.computing():
        return [row for shot in shots_of(plan, todo) for row in _rows(plan, shot, missing)]


def shots_of(plan: Plan, todo: MeasureTask, whole: bool = False) -> Iterator[Shot]:
    """Yield the images of a task: those that lack a measure, or the captured image.

    With ``whole`` they are without the suite's frame, where such images exist.
    """
    for sample, settings in _settings_to_measure(plan, todo.unit, dict(todo.missing)):
        if todo.unit.shift in plan.shifts:
            yield from shifted_shots(plan, sample, todo.unit.shift, settings, whole=whole)
        else:
            yield captured_shot(plan, sample, whole)


def _settings_to_measure(
    plan: Plan, unit: Unit, missing: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Sample, list[SettingValue]]]:
    """Yield the samples of a unit with the settings that lack a measure; captured images have no setting
    value.
    """
    for sample, images in itertools.groupby(images_of(plan, unit), key=lambda image: image[0]):
        settings = [setting for _, setting, image_id, _ in images if image_id in missing]
        if settings:
            yield sample, [setting for setting in settings if setting is not None]


def _images(plan: Plan) -> Iterator[tuple[Unit, str, str]]:
    """Yield every image that has a clean image: the unit of its sample, its id and its setting."""
    for unit in plan.units():
        for start in range(unit.start, unit.stop):
            single = replace(unit, start=start, stop=start + 1)
            for _, _, image_id, setting in images_of(plan, single):
                yield single, image_id, setting


def images_of(plan: Plan, unit: Unit) -> Iterator[tuple[Sample, SettingValue | None, str, str]]:
    """Yield the images of a unit: sample, setting value (None for captured images), image id and setting
    name.
    """
    clean = plan.clean_ids
    shift = plan.shifts.get(unit.shift)
    for sample in plan.groups[unit.shift][unit.start : unit.stop] if unit.shift != CLEAN else ():
        for value in () if sample.id not in clean else plan.settings[unit.shift] if shift else (None,):
            setting = shift.setting(value) if shift and value is not None else sample.setting
            yield (
                sample,
                value,
                plan.image_id(sample, unit.shift, setting),
                f"{unit.shift} {setting.canonical}",
            )


def keys_of(plan: Plan) -> pl.DataFrame:
    rows = [(image_id, setting) for _, image_id, setting in _images(plan)]
    return pl.DataFrame(rows, {"image_id": pl.String, "setting": pl.String}, orient="row").unique(
        "image_id", maintain_order=True
    )


class MeasuredValues:
    """The values of a run's images: those of the existing file and those added since."""

    def __init__(self, run: Path, keys: pl.DataFrame, measures: Sequence[str], name: str = NAME) -> None:
        self.run, self.keys, self.measures, self.name = run, keys, measures, name
        self.path, self._before = run / facts_file(name), read_facts(run, name)
        if self._before is not None and "degrees" not in self._before.columns:
            raise Damaged(self.path, "it has no column degrees", repair(run))
        self._rows: list[Row] = []
        done = self.values().filter(pl.col("measure").is_in(measures)).group_by("image_id").agg("measure")
        self._done: dict[str, list[str]] = dict(done.iter_rows())
        self._last = time.monotonic()

    def add(self, rows: list[Row]) -> None:
        self._rows.extend(rows)

    def gather(self, results: Iterable[tuple[Sized, list[Row]]], tick: Tick) -> None:
        """Add the rows of tasks as they arrive, with regular checkpoints and one when the work is stopped."""
        try:
            for unit, rows in results:
                self.add(rows)
                self.write(after=CHECKPOINT_SECONDS)
                tick(len(unit))
        except BaseException:
            self.write()
            raise

    def missing(self, image_id: str) -> list[str]:
        """Return the measures that an image lacks; a measure that it is too small for is not tried again."""
        return [name for name in self.measures if name not in self._done.get(image_id, ())]

    def todo(self, plan: Plan) -> list[MeasureTask]:
        """Return one task per sample and shift with missing measures."""
        missing: dict[Unit, list[tuple[str, tuple[str, ...]]]] = {}
        for unit, image_id, _ in _images(plan):
            if names := self.missing(image_id):
                missing.setdefault(unit, []).append((image_id, tuple(names)))
        return [MeasureTask(unit, tuple(images)) for unit, images in missing.items()]

    def values(self) -> pl.DataFrame:
        """Return image_id, measure and value; new values replace earlier ones."""
        schema = {"image_id": pl.String, "measure": pl.String, "value": pl.Float64}
        added = pl.DataFrame(list(self._rows), schema, orient="row")
        if self._before is None:
            return added
        before = self._before.select("image_id", "degrees").explode("degrees").unnest("degrees")
        return pl.concat([before, added]).unique(["image_id", "measure"], keep="last", maintain_order=True)

    def write(self, after: float = 0.0, cut: Cut | None = None) -> Path:
        """Write all values, unless they are unchanged or the last write was less than ``after`` seconds
        ago.
        """
        if time.monotonic() - self._last < after:
            return self.path
        facts = self._facts(cut)
        if facts.height and (self._before is None or not facts.equals(self._before)):
            write_facts(self.run, self.name, facts)
        self._last = time.monotonic()
        return self.path

    def _facts(self, cut: Cut | None) -> pl.DataFrame:
        values = self.values().drop_nulls("measure")
        entries = values.group_by("image_id", maintain_order=True).agg(degrees=pl.struct("measure", "value"))
        facts = self.keys.join(entries, on="image_id", maintain_order="left")
        if cut is not None:
            with_value = facts.join(
                values.filter(pl.col("measure") == cut[0]), on="image_id", how="left", maintain_order="left"
            )
            return with_value.select(
                "image_id", "degrees", valid=pl.col("value").mean().over("setting") < cut[1]
            )
        if self._before is not None and "valid" in self._before.columns:
            facts = facts.join(
                self._before.select("image_id", "valid"), on="image_id", how="left", maintain_order="left"
            )
        return facts.drop("setting")


def _rows(plan: Plan, shot: Shot, missing: Mapping[str, Sequence[str]]) -> list[Row]:
    """Return the values that an image lacks; none if the image or its clean image cannot be computed."""
    try:
        reference = plan.framed(shot.sample.id)
    except BadImage:
        return []
    if shot.image is None:
        return []
    key = plan.image_id(shot.sample, shot.shift, shot.setting)
    framed = (reference, _resize(shot.image, reference))
    unframed = functools.cache(lambda: _unframed(plan, shot))
    whole = shot.shift not in plan.shifts
    return [
        (key, name, _value(name, *(unframed() if whole and core.measure(name).whole else framed)))
        for name in missing[key]
    ]


def _unframed(plan: Plan, shot: Shot) -> tuple[ImageU8, ImageU8]:
    """Return the clean and the captured image as stored in their files."""
    return plan.clean_samples[shot.sample.id].load(), shot.sample.load()


def _value(name: str, reference: ImageU8, moved: ImageU8) -> float | None:
    """Return the value, or None if the image is too small for the measure or the value is NaN."""
    try:
        # Copies, because a measure may write into its inputs.
        value = core.measure(name)(np.array(reference), np.array(moved))
    except BadImage:
        return None
    return None if math.isnan(value) else value


def _resize(image: ImageU8, like: ImageU8) -> ImageU8:
    """Return a captured image resized to its reference."""
    if image.shape == like.shape:
        return image
    return np.asarray(
        Pillow.fromarray(image).resize((like.shape[1], like.shape[0]), Pillow.Resampling.BICUBIC)
    )

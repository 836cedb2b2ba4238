"""Similarity: measures of every shifted image of a run against its own clean picture, kept as facts beside the table.

The direction belongs to the measure: of LPIPS lower is nearer, of SSIM higher (``sorites list measures``).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image as Pillow

from sorites import core
from sorites.core import CLEAN, Picture, Sample, Stop
from sorites.engines.local import local
from sorites.errors import BadPicture, SoritesError
from sorites.pipeline import plan as plans
from sorites.pipeline.folder import read_info
from sorites.pipeline.pictures import Shot, captured, turned
from sorites.pipeline.plan import Plan, Unit
from sorites.pipeline.runner import known as plans_run
from sorites.progress import Bar
from sorites.suite import parse
from sorites.table import write_facts

DEFAULT = ("lpips", "exposure_error", "clipped_share")
NAME = "similarity"
PAUSE = 30.0
"""Seconds between two writes of the values so far, so that little is lost when the work is stopped."""

Work = dict[Unit, list[tuple[Sample, list[Stop]]]]
"""Images still to be measured: the samples of each unit, and the stops of each sample; no stop for a captured picture."""
Row = tuple[str, str, float | None]
"""An image id, the name of a measure, and its value."""


def similarity(
    run: str | Path,
    measures: Sequence[str] = DEFAULT,
    *,
    lpips_below: float | None = None,
    workers: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Measure every shifted image of a run, keep the values in the table's column ``degrees``, and return the file written.

    ``lpips_below`` sets aside (``valid`` false) every setting whose mean LPIPS over its images is not below it, as
    ImageNet-ES does with 0.8 (and 0.6 and 1.0) before training; without it an earlier filter stays. Pictures are made again, not
    stored; what was measured before, in this call or another, is not measured again.
    """
    names = [*measures, *(["lpips"] if lpips_below is not None else [])]
    wanted = tuple(dict.fromkeys(core.measure(name).name for name in names))
    plan = _plan(run)
    keys = _keys(plan)
    if not keys.height:
        raise SoritesError(f"{run} holds no shifted pictures to measure against clean ones")
    found = _Found(Path(run), keys, wanted)
    todo = found.todo(plan)
    tick = bar("measuring", sum(max(1, len(stops)) for some in todo.values() for _, stops in some)) if bar and todo else None
    lock = threading.Lock()

    def work(unit: Unit) -> None:
        for sample, stops in todo[unit]:
            rows = [row for shot in _shots(plan, unit, sample, stops) for row in _rows(plan, shot, found)]
            with lock:
                found.add(rows)
                if tick:
                    tick(max(1, len(stops)))

    try:
        for _ in local(list(todo), work, workers or os.cpu_count() or 1):
            found.write(after=PAUSE)
    except BaseException:
        found.write()
        raise
    return found.write(lpips_below=lpips_below)


def _plan(run: str | Path) -> Plan:
    info = read_info(run)
    return plans_run.get(info["run_id"]) or plans.make(parse({**info["suite"], "models": ()}, "run.json"))


def _images(plan: Plan) -> Iterator[tuple[Unit, Sample, Stop | None, str, str]]:
    """Yield every image whose clean picture is there too: unit, sample, stop (None for a captured one), image id and setting."""
    clean = {sample.id for sample in plan.groups[CLEAN]}
    for unit in plan.units():
        shift = plan.shifts.get(unit.shift)
        for sample in plan.groups[unit.shift][unit.start : unit.stop] if unit.shift != CLEAN else ():
            for stop in () if sample.id not in clean else plan.stops[unit.shift] if shift else (None,):
                setting = shift.setting(stop) if shift and stop is not None else sample.setting
                yield unit, sample, stop, plan.image_id(sample, unit.shift, setting), f"{unit.shift} {setting.canonical}"


def _keys(plan: Plan) -> pl.DataFrame:
    rows = [(id_, setting) for *_, id_, setting in _images(plan)]
    return pl.DataFrame(rows, {"image_id": pl.String, "setting": pl.String}, orient="row").unique("image_id", maintain_order=True)


class _Found:
    """The values of a run's images: those that its file held before, and those found since."""

    def __init__(self, run: Path, keys: pl.DataFrame, wanted: Sequence[str]) -> None:
        self.run, self.keys, self.wanted = run, keys, wanted
        path = run / "facts" / f"{NAME}.parquet"
        self.path, self._before = path, pl.read_parquet(path) if path.exists() else None
        self._rows: list[Row] = []
        done = self._values().filter(pl.col("measure").is_in(wanted)).group_by("image_id").agg("measure")
        self._done: dict[str, list[str]] = dict(done.iter_rows())
        self._last = time.monotonic()

    def add(self, rows: list[Row]) -> None:
        self._rows.extend(rows)

    def missing(self, image_id: str) -> list[str]:
        """Return the wanted measures that the image was not measured by; one that it was too small for is not tried again."""
        return [name for name in self.wanted if name not in self._done.get(image_id, ())]

    def todo(self, plan: Plan) -> Work:
        """Return the images that lack one of the wanted measures."""
        left = Work()
        for unit, sample, stop, id_, _ in _images(plan):
            if not self.missing(id_):
                continue
            some = left.setdefault(unit, [])
            if not some or some[-1][0] is not sample:
                some.append((sample, []))
            some[-1][1].extend([] if stop is None else [stop])
        return left

    def _values(self) -> pl.DataFrame:
        """Return image_id, measure and value; a value found now replaces an earlier one."""
        schema = {"image_id": pl.String, "measure": pl.String, "value": pl.Float64}
        now = pl.DataFrame(list(self._rows), schema, orient="row")
        if self._before is None:
            return now
        before = self._before.select("image_id", "degrees").explode("degrees").unnest("degrees")
        return pl.concat([before, now]).unique(["image_id", "measure"], keep="last", maintain_order=True)

    def write(self, after: float = 0.0, lpips_below: float | None = None) -> Path:
        """Write all values, unless the file holds them already or the last write was less than ``after`` seconds ago."""
        if time.monotonic() - self._last < after:
            return self.path
        facts = self._facts(lpips_below)
        if facts.height and (self._before is None or not facts.equals(self._before)):
            write_facts(self.run, NAME, facts)
        self._last = time.monotonic()
        return self.path

    def _facts(self, lpips_below: float | None) -> pl.DataFrame:
        values = self._values().drop_nulls("measure")
        entries = values.group_by("image_id", maintain_order=True).agg(degrees=pl.struct("measure", "value"))
        facts = self.keys.join(entries, on="image_id", maintain_order="left")
        if lpips_below is not None:
            far = facts.join(values.filter(pl.col("measure") == "lpips"), on="image_id", how="left", maintain_order="left")
            return far.select("image_id", "degrees", valid=pl.col("value").mean().over("setting") < lpips_below)
        if self._before is not None and "valid" in self._before.columns:
            facts = facts.join(self._before.select("image_id", "valid"), on="image_id", how="left", maintain_order="left")
        return facts.drop("setting")


def _shots(plan: Plan, unit: Unit, sample: Sample, stops: list[Stop]) -> Iterator[Shot]:
    return turned(plan, sample, unit.shift, stops) if unit.shift in plan.shifts else iter([captured(plan, sample)])


def _rows(plan: Plan, shot: Shot, found: _Found) -> list[Row]:
    """Return the values that an image lacks; none where it or its clean picture cannot be made."""
    try:
        reference = plan.framed(shot.sample.id)
    except BadPicture:
        return []
    if shot.picture is None:
        return []
    moved = _sized(shot.picture, reference)
    key = plan.image_id(shot.sample, shot.shift, shot.setting)
    return [(key, name, _value(name, reference, moved)) for name in found.missing(key)]


def _value(name: str, reference: Picture, moved: Picture) -> float | None:
    """Return the value, or None where the picture is too small for the measure or the measure has no number for it."""
    try:
        value = core.measure(name)(reference, moved)
    except BadPicture:
        return None
    return None if math.isnan(value) else value


def _sized(picture: Picture, like: Picture) -> Picture:
    """Return a captured picture in the size of its reference, which may differ."""
    if picture.shape == like.shape:
        return picture
    return np.asarray(Pillow.fromarray(picture).resize((like.shape[1], like.shape[0]), Pillow.Resampling.BICUBIC))

"""How far every image of a run really moved: measures of its pictures against the clean one, kept as facts beside the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image as Pillow

from sorites import plan as plans
from sorites.core import CLEAN, Picture
from sorites.errors import SoritesError, UnknownName
from sorites.folder import read_info
from sorites.measures.similarity import MEASURES
from sorites.plan import Plan
from sorites.progress import Bar
from sorites.runner import known
from sorites.shots import Shot, shots
from sorites.suite import parse
from sorites.table import write_facts

DEFAULT = ("lpips", "exposure_error", "clipped_share")


def degrees(
    run: str | Path, measures: Sequence[str] = DEFAULT, *, lpips_below: float | None = None, bar: Bar | None = None
) -> Path:
    """Measure every shifted image of a run and keep the values as its ``degrees``; gives the file written.

    ``lpips_below`` sets aside (``valid`` false) every setting whose mean LPIPS over its images is not below it, as
    ImageNet-ES does with 0.8 (and 0.6 and 1.0) before training. Pictures are made again, not stored.
    """
    wanted = list(dict.fromkeys([*measures, *(["lpips"] if lpips_below is not None else [])]))
    for name in wanted:
        if name not in MEASURES:
            raise UnknownName("measure of pictures", name, MEASURES, f"There are {', '.join(MEASURES)}.")
    plan = _plan(run)
    tick = bar("measuring", plan.images()) if bar else lambda n: None
    schema = {"image_id": pl.String, "setting": pl.String, **dict.fromkeys(wanted, pl.Float64)}
    rows = []
    for row in _measured(plan, wanted):
        rows.append(row)
        tick(1)
    if not rows:
        raise SoritesError(f"{run} holds no shifted pictures to measure against clean ones")
    return write_facts(run, "similarity", _facts(pl.DataFrame(rows, schema, orient="row"), wanted, lpips_below))


def _plan(run: str | Path) -> Plan:
    info = read_info(run)
    return known.get(info["run_id"]) or plans.make(parse({**info["suite"], "models": ()}, "run.json"))


def _measured(plan: Plan, wanted: Sequence[str]) -> Iterator[list[object]]:
    for unit in plan.units():
        for shot in shots(plan, unit) if unit.shift != CLEAN else ():
            if shot.picture is not None:
                yield _row(plan, shot, shot.picture, wanted)


def _row(plan: Plan, shot: Shot, picture: Picture, wanted: Sequence[str]) -> list[object]:
    reference = plan.framed(shot.sample.id)
    moved = _sized(picture, reference)
    key = plan.image_id(shot.sample, shot.shift, shot.setting)
    return [key, f"{shot.shift} {shot.setting.canonical}", *(MEASURES[name](reference, moved) for name in wanted)]


def _sized(picture: Picture, like: Picture) -> Picture:
    """A captured picture may have another size than its reference: it is brought to that."""
    if picture.shape == like.shape:
        return picture
    return np.asarray(Pillow.fromarray(picture).resize((like.shape[1], like.shape[0]), Pillow.Resampling.BICUBIC))


def _facts(found: pl.DataFrame, wanted: Sequence[str], lpips_below: float | None) -> pl.DataFrame:
    entries = pl.concat_list([pl.struct(measure=pl.lit(name), value=pl.col(name)) for name in wanted])
    facts = found.with_columns(degrees=entries)
    if lpips_below is None:
        return facts.select("image_id", "degrees")
    return facts.select("image_id", "degrees", valid=pl.col("lpips").mean().over("setting") < lpips_below)

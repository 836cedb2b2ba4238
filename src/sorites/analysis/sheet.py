"""One sample at several settings, as every model of a run judged it: the content of a sheet, and
its images made again.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figure 10, for any run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from sorites.core import CLEAN, ImageU8
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table
from sorites.evaluation.images import captured, turned
from sorites.evaluation.plan import Plan
from sorites.metrics.camera import disagreement
from sorites.metrics.rows import judged_rows, select_rows

# The most settings across a sheet.
MOST = 12
SEEN = (
    "run_id",
    "sample_id",
    "image_id",
    "shift",
    "severity",
    "params",
    "model",
    "label",
    "pred",
    "conf",
    "correct",
)


@dataclass(frozen=True)
class Verdict:
    """The prediction of a model for an image, how sure it is, and whether that is right."""

    pred: int | None
    conf: float | None
    right: bool


@dataclass(frozen=True)
class Column:
    """One image of a sheet: where its dials stand, and the verdict of each model that judged it."""

    image_id: str
    shift: str
    severity: float | None
    params: Mapping[str, Any]
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True)
class Sheet:
    """The settings of one sample under one shift, the clean image first where there is one;
    ``of`` counts all settings.
    """

    run_id: str
    sample_id: str
    label: int | None
    shift: str
    columns: tuple[Column, ...]
    models: tuple[str, ...]
    of: int


def disputed(table: Table, shift: str | None = None, most: int = 1) -> list[tuple[str, str]]:
    """Return (shift, sample) of the samples on which models differ most; of one model, those that
    are right about half the time.

    Ties are sorted by shift and sample.
    """
    rows = table.lazy().filter(pl.col("shift") != CLEAN)
    rows = rows if shift is None else rows.filter(pl.col("shift") == shift)
    models = rows.select(pl.col("model").n_unique()).collect(engine="streaming").item()
    if models > 1:
        found = disagreement(rows)
    else:
        right = pl.col("correct").mean()
        judged = (
            judged_rows(select_rows(rows, ())[0])
            .group_by("shift", "sample_id")
            .agg(value=right * (1 - right))
        )
        found = judged.collect(engine="streaming")
    ordered = (
        found.drop_nulls("value")
        .sort("value", "shift", "sample_id", descending=[True, False, False])
        .head(most)
    )
    return list(ordered.select("shift", "sample_id").iter_rows())


def sheet(
    table: Table, sample: str | None = None, shift: str | None = None, light: str = "on", most: int = MOST
) -> Sheet:
    """Return the sheet of one sample; by default the one on which the models differ most, under the
    shift where they do.

    Of more than ``most`` settings an even spread is taken: along a dial by severity, of a camera by
    the light that reaches the sensor, with the first automatic shot before the manual settings. Of
    a camera's lights only ``light`` is shown.
    """
    chosen = disputed(
        table.lazy() if sample is None else table.lazy().filter(pl.col("sample_id") == sample), shift
    )
    if not chosen:
        raise _nothing(table, sample, shift)
    under, of = chosen[0]
    rows = judged_rows(
        select_rows(
            table.lazy().filter(pl.col("sample_id") == of, pl.col("shift").is_in([CLEAN, under])), ()
        )[0]
    )
    held = rows.select(SEEN).collect(engine="streaming")
    held = held.filter(pl.col("run_id") == held.filter(pl.col("shift") == under)["run_id"].min())
    columns = [_column(part) for part in held.partition_by("image_id", maintain_order=True)]
    clean = [column for column in columns if column.shift == CLEAN][:1]
    moved = _under(sorted((column for column in columns if column.shift == under), key=_order), light)
    models = tuple(sorted(held["model"].unique()))
    shown = (*clean, *_spread(moved, most - len(clean)))
    return Sheet(held["run_id"][0], of, held["label"][0], under, shown, models, len(moved))


def _nothing(table: Table, sample: str | None, shift: str | None) -> SoritesError:
    held = (
        table.lazy()
        .filter(pl.col("shift") != CLEAN)
        .select("shift", "sample_id")
        .unique()
        .collect(engine="streaming")
    )
    shifts, samples = sorted(held["shift"].unique()), sorted(held["sample_id"].unique())
    if shift is not None and shift not in shifts:
        return UnknownName("shift", shift, shifts, f"The run has {', '.join(shifts) or 'none'}.")
    if sample is not None and sample not in samples:
        return UnknownName(
            "sample", sample, samples, f"One of the {len(samples)} is {samples[0] if samples else 'none'}."
        )
    return SoritesError("no image of this run was judged under a shift: a sheet has nothing to show")


def _column(rows: pl.DataFrame) -> Column:
    first = rows.row(0, named=True)
    verdicts = {row["model"]: Verdict(row["pred"], row["conf"], row["correct"]) for row in rows.to_dicts()}
    params = json.loads(first["params"] or "{}")
    return Column(first["image_id"], first["shift"], first["severity"], params, verdicts)


def _order(column: Column) -> tuple[Any, ...]:
    """Order along a dial by severity, of a camera automatic shots first and then by the light on
    the sensor.
    """
    params = column.params
    light = (
        params["iso"] * params["shutter"] / params["aperture"] ** 2
        if {"iso", "shutter", "aperture"} <= params.keys()
        else 0
    )
    auto = params.get("mode") == "auto"
    return (
        column.severity or 0.0,
        not auto,
        params.get("shot", 0) if auto else light,
        json.dumps(params, sort_keys=True),
    )


def _under(columns: Sequence[Column], light: str) -> list[Column]:
    """Keep one light of a camera and the first automatic shot."""
    lights = {str(column.params["light"]) for column in columns if "light" in column.params}
    kept = [
        column
        for column in columns
        if not lights or column.params.get("light") == (light if light in lights else min(lights))
    ]
    auto = [column for column in kept if column.params.get("mode") == "auto"]
    return [*auto[:1], *(column for column in kept if column.params.get("mode") != "auto")]


def _spread(columns: Sequence[Column], most: int) -> list[Column]:
    auto = [column for column in columns if column.params.get("mode") == "auto"]
    rest = columns[len(auto) :]
    count = min(len(rest), max(most - len(auto), 1))
    return [*auto, *(rest[round(i * (len(rest) - 1) / max(count - 1, 1))] for i in range(count))]


def images_of(plan: Plan, sample_id: str, images: Collection[str]) -> dict[str, ImageU8]:
    """Make the images of a sample again, by image id; those that cannot be made are absent."""
    found = {}
    for shift, samples in plan.groups.items():
        for sample in samples.called(sample_id):
            if shift not in plan.shifts:
                if plan.image_id(sample, shift, sample.setting) in images:
                    found[plan.image_id(sample, shift, sample.setting)] = captured(plan, sample)
                continue
            named = {
                plan.image_id(sample, shift, plan.shifts[shift].setting(setting)): setting
                for setting in plan.settings[shift]
            }
            wanted = {image: setting for image, setting in named.items() if image in images}
            found |= (
                zip(wanted, turned(plan, sample, shift, list(wanted.values())), strict=True) if wanted else ()
            )
    return {image: shot.image for image, shot in found.items() if shot.image is not None}


def limited(held: Sheet, models: Collection[str]) -> Sheet:
    """Return the sheet with these models only, in this order."""
    return replace(held, models=tuple(model for model in models if model in held.models))

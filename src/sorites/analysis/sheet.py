"""Contact sheets: one sample at several settings, with the prediction of every model of a run.

This generalises Figure 10 of Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution",
CVPR 2024, to any run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import polars as pl

from sorites.core import CLEAN, ImageU8
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table
from sorites.evaluation.images import captured_shot, shifted_shots
from sorites.evaluation.plan import Plan
from sorites.metrics.camera import disagreement
from sorites.metrics.rows import judged_rows, select_rows

T = TypeVar("T")
# Default maximum number of settings shown on a sheet.
MAX_SETTINGS = 12
COLUMNS = (
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
    """The prediction of a model for an image, its confidence, and whether it is correct."""

    pred: int | None
    conf: float | None
    right: bool


@dataclass(frozen=True)
class Column:
    """One image of a sheet: its setting, and the verdict of each model."""

    image_id: str
    shift: str
    severity: float | None
    params: Mapping[str, Any]
    verdicts: Mapping[str, Verdict]


@dataclass(frozen=True)
class Sheet:
    """The images of one sample under one shift, the clean image first if there is one."""

    run_id: str
    sample_id: str
    label: int | None
    shift: str
    columns: tuple[Column, ...]
    models: tuple[str, ...]
    of: int
    """Number of settings available, including those not shown."""


def most_disputed(table: Table, shift: str | None = None, most: int = 1) -> list[tuple[str, str]]:
    """Return (shift, sample_id) of the samples on which models disagree most.

    With a single model, samples that it classifies correctly about half the time come first. Ties are
    sorted by shift and sample.
    """
    rows = table.lazy().filter(pl.col("shift") != CLEAN)
    rows = rows if shift is None else rows.filter(pl.col("shift") == shift)
    models = rows.select(pl.col("model").n_unique()).collect(engine="streaming").item()
    if models > 1:
        ranking = disagreement(rows)
    else:
        accuracy = pl.col("correct").mean()
        judged = (
            judged_rows(select_rows(rows, ())[0])
            .group_by("shift", "sample_id")
            .agg(value=accuracy * (1 - accuracy))
        )
        ranking = judged.collect(engine="streaming")
    ordered = (
        ranking.drop_nulls("value")
        .sort("value", "shift", "sample_id", descending=[True, False, False])
        .head(most)
    )
    return list(ordered.select("shift", "sample_id").iter_rows())


def sheet(
    table: Table,
    sample: str | None = None,
    shift: str | None = None,
    light: str = "on",
    most: int = MAX_SETTINGS,
) -> Sheet:
    """Return the sheet of one sample under one shift.

    Args:
        table: The table of a run.
        sample: The sample to show; by default the one on which the models disagree most.
        shift: The shift to show; by default the one under which they disagree most.
        light: The light of a camera grid to show, ``"on"`` or ``"off"``.
        most: Maximum number of images. Settings are thinned evenly: by severity, or for a camera by
            exposure, with the first automatic shot before the manual settings.

    Raises:
        SoritesError: The run has no such sample or shift, or no shifted image was evaluated.
    """
    chosen = most_disputed(
        table.lazy() if sample is None else table.lazy().filter(pl.col("sample_id") == sample), shift
    )
    if not chosen:
        raise _nothing_to_show(table, sample, shift)
    shift_name, sample_id = chosen[0]
    rows = judged_rows(
        select_rows(
            table.lazy().filter(pl.col("sample_id") == sample_id, pl.col("shift").is_in([CLEAN, shift_name])),
            (),
        )[0]
    )
    judged = rows.select(COLUMNS).collect(engine="streaming")
    judged = judged.filter(pl.col("run_id") == judged.filter(pl.col("shift") == shift_name)["run_id"].min())
    columns = [_column(part) for part in judged.partition_by("image_id", maintain_order=True)]
    clean = [column for column in columns if column.shift == CLEAN][:1]
    shifted = _one_light(
        sorted((column for column in columns if column.shift == shift_name), key=_order), light
    )
    models = tuple(sorted(judged["model"].unique()))
    selected = (*clean, *_thinned(shifted, most - len(clean)))
    return Sheet(
        judged["run_id"][0], sample_id, judged["label"][0], shift_name, selected, models, len(shifted)
    )


def _nothing_to_show(table: Table, sample: str | None, shift: str | None) -> SoritesError:
    shifted = (
        table.lazy()
        .filter(pl.col("shift") != CLEAN)
        .select("shift", "sample_id")
        .unique()
        .collect(engine="streaming")
    )
    shifts, samples = sorted(shifted["shift"].unique()), sorted(shifted["sample_id"].unique())
    if shift is not None and shift not in shifts:
        return UnknownName("shift", shift, shifts, f"The run has {', '.join(shifts) or 'none'}.")
    if sample is not None and sample not in samples:
        return UnknownName(
            "sample", sample, samples, f"One of the {len(samples)} is {samples[0] if samples else 'none'}."
        )
    return SoritesError("The run has no evaluated images under a shift to show on a sheet.")


def _column(rows: pl.DataFrame) -> Column:
    first = rows.row(0, named=True)
    verdicts = {row["model"]: Verdict(row["pred"], row["conf"], row["correct"]) for row in rows.to_dicts()}
    params = json.loads(first["params"] or "{}")
    return Column(first["image_id"], first["shift"], first["severity"], params, verdicts)


def _order(column: Column) -> tuple[Any, ...]:
    """Sort by severity; for a camera, automatic shots first, then by exposure (ISO x time / f-number²)."""
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


def _one_light(columns: Sequence[Column], light: str) -> list[Column]:
    """Keep one light of a camera, and only the first automatic shot."""
    lights = {str(column.params["light"]) for column in columns if "light" in column.params}
    lit = [
        column
        for column in columns
        if not lights or column.params.get("light") == (light if light in lights else min(lights))
    ]
    auto = [column for column in lit if column.params.get("mode") == "auto"]
    return [*auto[:1], *(column for column in lit if column.params.get("mode") != "auto")]


def _thinned(columns: Sequence[Column], most: int) -> list[Column]:
    auto = [column for column in columns if column.params.get("mode") == "auto"]
    return [*auto, *spread(columns[len(auto) :], max(most - len(auto), 1))]


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` items, evenly spaced from the first to the last."""
    count = min(len(items), most)
    return [items[round(i * (len(items) - 1) / max(count - 1, 1))] for i in range(count)]


def images_of(plan: Plan, sample_id: str, images: Collection[str]) -> dict[str, ImageU8]:
    """Recompute the images of a sample, by image id; images that cannot be made are left out."""
    shots = {}
    for shift, samples in plan.groups.items():
        for sample in samples.called(sample_id):
            if shift not in plan.shifts:
                if plan.image_id(sample, shift, sample.setting) in images:
                    shots[plan.image_id(sample, shift, sample.setting)] = captured_shot(plan, sample)
                continue
            settings = {
                plan.image_id(sample, shift, plan.shifts[shift].setting(setting)): setting
                for setting in plan.settings[shift]
            }
            requested = {image: setting for image, setting in settings.items() if image in images}
            shots |= (
                zip(requested, shifted_shots(plan, sample, shift, list(requested.values())), strict=True)
                if requested
                else ()
            )
    return {image: shot.image for image, shot in shots.items() if shot.image is not None}


def with_models(sheet: Sheet, models: Collection[str]) -> Sheet:
    """Return a sheet restricted to these models, in this order."""
    return replace(sheet, models=tuple(model for model in models if model in sheet.models))

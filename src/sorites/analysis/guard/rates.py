"""Read the scores of a run, halve its samples, and estimate what a threshold does at each setting."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from sorites.analysis.guard.rules import OOD, Scored, rate
from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.rng import hash_prefixes
from sorites.core.table import Table
from sorites.deploy.record import SettingRates
from sorites.metrics.rows import ON_GRID, SAMPLE_KEY, SETTING_KEY, select_rows, with_settings_key
from sorites.metrics.separation import UNKNOWN_CLASS

ALL = "all"
# The settings key of a shift with a single setting.
ONLY_SETTING = "{}"


def chosen_model(table: Table, folder: Path, name: str | None) -> str:
    """Return the model of a run, which must be named if there are several.

    Raises:
        UnknownName: There is no such model.
        SoritesError: There are several, and none is named.
    """
    models = table.lazy().select(pl.col("model").unique().sort()).collect()["model"].drop_nulls().to_list()
    if name is not None and name not in models:
        raise UnknownName("model", name, models, f"{folder} has {', '.join(models)}.")
    if name is None and len(models) != 1:
        raise SoritesError(
            f"{folder} has the models {', '.join(models)}; choose one with {option('model', 'NAME')}"
        )
    return name or str(models[0])


def scored_images(table: Table, folder: Path, model: str, scorer: str) -> pl.DataFrame:
    """Return the images of a run with the scores of one model and scorer, sorted.

    The columns are source, sample_id, image_id, shift, severity, setting, score, wrong (null where it is not
    known), clean, label, accept and half: 0 for samples that choose the threshold, 1 for the others. OOD
    images have the shift "ood", and their own shift is the setting.

    Raises:
        UnknownName: The run has no scores of the scorer.
    """
    rows, _ = select_rows(with_settings_key(table), [], output="ood")
    scorers = rows.select(pl.col("scorer").unique().sort()).collect()["scorer"].drop_nulls().to_list()
    if scorer not in scorers:
        has = ", ".join(scorers) or "no scorer"
        how = f"{folder} has scores of {has}. Run with {option('scorers', [scorer])}."
        raise UnknownName("scorer", scorer, scorers, how)
    params = pl.col(SETTING_KEY[-1]).replace(ONLY_SETTING, "")
    own_setting = pl.coalesce(pl.col("severity").cast(pl.String), params, pl.lit(""))
    own_shift = pl.concat_str("shift", own_setting, separator=" ").str.strip_chars()
    found = (
        rows.filter(ON_GRID, pl.col("model") == model, pl.col("scorer") == scorer, pl.col("error").is_null())
        .filter(pl.col("score").is_not_null())
        .select(
            *SAMPLE_KEY,
            "image_id",
            "score",
            "label",
            "accept",
            shift=pl.when(UNKNOWN_CLASS).then(pl.lit(OOD)).otherwise("shift"),
            severity=pl.when(~UNKNOWN_CLASS).then("severity"),
            setting=pl.when(~UNKNOWN_CLASS).then(params).when(pl.col("shift") != CLEAN).then(own_shift),
            wrong=pl.when(UNKNOWN_CLASS).then(True).otherwise(~pl.col("correct")),
            clean=(pl.col("shift") == CLEAN) & ~UNKNOWN_CLASS,
        )
        .collect(engine="streaming")
    )
    return _halved(found.sort(*SAMPLE_KEY, "shift", "severity", "setting"))


def _halved(found: pl.DataFrame) -> pl.DataFrame:
    """Add ``half``: samples in the order of a hash of their ids are dealt out in turn."""
    samples = found.select(SAMPLE_KEY).unique(maintain_order=True)
    keys = [json.dumps(row) for row in samples.iter_rows()]
    order = np.argsort(hash_prefixes(keys), kind="stable")
    half = np.empty(len(order), np.int8)
    half[order] = np.arange(len(order)) % 2
    return found.join(samples.with_columns(half=pl.Series(half)), on=SAMPLE_KEY, nulls_equal=True)


def as_scored(images: pl.DataFrame) -> Scored:
    """Return images as arrays."""
    sample = images.select(pl.struct(SAMPLE_KEY).rank("dense"))
    return Scored(
        images["score"].to_numpy(),
        images["wrong"].fill_null(False).to_numpy(),
        images["wrong"].is_not_null().to_numpy(),
        images["clean"].to_numpy(),
        sample.to_series().to_numpy().astype(np.int64),
        images["shift"].to_numpy().astype(np.str_),
        images["severity"].fill_null(np.nan).to_numpy(),
    )


def estimated(images: pl.DataFrame, threshold: float) -> tuple[SettingRates, ...]:
    """Return what a threshold does to all images, and at each setting, clean first."""
    rows = images.with_columns(
        setting=pl.when(pl.col("severity").is_not_null())
        .then(pl.col("severity").map_elements(lambda value: f"{value:g}", return_dtype=pl.String))
        .otherwise(pl.col("setting").fill_null("")),
        first=pl.col("shift") != CLEAN,
    )
    groups = rows.sort("first", "shift", "severity", "setting", nulls_last=False).group_by(
        "shift", "severity", "setting", maintain_order=True
    )
    return (
        _rates(ALL, "", None, rows, threshold),
        *(
            _rates(str(shift), "" if shift == CLEAN else str(setting), severity, part, threshold)
            for (shift, severity, setting), part in groups
        ),
    )


def _rates(
    shift: str, setting: str, severity: float | None, rows: pl.DataFrame, threshold: float
) -> SettingRates:
    images = as_scored(rows)
    alarm, judged = ~(images.score <= threshold), images.judged
    quiet, bad = judged & ~alarm, judged & images.wrong
    return SettingRates(
        shift,
        setting,
        severity,
        alarm=rate(alarm, images.sample),
        error=rate(images.wrong[judged], images.sample[judged]),
        risk=rate(images.wrong[quiet], images.sample[quiet]),
        caught=rate(alarm[bad], images.sample[bad]),
    )

"""Compute the numbers of a passport from the tables of its runs; each is a metric with interval and n."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from scipy.special import ndtri

from sorites import __version__, metrics
from sorites.analysis.passport.document import (
    BatteryInfo,
    Dial,
    Grid,
    Half,
    ModelInfo,
    Number,
    Passport,
    Run,
    SelectiveRisk,
    SelfKnowledge,
    Separation,
    SettingValue,
    sealed,
)
from sorites.core import CLEAN, SHIFTS
from sorites.core.table import read
from sorites.evaluation.integrity.evidence import run_evidence
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.metrics.half_accuracy import BEYOND, NO_CLEAN, UNDEFINED
from sorites.metrics.intervals import Z, cluster_sums, paired_interval, share_intervals
from sorites.metrics.rows import count_samples
from sorites.reports.components.severities import in_words, reading
from sorites.reports.passport.alarms import alarms_of


def half_interval(dial: Dial) -> str:
    """Format the interval of a half-accuracy severity; where there is none, return chance."""
    half = dial.half
    if half.status in NO_HALF:
        return f"chance {100 * half.chance:.1f} %"
    return between_words(dial.shift, half.low, half.high)


def between_words(shift: str, low: float | None, high: float | None) -> str:
    """Format an interval of severities; a missing end is beyond the dial."""
    if low is None:
        return "beyond the dial"
    value = reading(shift).value
    return f"{value(low)} to {'beyond' if high is None else value(high)}"


# Why a half-accuracy severity does not exist.
NO_HALF = {
    UNDEFINED: "undefined: clean accuracy is not clearly above chance",
    NO_CLEAN: "undefined: there are no clean images",
}
# Number of weakest shifts that are listed.
WEAKEST = 3
# Coverages in the table of risks, in tenths.
COVERAGES = (5, 8, 10)
NEARNESS = ("near", "far")
MISTAKES = "mistakes under shift"
Row = Mapping[str, Any]


def document(
    battery: BatteryInfo, folders: Mapping[str, Path], left_out: Mapping[str, str], sources: Mapping[str, str]
) -> Passport:
    """Compute the passport of the one model that the runs of a battery evaluated.

    Args:
        battery: The battery.
        folders: The run folders by part.
        left_out: The parts that were not measured, with reasons.
        sources: The sources of the images by part, as they are shown.
    """
    records = {part: read_record(folder) for part, folder in folders.items()}
    tables = {part: read(folder) for part, folder in folders.items()}
    first = next(iter(records.values()))
    dials = [dial for part in folders for dial in _dials(part, tables[part], records[part])]
    ranked = sorted([dial for dial in dials if _lost(dial) > 0], key=lambda dial: -_lost(dial))
    grids = [grid for part in folders for grid in _grids(part, tables[part])]
    listed = listed_rows(tables, [*dials, *grids])
    passport = Passport(
        schema="sorites-passport",
        sorites=__version__,
        model=model_of(first),
        battery=battery,
        clean=one_number(metrics.mean_accuracy(_clean_images(tables, [*dials, *grids]), by=("model",))),
        shifted=one_number(metrics.mean_accuracy(listed, by=("model",))),
        dials=tuple(dials),
        grids=tuple(grids),
        weakest=tuple(dial.shift for dial in ranked[:WEAKEST]),
        knows=_knows(battery.scorer, tables, listed, dials),
        runs=tuple(
            run_of(part, folders[part], records[part], tables[part], sources[part]) for part in folders
        ),
        left_out=dict(left_out),
        versions={name: str(version) for name, version in first.versions.items()},
        evidence=tuple(run_evidence(part, folder) for part, folder in folders.items()),
    )
    return sealed(passport)


def model_of(record: RunRecord) -> ModelInfo:
    """Return the one model of a run."""
    name, version = next(iter(record.models.items()))
    return ModelInfo(name=name, version=str(version), parameters=record.parameters.get(name))


def _lost(dial: Dial) -> float:
    """Return the drop of a shift, rounded so that summation order does not change the ranking."""
    return round(dial.drop.value or 0.0, 9)


class Entry(Protocol):
    """A shift of a part."""

    @property
    def part(self) -> str:
        """The part."""
        ...

    @property
    def shift(self) -> str:
        """The shift."""
        ...


def listed_rows(tables: Mapping[str, pl.LazyFrame], entries: Sequence[Entry]) -> pl.LazyFrame:
    """Return the shifted images of the listed shifts; a shift of several parts is a shift of each.

    A sample that is in several parts is one sample.
    """
    rows = [
        tables[entry.part]
        .filter(pl.col("shift") == entry.shift)
        .with_columns(shift=pl.lit(f"{entry.part}/{entry.shift}"))
        for entry in entries
    ]
    return pl.concat(rows or [table.clear() for table in tables.values()])


def _clean_images(tables: Mapping[str, pl.LazyFrame], entries: Sequence[Dial | Grid]) -> pl.LazyFrame:
    """Return the clean images of all parts with a listed shift, under the name of one shift: metrics average
    the images of a sample, so that it counts once in however many parts it is.
    """
    parts = list(dict.fromkeys(entry.part for entry in entries)) or list(tables)
    rows = pl.concat([tables[part].filter(pl.col("shift") == CLEAN) for part in parts])
    return rows.with_columns(shift=pl.lit("clean images"))


def number_of(row: Row) -> dict[str, Any]:
    """Return value, interval and n of an answer."""
    return {name: row[name] for name in ("value", "low", "high", "n")}


def one_number(frame: pl.DataFrame) -> Number:
    """Return the only number of a metric, or a missing one."""
    return Number(**number_of(frame.row(0, named=True))) if frame.height else Number(value=None, n=0)


def _dials(part: str, table: pl.LazyFrame, record: RunRecord) -> list[Dial]:
    halves = _by_shift(metrics.half_accuracy_severity(table))
    failures = _by_shift(metrics.failure_severity(table))
    curves = metrics.accuracy(table.filter(pl.col("severity").is_not_null()))
    dials = []
    for shift in [name for name in _order(record, halves) if name in halves]:
        settings = [
            SettingValue(**number_of(row), severity=row["severity"])
            for row in curves.filter(pl.col("shift") == shift).to_dicts()
        ]
        if not settings:
            continue
        top, half = max(setting.severity for setting in settings), _half(halves[shift])
        numbers = {"failure_severity": _or_missing(failures.get(shift)), "drop": _mean_drop(table, shift)}
        version = str(record.shifts.get(shift, ""))
        words = _words(shift, half, top)
        dial = {
            "part": part,
            "shift": shift,
            "version": version,
            "unit": unit_of(shift),
            "top": top,
            "words": words,
        }
        dials.append(Dial.model_validate({**dial, "half": half, **numbers, "accuracy": tuple(settings)}))
    return dials


def _half(row: Row) -> Half:
    more = {name: row[name] for name in ("status", "clean", "chance", "majority", "assumed")}
    return Half(**number_of(row), **more)


def _mean_drop(table: pl.LazyFrame, shift: str) -> Number:
    """Return clean accuracy minus the mean height of the accuracy curve, interpolated linearly from the clean
    images to the greatest severity.

    More severities in between refine the curve and do not change its weight. The interval is that of
    ``accuracy_drop``: samples are its units, and it does not collapse where no outcome changed.
    """
    rows = metrics.with_clean(table.filter(pl.col("shift").is_in([CLEAN, shift])))
    on_curve = metrics.judged_rows(rows.filter(pl.col("output") == "label", pl.col("valid").fill_null(True)))
    cells = on_curve.filter((pl.col("shift") == shift) & pl.col("severity").is_not_null())
    outcomes = (
        cells.group_by("source", "sample_id", "severity")
        .agg(pl.col("correct").mean())
        .collect(engine="streaming")
    )
    wide = outcomes.sort("severity").pivot(on="severity", index=["source", "sample_id"], values="correct")
    severities = np.array([float(name) for name in wide.columns[2:]])
    if not len(severities) or severities[0] != 0:
        return Number(value=None, n=wide.height)
    right = wide.sort("source", "sample_id").drop("source", "sample_id").to_numpy().astype(np.float64)
    seen = np.isfinite(right)
    accuracy = np.nanmean(right, axis=0)
    weights = -np.trapezoid(np.eye(len(severities)), severities, axis=1) / severities[-1]
    weights[0] += 1
    influence = np.where(seen, right - accuracy, 0.0) / seen.sum(axis=0) @ weights
    value, n = float(accuracy @ weights), len(right)
    apart = np.nan_to_num(np.abs(right[:, :1] - right[:, 1:])) @ -weights[1:]
    square, changed = float(np.mean((value + n * influence) ** 2)), float(apart.mean())
    interval = paired_interval(pl.lit(value), pl.lit(square), pl.lit(changed), pl.lit(float(n)))
    low, high = pl.DataFrame({"n": [n]}).select(**interval).row(0)
    return Number(value=value, low=low, high=high, n=n)


def _order(record: RunRecord, halves: Mapping[str, Row]) -> list[str]:
    return list(dict.fromkeys([*record.settings, *sorted(halves)]))


def _by_shift(frame: pl.DataFrame) -> dict[str, Row]:
    return {row["shift"]: row for row in frame.to_dicts()}


def _or_missing(row: Row | None) -> Number:
    return Number(value=None, n=0) if row is None else Number(**number_of(row))


def unit_of(shift: str) -> str:
    """Return the unit of a shift; empty if it is not registered."""
    return SHIFTS.get(shift).unit if shift in SHIFTS else ""


def _words(shift: str, half: Half, top: float) -> str:
    """Describe the half-accuracy severity, or why there is none."""
    if half.value is not None:
        return in_words(shift, half.value)
    return f"beyond {in_words(shift, top)}" if half.status == BEYOND else NO_HALF[half.status]


def _grids(part: str, table: pl.LazyFrame) -> list[Grid]:
    """Return the numbers of shifts without ordered severities."""
    unordered = table.filter(
        pl.col("severity").is_null() & (pl.col("shift") != CLEAN) & (pl.col("output") == "label")
    )
    grids = []
    for shift in sorted(unordered.select(pl.col("shift").unique()).collect()["shift"]):
        rows = unordered.filter(pl.col("shift") == shift).with_columns(params=_requested_params(shift))
        each = _settings(rows)
        if each.height:
            worst, best = _extremes(each)
            grids.append(
                Grid(
                    part=part,
                    shift=shift,
                    settings=each.height,
                    mean=one_number(metrics.mean_accuracy(rows, by=("model",))),
                    worst=Number(**number_of(worst)),
                    worst_setting=_setting(worst["params"]),
                    best=Number(**number_of(best)),
                    best_setting=_setting(best["params"]),
                )
            )
    return grids


def _settings(rows: pl.LazyFrame) -> pl.DataFrame:
    """Return the accuracy of each setting, lowest first, with its interval and, as ``least`` and ``most``,
    the bounds that hold jointly for all settings (Bonferroni).
    """
    keys = ["params"]
    judged = metrics.judged_rows(rows.filter(pl.col("valid").fill_null(True)))
    sums = cluster_sums(count_samples(judged, keys, pl.col("correct")), keys).collect(engine="streaming")
    jointly = float(ndtri(1 - 0.025 / max(sums.height, 1)))
    own, joint = (share_intervals(sums.lazy(), keys, z=z).collect().sort(keys) for z in (Z, jointly))
    both = own.drop("n").rename({"samples": "n"}).with_columns(least=joint["low"], most=joint["high"])
    return both.sort("value", *keys)


def _extremes(each: pl.DataFrame) -> tuple[Row, Row]:
    """Return the worst and the best setting, with intervals that allow for the choice among all of them.

    The best accuracy is at least that of every setting, and that of some setting: it is above the highest
    lower bound that holds jointly, and below the highest upper bound.
    """
    worst, best = each.row(0, named=True), each.row(-1, named=True)
    ends = each.select(
        worst_low=pl.col("low").min(), worst_high=pl.col("most").min(),
        best_low=pl.col("least").max(), best_high=pl.col("high").max(),
    ).row(0, named=True)  # fmt: skip
    return tuple(
        {**row, "low": ends[f"{name}_low"], "high": ends[f"{name}_high"]}
        for name, row in (("worst", worst), ("best", best))
    )  # type: ignore[return-value]


def _requested_params(shift: str) -> pl.Expr:
    """Return the requested params, without those that the shift chose for an image."""
    keys = (
        sorted({key for setting in SHIFTS.get(shift).settings for key in setting}) if shift in SHIFTS else []
    )

    def select(text: str) -> str:
        params = json.loads(text or "{}")
        return json.dumps({key: params[key] for key in keys or sorted(params) if key in params})

    return pl.col("params").map_elements(select, return_dtype=pl.String)


def _setting(params: str | None) -> str:
    return ", ".join(
        f"{key} {value}" for key, value in json.loads(params or "{}").items() if value is not None
    )


def _knows(
    scorer: str, tables: Mapping[str, pl.LazyFrame], listed: pl.LazyFrame, dials: Sequence[Dial]
) -> SelfKnowledge | None:
    """Return the selective risk on shifted images and the alarms by one scorer, and OOD detection by each
    scorer.

    Risk and OOD detection pool the images of all listed shifts; ``n`` counts samples, which are the units of
    the intervals.
    """
    scored = listed.filter((pl.col("output") == "ood") & (pl.col("scorer") == scorer))
    judged = scored.filter(pl.col("correct").is_not_null() & pl.col("error").is_null())
    samples = judged.select(pl.struct("source", "sample_id").n_unique()).collect(engine="streaming").item()
    risks = metrics.risk_coverage(scored, points=10).to_dicts()
    risk = [
        SelectiveRisk(**{**number_of(row), "n": samples}, coverage=row["coverage"])
        for row in risks
        if round(10 * row["coverage"]) in COVERAGES
    ]
    separations = [row for part in tables for row in _separations(tables[part])]
    mistakes = metrics.auroc(scored, by=("model", "scorer"), framework="model-specific").to_dicts()
    separations += [
        Separation(**{**number_of(row), "n": samples}, kind=MISTAKES, scorer=row["scorer"])
        for row in mistakes
        if row["value"] is not None
    ]
    return (
        SelfKnowledge(
            scorer=scorer,
            risk=tuple(risk),
            auroc=tuple(separations),
            alarms=alarms_of(scorer, tables, dials),
        )
        if risk or separations
        else None
    )


def _separations(table: pl.LazyFrame) -> list[Separation]:
    """Return the AUROC of each scorer on near and far OOD images of a run."""
    rows = metrics.auroc(table, by=("model", "scorer", "group")).drop_nulls("value").to_dicts()
    return [
        Separation(**number_of(row), kind=row["group"], scorer=row["scorer"])
        for row in rows
        if row["group"] in NEARNESS
    ]


def run_of(part: str, folder: Path, record: RunRecord, table: pl.LazyFrame, source: str) -> Run:
    """Return what a passport says about the run of a part."""
    manifest = read_manifest(folder)
    content = manifest["content"] if "content" in manifest.columns else pl.Series([None] * len(manifest))
    names = zip(manifest["sample_id"], manifest["shift"], content, strict=True)
    digest = hashlib.sha256(
        "\n".join(sorted(f"{id_}\t{shift}\t{held}" for id_, shift, held in names)).encode()
    ).hexdigest()
    labels = table.filter(pl.col("output").is_in(["label", "boxes"]))
    images, errors = (
        labels.select(pl.len(), pl.col("error").count().alias("errors")).collect(engine="streaming").row(0)
    )
    return Run(
        part=part, suite=record.suite.name, source=source, digest=digest[:16],
        samples=manifest.select("source", "sample_id").n_unique(), images=images, errors=errors,
    )  # fmt: skip

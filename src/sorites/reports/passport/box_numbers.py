"""Compute the numbers of a detector's passport from the tables of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites import __version__, metrics
from sorites.analysis.passport.document import (
    BatteryInfo,
    BoxDial,
    BoxKnowledge,
    BoxPassport,
    BoxSeparation,
    ErrorCost,
    HalfLost,
    Number,
    SettingValue,
    sealed,
)
from sorites.core import CLEAN
from sorites.core.table import read
from sorites.evaluation.integrity.evidence import run_evidence
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.metrics.detection.kept import half_objects_severities, kept_shares
from sorites.metrics.detection.tide import KINDS
from sorites.reports.components.severities import in_words
from sorites.reports.passport.numbers import (
    WEAKEST,
    listed_rows,
    model_of,
    number_of,
    one_number,
    run_of,
    unit_of,
)

SHIFTED, CLEAN_IMAGES = "shifted", "clean"
Row = Mapping[str, Any]


def box_document(
    battery: BatteryInfo, folders: Mapping[str, Path], left_out: Mapping[str, str], sources: Mapping[str, str]
) -> BoxPassport:
    """Compute the passport of the one detector that the runs of a battery evaluated.

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
    ranked = sorted(
        [dial for dial in dials if (dial.lost.value or 0) > 0],
        key=lambda dial: -round(dial.lost.value or 0, 9),
    )
    listed = listed_rows(tables, dials)
    clean = _clean_images(tables)
    passport = BoxPassport(
        schema="sorites-passport-boxes",
        sorites=__version__,
        model=model_of(first),
        battery=battery,
        conf=CONFIDENCE,
        clean=one_number(metrics.map(clean, by=("model",))),
        shifted=one_number(metrics.mean_map(listed, by=("model",))),
        recall=one_number(metrics.box_recall(clean, by=("model",))),
        precision=one_number(metrics.box_precision(clean, by=("model",))),
        dials=tuple(dials),
        tide=tuple(
            _costs("clean", metrics.tide(clean, by=("model",)))
            + _costs("shifted", metrics.mean_tide(listed, by=("model",)))
        ),
        weakest=tuple(dial.shift for dial in ranked[:WEAKEST]),
        knows=_knows(battery.scorer, clean, listed, dials),
        runs=tuple(
            run_of(part, folders[part], records[part], tables[part], sources[part]) for part in folders
        ),
        left_out=dict(left_out),
        versions={name: str(version) for name, version in first.versions.items()},
        evidence=tuple(run_evidence(part, folder) for part, folder in folders.items()),
    )
    return sealed(passport)


def _clean_images(tables: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    """Return the clean images of all parts, each sample once."""
    rows = pl.concat([table.filter(pl.col("shift") == CLEAN) for table in tables.values()])
    return rows.unique(["source", "sample_id", "output", "scorer"], keep="first", maintain_order=True)


def _dials(part: str, table: pl.LazyFrame, record: RunRecord) -> list[BoxDial]:
    halves = {row["shift"]: row for row in half_objects_severities(table).to_dicts()}
    kept = kept_shares(table)
    along = metrics.with_clean(table.filter(pl.col("output") == "boxes"))
    maps = metrics.map(along.filter(pl.col("severity").is_not_null()))
    dials = []
    for shift in [name for name in dict.fromkeys([*record.settings, *sorted(halves)]) if name in halves]:
        row = halves[shift]
        shares, values = (_curve(frame, shift) for frame in (kept, maps))
        top = max(setting.severity for setting in shares)
        half = HalfLost(**number_of(row), status=row["status"], objects=row["objects"])
        beyond = f"beyond {in_words(shift, top)}"
        dials.append(
            BoxDial(
                part=part,
                shift=shift,
                version=str(record.shifts.get(shift, "")),
                unit=unit_of(shift),
                top=top,
                half=half,
                words=beyond if half.value is None else in_words(shift, half.value),
                lost=Number(value=row["lost"], low=row["lost_low"], high=row["lost_high"], n=row["n"]),
                kept=shares,
                map=values,
            )
        )
    return dials


def _curve(frame: pl.DataFrame, shift: str) -> tuple[SettingValue, ...]:
    rows = frame.filter(pl.col("shift") == shift).sort("severity").to_dicts()
    return tuple(SettingValue(**number_of(row), severity=row["severity"]) for row in rows)


def _costs(images: str, answer: pl.DataFrame) -> list[ErrorCost]:
    found = {row["error"]: row for row in answer.to_dicts()}
    return [
        ErrorCost.model_validate({**number_of(found[kind]), "images": images, "error": kind})
        for kind in KINDS
        if kind in found
    ]


def _knows(
    scorer: str, clean: pl.LazyFrame, listed: pl.LazyFrame, dials: Sequence[BoxDial]
) -> BoxKnowledge | None:
    """Return how well the score of a box separates wrong boxes from right ones; None without any."""
    rows = pl.concat([clean.with_columns(shift=pl.lit(CLEAN_IMAGES)), listed])
    scored = rows.filter(pl.col("scorer") == scorer)
    parts = {
        CLEAN_IMAGES: scored.filter(pl.col("shift") == CLEAN_IMAGES),
        SHIFTED: scored.filter(pl.col("shift") != CLEAN_IMAGES),
    }
    found = {name: metrics.box_auroc(part, by=("model", "scorer")).to_dicts() for name, part in parts.items()}
    each = {
        row["shift"]: row
        for row in metrics.box_auroc(parts[SHIFTED], by=("model", "scorer", "shift")).to_dicts()
    }
    named = [(name, rows[0]) for name, rows in found.items() if rows]
    named += [
        (dial.shift, row) for dial in dials if (row := each.get(f"{dial.part}/{dial.shift}")) is not None
    ]
    measured = [_separation(name, row) for name, row in named if row["value"] is not None]
    return BoxKnowledge(scorer=scorer, conf=CONFIDENCE, auroc=tuple(measured)) if measured else None


def _separation(images: str, row: Row) -> BoxSeparation:
    return BoxSeparation(**number_of(row), images=images, right=row["id"], wrong=row["ood"])

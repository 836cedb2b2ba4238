"""From the tables of a passport's runs to its numbers: every one is a metric's answer, with its
interval and n.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites import __version__, metrics
from sorites.analysis.passport.battery import Battery
from sorites.analysis.passport.document import (
    Dial,
    From,
    Grid,
    Kept,
    Knows,
    Number,
    Of,
    Passport,
    Run,
    Separation,
    SettingValue,
    sealed,
)
from sorites.core import CLEAN, SHIFTS
from sorites.core.table import read
from sorites.evaluation.storage.folder import read_info, read_manifest
from sorites.reports.components.markup import number

# Severities in words of the world: stops, micrometres, ISO, millimetres of rain per hour.


# Rain by its rate in mm per hour, as the American Meteorological Society calls it.
RAIN = ((2.5, "light"), (7.6, "moderate"), (50.0, "heavy"), (math.inf, "violent"))

# The number that a severity stands for, and the words around it, in which the number is ``{}``.
Words = tuple[Callable[[float], str], str]


def _rounded(value: float, digits: int = 2) -> str:
    """Return a large number rounded to some digits, without an exponent: 6400."""
    return f"{float(f'{value:.{digits}g}'):.0f}"


def _plain(severity: float) -> str:
    return f"{severity:.1f}"


def _two(severity: float) -> str:
    return number(severity, 2)


def _percent(severity: float) -> str:
    return f"{100 * severity:.0f}"


def _left(severity: float) -> str:
    return f"{100 * (1 - severity):.0f}"


def _through(depth: float) -> str:
    """Return the percentage of light that air of an optical depth lets through."""
    return f"{100 * math.exp(-depth):.0f}"


# The words for a severity of a shift, where its unit does not say enough.
SAID: Mapping[str, Words] = {
    "defocus_disk": (_plain, "{} px out of focus"),
    "gaussian_blur": (_plain, "{} px of blur"),
    "decentre": (_two, "{} µm of decentre"),
    "tilt": (_two, "{} arcmin of tilt"),
    "spacing": (_two, "{} µm of spacing"),
    "exposure_stops": (_plain, "{} stops over-exposed"),
    "exposure_stops_down": (_plain, "{} stops under-exposed"),
    "iso_noise": (lambda s: _rounded(100 * 2**s), "ISO {}"),
    "aperture": (lambda s: number(22 / 2 ** (s / 2), 2), "f/{}, out of focus"),
    "gaussian_noise": (_percent, "noise of {} % of white"),
    "shot_noise": (lambda s: _rounded(s**-2) if s else "∞", "{} photons at white"),
    "impulse_noise": (_percent, "{} % of values lost"),
    "speckle_noise": (_percent, "speckle of {} %"),
    "haze": (_through, "fog, {} % of light left"),
    "smog": (_through, "smog, {} % of light left"),
    "dust": (_through, "dust, {} % of light left"),
    "sandstorm": (_through, "sand, {} % of light left"),
    "rain": (lambda s: number(20 * s, 2), "rain, {} mm/h"),
    "snowfall": (_two, "{} cm of snow per hour"),
    "jpeg": (lambda s: f"{100 - s:.0f}", "JPEG quality {}"),
    "pixelate": (_left, "{} % of the pixels per side"),
    "contrast": (_left, "{} % of the contrast"),
    "brightness": (_percent, "{} % brighter"),
    "elastic_transform": (_plain, "elastic gain of {}"),
    "context": (_two, "{} uncommon traits"),
}

NAMES = {
    "exposure_stops": "over-exposure", "exposure_stops_down": "under-exposure", "iso_noise": "ISO noise", "haze": "fog",
    "defocus_disk": "defocus", "defocus_spherical": "defocus, spherical", "jpeg": "JPEG", "context": "uncommon context",
    "aperture": "open aperture", "pixelate": "few pixels", "contrast": "low contrast",
    "fog": "fog (ImageNet-C)", "snow": "snow (ImageNet-C)",
}  # fmt: skip


def title(shift: str) -> str:
    """Return the name of a shift as a reader says it."""
    return NAMES.get(shift, shift.replace("_", " "))


def _said(shift: str) -> Words:
    if shift in SAID:
        return SAID[shift]
    held = SHIFTS.get(shift) if shift in SHIFTS.names() else None
    if held is not None and held.unit in ("level", "levels"):
        return _plain, f"level {{}} of {len(held.levels)}"
    return number, f"{{}} {held.unit if held else ''}".strip()


def in_words(shift: str, severity: float) -> str:
    """Return a severity of a shift in words."""
    value, words = _said(shift)
    found = words.format(value(severity))
    return (
        f"{next(word for most, word in RAIN if 20 * severity <= most)} {found}" if shift == "rain" else found
    )


def between_words(shift: str, low: float | None, high: float | None) -> str:
    """Return the numbers of an interval as the words have them; a missing end lies beyond the dial."""
    value, _ = _said(shift)
    if low is None:
        return "beyond the dial"
    return f"{value(low)} to {'beyond' if high is None else value(high)}"


WEAKEST = 3
# Tenths of the images that a model answers, in the table of risks.
COVERAGES = (5, 8, 10)
NEARNESS = ("near", "far")
MISTAKES = "mistakes under shift"
Row = Mapping[str, Any]


def document(
    battery: Battery, folders: Mapping[str, Path], left_out: Mapping[str, str], sources: Mapping[str, str]
) -> Passport:
    """Return what the runs of a battery say about their one model."""
    infos = {part: read_info(folder) for part, folder in folders.items()}
    tables = {part: read(folder) for part, folder in folders.items()}
    first = next(iter(infos.values()))
    name, version = next(iter(first["models"].items()))
    dials = [dial for part in folders for dial in _dials(part, tables[part], infos[part])]
    ranked = sorted([dial for dial in dials if _lost(dial) > 0], key=lambda dial: -_lost(dial))
    moved = [part for part in folders if infos[part]["settings"]]
    made = Passport(
        schema="sorites-passport",
        sorites=__version__,
        model=Of(name=name, version=str(version), parameters=(first.get("parameters") or {}).get(name)),
        battery=From(name=battery.name, version=battery.version, digest=battery.digest()),
        clean=_one(metrics.accuracy(tables[moved[0]].filter(pl.col("shift") == CLEAN), by=("model",))),
        shifted=_one(metrics.mean_accuracy(_joined([tables[part] for part in moved]), by=("model",))),
        dials=tuple(dials),
        grids=tuple(grid for part in folders for grid in _grids(part, tables[part])),
        weakest=tuple(dial.shift for dial in ranked[:WEAKEST]),
        knows=_knows(battery, tables, moved),
        runs=tuple(_run(part, folders[part], infos[part], tables[part], sources[part]) for part in folders),
        left_out=dict(left_out),
        versions=dict(first["versions"]),
    )
    return sealed(made)


def _lost(dial: Dial) -> float:
    """Return the drop of a dial, rounded so that sums in another order rank dials alike."""
    return round(dial.drop.value or 0.0, 9)


def _joined(tables: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Return several runs as one table; a sample that stands in several of them is one sample."""
    return pl.concat(tables)


def _number(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("value", "low", "high", "n")}


def _one(frame: pl.DataFrame) -> Number:
    """Return the one number of an answer, or a missing one."""
    return Number(**_number(frame.row(0, named=True))) if frame.height else Number(value=None, n=0)


def _dials(part: str, table: pl.LazyFrame, info: Row) -> list[Dial]:
    halves = _by_shift(metrics.half_accuracy_severity(table))
    failures = _by_shift(metrics.failure_severity(table))
    drops = _by_shift(metrics.accuracy_drop(table, by=("model", "shift")))
    curves = metrics.accuracy(table.filter(pl.col("severity").is_not_null()))
    found = []
    for shift in [name for name in _order(info, halves) if name in halves]:
        settings = [
            SettingValue(**_number(row), severity=row["severity"])
            for row in curves.filter(pl.col("shift") == shift).to_dicts()
        ]
        if not settings:
            continue
        top, half = max(setting.severity for setting in settings), Number(**_number(halves[shift]))
        numbers = {
            "failure_severity": _or_missing(failures.get(shift)),
            "drop": _or_missing(drops.get(shift)),
        }
        version = str((info.get("shifts") or {}).get(shift, ""))
        words = _words(shift, half, top)
        dial = {
            "part": part,
            "shift": shift,
            "version": version,
            "unit": _unit(shift),
            "top": top,
            "words": words,
        }
        found.append(Dial.model_validate({**dial, "half": half, **numbers, "accuracy": tuple(settings)}))
    return found


def _order(info: Row, halves: Mapping[str, Row]) -> list[str]:
    return list(dict.fromkeys([*info["settings"], *sorted(halves)]))


def _by_shift(frame: pl.DataFrame) -> dict[str, Row]:
    return {row["shift"]: row for row in frame.to_dicts()}


def _or_missing(row: Row | None) -> Number:
    return Number(value=None, n=0) if row is None else Number(**_number(row))


def _unit(shift: str) -> str:
    return SHIFTS.get(shift).unit if shift in SHIFTS.names() else ""


def _words(shift: str, half: Number, top: float) -> str:
    """Say how far the dial may be turned; beyond the dial, only that more than half is left at its end."""
    return in_words(shift, half.value) if half.value is not None else f"beyond {in_words(shift, top)}"


def _grids(part: str, table: pl.LazyFrame) -> list[Grid]:
    """Return the settings of shifts without an order."""
    unordered = table.filter(
        pl.col("severity").is_null() & (pl.col("shift") != CLEAN) & (pl.col("output") == "label")
    )
    found = []
    for shift in sorted(unordered.select(pl.col("shift").unique()).collect()["shift"]):
        rows = unordered.filter(pl.col("shift") == shift).with_columns(params=_asked(shift))
        each = metrics.accuracy(rows, by=("params",)).drop_nulls("value").sort("value", "params")
        if each.height:
            worst, best = each.row(0, named=True), each.row(-1, named=True)
            found.append(
                Grid(
                    part=part, shift=shift, settings=each.height, mean=_one(metrics.mean_accuracy(rows, by=("model",))),
                    worst=Number(**_number(worst)), worst_setting=_setting(worst["params"]),
                    best=Number(**_number(best)), best_setting=_setting(best["params"]),
                )
            )  # fmt: skip
    return found


def _asked(shift: str) -> pl.Expr:
    """Return the params that were asked for, without those that the shift itself chose for an image."""
    keys = (
        sorted({key for setting in SHIFTS.get(shift).settings for key in setting})
        if shift in SHIFTS.names()
        else []
    )

    def kept(text: str) -> str:
        held = json.loads(text or "{}")
        return json.dumps({key: held[key] for key in keys or sorted(held) if key in held})

    return pl.col("params").map_elements(kept, return_dtype=pl.String)


def _setting(params: str | None) -> str:
    return ", ".join(
        f"{key} {value}" for key, value in json.loads(params or "{}").items() if value is not None
    )


def _knows(battery: Battery, tables: Mapping[str, pl.LazyFrame], moved: Sequence[str]) -> Knows | None:
    """Return whether the model knows, by the battery's first scorer on shifted images, and by
    each scorer on OOD ones.
    """
    scorer = battery.scorers[0]
    scored = _joined([tables[part] for part in moved]).filter(
        (pl.col("output") == "ood") & (pl.col("scorer") == scorer)
    )
    risks = metrics.risk_coverage(scored, points=10).to_dicts()
    risk = [
        Kept(**_number(row), coverage=row["coverage"])
        for row in risks
        if round(10 * row["coverage"]) in COVERAGES
    ]
    found = [row for part in tables for row in _separations(tables[part])]
    wrong = metrics.auroc(scored, by=("model", "scorer"), framework="model-specific").to_dicts()
    found += [
        Separation(**_number(row), kind=MISTAKES, scorer=row["scorer"])
        for row in wrong
        if row["value"] is not None
    ]
    return Knows(scorer=scorer, risk=tuple(risk), auroc=tuple(found)) if risk or found else None


def _separations(table: pl.LazyFrame) -> list[Separation]:
    """Return the AUROC of each scorer on each kind of OOD images of a run."""
    rows = metrics.auroc(table, by=("model", "scorer", "group")).drop_nulls("value").to_dicts()
    return [
        Separation(**_number(row), kind=row["group"], scorer=row["scorer"])
        for row in rows
        if row["group"] in NEARNESS
    ]


def _run(part: str, folder: Path, info: Row, table: pl.LazyFrame, source: str) -> Run:
    listed = read_manifest(folder)
    content = listed["content"] if "content" in listed.columns else pl.Series([None] * len(listed))
    names = zip(listed["sample_id"], listed["shift"], content, strict=True)
    digest = hashlib.sha256(
        "\n".join(sorted(f"{id_}\t{shift}\t{held}" for id_, shift, held in names)).encode()
    ).hexdigest()
    labels = table.filter(pl.col("output") == "label")
    images, errors = (
        labels.select(pl.len(), pl.col("error").count().alias("errors")).collect(engine="streaming").row(0)
    )
    return Run(
        part=part, suite=info["suite"]["name"], source=source, digest=digest[:16],
        samples=listed["sample_id"].n_unique(), images=images, errors=errors,
    )  # fmt: skip

"""Compute the numbers of a passport from the tables of its runs; each is a metric with interval and n."""

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
    BatteryInfo,
    Dial,
    Grid,
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
from sorites.evaluation.storage.folder import read_info, read_manifest
from sorites.reports.components.markup import number

# --- Human-readable severities: stops, micrometres, ISO, millimetres of rain per hour

# Rain by its rate in mm per hour, as defined by the American Meteorological Society.
RAIN = ((2.5, "light"), (7.6, "moderate"), (50.0, "heavy"), (math.inf, "violent"))

# Formats a severity as a number, and the words around that number (``{}``).
Words = tuple[Callable[[float], str], str]


def _rounded(value: float, digits: int = 2) -> str:
    """Round a large number to significant digits, without an exponent: 6400."""
    return f"{float(f'{value:.{digits}g}'):.0f}"


def _one_decimal(severity: float) -> str:
    return f"{severity:.1f}"


def _two_digits(severity: float) -> str:
    return number(severity, 2)


def _percent(severity: float) -> str:
    return f"{100 * severity:.0f}"


def _percent_left(severity: float) -> str:
    return f"{100 * (1 - severity):.0f}"


def _transmission(depth: float) -> str:
    """Return the percentage of light transmitted at an optical depth."""
    return f"{100 * math.exp(-depth):.0f}"


# How to describe a severity of a shift whose unit alone is not clear.
WORDS: Mapping[str, Words] = {
    "defocus_disk": (_one_decimal, "{} px out of focus"),
    "gaussian_blur": (_one_decimal, "{} px of blur"),
    "decentre": (_two_digits, "{} µm of decentre"),
    "tilt": (_two_digits, "{} arcmin of tilt"),
    "spacing": (_two_digits, "{} µm of spacing"),
    "exposure_stops": (_one_decimal, "{} stops over-exposed"),
    "exposure_stops_down": (_one_decimal, "{} stops under-exposed"),
    "iso_noise": (lambda s: _rounded(100 * 2**s), "ISO {}"),
    "aperture": (lambda s: number(22 / 2 ** (s / 2), 2), "f/{}, out of focus"),
    "gaussian_noise": (_percent, "noise of {} % of white"),
    "shot_noise": (lambda s: _rounded(s**-2) if s else "∞", "{} photons at white"),
    "impulse_noise": (_percent, "{} % of values lost"),
    "speckle_noise": (_percent, "speckle of {} %"),
    "haze": (_transmission, "fog, {} % of light left"),
    "smog": (_transmission, "smog, {} % of light left"),
    "dust": (_transmission, "dust, {} % of light left"),
    "sandstorm": (_transmission, "sand, {} % of light left"),
    "rain": (lambda s: number(20 * s, 2), "rain, {} mm/h"),
    "snowfall": (_two_digits, "{} cm of snow per hour"),
    "jpeg": (lambda s: f"{100 - s:.0f}", "JPEG quality {}"),
    "pixelate": (_percent_left, "{} % of the pixels per side"),
    "contrast": (_percent_left, "{} % of the contrast"),
    "brightness": (_percent, "{} % brighter"),
    "elastic_transform": (_one_decimal, "elastic gain of {}"),
    "context": (_two_digits, "{} uncommon traits"),
}

NAMES = {
    "exposure_stops": "over-exposure",
    "exposure_stops_down": "under-exposure",
    "iso_noise": "ISO noise",
    "haze": "fog",
    "defocus_disk": "defocus",
    "defocus_spherical": "defocus, spherical",
    "jpeg": "JPEG",
    "context": "uncommon context",
    "aperture": "open aperture",
    "pixelate": "few pixels",
    "contrast": "low contrast",
    "fog": "fog (ImageNet-C)",
    "snow": "snow (ImageNet-C)",
}


def title(shift: str) -> str:
    """Return the human-readable name of a shift."""
    return NAMES.get(shift, shift.replace("_", " "))


def _words_of(shift: str) -> Words:
    if shift in WORDS:
        return WORDS[shift]
    registered = SHIFTS.get(shift) if shift in SHIFTS.names() else None
    if registered is not None and registered.unit in ("level", "levels"):
        return _one_decimal, f"level {{}} of {len(registered.levels)}"
    return number, f"{{}} {registered.unit if registered else ''}".strip()


def in_words(shift: str, severity: float) -> str:
    """Return a human-readable severity, such as "JPEG quality 18"."""
    value, words = _words_of(shift)
    text = words.format(value(severity))
    if shift != "rain":
        return text
    return f"{next(word for most, word in RAIN if 20 * severity <= most)} {text}"


def between_words(shift: str, low: float | None, high: float | None) -> str:
    """Format an interval of severities; a missing end is beyond the dial."""
    value, _ = _words_of(shift)
    if low is None:
        return "beyond the dial"
    return f"{value(low)} to {'beyond' if high is None else value(high)}"


# Number of weakest shifts that are listed.
WEAKEST = 3
# Coverages in the table of risks, in tenths.
COVERAGES = (5, 8, 10)
NEARNESS = ("near", "far")
MISTAKES = "mistakes under shift"
Row = Mapping[str, Any]


def document(
    battery: Battery, folders: Mapping[str, Path], left_out: Mapping[str, str], sources: Mapping[str, str]
) -> Passport:
    """Compute the passport of the one model that the runs of a battery evaluated."""
    infos = {part: read_info(folder) for part, folder in folders.items()}
    tables = {part: read(folder) for part, folder in folders.items()}
    first = next(iter(infos.values()))
    name, version = next(iter(first["models"].items()))
    dials = [dial for part in folders for dial in _dials(part, tables[part], infos[part])]
    ranked = sorted([dial for dial in dials if _lost(dial) > 0], key=lambda dial: -_lost(dial))
    shifted = [part for part in folders if infos[part]["settings"]]
    passport = Passport(
        schema="sorites-passport",
        sorites=__version__,
        model=ModelInfo(
            name=name, version=str(version), parameters=(first.get("parameters") or {}).get(name)
        ),
        battery=BatteryInfo(name=battery.name, version=battery.version, digest=battery.digest()),
        clean=_one(metrics.accuracy(tables[shifted[0]].filter(pl.col("shift") == CLEAN), by=("model",))),
        shifted=_one(metrics.mean_accuracy(_joined([tables[part] for part in shifted]), by=("model",))),
        dials=tuple(dials),
        grids=tuple(grid for part in folders for grid in _grids(part, tables[part])),
        weakest=tuple(dial.shift for dial in ranked[:WEAKEST]),
        knows=_knows(battery, tables, shifted),
        runs=tuple(_run(part, folders[part], infos[part], tables[part], sources[part]) for part in folders),
        left_out=dict(left_out),
        versions=dict(first["versions"]),
    )
    return sealed(passport)


def _lost(dial: Dial) -> float:
    """Return the drop of a shift, rounded so that summation order does not change the ranking."""
    return round(dial.drop.value or 0.0, 9)


def _joined(tables: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Concatenate runs; a sample that is in several of them counts as one sample."""
    return pl.concat(tables)


def _number(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("value", "low", "high", "n")}


def _one(frame: pl.DataFrame) -> Number:
    """Return the only number of a metric, or a missing one."""
    return Number(**_number(frame.row(0, named=True))) if frame.height else Number(value=None, n=0)


def _dials(part: str, table: pl.LazyFrame, info: Row) -> list[Dial]:
    halves = _by_shift(metrics.half_accuracy_severity(table))
    failures = _by_shift(metrics.failure_severity(table))
    drops = _by_shift(metrics.accuracy_drop(table, by=("model", "shift")))
    curves = metrics.accuracy(table.filter(pl.col("severity").is_not_null()))
    dials = []
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
        dials.append(Dial.model_validate({**dial, "half": half, **numbers, "accuracy": tuple(settings)}))
    return dials


def _order(info: Row, halves: Mapping[str, Row]) -> list[str]:
    return list(dict.fromkeys([*info["settings"], *sorted(halves)]))


def _by_shift(frame: pl.DataFrame) -> dict[str, Row]:
    return {row["shift"]: row for row in frame.to_dicts()}


def _or_missing(row: Row | None) -> Number:
    return Number(value=None, n=0) if row is None else Number(**_number(row))


def _unit(shift: str) -> str:
    return SHIFTS.get(shift).unit if shift in SHIFTS.names() else ""


def _words(shift: str, half: Number, top: float) -> str:
    """Describe the half-accuracy severity, or that it is beyond the greatest tested severity."""
    return in_words(shift, half.value) if half.value is not None else f"beyond {in_words(shift, top)}"


def _grids(part: str, table: pl.LazyFrame) -> list[Grid]:
    """Return the numbers of shifts without ordered severities."""
    unordered = table.filter(
        pl.col("severity").is_null() & (pl.col("shift") != CLEAN) & (pl.col("output") == "label")
    )
    grids = []
    for shift in sorted(unordered.select(pl.col("shift").unique()).collect()["shift"]):
        rows = unordered.filter(pl.col("shift") == shift).with_columns(params=_requested_params(shift))
        each = metrics.accuracy(rows, by=("params",)).drop_nulls("value").sort("value", "params")
        if each.height:
            worst, best = each.row(0, named=True), each.row(-1, named=True)
            grids.append(
                Grid(
                    part=part,
                    shift=shift,
                    settings=each.height,
                    mean=_one(metrics.mean_accuracy(rows, by=("model",))),
                    worst=Number(**_number(worst)),
                    worst_setting=_setting(worst["params"]),
                    best=Number(**_number(best)),
                    best_setting=_setting(best["params"]),
                )
            )
    return grids


def _requested_params(shift: str) -> pl.Expr:
    """Return the requested params, without those that the shift chose for an image."""
    keys = (
        sorted({key for setting in SHIFTS.get(shift).settings for key in setting})
        if shift in SHIFTS.names()
        else []
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
    battery: Battery, tables: Mapping[str, pl.LazyFrame], shifted: Sequence[str]
) -> SelfKnowledge | None:
    """Return the selective risk on shifted images by the first scorer, and OOD detection by each scorer."""
    scorer = battery.scorers[0]
    scored = _joined([tables[part] for part in shifted]).filter(
        (pl.col("output") == "ood") & (pl.col("scorer") == scorer)
    )
    risks = metrics.risk_coverage(scored, points=10).to_dicts()
    risk = [
        SelectiveRisk(**_number(row), coverage=row["coverage"])
        for row in risks
        if round(10 * row["coverage"]) in COVERAGES
    ]
    separations = [row for part in tables for row in _separations(tables[part])]
    mistakes = metrics.auroc(scored, by=("model", "scorer"), framework="model-specific").to_dicts()
    separations += [
        Separation(**_number(row), kind=MISTAKES, scorer=row["scorer"])
        for row in mistakes
        if row["value"] is not None
    ]
    return (
        SelfKnowledge(scorer=scorer, risk=tuple(risk), auroc=tuple(separations))
        if risk or separations
        else None
    )


def _separations(table: pl.LazyFrame) -> list[Separation]:
    """Return the AUROC of each scorer on near and far OOD images of a run."""
    rows = metrics.auroc(table, by=("model", "scorer", "group")).drop_nulls("value").to_dicts()
    return [
        Separation(**_number(row), kind=row["group"], scorer=row["scorer"])
        for row in rows
        if row["group"] in NEARNESS
    ]


def _run(part: str, folder: Path, info: Row, table: pl.LazyFrame, source: str) -> Run:
    manifest = read_manifest(folder)
    content = manifest["content"] if "content" in manifest.columns else pl.Series([None] * len(manifest))
    names = zip(manifest["sample_id"], manifest["shift"], content, strict=True)
    digest = hashlib.sha256(
        "\n".join(sorted(f"{id_}\t{shift}\t{held}" for id_, shift, held in names)).encode()
    ).hexdigest()
    labels = table.filter(pl.col("output") == "label")
    images, errors = (
        labels.select(pl.len(), pl.col("error").count().alias("errors")).collect(engine="streaming").row(0)
    )
    return Run(
        part=part, suite=info["suite"]["name"], source=source, digest=digest[:16],
        samples=manifest["sample_id"].n_unique(), images=images, errors=errors,
    )  # fmt: skip

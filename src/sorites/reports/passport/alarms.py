"""Would the model raise an alarm where it fails? Error and caught errors of each shift at one severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites.analysis.guard.rates import as_scored, chosen_model, estimated, scored_images
from sorites.analysis.guard.rules import by_accepted
from sorites.analysis.passport.document import Alarm, Dial, Number
from sorites.core.errors import SoritesError
from sorites.deploy.record import Rate, SettingRates

# The share of clean images without an alarm.
ACCEPTED = 0.95


def alarms_of(scorer: str, tables: Mapping[str, pl.LazyFrame], dials: Sequence[Dial]) -> tuple[Alarm, ...]:
    """Return what a threshold that accepts 95 % of clean images does under each shift.

    As for a guard, half of the samples choose the threshold and the others estimate the rates. A part without
    scores or with too few clean images has none.

    Args:
        scorer: The scorer.
        tables: The tables by part.
        dials: The shifts.
    """
    parts = {part: _rates(scorer, table) for part, table in tables.items()}
    found = (_alarm(dial, parts[dial.part]) for dial in dials)
    return tuple(alarm for alarm in found if alarm is not None)


def _rates(scorer: str, table: pl.LazyFrame) -> tuple[SettingRates, ...]:
    try:
        model = chosen_model(table, Path(), None)
        images = scored_images(table, Path(), model, scorer)
        threshold = by_accepted(as_scored(images.filter(pl.col("half") == 0)), ACCEPTED).threshold
    except SoritesError:
        return ()
    return estimated(images.filter(pl.col("half") == 1), threshold)


def shown_severity(dial: Dial) -> float:
    """Return the tested severity nearest to the half-accuracy severity; the greatest where there is none."""
    half = dial.half.value
    tested = [setting.severity for setting in dial.accuracy]
    return max(tested) if half is None else min(tested, key=lambda severity: (abs(severity - half), severity))


def _alarm(dial: Dial, rates: Sequence[SettingRates]) -> Alarm | None:
    severity = shown_severity(dial)
    found = next((r for r in rates if r.shift == dial.shift and r.severity == severity), None)
    clean = next((r for r in rates if r.shift == "clean"), None)
    if found is None or clean is None or found.error.value is None:
        return None
    return Alarm(
        part=dial.part,
        shift=dial.shift,
        severity=severity,
        error=_number(found.error),
        caught=_number(found.caught),
        alarm=_number(found.alarm),
        clean_alarm=_number(clean.alarm),
    )


def _number(rate: Rate) -> Number:
    return Number(value=rate.value, low=rate.low, high=rate.high, n=rate.n)

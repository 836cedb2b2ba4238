"""Out-of-distribution detection: does a score separate strange pictures from familiar ones? A larger score is stranger.

Every metric here takes ``framework`` and ``against`` (see ``_pools``). ``n`` counts ``familiar`` and ``strange`` pictures
together, ``missing`` counts the rows of the group with an error or no finite score. A group in which one of the two pools is
empty has a null value. ``model`` and ``scorer`` are added to ``by`` where they are left out.
Intervals are clustered by sample: that of the AUROC is Newcombe's with DeLong's variance (see ``_bounds.area``), the others are
Wilson's with the number of different samples in the pool that the share is of; that of an FPR adds the interval of its threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics import _bounds as bounds
from sorites.metrics import _separation as separation
from sorites.metrics._pools import BY_SCORER, Group, groups
from sorites.metrics._rows import answer_frame
from sorites.metrics._separation import Pair
from sorites.table import Table

Estimate = tuple[float, float | None, float | None]
COLUMNS = ("value", "n", "low", "high", "familiar", "strange", "missing")
_FLOATS = dict.fromkeys(("value", "low", "high"), pl.Float64())
_COUNTS = dict.fromkeys(("n", "familiar", "strange", "missing"), pl.Int64())


def _auroc(two: Pair) -> Estimate:
    value = separation.auroc(two)
    many = len(two.familiar), len(two.strange)
    size = sum(many) / (two.familiar.samples + two.strange.samples)
    return value, *bounds.area(value, *many, separation.auroc_variance(two), size)


def _share(number: Callable[[Pair], float]) -> Callable[[Pair], Estimate]:
    """Turn a share of the strange pool into an estimate with its interval."""

    def estimate(two: Pair) -> Estimate:
        value = number(two)
        return value, *bounds.share(value, two.strange.samples)

    return estimate


def _alarms(two: Pair) -> Estimate:
    """Return the share of false alarms; its interval adds what is not known of the threshold, which strange pictures set."""
    value, _ = separation.false_alarms(two)
    at_threshold = separation.alarms_between(two, bounds.share(0.05, two.strange.samples))
    return value, *bounds.square_and_add(value, bounds.share(value, two.familiar.samples), at_threshold)


NUMBERS: dict[str, Callable[[Pair], Estimate]] = {
    "auroc": _auroc,
    "aupr_in": lambda two: _share(separation.average_precision)(two.flipped),
    "aupr_out": _share(separation.average_precision),
    "fpr95_ood_pos": _alarms,
    "fpr95_id_pos": lambda two: _alarms(two.flipped),
    "aupr_in_trapz": lambda two: _share(separation.trapezoid_precision)(two.flipped),
    "aupr_out_trapz": _share(separation.trapezoid_precision),
}
MAIN = ("auroc", "aupr_in", "aupr_out", "fpr95_ood_pos", "fpr95_id_pos")


@add_metric
def ood(table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same") -> pl.DataFrame:
    """AUROC, AUPR with either class as positive and FPR at 95 % in both conventions, one row each, named in ``metric``."""
    return ood_numbers(table, by, framework, against, MAIN)


@add_metric
def auroc(table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same") -> pl.DataFrame:
    """Chance that a strange picture scores above a familiar one, with ties counted half; 0.5 is no better than chance."""
    return _one(table, by, framework, against, "auroc")


@add_metric
def aupr_out(table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same") -> pl.DataFrame:
    """Average precision with strange as the positive class; a random score gets the strange share of the pictures."""
    return _one(table, by, framework, against, "aupr_out")


@add_metric
def aupr_in(table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same") -> pl.DataFrame:
    """Average precision with familiar as the positive class; a random score gets the familiar share of the pictures."""
    return _one(table, by, framework, against, "aupr_in")


@add_metric
def aupr_out_trapz(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Same as ``aupr_out`` by the trapezoid rule, which is too optimistic; for parity with tools that use it."""
    return _one(table, by, framework, against, "aupr_out_trapz")


@add_metric
def aupr_in_trapz(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Same as ``aupr_in`` by the trapezoid rule, which is too optimistic; for parity with tools that use it."""
    return _one(table, by, framework, against, "aupr_in_trapz")


@add_metric
def fpr95_ood_pos(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Share of familiar pictures flagged at the threshold that flags at least 95 % of the strange ones (OpenOOD's convention)."""
    return _one(table, by, framework, against, "fpr95_ood_pos")


@add_metric
def fpr95_id_pos(table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same") -> pl.DataFrame:
    """Share of strange pictures not flagged where at least 95 % of the familiar ones are not (the ODIN paper's convention)."""
    return _one(table, by, framework, against, "fpr95_id_pos")


def _one(table: Table, by: Sequence[str], framework: str, against: str, name: str) -> pl.DataFrame:
    return ood_numbers(table, by, framework, against, [name]).drop("metric")


def ood_numbers(table: Table, by: Sequence[str], framework: str, against: str, names: Iterable[str]) -> pl.DataFrame:
    """Return one row per group and number, for the numbers in ``names``."""
    keys, found = groups(table, by, framework, against)
    lines = [line for group in found for line in _lines(keys, group, names)]
    kinds = {**key_types(table, keys), "metric": pl.String(), **_FLOATS, **_COUNTS}
    return answer_frame(pl.DataFrame(lines, schema=kinds), keys, *COLUMNS, then=["metric"])


def _lines(keys: Sequence[str], group: Group, names: Iterable[str]) -> list[dict[str, object]]:
    two, shared = group.pair, {**dict(zip(keys, group.key, strict=True)), **group.counts}
    estimates = {name: (None, None, None) if two is None else NUMBERS[name](two) for name in names}
    return [{**shared, "metric": name, "value": v, "low": low, "high": high} for name, (v, low, high) in estimates.items()]


def key_types(table: Table, keys: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the types of the columns to group by, whatever values came; those that the table does not hold are texts."""
    held = table.lazy().collect_schema()
    return {key: held.get(key, pl.String()) for key in keys}

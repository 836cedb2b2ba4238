"""The run in three sentences with numbers from the table; no model is called better unless the same pictures say so."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.box_summary import boxes_in_short
from sorites.reports.parts.markup import between, percent
from sorites.reports.parts.whole_points import all_alike, unit, whole
from sorites.reports.view import UNTOUCHED, View


def in_short(view: View) -> str:
    """Return the summary of the page: accuracy, the shifts that cost most and least, and the best model."""
    return " ".join(sentences(view))


def sentences(view: View) -> list[str]:
    """Return the sentences of the summary, at least one; the first is the answer of the page."""
    said = [_overall(view), _hardest(view), _ahead(view), *boxes_in_short(view)]
    return [sentence for sentence in said if sentence] or ["No picture was judged."]


def _span(values: pl.Series) -> str:
    low, high = percent(values.min(), 0), percent(values.max(), 0)  # type: ignore[arg-type]
    return low if low == high else between(low, high)


def _overall(view: View) -> str:
    answers = [
        ("clean", view.compute(metrics.accuracy, UNTOUCHED, by=("model",))),
        ("shifted", view.compute(metrics.mean_accuracy, by=("model",))),
    ]
    parts = [f"{_span(values)} of the {name} pictures" for name, frame in answers if len(values := frame["value"].drop_nulls())]
    whose = "The model is" if len(view.models) == 1 else f"The {len(view.models)} models are"
    return f"{whose} right about {' and '.join(parts)}." if parts else ""


def _hardest(view: View) -> str:
    """Say which shifts cost the most and the least accuracy, over all models, with their 95 % intervals."""
    drops = view.compute(metrics.accuracy_drop, by=("shift",)).drop_nulls("value").sort("value")
    if drops.height < 2:
        return ""
    least, most = drops.row(0, named=True), drops.row(-1, named=True)
    if alike := all_alike("accuracy", drops.height, least["value"], most["value"]):
        return alike
    return f"{most['shift']} costs the most accuracy ({_points(most)}), {least['shift']} the least ({_points(least)})."


def _points(row: dict[str, float]) -> str:
    value, low, high = (whole(row[name]) for name in ("value", "low", "high"))
    return f"{value} {unit(value)}, {low} to {high}"


def _ahead(view: View) -> str:
    under = view.compute(metrics.mean_accuracy, by=("model",)).drop_nulls("value").sort("value", descending=True)
    if under.height < 2:
        return ""
    best, next_best = under.row(0, named=True), under.row(1, named=True)
    if not view.comparable:
        return ""
    gaps = view.compute(metrics.paired_difference, other=best["model"]).drop_nulls("value")
    if gaps.height < under.height - 1:
        return "The models were not judged on the same pictures, so no order of them follows."
    close = gaps.filter(pl.col("high") >= 0).sort("value", descending=True)["model"].to_list()
    if close:
        rivals = " or ".join(close) if len(close) < 4 else f"{', '.join(close[:3])} or {len(close) - 3} others"
        return f"No model is clearly ahead under shift: the same pictures do not tell {best['model']} apart from {rivals}."
    gap = gaps.filter(pl.col("model") == next_best["model"]).row(0, named=True)
    lead = _points({"value": -gap["value"], "low": -gap["high"], "high": -gap["low"]})
    return (
        f"{best['model']} holds up best under shift: it is right about {percent(best['value'])} of the pictures, "
        f"{next_best['model']} about {percent(next_best['value'])} of the same ({lead})."
    )

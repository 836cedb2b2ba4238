"""The run in three sentences with numbers from the table; no model is called better unless the intervals are apart."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.parts.box_summary import boxes_in_short
from sorites.reports.parts.markup import between, percent
from sorites.reports.view import UNTOUCHED, View


def in_short(view: View) -> str:
    """Return the summary of the page: accuracy, the shifts that cost most and least, and the best model."""
    sentences = [_overall(view), _hardest(view), _ahead(view), *boxes_in_short(view)]
    return " ".join(sentence for sentence in sentences if sentence) or "No picture was judged."


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
    """Say which shifts cost the most and the least accuracy, over all models."""
    drops = view.compute(metrics.accuracy_drop, by=("shift",)).drop_nulls("value").sort("value")
    if drops.height < 2:
        return ""
    least, most = drops.row(0, named=True), drops.row(-1, named=True)
    return f"{most['shift']} costs the most accuracy ({_points(most)}), {least['shift']} the least ({_points(least)})."


def _points(row: dict[str, float]) -> str:
    return f"{100 * row['value']:.0f} points".replace("-", "−")


def _ahead(view: View) -> str:
    under = view.compute(metrics.mean_accuracy, by=("model",)).drop_nulls("value").sort("value", descending=True)
    if under.height < 2:
        return ""
    best, next_best = under.row(0, named=True), under.row(1, named=True)
    if best["low"] > next_best["high"]:
        return (
            f"{best['model']} holds up best under shift: it is right about {percent(best['value'])} of the pictures, "
            f"the next model about {percent(next_best['value'])}."
        )
    return "No model is clearly ahead under shift: the 95 % intervals of the best two overlap."

"""The section on recalibration: does what is fitted on clean images hold under shift?"""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites.analysis.uncertainty.recalibration import DEFAULT, SCHEMA, recalibrated
from sorites.core import CLEAN
from sorites.reports.components.by_method import computed, instead, method_card, with_clean
from sorites.reports.components.markup import (
    DASH,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    picked,
    points,
    tag,
)
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

TITLE, SHORT = "Does recalibration survive the shift?", "Recalibration"
NEITHER = "calibrated"


@add_section(order=62)
def recalibration(view: View) -> Section | None:
    """Overconfidence and NLL before and after recalibration, by severity; absent without kept logits."""
    rows, too_many = computed(view, SCHEMA, recalibrated)
    if not rows.height:
        return instead(too_many, TITLE, SHORT, "recalibrate") if too_many else None
    parts = {
        model: tag("div", *cards, cls="cards two wide")
        for model in view.models
        if (cards := _cards(view, rows.filter(pl.col("model") == model)))
    }
    fitted = int(rows["fitted_on"].min())  # type: ignore[arg-type]
    lead = (
        "The confidence of a model can be recalibrated on clean images: by one temperature for all logits, or"
        " by a rising function of the confidence (isotonic). Both are fitted on the clean images of one half"
        f" of the samples (at least {count(fitted)}) and judged on all images of the other half. Above the"
        " dotted line a model is overconfident. Where the negative log-likelihood (NLL) of a method is above"
        " that of none, recalibration on clean images has made the probabilities worse. No answer changes."
    )
    table = tag("div", _table(view, rows), cls="stack below" if parts else "stack")
    body = join([picked("recalibration", "Model", parts), table]) if parts else table
    return Section(TITLE, body, SHORT, lead)


def _cards(view: View, rows: pl.DataFrame) -> list[Html]:
    cards = []
    for shift, own in with_clean(view, rows):
        gap = ("overconfidence", "confidence − accuracy")
        columns = ("gap", "gap_low", "gap_high")
        hover = "confidence − accuracy %{y:+.1%}"
        cards.append(
            method_card(
                view,
                shift,
                own,
                DEFAULT,
                gap,
                columns,
                hover,
                (NEITHER, 0.0),
                tickformat=".0%",
                zeroline=False,
            )
        )
        nll, columns = ("negative log-likelihood", "NLL, nats"), ("nll", "nll_low", "nll_high")
        cards.append(
            method_card(view, shift, own, DEFAULT, nll, columns, "NLL %{y:.3~g}", rangemode="tozero")
        )
    return cards


def _table(view: View, rows: pl.DataFrame) -> Html:
    """Return the numbers of clean images, and at the setting of each shift with the highest NLL."""
    lines = []
    for model in view.models:
        for method in DEFAULT:
            own = rows.filter(pl.col("model") == model, pl.col("method") == method)
            if own.height:
                lines.append([model, method, *(_cell(_worst(own, shift)) for shift in (CLEAN, *view.shifts))])
    caption = (
        "NLL with its 95 % interval over samples, for clean images and at the setting of each shift where it"
        " is highest; confidence minus accuracy; Brier score; expected calibration error with 15 bins of"
        " equally many images, which random gaps raise"
    )
    table = grid(["", "method", "clean", *view.shifts], lines, text=2, caption=caption)
    return folded("NLL, Brier score and calibration error", table, len(lines))


def _worst(rows: pl.DataFrame, shift: str) -> dict[str, Any] | None:
    own = rows.filter(pl.col("shift") == shift).sort("nll", "severity", descending=True)
    return own.row(0, named=True) if own.height else None


def _cell(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    notes = [
        f"{points(row['gap'])} confidence − accuracy",
        f"Brier {number(row['brier'])}, ECE {percent(row['adaptive_ece'])}",
        f"n = {count(row['n'])}",
    ]
    interval = tag("small", between(number(row["nll_low"]), number(row["nll_high"])))
    return join([number(row["nll"]), interval, *(tag("small", note) for note in notes)])

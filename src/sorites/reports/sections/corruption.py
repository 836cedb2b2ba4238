"""The section on corruption errors: errors relative to a reference model, where the suite names one."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import Metric
from sorites.errors import SoritesError
from sorites.reports.parts.markup import DASH, Html, between, grid, join, percent, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=70)
def corruption(view: View) -> Section | None:
    """A table of corruption errors and one of relative ones, where all runs that name a reference name the same.

    Absent where the reference is the only model, since its errors are 100 % of its own.
    """
    named = {str(run.suite["reference"]) for run in view.runs if run.suite.get("reference")}
    reference = named.pop() if len(named) == 1 else None
    if reference is None or (reference not in view.models and not _readable(view, reference)):
        return None
    others = [model for model in view.models if model != reference]
    if not others or not view.compute(metrics.corruption_error, reference=reference).height:
        return None
    kinds = [("Corruption error", metrics.corruption_error), ("Relative corruption error", metrics.relative_corruption_error)]
    tables = [tag("article", _table(view, title, metric, reference), cls="card") for title, metric in kinds]
    lead = (
        f"The corruption error is the error summed over the severities of a shift, as a share of the same sum of {reference} "
        "(100 %). The relative corruption error counts only the rise over the clean error. The last column is the mean over "
        "shifts; below 100 % is better than the reference."
    )
    return Section(f"Errors relative to {reference}", tag("div", *tables, cls="stack"), "Corruption error", lead)


def _readable(view: View, reference: str) -> bool:
    """Return whether the reference is a file of errors that is at hand and fits the table."""
    try:
        return view.compute(metrics.relative_corruption_error, reference=reference).height > 0
    except SoritesError:
        return False


def _table(view: View, title: str, metric: Metric, reference: str) -> Html:
    each = view.compute(metric, reference=reference)
    mean = view.compute(metric, reference=reference, by=("model",)).with_columns(shift=pl.lit(None, pl.String))
    cells = {(row["model"], row["shift"]): row for row in each.to_dicts() + mean.to_dicts()}
    shifts = [shift for shift in view.shifts if shift in set(each["shift"])]
    lines = [
        [model, *(_cell(cells.get((model, shift)), model == reference) for shift in [*shifts, None])] for model in view.models
    ]
    return grid(["", *shifts, "mean"], lines, caption=f"{title}, with its 95 % interval and n")


def _cell(row: dict[str, Any] | None, is_reference: bool) -> object:
    if row is None or row["value"] is None:
        return DASH
    interval = "reference" if is_reference else between(percent(row["low"]), percent(row["high"]))
    return join([percent(row["value"]), tag("small", f"{interval}, n = {row['n']}")])

"""Sections on failure severities of images and objects: survival curves and histograms."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.reports.components.charts import (
    PERCENT_AXIS,
    along,
    axis_name,
    card,
    figure,
    line,
    pen,
    plot,
    severity_labels,
    share_text,
)
from sorites.reports.components.markup import Html, number, safe, tag
from sorites.reports.section import Section, add_section, multiples
from sorites.reports.view import View, box_models


def failure_cards(view: View, alive: pl.DataFrame, lost: pl.DataFrame, what: str) -> list[Html]:
    """Return a card per shift with the survival curve and the histogram of failure severities."""
    return [_card(view, shift, alive, lost, what) for shift in view.shifts if shift in set(alive["shift"])]


def _card(view: View, shift: str, alive: pl.DataFrame, lost: pl.DataFrame, what: str) -> Html:
    across = along(view, shift, alive.filter(pl.col("shift") == shift)["severity"])
    curve = figure(view, axis_name(view, shift), "survived", yaxis=PERCENT_AXIS, xaxis=across)
    at = lost.filter(pl.col("shift") == shift)["severity"].drop_nulls().unique().sort()
    categories = severity_labels(view, shift, at, before=["clean"], after=["never"])
    categories["tickfont"] = {"size": 11}
    bars = figure(
        view,
        f"up to: {axis_name(view, shift)}",
        "lost",
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
        xaxis=categories,
    )
    bars.update_layout(
        barmode="group", bargap=0.22, bargroupgap=0.06, showlegend=False, height=210, margin_t=8
    )
    for model in view.models:
        selected = (pl.col("model") == model) & (pl.col("shift") == shift)
        if (steps := alive.filter(selected)).height:
            line(curve, view, model, shift, steps, "survived", shape="hv")
        if (brackets := lost.filter(selected)).height:
            bars.add_trace(_bars(view, model, brackets))
    return card(
        shift,
        plot(curve, f"Share of {what} not yet lost against the severity of {shift}"),
        tag("h4", f"Severities at which {what} are lost"),
        plot(bars, f"Share of {what} lost between two severities of {shift}"),
    )


def _bars(view: View, model: str, rows: pl.DataFrame) -> dict[str, object]:
    brackets = rows.select("low", "high", "n", "above", "severity").iter_rows()
    return {
        "type": "bar",
        "name": safe(model),
        "legendgroup": model,
        "x": [_up_to(*edges) for edges in zip(rows["above"], rows["severity"], strict=True)],
        "y": rows["value"].to_list(),
        "customdata": [
            [share_text(low), share_text(high), n, _bracket(*edges)] for low, high, n, *edges in brackets
        ],
        "marker": {"color": pen(view, model).colour},
        "hovertemplate": (
            "<b>%{fullData.name}</b><br>%{customdata[3]}: %{y:.1%}"
            "<br>95 %: %{customdata[0]} to %{customdata[1]} %<br>n = %{customdata[2]}<extra></extra>"
        ),
    }


def _bracket(above: float | None, severity: float | None) -> str:
    """Describe a bracket: above one severity, up to the next."""
    if severity is None:
        return "survived"
    return "lost when clean" if above is None else f"lost between {number(above)} and {number(severity)}"


def _up_to(above: float | None, severity: float | None) -> str:
    """Return the label of a bracket on the axis."""
    if severity is None:
        return "never"
    return "clean" if above is None else number(severity)


@add_section(order=30)
def failure(view: View) -> Section | None:
    """Per shift, the share of images that survive, and the severities at which they fail."""
    alive, lost = view.compute(metrics.survival), view.compute(metrics.failure_histogram)
    cards = failure_cards(view, alive, lost, "images")
    lead = (
        "The failure severity of an image is the least severity at which it is misclassified; from there on"
        " it counts as lost. Images that are misclassified when clean are lost at 0; images that are correct"
        " at every severity survive. Where a filter or an error removed the later images of a trajectory, it"
        " is censored there (Kaplan-Meier estimate). The 95 % intervals treat the sample as the unit."
    )
    return multiples(view, cards, "At which severity does the model fail?", "Failure severities", lead)


@add_section(order=31)
def box_failure(view: View) -> Section | None:
    """Per shift, the share of objects that are still detected, and the severities at which they are lost."""
    if not box_models(view):
        return None
    alive, lost = view.compute(metrics.box_survival), view.compute(metrics.box_failure_histogram)
    lead = (
        "An object is detected if a box of its class overlaps it with IoU 0.5 or more, at any confidence. Its"
        " failure severity is the least severity at which it is not detected; from there on it counts as"
        " lost."
        " Objects that are not detected when clean are lost at 0. The 95 % intervals treat the image as the"
        " unit,"
        " since objects of one image are not independent."
    )
    return multiples(
        view,
        failure_cards(view, alive, lost, "objects"),
        "At which severity are objects lost?",
        "Objects lost",
        lead,
    )

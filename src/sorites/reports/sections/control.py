"""The section on camera control: accuracy of each policy against the shots it takes, and models that choose
for one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.components.charts import (
    COLOURS,
    DASHES,
    HEIGHT,
    LEGEND_ROW,
    PERCENT_AXIS,
    SYMBOLS,
    Pen,
    card,
    figure_of,
    plot,
    share_text,
)
from sorites.reports.components.markup import DASH, EMPTY, Html, count, folded, grid, join, number, tag
from sorites.reports.components.scorers import estimate
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

Row = Mapping[str, Any]
NAMES = {
    "oracle": "oracle",
    "confidence": "most confident",
    "mvp": "certain half votes",
    "fixed": "best fixed setting",
    "auto": "automatic",
}
PENS = {
    "oracle": Pen(COLOURS[6], DASHES[2], SYMBOLS[2]),
    "confidence": Pen(COLOURS[0], DASHES[0], SYMBOLS[0]),
    "mvp": Pen(COLOURS[1], DASHES[1], SYMBOLS[1]),
    "fixed": Pen(COLOURS[2], DASHES[0], SYMBOLS[4]),
    "auto": Pen(COLOURS[3], DASHES[0], SYMBOLS[6]),
}
# The policies that choose among several photographs, in the order of the columns.
SEARCHED = ("confidence", "mvp", "oracle")
LEAD = (
    "A scene is an image under one light. Each search starts from the best fixed setting and adds settings"
    " one by one; they were learnt on other images than those judged here (five folds). The oracle is"
    " correct if any of its photographs is: no way of choosing among them does better. Bands are 95 %"
    " intervals by image."
)


@add_section(order=35)
def control(view: View) -> Section | None:
    """One chart per model, a table of all policies, and cross-model transfer; absent without a camera grid
    that has several settings.
    """
    policies = view.compute(metrics.control_policies)
    searched = policies.filter(pl.col("shots") > 1)
    if not searched.height:
        return None
    charts = [
        card(model, plot(_figure(rows), f"Accuracy of {model} against the photographs per scene, by policy"))
        for model in view.models
        if (rows := policies.filter(pl.col("model") == model)).filter(pl.col("shots") > 1).height
    ]
    parts = [tag("div", *charts, cls="cards two"), _table(view, policies), _transfer(view)]
    return Section(
        "How many photographs does a good answer need?",
        tag("div", *(part for part in parts if part), cls="stack"),
        "Camera control",
        LEAD,
    )


def _figure(rows: pl.DataFrame) -> Any:
    names = [name for policy, name in NAMES.items() if rows.filter(pl.col("policy") == policy).height]
    most = int(rows["shots"].max())  # type: ignore[arg-type]
    ticks = [shots for shots in (1, 2, 4, 9, 18, 27, 64, 91) if shots <= most]
    across = {"type": "log", "tickvals": ticks, "ticktext": [str(tick) for tick in ticks]}
    fig = figure_of(names, "photographs per scene", "accuracy", xaxis=across, yaxis=PERCENT_AXIS)
    room = LEGEND_ROW * 3  # five policies, two in a row
    fig.update_layout(
        showlegend=True,
        height=HEIGHT + room + 40,
        margin={**fig.layout.margin.to_plotly_json(), "t": room + 12},
    )
    start = rows.filter(pl.col("policy") == "fixed")
    for policy in NAMES:
        of_policy = rows.filter(pl.col("policy") == policy)
        if of_policy.height:
            # A search with one photograph is the best fixed setting.
            joined = of_policy if policy in ("auto", "fixed") else pl.concat([start, of_policy])
            _draw(fig, policy, joined.sort("shots"))
    return fig


def _draw(fig: Any, policy: str, rows: pl.DataFrame) -> None:
    pen = PENS[policy]
    shared = {"type": "scatter", "name": NAMES[policy], "legendgroup": policy, "x": rows["shots"].to_list()}
    if rows.height > 1:
        x, low, high = (rows[name].to_list() for name in ("shots", "low", "high"))
        band = {"fill": "toself", "fillcolor": pen.faint(0.12), "line": {"width": 0}, "mode": "lines"}
        fig.add_trace(
            {
                **shared,
                **band,
                "x": x + x[::-1],
                "y": high + low[::-1],
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    hover = zip(rows["low"], rows["high"], rows["n"], strict=True)
    fig.add_trace(
        {
            **shared,
            "y": rows["value"].to_list(),
            "customdata": [[share_text(low), share_text(high), n] for low, high, n in hover],
            "mode": "lines+markers" if rows.height > 1 else "markers",
            "line": {"color": pen.colour, "width": 2.2, "dash": pen.dash},
            "marker": {"symbol": pen.symbol, "size": 7 if rows.height > 1 else 11, "color": pen.colour},
            "hovertemplate": (
                "<b>%{fullData.name}</b><br>%{x} photographs: %{y:.1%}<br>95 %: %{customdata[0]} to"
                " %{customdata[1]} %<br>n = %{customdata[2]}<extra></extra>"
            ),
        }
    )


def _table(view: View, policies: pl.DataFrame) -> Html:
    rows = [row for model in view.models for row in _rows_of(policies.filter(pl.col("model") == model))]
    by_confidence = policies.filter(pl.col("kept_by") == "confidence").height
    caption = (
        "Accuracy of each policy with its cost per scene. Automatic exposure and the best fixed"
        " setting take one photograph. Exposure is the time that the shutter is open, where it is known;"
        " reading out and setting the camera come on top."
        + (" The vote is ordered by confidence, because the run has no entropies." if by_confidence else "")
    )
    head = ["", "photographs", "no choice", *(NAMES[policy] for policy in SEARCHED), "exposure, ms", "n"]
    return folded("All policies as a table", grid(head, rows, text=2, caption=caption), len(rows))


def _rows_of(policies: pl.DataFrame) -> Iterator[list[object]]:
    """Yield a row per number of photographs, with the searches, which take the same ones, side by side."""
    named = {(row["policy"], row["shots"]): row for row in policies.to_dicts()}
    for policy in ("auto", "fixed"):
        if row := named.get((policy, 1)):
            yield [*_photographs(row, NAMES[policy]), estimate(row), *([""] * len(SEARCHED)), *_cost(row)]
    for shots in sorted({shots for policy, shots in named if policy in SEARCHED}):
        found = [named.get((policy, shots)) for policy in SEARCHED]
        first = next(row for row in found if row)
        yield [*_photographs(first), "", *map(estimate, found), *_cost(first)]


def _photographs(row: Row, name: str = "") -> list[object]:
    taken = join([count(row["shots"]), tag("small", name)]) if name else count(row["shots"])
    return [row["model"], taken]


def _cost(row: Row) -> list[object]:
    return [DASH if row["exposure_ms"] is None else number(row["exposure_ms"]), count(row["n"])]


def _transfer(view: View) -> Html:
    if len(view.models) < 2:
        return EMPTY
    transfer = view.compute(metrics.control_transfer)
    rows: list[list[object]] = []
    for model in view.models:
        for chooser in view.models:
            by_policy = {
                row["policy"]: row
                for row in transfer.filter(
                    (pl.col("model") == model) & (pl.col("chooser") == chooser)
                ).to_dicts()
            }
            if by_policy:
                named = join([chooser, tag("small", "itself")]) if chooser == model else tag("span", chooser)
                cells = [
                    estimate(by_policy.get(policy)) for policy in ("fixed", "confidence", "mvp", "oracle")
                ]
                rows.append([model, named, *cells])
    caption = (
        "Accuracy of a model on photographs that another model chose among all settings: does good light"
        " for one"
        " model suit another?"
    )
    head = ["judged", "chosen by", "best fixed", "most confident", "vote", "chooser's oracle"]
    return tag("article", grid(head, rows, text=2, caption=caption), cls="card") if rows else EMPTY

"""The section on OOD detection by semantic and covariate level: maps, curves, and sensitivity."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.components.charts import NONE, PERCENT_AXIS, heat, same, shaded, thin
from sorites.reports.components.markup import (
    EMPTY,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    picked,
    tag,
)
from sorites.reports.components.scorers import MAX_LINES, chart, estimate, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

AXES = {"semantic": "sem_level", "covariate": "cov_level"}


def level_axes(view: View) -> Html:
    """Return two cards per model and set: mean AUROC over semantic levels, and over covariate levels."""
    combinations = itertools.product(view.models, set_names(view), AXES)
    cards = [card for model, name, axis in combinations if (card := _card(view, model, name, axis))]
    return tag("div", *cards, cls="cards two")


def set_names(view: View) -> list[str | None]:
    """Return the names of the sets of images with levels."""
    return view.compute(metrics.level_map)["set"].unique().sort().to_list()


def in_sets(rows: pl.DataFrame) -> list[tuple[str | None, pl.DataFrame]]:
    """Return the rows of each set with its name."""
    return [(key[0], part) for key, part in sorted(rows.partition_by("set", as_dict=True).items(), key=str)]


def title(view: View, *parts: str, name: str | None) -> str:
    """Return the heading of a card, with the set of images if there are several."""
    return " · ".join([*parts, *([str(name)] if len(set_names(view)) > 1 else [])])


def _card(view: View, model: str, name: str | None, axis: str) -> Html:
    in_set = pl.col("set").eq_missing(pl.lit(name, pl.String))
    rows = view.compute(metrics.level_curve).filter(in_set, pl.col("model") == model, pl.col("axis") == axis)
    by_scorer = {
        scorer: part for scorer in scorers(view) if (part := rows.filter(pl.col("scorer") == scorer)).height
    }
    if not by_scorer:
        return EMPTY
    heading = title(view, model, f"{axis} axis", name=name)
    if len(by_scorer) <= MAX_LINES:
        drawn = _lines(view, heading, axis, by_scorer)
    else:
        cells = view.compute(metrics.level_map).filter(in_set, pl.col("model") == model)
        drawn = _table(_levels(cells, axis), axis, by_scorer)
    return tag("article", tag("h3", heading), drawn, cls="card")


def _lines(view: View, heading: str, axis: str, by_scorer: Mapping[str, pl.DataFrame]) -> Html:
    levels = [level for rows in by_scorer.values() for level in rows["level"]]
    scale = {"dtick": 1, "range": [min(levels) - 0.3, max(levels) + 0.3]}
    axes = {"xaxis": scale, "yaxis": {**PERCENT_AXIS, "dtick": 0.25}}
    label = f"AUROC of each scorer against the {axis} level, {heading}"
    lines = {name: _line(rows) for name, rows in by_scorer.items()}
    return chart(view, scorers(view), (f"{axis} level", "mean AUROC"), lines, label=label, **axes)


def _line(rows: pl.DataFrame) -> dict[str, Any]:
    hover = rows.select("cells", "n", pl.col("least") * 100, pl.col("most") * 100).rows()
    return {
        "x": rows["level"].to_list(),
        "y": rows["value"].to_list(),
        "customdata": [list(row) for row in hover],
        "hovertemplate": (
            "<b>%{fullData.name}</b><br>level %{x}<br>AUROC %{y:.1%}<br>cells %{customdata[0]}, from "
            "%{customdata[2]:.0f} to %{customdata[3]:.0f} %<br>n = %{customdata[1]}<extra></extra>"
        ),
    }


def _table(levels: Mapping[int, int], axis: str, by_scorer: Mapping[str, pl.DataFrame]) -> Html:
    """Return a table of scorers, best mean first; a level is hatched if all its cells have too few images."""
    cells = {(name, row["level"]): row for name, part in by_scorer.items() for row in part.to_dicts()}
    best = sorted(by_scorer, key=lambda name: -round(float(by_scorer[name]["value"].mean()), 10))  # type: ignore[arg-type]
    rows = [
        (name, [_cell(name, level, cells.get((name, level)), levels) for level in levels]) for name in best
    ]
    heads = [_head(level, [row["n"] for (_, at), row in cells.items() if at == level]) for level in levels]
    return heat(
        f"{axis} level\u00a0→",
        heads,
        rows,
        "Mean AUROC in % over the cells of each level, with n; the scorer with the best mean comes first",
        named=True,
    )


def _levels(cells: pl.DataFrame, axis: str) -> dict[int, int]:
    """Return the number of images at every level of an axis, including cells with too few images."""
    most = (
        cells.group_by("scorer", AXES[axis])
        .agg(pl.col("n").sum())
        .group_by(AXES[axis])
        .agg(pl.col("n").max())
    )
    counts = dict(most.iter_rows())
    return {level: counts.get(level, 0) for level in range(min(counts), max(counts) + 1)}


def _head(level: int, counts: Sequence[int]) -> Html:
    return join([level, tag("small", same(counts)) if counts else EMPTY])


def _cell(name: str, level: int, row: Mapping[str, Any] | None, levels: Mapping[int, int]) -> Html:
    if row is None:
        return thin(levels[level]) if levels[level] else NONE
    spread = f"{row['cells']} cells from {percent(row['least'], 0)} to {percent(row['most'], 0)}"
    hover = f"{name}, level {level}: {percent(row['value'])}, {spread}, n = {row['n']}"
    return shaded(f"{100 * row['value']:.0f}", 2 * row["value"] - 1, hover)


@add_section(order=63)
def degrees(view: View) -> Section | None:
    """Maps with n in each cell, curves over each axis, correlation and sensitivity; absent without levels."""
    cells = view.compute(metrics.level_map)
    maps = {
        name: tag("div", *drawn, cls="cards two wide")
        for name in scorers(view)
        if (drawn := _maps(view, name, cells))
    }
    if not maps:
        return None
    lead = (
        "The images of each cell are compared with the same clean images of known classes; each set of images"
        " has its own map. Blue is an AUROC above 50 %, orange below. Hatched cells have too few images and"
        " enter no mean; empty cells have none. Maps are laid out as the lists of IS-OOD: a good score"
        " increases with semantic change (to the right) and is insensitive to covariate change (downwards)."
    )
    below = tag("div", level_axes(view), _degrees_table(view), cls="stack below")
    body = join([picked("degrees", "Scorer", maps), below])
    return Section("How far from the training distribution?", body, "Degrees", lead)


def _maps(view: View, scorer: str, cells: pl.DataFrame) -> list[Html]:
    cards = []
    for model in view.models:
        model_rows = cells.filter(pl.col("model") == model, pl.col("scorer") == scorer)
        if model_rows.height:
            cards += [
                tag("article", tag("h3", title(view, model, scorer, name=name)), _map(rows, name), cls="card")
                for name, rows in in_sets(model_rows)
            ]
    return cards


def _map(cells: pl.DataFrame, name: str | None) -> Html:
    by_levels = {(row["sem_level"], row["cov_level"]): row for row in cells.to_dicts()}
    across, down = (range(min(levels), max(levels) + 1) for levels in zip(*by_levels, strict=True))
    rows = [(level, [_degrees_cell(by_levels.get((column, level))) for column in across]) for level in down]
    in_distribution = count(cells["id"].max() or 0)  # type: ignore[arg-type]
    of_set = f" of {name}" if name else ""
    caption = f"AUROC in % by semantic and covariate level{of_set}, with n; {in_distribution} ID images"
    return heat("covariate ↓ semantic →", across, rows, caption)


def _degrees_cell(row: dict[str, Any] | None) -> Html:
    if row is None:
        return NONE
    if row["value"] is None:
        return thin(row["n"])
    interval = between(percent(row["low"]), percent(row["high"]))
    hover = f"{percent(row['value'])}, 95 %: {interval}, n = {row['n']}"
    return shaded(f"{100 * row['value']:.0f}", 2 * row["value"] - 1, hover, count(row["n"]))


def _degrees_table(view: View) -> Html:
    """Return correlation and sensitivity along both axes, with the number of levels."""
    statistics = {
        "correlation": view.compute(metrics.correlation),
        "sensitivity": view.compute(metrics.sensitivity),
    }
    cells = {
        (r["model"], r["scorer"], r["set"], r["axis"], name): r
        for name, frame in statistics.items()
        for r in frame.to_dicts()
    }
    several = len(set_names(view)) > 1
    lines = []
    for model, scorer, name in itertools.product(view.models, scorers(view), set_names(view)):
        numbers = [
            cells.get((model, scorer, name, axis, statistic)) for axis in AXES for statistic in statistics
        ]
        if any(numbers):
            keys = [model, scorer, *([name] if several else [])]
            lines.append([*keys, *(_number(row, "sens" if i % 2 else "") for i, row in enumerate(numbers))])
    key_heads = ["", "scorer", *(["images"] if several else [])]
    head = [*key_heads, *(f"{axis} {statistic}" for axis in AXES for statistic in statistics)]
    caption = (
        "Correlation of the mean AUROC with the level, and its change per level (sensitivity, in points),"
        " over the levels present"
    )
    summary = "Correlation with the level and sensitivity of each scorer, along both axes"
    return folded(summary, grid(head, lines, text=len(key_heads), caption=caption), len(lines))


def _number(row: dict[str, Any] | None, kind: str) -> Html:
    if row is None or row["value"] is None:
        return estimate(None)
    text = number(row["value"]) if kind else number(row["value"], 2)
    return join([text, tag("small", f"{row['levels']} levels, n = {count(row['n'])}")])

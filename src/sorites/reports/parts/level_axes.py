"""AUROC along the semantic and the covariate axis: one line per scorer, or a shaded table with too many scorers for lines."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.charts import PERCENT_AXIS
from sorites.reports.parts.heat import NONE, heat, same, shaded, thin
from sorites.reports.parts.markup import EMPTY, Html, join, percent, tag
from sorites.reports.parts.scorers import MOST_LINES, chart, scorers
from sorites.reports.view import View

AXES = {"semantic": "sem_level", "covariate": "cov_level"}


def level_axes(view: View) -> Html:
    """Return two cards per model and set: the mean AUROC over the semantic levels, and over the covariate levels."""
    found = itertools.product(view.models, set_names(view), AXES)
    cards = [card for model, name, axis in found if (card := _card(view, model, name, axis))]
    return tag("div", *cards, cls="cards two")


def set_names(view: View) -> list[str | None]:
    """Return the sets of pictures with levels, by name."""
    return view.compute(metrics.level_map)["set"].unique().sort().to_list()


def in_sets(rows: pl.DataFrame) -> list[tuple[str | None, pl.DataFrame]]:
    """Return the rows of each set with its name."""
    return [(key[0], part) for key, part in sorted(rows.partition_by("set", as_dict=True).items(), key=str)]


def title(view: View, *parts: str, name: str | None) -> str:
    """Return the heading of a card, with the set of pictures where there are several."""
    return " · ".join([*parts, *([str(name)] if len(set_names(view)) > 1 else [])])


def _card(view: View, model: str, name: str | None, axis: str) -> Html:
    in_set = pl.col("set").eq_missing(pl.lit(name, pl.String))
    rows = view.compute(metrics.level_curve).filter(in_set, pl.col("model") == model, pl.col("axis") == axis)
    by_scorer = {one: part for one in scorers(view) if (part := rows.filter(pl.col("scorer") == one)).height}
    if not by_scorer:
        return EMPTY
    heading = title(view, model, f"{axis} axis", name=name)
    if len(by_scorer) <= MOST_LINES:
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
        "hovertemplate": "<b>%{fullData.name}</b><br>level %{x}<br>AUROC %{y:.1%}<br>cells %{customdata[0]}, from "
        "%{customdata[2]:.0f} to %{customdata[3]:.0f} %<br>n = %{customdata[1]}<extra></extra>",
    }


def _table(levels: Mapping[int, int], axis: str, by_scorer: Mapping[str, pl.DataFrame]) -> Html:
    """Return a table of scorers, the best mean first; a level is hatched where all its cells have too few pictures."""
    cells = {(name, row["level"]): row for name, part in by_scorer.items() for row in part.to_dicts()}
    best = sorted(by_scorer, key=lambda name: float(by_scorer[name]["value"].mean()), reverse=True)  # type: ignore[arg-type]
    rows = [(name, [_cell(name, level, cells.get((name, level)), levels) for level in levels]) for name in best]
    heads = [_head(level, [row["n"] for (_, at), row in cells.items() if at == level]) for level in levels]
    return heat(
        f"{axis} level\u00a0→",
        heads,
        rows,
        "Mean AUROC in % over the cells of each level, with n; the scorer with the best mean comes first",
        named=True,
    )


def _levels(cells: pl.DataFrame, axis: str) -> dict[int, int]:
    """Return the number of pictures of every level from the least to the greatest, in small and in large cells."""
    most = cells.group_by("scorer", AXES[axis]).agg(pl.col("n").sum()).group_by(AXES[axis]).agg(pl.col("n").max())
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

"""The section on strangeness by level: the map of semantic and covariate levels, its two axes, and the change per level."""

from __future__ import annotations

import itertools
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.heat import NONE, heat, shaded, thin
from sorites.reports.parts.level_axes import AXES, in_sets, level_axes, set_names, title
from sorites.reports.parts.markup import Html, count, folded, grid, join, number, percent, tag
from sorites.reports.parts.picker import picked
from sorites.reports.parts.scorers import estimate, scorers
from sorites.reports.section import Section, add_section
from sorites.reports.view import View


@add_section(order=63)
def degrees(view: View) -> Section | None:
    """Heat maps with n in each cell, curves over each axis, correlation and sensitivity; absent without levels."""
    cells = view.compute(metrics.level_map)
    maps = {name: tag("div", *drawn, cls="cards two wide") for name in scorers(view) if (drawn := _maps(view, name, cells))}
    if not maps:
        return None
    lead = (
        "The pictures of each cell are compared with the same clean pictures of known classes; each set of pictures has its own "
        "map. Blue is an AUROC above 50 %, "
        "orange below. Hatched cells have too few pictures to be reliable and enter no mean; empty cells have none. A good "
        "score rises with the change of meaning (downwards) and does not react to the change of appearance (to the right)."
    )
    below = tag("div", level_axes(view), _table(view), cls="stack below")
    body = join([picked("degrees", "Scorer", maps), below])
    return Section("How strange must a picture be?", body, "Degrees", lead)


def _maps(view: View, scorer: str, cells: pl.DataFrame) -> list[Html]:
    found = []
    for model in view.models:
        model_rows = cells.filter(pl.col("model") == model, pl.col("scorer") == scorer)
        if model_rows.height:
            found += [
                tag("article", tag("h3", title(view, model, scorer, name=name)), _map(rows, name), cls="card")
                for name, rows in in_sets(model_rows)
            ]
    return found


def _map(cells: pl.DataFrame, name: str | None) -> Html:
    by_levels = {(row["sem_level"], row["cov_level"]): row for row in cells.to_dicts()}
    down, across = (range(min(levels), max(levels) + 1) for levels in zip(*by_levels, strict=True))
    rows = [(level, [_cell(by_levels.get((level, column))) for column in across]) for level in down]
    familiar = count(cells["familiar"].max() or 0)  # type: ignore[arg-type]
    of_set = f" of {name}" if name else ""
    caption = f"AUROC in % by semantic and covariate level{of_set}, with n; {familiar} familiar pictures"
    return heat("meaning ↓ appearance →", across, rows, caption)


def _cell(row: dict[str, Any] | None) -> Html:
    if row is None:
        return NONE
    if row["value"] is None:
        return thin(row["n"])
    hover = f"{percent(row['value'])}, 95 %: {percent(row['low'])} to {percent(row['high'])}, n = {row['n']}"
    return shaded(f"{100 * row['value']:.0f}", 2 * row["value"] - 1, hover, count(row["n"]))


def _table(view: View) -> Html:
    """Return correlation and sensitivity along both axes, with the levels they rest on."""
    answers = {"correlation": view.compute(metrics.correlation), "sensitivity": view.compute(metrics.sensitivity)}
    cells = {(r["model"], r["scorer"], r["set"], r["axis"], name): r for name, frame in answers.items() for r in frame.to_dicts()}
    several = len(set_names(view)) > 1
    lines = []
    for model, scorer, name in itertools.product(view.models, scorers(view), set_names(view)):
        numbers = [cells.get((model, scorer, name, axis, asked)) for axis in AXES for asked in answers]
        if any(numbers):
            named = [model, scorer, *([name] if several else [])]
            lines.append([*named, *(_number(row, "sens" if i % 2 else "") for i, row in enumerate(numbers))])
    named = ["", "scorer", *(["pictures"] if several else [])]
    head = [*named, *(f"{axis} {asked}" for axis in AXES for asked in answers)]
    caption = (
        "Correlation of the mean AUROC with the level, and its change per level (sensitivity, in points), over the levels present"
    )
    summary = "Correlation with the level and sensitivity of each scorer, along both axes"
    return folded(summary, grid(head, lines, text=len(named), caption=caption), len(lines))


def _number(row: dict[str, Any] | None, kind: str) -> Html:
    if row is None or row["value"] is None:
        return estimate(None)
    text = number(100 * row["value"]) if kind else number(row["value"], 2)
    return join([text, tag("small", f"{row['levels']} levels, n = {count(row['n'])}")])

"""Lenses in a table, the one that suits the models best first."""

from __future__ import annotations

import polars as pl

from sorites.reports.parts.long_table import csv_link, long_table
from sorites.reports.parts.markup import DASH, EMPTY, Html, join, number, tag
from sorites.reports.parts.scorers import estimate
from sorites.reports.view import View

HEAD = ("place", "lens", "mtf50", "model", "value", "low", "high", "n")


def lens_ranking(view: View, each: pl.DataFrame, what: str) -> Html:
    """Return the lenses by their mean ``what`` over the models; empty with one lens.

    ``each`` has the columns model, lens, quality, value, low, high and n.
    """
    if each["lens"].n_unique() < 2:
        return EMPTY
    means = each.group_by("lens").agg(pl.col("value").mean().alias("mean"), pl.col("quality").mean())
    ranked = means.with_columns(place=pl.col("mean").rank("min", descending=True)).sort("place", "lens").to_dicts()
    cells = {(row["lens"], row["model"]): row for row in each.to_dicts()}
    models = [model for model in view.models if any(key[1] == model for key in cells)]
    lines = [
        [row["lens"], str(row["place"]), number(row["quality"]), *(_cell(cells.get((row["lens"], m))) for m in models)]
        for row in ranked
    ]
    of = "by accuracy" if what == "accuracy" else f"by {what}"
    whose = "" if len(models) == 1 else ", mean over the models"
    caption = f"Lenses {of}{whose}, with 95 % intervals and n. Lenses whose intervals overlap may change places."
    table = long_table(["lens", "place", "MTF50", *models], lines, caption, what="lenses")
    return join([tag("h3", "Lenses in order"), table, csv_link("lenses", HEAD, _plain(ranked, cells, models))])


def _cell(row: dict[str, object] | None) -> Html | str:
    return DASH if row is None else estimate(row, f"n = {row['n']}")


def _plain(
    ranked: list[dict[str, object]], cells: dict[tuple[str, str], dict[str, object]], models: list[str]
) -> list[list[object]]:
    found = [(lens, cells[str(lens["lens"]), model]) for lens in ranked for model in models if (lens["lens"], model) in cells]
    return [[lens["place"], lens["lens"], lens["quality"], *(row[name] for name in HEAD[3:])] for lens, row in found]

"""FPR at 95 % of every scorer for each set and group of strange pictures, in both conventions (ImageNet-ES, figure 8)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.heat import NONE, heat, same, shaded
from sorites.reports.parts.markup import EMPTY, Html, between, count, join, percent, tag
from sorites.reports.parts.scorers import scorers
from sorites.reports.view import View

CONVENTIONS = {
    "fpr95_ood_pos": "FPR95, strange positive: familiar pictures flagged where 95 % of the strange ones are",
    "fpr95_id_pos": "FPR95, familiar positive: strange pictures missed where 95 % of the familiar ones pass",
}
FAMILIAR = (
    ("combined", "same", "clean pictures that the model gets right"),
    ("semantic", "clean", "clean pictures of known classes"),
)
"""The familiar pictures to compare with, the first choice first; without labels no picture is right, which leaves the second."""

Cells = Mapping[tuple[str, str], Mapping[str, Any]]
"""The rows of an answer by model and scorer."""


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, its group (near, far) where it is one set of it, and its cells by convention."""

    name: str
    group: str
    cells: Mapping[str, Cells]


def strange_sets(view: View) -> Html:
    """Return two tables per model, one per convention; nothing where all strange pictures are of one set and group."""
    for framework, against, words in FAMILIAR:
        columns = _columns(view, framework, against)
        if len(columns) > 1:
            cards = [card for model in view.models for card in _cards(view, model, columns, words)]
            return tag("div", *cards, cls="cards two wide")
    return EMPTY


def _columns(view: View, framework: str, against: str) -> list[Column]:
    """Return near sets, all near, far sets, all far, then the sets without a group."""
    by_group, by_set = (
        _answer(view, framework, against, by)
        for by in (("model", "scorer", "kind", "group"), ("model", "scorer", "group", "set", "kind"))
    )
    several = by_set["set"].n_unique() > 1
    columns = []
    for group in sorted(by_group["group"].unique(), key=lambda name: (name is None, name != "near", name)):
        mine = by_set.filter(pl.col("group").eq_missing(pl.lit(group, pl.String)))
        sets = mine["set"].unique().sort().to_list()
        if several:
            columns += [
                Column(str(name), group or "", _cells(mine.filter(pl.col("set").eq_missing(pl.lit(name, pl.String)))))
                for name in sets
            ]
        if group is not None and (len(sets) > 1 or not several):
            columns.append(Column(f"all {group}", "", _cells(by_group.filter(pl.col("group") == group))))
    return columns


def _answer(view: View, framework: str, against: str, by: Sequence[str]) -> pl.DataFrame:
    found = view.compute(metrics.ood, framework=framework, against=against, by=tuple(by))
    return found.filter(pl.col("value").is_not_null() & (pl.col("kind") == "S-OOD") & pl.col("metric").is_in(list(CONVENTIONS)))


def _cells(rows: pl.DataFrame) -> dict[str, Cells]:
    return {
        name: {(row["model"], row["scorer"]): row for row in rows.filter(pl.col("metric") == name).to_dicts()}
        for name in CONVENTIONS
    }


def _cards(view: View, model: str, columns: Sequence[Column], words: str) -> list[Html]:
    present = [name for name in scorers(view) if any((model, name) in column.cells["fpr95_ood_pos"] for column in columns)]
    if not present:
        return []
    return [
        tag(
            "article",
            tag("h3", f"{model} · {title.split(':')[0]}"),
            _table(model, present, columns, name, title, words),
            cls="card",
        )
        for name, title in CONVENTIONS.items()
    ]


def _table(model: str, present: Sequence[str], columns: Sequence[Column], name: str, title: str, words: str) -> Html:
    """Return scorers down and sets across, the scorer with the lowest mean first."""
    cells = {scorer: [column.cells[name].get((model, scorer)) for column in columns] for scorer in present}
    best = sorted(cells, key=lambda scorer: _mean(cells[scorer]))
    rows = [(scorer, [_cell(scorer, column, row) for column, row in zip(columns, cells[scorer], strict=True)]) for scorer in best]
    heads = [_head(column, [row["strange"] for one in cells.values() if (row := one[i])]) for i, column in enumerate(columns)]
    familiar = same(row["familiar"] for one in cells.values() for row in one if row)
    about = (
        f"{title.split(': ')[1].capitalize()}, in % with 95 % intervals; 0 is best. Against {familiar} {words}; n counts strange "
        "pictures. A group pools the pictures of its sets. The scorer with the lowest mean comes first."
    )
    return join([tag("p", about, cls="about"), heat("scorer", heads, rows, "", named=True)])


def _mean(rows: Sequence[Mapping[str, Any] | None]) -> float:
    return statistics.fmean(row["value"] for row in rows if row)


def _head(column: Column, strange: Sequence[int]) -> Html:
    n = f"n = {same(strange)}" if strange else ""
    return join([column.name, *(tag("small", text) for text in (column.group, n) if text)])


def _cell(scorer: str, column: Column, row: Mapping[str, Any] | None) -> Html:
    if row is None:
        return NONE
    interval = f"95 %: {between(percent(row['low']), percent(row['high']))}"
    counts = f"n = {count(row['familiar'])} + {count(row['strange'])}"
    hover = f"{scorer}, {column.name}: {percent(row['value'])}, {interval}, {counts}"
    return shaded(f"{100 * row['value']:.0f}", 1 - 2 * row["value"], hover, f"{100 * row['low']:.0f}–{100 * row['high']:.0f}")

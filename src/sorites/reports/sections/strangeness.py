"""Can a score tell strange pictures from familiar ones? The main numbers, under each way of saying who is strange."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.markup import DASH, EMPTY, Html, count, folded, grid, join, number, tag
from sorites.reports.parts.scorers import estimate, scorers
from sorites.reports.parts.strange_dots import VIEWS, kinds, strange_dots
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

FRAMEWORKS = {
    "semantic": "By label: strange pictures show none of the model's classes; moved pictures of its classes stay familiar",
    "model-specific": "By verdict: strange pictures are those the model gets wrong",
}
NUMBERS = {
    "auroc": "AUROC",
    "fpr95_ood_pos": "FPR95, strange positive",
    "fpr95_id_pos": "FPR95, familiar positive",
    "aupr_in": "AUPR-in",
    "aupr_out": "AUPR-out",
}


@add_section(order=61)
def strangeness(view: View) -> Section | None:
    """Dots of every scorer, then a table a framework, the combination of ImageNet-ES, and score and accuracy over settings."""
    tables = [table for table in (*(_framework(view, name) for name in FRAMEWORKS), _combined(view), _settings(view)) if table]
    if not tables:
        return None
    lead = (
        "A score should be high for what is strange. AUROC is the chance that a strange picture scores above a familiar one, "
        "50 % is blind. FPR95 is the share of false alarms when 95 % of the positive class are caught, 0 at best. Who is strange "
        "can be said in two ways: by label, what shows none of the model's classes; by verdict, what the model gets wrong. The "
        "95 % intervals take the pictures of one sample together."
    )
    return Section("Can the score tell strange from familiar?", tag("div", strange_dots(view), *tables, cls="stack"), "OOD", lead)


def _framework(view: View, framework: str) -> Html:
    asked = view.ask(metrics.ood, framework=framework).filter(pl.col("value").is_not_null())
    cells = {(row["model"], row["scorer"], row["metric"]): row for row in asked.to_dicts()}
    lines = []
    for model, scorer in _judges(view, cells):
        own = [cells[model, scorer, name] for name in NUMBERS]
        counts = [count(own[0][name]) for name in ("familiar", "strange", "missing")]
        lines.append([model, scorer, *map(estimate, own), *counts])
    head = ["", "scorer", *NUMBERS.values(), "familiar", "strange", "no score"]
    table = grid(head, lines, text=2, caption=FRAMEWORKS[framework])
    said = f"{VIEWS[framework].capitalize()}: AUROC, FPR95 and AUPR of each scorer"
    return folded(said, table, len(lines)) if lines else EMPTY


def _judges(view: View, cells: dict[Any, Any]) -> list[tuple[str, str]]:
    held = {key[:2] for key in cells}
    return [(model, scorer) for model in view.models for scorer in scorers(view) if (model, scorer) in held]


def _combined(view: View) -> Html:
    """Right untouched pictures against each kind of strange one, where there are both kinds."""
    found = kinds(view)
    cells = {(row["model"], row["scorer"], name): row for name, rows in found.items() for row in rows.to_dicts()}
    lines = [
        [model, scorer, *(_kind(cells.get((model, scorer, name))) for name in found)] for model, scorer in _judges(view, cells)
    ]
    caption = "AUROC against untouched pictures that are right: unknown classes (S-OOD), moved pictures that are wrong (C-OOD)"
    table = grid(["", "scorer", *found], lines, text=2, caption=caption)
    return folded("Kind by kind: AUROC of each scorer for S-OOD and C-OOD", table, len(lines)) if lines else EMPTY


def _kind(row: dict[str, Any] | None) -> Html:
    return estimate(row, f"n = {row['familiar']} + {row['strange']}") if row else estimate(None)


def _settings(view: View) -> Html:
    """Accuracy against mean score over settings."""
    found = view.ask(metrics.score_accuracy).filter(pl.col("value").is_not_null())
    cells = {(row["model"], row["scorer"], row["kind"]): row for row in found.to_dicts()}
    lines = []
    for model, scorer in _judges(view, cells):
        own = [cells.get((model, scorer, kind)) for kind in ("pearson", "spearman")]
        lines.append([model, scorer, *map(_correlation, own), count(max(row["n"] for row in own if row))])
    caption = "Correlation of mean score and accuracy over settings; −1 is a score that rises exactly where accuracy falls"
    table = grid(["", "scorer", "Pearson", "Spearman", "settings"], lines, text=2, caption=caption)
    return folded("Over settings: correlation of mean score and accuracy", table, len(lines)) if lines else EMPTY


def _correlation(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    interval = f"{number(row['low'], 2)} to {number(row['high'], 2)}" if row["low"] is not None else ""
    return join([number(row["value"], 2), tag("small", interval)])

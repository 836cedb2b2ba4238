"""The section on OOD detection: can a score separate strange from familiar pictures, for each definition of strange?"""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.reports.parts.markup import DASH, EMPTY, Html, count, folded, grid, join, number, tag
from sorites.reports.parts.scorers import estimate, scorers
from sorites.reports.parts.strange_dots import VIEWS, kinds, strange_dots
from sorites.reports.parts.strange_sets import strange_sets
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

FRAMEWORKS = {
    "semantic": "By label: strange pictures show none of the model's classes; shifted pictures of its classes stay familiar",
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
    """Dots of every scorer, FPR per set of strange pictures, one table per framework, the kinds, and score against accuracy."""
    tables = [table for table in (*(_framework(view, name) for name in FRAMEWORKS), _combined(view), _settings(view)) if table]
    if not tables:
        return None
    lead = (
        "A score should be high for strange (out-of-distribution) pictures. AUROC is the chance that a strange picture scores "
        "above a familiar one; 50 % is a random score. FPR95 is the share of false alarms at the threshold that finds 95 % of "
        "the positive class; 0 is best. Strange is defined in two ways: by label, pictures that show none of the model's "
        "classes; by verdict, pictures that the model gets wrong. The 95 % intervals are clustered by sample."
    )
    return Section(
        "Can the score separate strange from familiar pictures?",
        tag("div", strange_dots(view), strange_sets(view), *tables, cls="stack"),
        "OOD",
        lead,
    )


def _framework(view: View, framework: str) -> Html:
    answer = view.compute(metrics.ood, framework=framework).filter(pl.col("value").is_not_null())
    cells = {(row["model"], row["scorer"], row["metric"]): row for row in answer.to_dicts()}
    lines = []
    for model, scorer in _judges(view, cells):
        numbers = [cells[model, scorer, name] for name in NUMBERS]
        counts = [count(numbers[0][name]) for name in ("familiar", "strange", "missing")]
        lines.append([model, scorer, *map(estimate, numbers), *counts])
    head = ["", "scorer", *NUMBERS.values(), "familiar", "strange", "no score"]
    table = grid(head, lines, text=2, caption=FRAMEWORKS[framework])
    summary = f"{VIEWS[framework].capitalize()}: AUROC, FPR95 and AUPR of each scorer"
    return folded(summary, table, len(lines)) if lines else EMPTY


def _judges(view: View, cells: dict[Any, Any]) -> list[tuple[str, str]]:
    present = {key[:2] for key in cells}
    return [(model, scorer) for model in view.models for scorer in scorers(view) if (model, scorer) in present]


def _combined(view: View) -> Html:
    """Return the AUROC of each kind of strange picture against clean pictures that are right, where there are both kinds."""
    found = kinds(view)
    cells = {(row["model"], row["scorer"], name): row for name, rows in found.items() for row in rows.to_dicts()}
    lines = [
        [model, scorer, *(_kind(cells.get((model, scorer, name))) for name in found)] for model, scorer in _judges(view, cells)
    ]
    caption = "AUROC against clean pictures that are right: unknown classes (S-OOD), shifted pictures that are wrong (C-OOD)"
    table = grid(["", "scorer", *found], lines, text=2, caption=caption)
    return folded("Kind by kind: AUROC of each scorer for S-OOD and C-OOD", table, len(lines)) if lines else EMPTY


def _kind(row: dict[str, Any] | None) -> Html:
    return estimate(row, f"n = {row['familiar']} + {row['strange']}") if row else estimate(None)


def _settings(view: View) -> Html:
    """Return the correlation of mean score and accuracy over settings."""
    found = view.compute(metrics.score_accuracy).filter(pl.col("value").is_not_null())
    cells = {(row["model"], row["scorer"], row["kind"]): row for row in found.to_dicts()}
    lines = []
    for model, scorer in _judges(view, cells):
        numbers = [cells.get((model, scorer, kind)) for kind in ("pearson", "spearman")]
        lines.append([model, scorer, *map(_correlation, numbers), count(max(row["n"] for row in numbers if row))])
    caption = "Correlation of mean score and accuracy over settings; at −1 the score rises exactly where accuracy falls"
    table = grid(["", "scorer", "Pearson", "Spearman", "settings"], lines, text=2, caption=caption)
    return folded("Over settings: correlation of mean score and accuracy", table, len(lines)) if lines else EMPTY


def _correlation(row: dict[str, Any] | None) -> object:
    if row is None:
        return DASH
    interval = f"{number(row['low'], 2)} to {number(row['high'], 2)}" if row["low"] is not None else ""
    return join([number(row["value"], 2), tag("small", interval)])

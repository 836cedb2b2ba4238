"""The section on errors, which explains missing numbers."""

from __future__ import annotations

import polars as pl

from sorites.reports.parts.markup import Html, count, grid, several, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

SHOWN = 20


@add_section(order=90)
def mistakes(view: View) -> Section | None:
    """The first errors of the table, with equal ones on one line; absent where there are none."""
    failed = view.table.filter(pl.col("error").is_not_null())
    total = failed.select(pl.len()).collect(engine="streaming").item()
    if not total:
        return None
    alike = ["sample_id", "shift", "error"]
    kinds = failed.group_by(alike).agg(rows=pl.len()).sort(alike).collect(engine="streaming")
    lines = [[r["sample_id"], r["shift"], _text(r["error"]), count(r["rows"])] for r in kinds.head(SHOWN).to_dicts()]
    verb = "holds" if total == 1 else "hold"
    lead = f"{several(total, 'row')} of the table {verb} an error instead of a prediction; they count as missing, not as wrong."
    lead += f" The first {SHOWN} of {count(kinds.height)} kinds are listed." if kinds.height > SHOWN else ""
    table = grid(["sample", "shift", "error", "rows"], lines, text=3)
    return Section("Pictures that could not be judged", tag("article", table, cls="card"), "Errors", lead)


def _text(error: str, longest: int = 400) -> Html:
    return tag("span", error if len(error) <= longest else error[: longest - 1] + "…", cls="text")

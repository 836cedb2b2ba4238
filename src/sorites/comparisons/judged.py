"""Pictures that not both models were judged on: errors of one or both, and images that a filter set aside in one run."""

from __future__ import annotations

import polars as pl

from sorites.comparisons.sides import Side, shifts_of
from sorites.errors import SoritesError

MEND = {
    "error": "Mend what failed and type the run's command again",
    "aside": "Filter both runs alike",
}


def refuse_one_sided(base: Side, new: Side, shared: bool) -> list[str]:
    """Refuse pictures that failed, or were set aside, on one side only, with what to type; return notes about the rest.

    A model that fails on the pictures it finds hard would otherwise be judged on the easy ones alone.
    """
    return [note for part in base.parts for note in _of_part(part, base, new, shared)]


def _of_part(part: str, base: Side, new: Side, shared: bool) -> list[str]:
    mine, theirs = pl.collect_all([_states(held.rows(part)) for held in (base, new)])
    both = mine.join(theirs, on="image_id", suffix="_new").sort("image_id")
    judged = both.filter(~pl.any_horizontal("error", "aside", "error_new", "aside_new"))
    left_out = [_told(both.filter(pl.col("error") & pl.col("error_new")), "in error for both models")]
    for kind in MEND:
        said = " and ".join(filter(None, (_alone(both, kind, base, ""), _alone(both, kind, new, "_new"))))
        if said and not shared:
            more = f"add --shared to compare the {judged.height} pictures that both were judged on"
            raise SoritesError(f"{said}. {MEND[kind]}, or {more}.")
        left_out.append(said)
    notes = [f"{said}; they are left out." for said in left_out if said]
    if gone := sorted(set(both["shift"]) - set(judged["shift"])):
        notes.append(f"Not compared, because no picture of theirs was judged for both models: {', '.join(gone)}.")
    return notes


def _alone(both: pl.DataFrame, kind: str, held: Side, suffix: str) -> str:
    """Say which pictures failed or were set aside on this side only."""
    other = "" if suffix else "_new"
    rows = both.filter(pl.col(f"{kind}{suffix}") & ~pl.col(f"{kind}{other}"))
    if kind == "aside":
        return _told(rows, f"set aside by a filter in {held.path} alone")
    first = next(iter(rows[f"why{suffix}"].drop_nulls()), "")
    return _told(rows, f"in error for {held.model} of {held.path} alone (the first: {first})")


def _told(rows: pl.DataFrame, what: str) -> str:
    if not rows.height:
        return ""
    pictures, verb = ("pictures", "are") if rows.height > 1 else ("picture", "is")
    return f"{rows.height} {pictures} ({shifts_of(rows)}) {verb} {what}"


def _states(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return each picture of the grid once, with whether it failed, why, and whether it was set aside."""
    grid = rows.filter((pl.col("output") == "label") & ~pl.col("probe").fill_null(False))
    return grid.group_by("image_id").agg(
        pl.col("shift").first(),
        error=pl.col("error").is_not_null().any(),
        why=pl.col("error").drop_nulls().first(),
        aside=(~pl.col("valid").fill_null(True)).any(),
    )

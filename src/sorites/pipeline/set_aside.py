"""Images that a filter set aside in a run: how many there are, and, of several runs, those that only some of them set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import polars as pl


class Filtered(Protocol):
    """A run with its name and the ids of the images that are set aside in it."""

    @property
    def name(self) -> str: ...
    @property
    def aside(self) -> pl.Series | None: ...


def sentences(runs: Sequence[Filtered], partial: bool) -> list[str]:
    """Say how many images are set aside, and what that means where it is not the same in all runs."""
    counts = [f"{len(run.aside)} in {run.name}" for run in runs if run.aside is not None]
    if not counts:
        return []
    said = f"Images that a filter set aside are not counted: {', '.join(counts)}."
    if not only_in_some(runs):
        return [said]
    if partial:
        return [f"{said} Not all runs were filtered alike: models may stand on different pictures."]
    return [f"{said} Not all runs were filtered alike: what one sets aside is left out of all. Add --partial to use everything."]


def only_in_some(runs: Sequence[Filtered]) -> list[str]:
    """Return the images that are set aside in some of the runs and not in all of them."""
    each = [set() if run.aside is None else set(run.aside) for run in runs]
    return sorted(set().union(*each) - each[0].intersection(*each[1:]))


def left_out(tables: Sequence[pl.LazyFrame], runs: Sequence[Filtered]) -> list[pl.LazyFrame]:
    """Return the tables of runs without the images that are set aside in some of them only."""
    some = only_in_some(runs)
    return [table.filter(~pl.col("image_id").is_in(some)) for table in tables] if some else list(tables)

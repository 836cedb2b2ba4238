"""Model facts are numbers about models that the table does not hold: parameters, accuracy elsewhere. The user supplies them.

They have nothing to do with the fact files of a run folder, which hold what is learnt later about images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from sorites.errors import SoritesError, UnknownName
from sorites.reading.frames import as_numbers, csv
from sorites.reading.places import path_of

ModelFacts = str | Path | pl.DataFrame | Mapping[str, Mapping[str, object]]
"""A CSV file with a column ``model`` and one column per fact, the same as a frame, or a mapping from model to its facts."""


def read_model_facts(facts: ModelFacts, *wanted: str) -> pl.DataFrame:
    """Return one row per model, with ``model`` and the ``wanted`` facts as numbers."""
    frame = _read(facts)
    for name in ("model", *wanted):
        if name not in frame.columns:
            raise UnknownName("fact", name, frame.columns, f"The facts are {', '.join(frame.columns)}.")
    if frame["model"].is_duplicated().any():
        twice = frame.filter(pl.col("model").is_duplicated())["model"][0]
        raise SoritesError(f"facts: the model {twice!r} stands twice")
    numbers = frame.select("model", *(as_numbers(frame[name], f"facts, column {name}") for name in wanted))
    for name in wanted:
        lost = frame.filter(frame[name].is_not_null() & numbers[name].is_null())
        if lost.height:
            raise SoritesError(f"facts: wanted a number for {name} of {lost['model'][0]!r}, got {lost[name][0]!r}")
    return numbers


def _read(facts: ModelFacts) -> pl.DataFrame:
    if isinstance(facts, pl.DataFrame):
        return facts
    if isinstance(facts, Mapping):
        return pl.DataFrame([{"model": model, **values} for model, values in facts.items()])
    return csv(path_of(facts), "facts as a CSV file with the column model", infer_schema=True)

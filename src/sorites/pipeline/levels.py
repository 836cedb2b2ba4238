"""Distances with their levels: what every way of measuring returns, and a record of how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.frame import Distance
from sorites.measures._levels import level_of, uniform
from sorites.pipeline.left_out import LeftOut
from sorites.pipeline.rulers import HALVES, Ruler

COLUMNS = {"semantic": "sem_level", "covariate": "cov_level"}


@dataclass(frozen=True, eq=False)
class Distances:
    """One row per picture (key, ``semantic``, ``covariate``, ``sem_level``, ``cov_level``), and a record of their making."""

    rows: pl.DataFrame
    record: dict[str, Any]

    def cells(self) -> pl.DataFrame:
        """Count the pictures of each pair of levels."""
        return self.rows.group_by("sem_level", "cov_level").len("n").sort("sem_level", "cov_level")

    def grid(self) -> pl.DataFrame:
        """Return the counts for printing: a row per covariate level, a column per semantic level; an empty pair is null."""
        wide = self.cells().pivot("sem_level", index="cov_level", values="n").sort("cov_level")
        across = {level: f"sem {level}" for level in sorted(wide.columns[1:], key=int)}
        return wide.select(pl.format("cov {}", "cov_level").alias("pictures"), *across).rename(across)


def rows_of(key: str, keys: Sequence[str], distances: Mapping[str, NDArray[np.float32]]) -> pl.DataFrame:
    """Return distances as rows under a key."""
    return pl.DataFrame({key: list(keys), **distances})


def with_levels(rows: pl.DataFrame, how: Distance, made_of: Mapping[str, Any]) -> Distances:
    """Return rows of distances with the level of each, and a record of how they were made."""
    given = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    distances = {half: rows[half].to_numpy() for half in HALVES}
    edges = {half: list(given[half] or uniform(distances[half], how.levels)) for half in HALVES}
    levels = {COLUMNS[half]: level_of(distances[half], edges[half]) for half in HALVES}
    columns = [pl.Series(name, values) for name, values in levels.items()]
    wide = rows.with_columns(*(pl.col(half).cast(pl.Float64) for half in HALVES), *columns)
    return Distances(wide, {**told(how), **made_of, "edges": edges})


def told(how: Distance, mode: str = "python") -> dict[str, Any]:
    """Return how distances were asked for; the exact search, the default, is not named."""
    return how.model_dump(mode=mode, exclude={"neighbours"} if how.neighbours == "exact" else None)


def made_by(ruler: Ruler, left: LeftOut | None = None, searched: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what distances by a ruler were made from."""
    lost = [one for one in (ruler.left, left) if one is not None]
    return made_from(ruler.referee.version, len(ruler.banks[HALVES[0]]), lost, searched or {})


def made_from(version: str, familiar: int, left: Iterable[LeftOut], searched: Mapping[str, str]) -> dict[str, Any]:
    """Return what distances were made from: the referee's version, how many familiar pictures, and what was left out."""
    said = [one.say() for one in left if one.count]
    return {
        "version": version,
        "familiar": familiar,
        **({"searched": dict(searched)} if searched else {}),
        **({"left_out": said} if said else {}),
    }

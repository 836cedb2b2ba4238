"""A framework decides which pictures are familiar and which are strange: two expressions on the ``ood`` rows of the table.

- ``semantic``: a familiar picture shows a class the model knows; a strange one shows none (``known`` is false, or it has no
  label and its split is "unknown"). Shifted pictures of known classes stay familiar. A picture without a label that nothing calls
  strange counts as familiar: IS-OOD's published layout has no labels for its familiar pictures.
- ``model-specific``: familiar is what the model gets right (S+), strange what it gets wrong (S-) (Averly and Chao, ICCV 2023).
- ``combined``: the test of ImageNet-ES (supplement, Table 3): familiar is clean and right; strange shows no known class
  (S-OOD), or is shifted and wrong (C-OOD). Grouped by ``kind`` and ``group`` it gives the columns of that table.
- ``graded``: the test of IS-OOD: familiar is clean and of a known class (or without a label, as above); strange is everything
  else that has both levels.

- ``drift``: familiar is clean, strange is shifted, whatever the model says of it, both of known classes: how early does a score
  notice that the world has moved? Grouped by ``shift`` and ``severity`` it is asked at every stop of a dial.

Metrics of scores can also be grouped by three columns that the table does not hold: ``kind`` (ID, S-OOD or C-OOD), ``group``,
the value of the attribute "group" (near, far), and ``set``, the set of pictures that a picture belongs to (see ``_sets``).
Grouped by ``source``, ``set`` or ``group``, the strange pictures of each are compared with all familiar pictures of the run that
were shifted and judged in the same way. A group pools the pictures of its sets; OpenOOD averages the sets' numbers instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.errors import SoritesError, UnknownName
from sorites.metrics._rows import ON_GRID, SAMPLE_KEY, select_rows
from sorites.metrics._separation import Pair, Pool
from sorites.metrics._sets import SET, with_sets
from sorites.table import Table

UNTOUCHED = pl.col("shift") == CLEAN
UNKNOWN_CLASS = (pl.col("known").not_() | (pl.col("label").is_null() & (pl.col("split") == "unknown"))).fill_null(False)
UNLABELLED = pl.col("label").is_null() & pl.col("known").is_null()
KNOWN_CLASS = (pl.col("known").fill_null(False) | UNLABELLED) & ~UNKNOWN_CLASS
RIGHT, WRONG = pl.col("correct").fill_null(False), pl.col("correct").not_().fill_null(False)
HAS_LEVELS = pl.col("sem_level").is_not_null() & pl.col("cov_level").is_not_null()

FRAMEWORKS = {
    "semantic": (KNOWN_CLASS, UNKNOWN_CLASS),
    "model-specific": (RIGHT, WRONG),
    "combined": (RIGHT & UNTOUCHED, UNKNOWN_CLASS | (WRONG & ~UNTOUCHED)),
    "graded": (KNOWN_CLASS & UNTOUCHED, HAS_LEVELS & ~(KNOWN_CLASS & UNTOUCHED)),
    "drift": (KNOWN_CLASS & UNTOUCHED, KNOWN_CLASS & ~UNTOUCHED),
}
"""The expressions (familiar, strange) by the name of the framework; a row that is neither is left out."""

HAS_SCORE = pl.col("error").is_null() & pl.col("score").is_finite().fill_null(False)
BY_SCORER = ("model", "scorer")
CONDITIONS = frozenset({*BY_SCORER, "run_id", "seed", "family", "shift", "severity", "level", "params"})
"""Columns that say how a picture was shifted and judged, in which the two pools of a group agree; the rest say what it shows."""

GROUP_VALUES = pl.col("attrs").list.eval(pl.element().filter(pl.element().struct.field("key") == "group").struct.field("value"))
KIND = (
    pl.when(UNKNOWN_CLASS)
    .then(pl.lit("S-OOD"))
    .when(KNOWN_CLASS & ~UNTOUCHED)
    .then(pl.lit("C-OOD"))
    .when(KNOWN_CLASS)
    .then(pl.lit("ID"))
)


@dataclass(frozen=True, eq=False)
class Group:
    """The two pools of one group, either of which may be empty, and the number of its rows that have no score."""

    key: tuple[Any, ...]
    familiar: Pool
    strange: Pool
    missing: int

    @property
    def pair(self) -> Pair | None:
        """The two pools, or None where one of them is empty."""
        return Pair(self.familiar, self.strange) if len(self.familiar) and len(self.strange) else None

    @property
    def counts(self) -> dict[str, int]:
        """The columns of an answer that count pictures."""
        familiar, strange = len(self.familiar), len(self.strange)
        return {"n": familiar + strange, "familiar": familiar, "strange": strange, "missing": self.missing}


def scored_rows(table: Table, by: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    """Return the ``ood`` rows without probes, and the columns to group them by.

    Scores of two models or scorers have no unit in common, so both columns are added to ``by`` where they are left out.
    The column ``sample`` is a number that differs between samples.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    in_sets = with_sets(table) if SET in wanted else table.lazy()
    named = in_sets.with_columns(kind=KIND, group=GROUP_VALUES.list.first())
    rows, keys = select_rows(named, [*wanted, *BY_SCORER], output="ood")
    return rows.filter(ON_GRID).with_columns(sample=pl.struct(SAMPLE_KEY).hash()), keys


def groups(table: Table, by: Sequence[str], framework: str, against: str = "same") -> tuple[list[str], Iterator[Group]]:
    """Return the group columns and the pools of each group, with one model and scorer at a time in memory.

    ``against`` chooses the familiar pictures that the strange ones of a group are compared with: ``same`` takes those that were
    shifted and judged in the same way; ``clean`` takes the clean ones of the model, one pool for all groups.
    """
    rows, keys = scored_rows(table, by)
    familiar, strange = framework_named(framework)
    if against not in ("same", "clean"):
        raise SoritesError(f'against wants "same" or "clean", got {against!r}')
    if against == "clean":
        familiar = familiar & UNTOUCHED
    side = pl.when(strange).then(True).when(familiar).then(False)
    slim = rows.select(*keys, "sample", score=pl.when(HAS_SCORE).then("score"), side=side).filter(
        pl.col("side").is_not_null() | pl.col("score").is_null()
    )
    matched, schema = _matched(keys, framework, against), rows.collect_schema()
    if lists := [key for key in matched if schema[key].is_nested()]:
        raise SoritesError(
            f"cannot group by {lists[0]!r}: it holds lists, by which the two pools cannot be matched. Leave it out."
        )
    return keys, (group for part in by_model_and_scorer(slim) for group in _groups_of(part, keys, matched))


def _matched(keys: Sequence[str], framework: str, against: str) -> list[str]:
    """Return the columns in which the two pools of a group agree.

    No familiar picture shows what a strange one shows, so columns about content match only in the model-specific framework.
    """
    if against == "clean" or framework in ("combined", "graded", "drift"):
        return [key for key in keys if key in BY_SCORER]
    return [key for key in keys if key in CONDITIONS or framework == "model-specific"]


def framework_named(name: str) -> tuple[pl.Expr, pl.Expr]:
    """Return the expressions (familiar, strange) of a framework; an unknown name is an error."""
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS, f"One of {', '.join(FRAMEWORKS)}.")
    return FRAMEWORKS[name]


def by_model_and_scorer(rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each model and scorer, one pair after the other."""
    judges = rows.select(BY_SCORER).unique().sort(BY_SCORER).collect(engine="streaming")
    for model, scorer in judges.iter_rows():
        matching = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("scorer").eq_missing(pl.lit(scorer, pl.String))
        yield rows.filter(matching).collect(engine="streaming")


def _groups_of(rows: pl.DataFrame, keys: list[str], matched: list[str]) -> Iterator[Group]:
    rows = rows.with_columns(pl.col("sample").rank("dense").cast(pl.Int64) - 1)
    familiar_rows = rows.filter(~pl.col("side") & pl.col("score").is_not_null())
    pools = {key: _pool(group) for key, group in familiar_rows.group_by(matched)}
    grouped = rows if matched == keys else rows.filter(pl.col("side").fill_null(True))
    places = [keys.index(key) for key in matched]
    for key, group in grouped.group_by(keys):
        strange = group.filter(pl.col("side") & pl.col("score").is_not_null())
        familiar = pools.get(tuple(key[place] for place in places), _pool(familiar_rows.clear()))
        yield Group(key, familiar, _pool(strange), int(group["score"].null_count()))


def _pool(rows: pl.DataFrame) -> Pool:
    return Pool.of(rows["score"].to_numpy(), rows["sample"].to_numpy())

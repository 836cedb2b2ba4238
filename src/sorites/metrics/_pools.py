"""Who is familiar and who is strange: frameworks as expressions on the ``ood`` rows of the table.

- ``semantic``: familiar shows a class the model knows; strange shows none (``known`` is false, or it has no label and its split
  is "unknown"). Moved pictures of known classes stay familiar.
- ``model-specific``: S+ and S-, familiar is what the model gets right, strange what it gets wrong (Averly and Chao, ICCV 2023).
- ``combined``: the test of ImageNet-ES (supplement, Table 3): familiar is untouched and right; strange shows no known class
  (S-OOD), or is moved and wrong (C-OOD). Asked by ``kind`` and ``group`` it gives the columns of that table.
- ``graded``: IS-OOD: familiar is untouched and of a known class; strange is everything else that has both levels.

Two columns can be grouped by here that the table holds in other words: ``kind`` (ID, S-OOD or C-OOD) and ``group``, the value of
the attribute "group" (near, far).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.errors import SoritesError, UnknownName
from sorites.metrics._rows import ON_GRID, SAMPLE, ask
from sorites.metrics._separation import Pair, Pool
from sorites.table import Table

UNTOUCHED = pl.col("shift") == CLEAN
UNKNOWN = (pl.col("known").not_() | (pl.col("label").is_null() & (pl.col("split") == "unknown"))).fill_null(False)
KNOWN = pl.col("known").fill_null(False) & ~UNKNOWN
RIGHT, WRONG = pl.col("correct").fill_null(False), pl.col("correct").not_().fill_null(False)
GRADED = pl.col("sem_level").is_not_null() & pl.col("cov_level").is_not_null()

FRAMEWORKS = {
    "semantic": (KNOWN, UNKNOWN),
    "model-specific": (RIGHT, WRONG),
    "combined": (RIGHT & UNTOUCHED, UNKNOWN | (WRONG & ~UNTOUCHED)),
    "graded": (KNOWN & UNTOUCHED, GRADED & ~(KNOWN & UNTOUCHED)),
}
"""Name to (familiar, strange); a row that is neither is not asked."""

SOUND = pl.col("error").is_null() & pl.col("score").is_finite().fill_null(False)
JUDGE = ("model", "scorer")
HOW = frozenset({*JUDGE, "run_id", "seed", "family", "shift", "severity", "level", "params"})
"""Columns that say how a picture was moved and judged, in which the two pools of a group agree. The rest say what it shows."""

ATTRS = pl.col("attrs").list.eval(pl.element().filter(pl.element().struct.field("key") == "group").struct.field("value"))
KIND = pl.when(UNKNOWN).then(pl.lit("S-OOD")).when(KNOWN & ~UNTOUCHED).then(pl.lit("C-OOD")).when(KNOWN).then(pl.lit("ID"))


@dataclass(frozen=True, eq=False)
class Group:
    """One group's two pools, either of which may be empty, and how many of its rows have no score."""

    key: tuple[Any, ...]
    familiar: Pool
    strange: Pool
    missing: int

    @property
    def pair(self) -> Pair | None:
        return Pair(self.familiar, self.strange) if len(self.familiar) and len(self.strange) else None

    @property
    def counts(self) -> dict[str, int]:
        familiar, strange = len(self.familiar), len(self.strange)
        return {"n": familiar + strange, "familiar": familiar, "strange": strange, "missing": self.missing}


def scored(table: Table, by: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    """The ``ood`` rows on the grid, and what to group them by; scores of two models or scorers have no unit in common, so both
    are added to ``by`` where they are left out. ``sample`` is a number that tells things photographed apart."""
    wanted = [by] if isinstance(by, str) else list(by)
    named = table.lazy().with_columns(kind=KIND, group=ATTRS.list.first())
    rows, keys = ask(named, [*wanted, *JUDGE], output="ood")
    return rows.filter(ON_GRID).with_columns(sample=pl.struct(SAMPLE).hash()), keys


def groups(table: Table, by: Sequence[str], framework: str, against: str = "same") -> tuple[list[str], Iterator[Group]]:
    """The pools of each group of ``by``, one model and scorer at a time in memory.

    ``against`` says which familiar pictures the strange ones of a group are held against: the ``same``, that were moved and
    judged as they were; or the ``clean``, the untouched ones of the model, one pool for all groups.
    """
    rows, keys = scored(table, by)
    familiar, strange = framework_named(framework)
    if against not in ("same", "clean"):
        raise SoritesError(f'against wants "same" or "clean", got {against!r}')
    if against == "clean":
        familiar = familiar & UNTOUCHED
    side = pl.when(strange).then(True).when(familiar).then(False)
    slim = rows.select(*keys, "sample", score=pl.when(SOUND).then("score"), side=side).filter(
        pl.col("side").is_not_null() | pl.col("score").is_null()
    )
    matched = _matched(keys, framework, against)
    return keys, (group for rows_ in by_judge(slim) for group in _of_judge(rows_, keys, matched))


def _matched(keys: Sequence[str], framework: str, against: str) -> list[str]:
    """Columns in which the two pools of a group agree. No familiar picture shows what a strange one does; right ones may."""
    if against == "clean" or framework in ("combined", "graded"):
        return [key for key in keys if key in JUDGE]
    return [key for key in keys if key in HOW or framework == "model-specific"]


def framework_named(name: str) -> tuple[pl.Expr, pl.Expr]:
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS, f"One of {', '.join(FRAMEWORKS)}.")
    return FRAMEWORKS[name]


def by_judge(rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """The rows of one model and scorer after the other."""
    judges = rows.select(JUDGE).unique().sort(JUDGE).collect(engine="streaming")
    for model, scorer in judges.iter_rows():
        mine = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("scorer").eq_missing(pl.lit(scorer, pl.String))
        yield rows.filter(mine).collect(engine="streaming")


def _of_judge(rows: pl.DataFrame, keys: list[str], matched: list[str]) -> Iterator[Group]:
    rows = rows.with_columns(pl.col("sample").rank("dense").cast(pl.Int64) - 1)
    known = rows.filter(~pl.col("side") & pl.col("score").is_not_null())
    pools = {key: _pool(some) for key, some in known.group_by(matched)}
    asked = rows if matched == keys else rows.filter(pl.col("side").fill_null(True))
    places = [keys.index(key) for key in matched]
    for key, some in asked.group_by(keys):
        strange = some.filter(pl.col("side") & pl.col("score").is_not_null())
        familiar = pools.get(tuple(key[place] for place in places), _pool(known.clear()))
        yield Group(key, familiar, _pool(strange), int(some["score"].null_count()))


def _pool(rows: pl.DataFrame) -> Pool:
    return Pool.of(rows["score"].to_numpy(), rows["sample"].to_numpy())

"""A ruler measures distances: an encoder, the decomposition of its space, and the in-distribution images
as it sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.core import Encoder, Features, ImageU8, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, open_labels
from sorites.core.progress import Bar, Tick
from sorites.core.rng import fair_order
from sorites.encoders.features import features
from sorites.evaluation.facts import decomposition as decompositions
from sorites.evaluation.images import LeftOut, readable
from sorites.measures.decomposition import Decomposition
from sorites.measures.neighbours import Index, level_of, uniform
from sorites.measures.neighbours import exact_kth_distance as kth_distance
from sorites.suites.suite import Distance

HALVES = ("semantic", "covariate")


@dataclass(frozen=True, eq=False)
class Ruler:
    """A ruler measures distances: an encoder, the decomposition of its space, and the halves of the
    in-distribution features.
    """

    encoder: Encoder
    decomposition: Decomposition
    banks: dict[str, Features]
    k: int
    left: LeftOut = field(default_factory=LeftOut)
    """In-distribution images that could not be read."""

    indexes: dict[str, Index] = field(default_factory=dict)
    """An index over each half, where neighbours are not searched exactly."""

    def distances(self, found: Features) -> dict[str, NDArray[np.float32]]:
        """Return cosine distances (0 to 2) to the k-th nearest in-distribution image, by half."""
        halves = {half: getattr(self.decomposition, half)(found) for half in HALVES}
        if self.indexes:
            return {half: self.indexes[half].kth_distance(halves[half]) for half in HALVES}
        return {half: kth_distance(halves[half], self.banks[half], self.k) for half in HALVES}

    def searched(self, found: Features) -> dict[str, str]:
        """Name the search of each half with its measured recall; nothing where it is exact."""
        halves = {half: getattr(self.decomposition, half)(found) for half in self.indexes}
        return {half: index.name(halves[half], self.banks[half]) for half, index in self.indexes.items()}


def ruler(how: Distance, labels: Labels | None = None, bar: Bar | None = None) -> Ruler:
    """Load what ``how`` names; without a file the decomposition is learnt from the encoder's
    classes, else from ``labels``.
    """
    judge = core.encoder(how.encoder)
    halves = halves_of(how, judge, labels)
    in_distribution = limited(in_distribution_images(how.against, labels, judge), how.limit)
    tick = bar("id", len(in_distribution)) if bar else lambda n: None
    left = LeftOut("in-distribution images")
    found = features(
        judge, ticked(((image, sample.framed) for sample, image in readable(in_distribution, left)), tick)
    )
    banks = {half: getattr(halves, half)(found) for half in HALVES}
    kind = how.neighbours
    indexes = (
        {} if kind == "exact" else {half: Index.build(bank, kind, how.k) for half, bank in banks.items()}
    )
    return Ruler(judge, halves, banks, how.k, left, indexes)


def halves_of(how: Distance, judge: Encoder, labels: Labels | None) -> Decomposition:
    """Return the decomposition that ``how`` names, else one learnt from the encoder's classes or
    from ``labels``.
    """
    if how.decomposition:
        return decompositions.load(how.decomposition, judge)
    names = labels.names if labels and not judge.labels else ()
    return decompositions.cached(judge, decompositions.recipe(judge, names))


def in_distribution_images(spec: str, labels: Labels | None, judge: Encoder) -> Source:
    """Return images of the given classes, or of any where the source has none of those."""
    try:
        return core.source(spec, labels or open_labels(judge.labels))
    except SoritesError:
        return core.source(spec, open_labels(judge.labels))


def limited(source: Source, limit: int | None) -> list[Sample]:
    """Return the first samples of a fair order, or all of them where there is no limit."""
    return fair_order(source, lambda sample: [sample.id])[:limit]


def ticked(items: Iterable[tuple[ImageU8, bool]], tick: Tick) -> Iterator[tuple[ImageU8, bool]]:
    """Yield the items and move a progress bar by one after each."""
    for item in items:
        yield item
        tick(1)


# Distances with their levels: what every way of measuring returns, and a record of how they were made.


COLUMNS = {"semantic": "sem_level", "covariate": "cov_level"}


@dataclass(frozen=True, eq=False)
class Distances:
    """One row per image (key, ``semantic``, ``covariate``, ``sem_level``, ``cov_level``), and a
    record of their making.
    """

    rows: pl.DataFrame
    record: dict[str, Any]

    def cells(self) -> pl.DataFrame:
        """Count the images of each pair of levels."""
        return self.rows.group_by("sem_level", "cov_level").len("n").sort("sem_level", "cov_level")

    def grid(self) -> pl.DataFrame:
        """Return the counts for printing: a row per covariate level, a column per semantic level;
        an empty pair is null.
        """
        wide = self.cells().pivot("sem_level", index="cov_level", values="n").sort("cov_level")
        across = {level: f"sem {level}" for level in sorted(wide.columns[1:], key=int)}
        return wide.select(pl.format("cov {}", "cov_level").alias("images"), *across).rename(across)


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


def made_by(
    ruler: Ruler, left: LeftOut | None = None, searched: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what distances by a ruler were made from."""
    lost = [one for one in (ruler.left, left) if one is not None]
    return made_from(ruler.encoder.version, len(ruler.banks[HALVES[0]]), lost, searched or {})


def made_from(
    version: str, in_distribution: int, left: Iterable[LeftOut], searched: Mapping[str, str]
) -> dict[str, Any]:
    """Return what distances were made from: the encoder's version, how many in-distribution images, and
    what was left out.
    """
    said = [one.say() for one in left if one.count]
    return {
        "version": version,
        "id": in_distribution,
        **({"searched": dict(searched)} if searched else {}),
        **({"left_out": said} if said else {}),
    }

"""Rulers measure distances to in-distribution images with an encoder and the decomposition of its space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from sorites import core
from sorites.core import Encoder, Features, ImageU8, Sample, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, OpenLabels, open_labels
from sorites.core.progress import Bar, Tick
from sorites.core.rng import hashed_order
from sorites.encoders.features import features
from sorites.evaluation.facts import decomposition as decompositions
from sorites.evaluation.images import LeftOut, readable
from sorites.measures.decomposition import Decomposition
from sorites.measures.neighbours import Index, exact_kth_distance, level_of, uniform
from sorites.suites.suite import Distance

HALVES = ("semantic", "covariate")


@dataclass(frozen=True, eq=False)
class Ruler:
    """An encoder, the decomposition of its space, and the in-distribution features by half.

    Attributes:
        encoder: The encoder.
        decomposition: The decomposition of its space.
        banks: The in-distribution features by half.
        k: Which neighbour.
        left: In-distribution images that could not be read.
        indexes: An index over each half if the search is approximate.
    """

    encoder: Encoder
    decomposition: Decomposition
    banks: dict[str, Features]
    k: int
    left: LeftOut = field(default_factory=LeftOut)
    indexes: dict[str, Index] = field(default_factory=dict)

    def distances(self, features: Features) -> dict[str, NDArray[np.float32]]:
        """Return cosine distances (0 to 2) to the k-th nearest in-distribution image by half."""
        halves = {half: getattr(self.decomposition, half)(features) for half in HALVES}
        if self.indexes:
            return {half: self.indexes[half].kth_distance(halves[half]) for half in HALVES}
        return {half: exact_kth_distance(halves[half], self.banks[half], self.k) for half in HALVES}

    def searched(self, features: Features) -> dict[str, str]:
        """Return the name of each half's search with its measured recall; empty if the search is exact."""
        halves = {half: getattr(self.decomposition, half)(features) for half in self.indexes}
        return {half: index.name(halves[half], self.banks[half]) for half, index in self.indexes.items()}


def ruler(how: Distance, labels: Labels | None = None, bar: Bar | None = None) -> Ruler:
    """Return the ruler that options describe; without a file, the decomposition is learnt from the
    encoder's classes or ``labels``.
    """
    encoder = core.encoder(how.encoder)
    halves = halves_of(how, encoder, labels)
    in_distribution = limited(in_distribution_images(how.against, labels, encoder), how.limit)
    tick = bar("id", len(in_distribution)) if bar else lambda n: None
    unreadable = LeftOut("in-distribution images")
    id_features = features(
        encoder,
        ticked(((image, sample.framed) for sample, image in readable(in_distribution, unreadable)), tick),
    )
    banks = {half: getattr(halves, half)(id_features) for half in HALVES}
    kind = how.neighbours
    indexes = (
        {} if kind == "exact" else {half: Index.build(bank, kind, how.k) for half, bank in banks.items()}
    )
    return Ruler(encoder, halves, banks, how.k, unreadable, indexes)


def halves_of(how: Distance, encoder: Encoder, labels: Labels | None) -> Decomposition:
    """Return the decomposition that ``how`` names, or learn one from the encoder's classes or ``labels``."""
    if how.decomposition:
        return decompositions.load(how.decomposition, encoder)
    names = labels.names if labels and not encoder.labels else ()
    return decompositions.cached(encoder, decompositions.recipe(encoder, names))


def in_distribution_images(spec: str, labels: Labels | None, encoder: Encoder) -> Source:
    """Return images of the given classes, or of any class if the source has none of these."""
    if labels is not None and (known := images_of(spec, labels)).samples:
        return known
    return core.source(spec, open_labels(encoder.labels))


def images_of(spec: str, labels: Labels) -> Source:
    """Return the images of a source that are of the given classes; images of other classes are left out."""
    try:
        return core.source(spec, labels)
    except SoritesError:
        every = core.source(spec, OpenLabels(labels.ids, labels.names, dict(labels.aliases)))
    known = [sample for sample in every if sample.label is not None and sample.label < len(labels)]
    return Source(every.name, known)


def limited(source: Source, limit: int | None) -> list[Sample]:
    """Return the first ``limit`` samples of a fair order, or all of them."""
    return hashed_order(source, lambda sample: [sample.id])[:limit]


def ticked(items: Iterable[tuple[ImageU8, bool]], tick: Tick) -> Iterator[tuple[ImageU8, bool]]:
    """Yield the items and advance a progress bar by one after each."""
    for item in items:
        yield item
        tick(1)


# Distances with their levels, and a record of how they were measured.

LEVEL_COLUMNS = {"semantic": "sem_level", "covariate": "cov_level"}


class DistanceRecord(Distance):
    """Record of how distances were measured (``facts/distance.json``): the options, and their result."""

    version: str
    """Version of the encoder."""
    id: int
    """Number of in-distribution images."""
    searched: dict[str, str] = Field(default_factory=dict)
    """Name of each half's search with its recall; empty if the search is exact."""
    left_out: tuple[str, ...] = ()
    """Images that could not be read, as sentences."""
    edges: dict[str, tuple[float, ...]]
    asked: Distance | None = None
    """The options, if the distances are facts of a run."""
    path: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the content as plain data; the exact search, the default, is omitted."""
        left = {key for key in ("searched", "left_out", "asked", "path") if not getattr(self, key)}
        exact = {"neighbours"} if self.neighbours == "exact" else set()
        asked = {"asked": exact} if self.asked and exact else {}
        return self.model_dump(mode="json", exclude={**dict.fromkeys(left | exact, True), **asked})


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances and levels of images.

    Attributes:
        rows: One row per image (key, ``semantic``, ``covariate``, ``sem_level``, ``cov_level``).
        record: How they were measured.
    """

    rows: pl.DataFrame
    record: DistanceRecord

    def having(self, **changes: object) -> Distances:
        """Return the distances with fields of the record replaced."""
        return replace(self, record=self.record.model_copy(update=changes))

    def cells(self) -> pl.DataFrame:
        """Count the images of each pair of levels."""
        return self.rows.group_by("sem_level", "cov_level").len("n").sort("sem_level", "cov_level")

    def grid(self) -> pl.DataFrame:
        """Return the counts for printing: a row per covariate level, a column per semantic level; empty
        pairs are null.
        """
        wide = self.cells().pivot("sem_level", index="cov_level", values="n").sort("cov_level")
        across = {level: f"sem {level}" for level in sorted(wide.columns[1:], key=int)}
        return wide.select(pl.format("cov {}", "cov_level").alias("images"), *across).rename(across)


def rows_of(key: str, keys: Sequence[str], distances: Mapping[str, NDArray[np.float32]]) -> pl.DataFrame:
    """Return distances as rows under a key."""
    return pl.DataFrame({key: list(keys), **distances})


def with_levels(
    rows: pl.DataFrame,
    how: Distance,
    version: str,
    in_distribution: int,
    left: Iterable[LeftOut],
    searched: Mapping[str, str],
) -> Distances:
    """Return distances with their levels, and a record of how they were measured.

    Args:
        rows: The distances by half.
        how: The options.
        version: The version of the encoder.
        in_distribution: The number of in-distribution images.
        left: Images that were left out.
        searched: The name of each half's search, if it is approximate.
    """
    fixed_edges = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    distances = {half: rows[half].to_numpy() for half in HALVES}
    edges = {half: tuple(fixed_edges[half] or uniform(distances[half], how.levels)) for half in HALVES}
    levels = {LEVEL_COLUMNS[half]: level_of(distances[half], edges[half]) for half in HALVES}
    columns = [pl.Series(name, values) for name, values in levels.items()]
    wide = rows.with_columns(*(pl.col(half).cast(pl.Float64) for half in HALVES), *columns)
    notes = tuple(images.say() for images in left if images.count)
    record = DistanceRecord(
        **how.model_dump(),
        version=version,
        id=in_distribution,
        searched=dict(searched),
        left_out=notes,
        edges=edges,
    )
    return Distances(wide, record)


def levels_by(
    ruler: Ruler,
    rows: pl.DataFrame,
    how: Distance,
    left: Sequence[LeftOut] = (),
    searched: Mapping[str, str] | None = None,
) -> Distances:
    """Return distances that were measured with a ruler, with their levels."""
    count = len(ruler.banks[HALVES[0]])
    return with_levels(rows, how, ruler.encoder.version, count, (ruler.left, *left), searched or {})

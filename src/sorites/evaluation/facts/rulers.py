"""Rulers measure distances to in-distribution images with an encoder and the decomposition of its space."""

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
from sorites.core.rng import hashed_order
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
        return {half: kth_distance(halves[half], self.banks[half], self.k) for half in HALVES}

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
    try:
        return core.source(spec, labels or open_labels(encoder.labels))
    except SoritesError:
        return core.source(spec, open_labels(encoder.labels))


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


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances and levels of images.

    Attributes:
        rows: One row per image (key, ``semantic``, ``covariate``, ``sem_level``, ``cov_level``).
        record: How they were measured.
    """

    rows: pl.DataFrame
    record: dict[str, Any]

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


def with_levels(rows: pl.DataFrame, how: Distance, metadata: Mapping[str, Any]) -> Distances:
    """Return distances with their levels, and a record of how they were measured."""
    fixed_edges = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    distances = {half: rows[half].to_numpy() for half in HALVES}
    edges = {half: list(fixed_edges[half] or uniform(distances[half], how.levels)) for half in HALVES}
    levels = {LEVEL_COLUMNS[half]: level_of(distances[half], edges[half]) for half in HALVES}
    columns = [pl.Series(name, values) for name, values in levels.items()]
    wide = rows.with_columns(*(pl.col(half).cast(pl.Float64) for half in HALVES), *columns)
    return Distances(wide, {**options_record(how), **metadata, "edges": edges})


def options_record(how: Distance, mode: str = "python") -> dict[str, Any]:
    """Return the options as plain data; the exact search, the default, is omitted."""
    return how.model_dump(mode=mode, exclude={"neighbours"} if how.neighbours == "exact" else None)


def ruler_metadata(
    ruler: Ruler, left: LeftOut | None = None, searched: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata of distances measured with a ruler."""
    left_out = [images for images in (ruler.left, left) if images is not None]
    return metadata_of(ruler.encoder.version, len(ruler.banks[HALVES[0]]), left_out, searched or {})


def metadata_of(
    version: str, in_distribution: int, left: Iterable[LeftOut], searched: Mapping[str, str]
) -> dict[str, Any]:
    """Return the metadata of distances: encoder version, number of in-distribution images, and images left
    out.
    """
    notes = [images.say() for images in left if images.count]
    return {
        "version": version,
        "id": in_distribution,
        **({"searched": dict(searched)} if searched else {}),
        **({"left_out": notes} if notes else {}),
    }

"""A ruler measures distances: a referee, the decomposition of its space, and the familiar pictures as it sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import Features, Picture, Referee, Sample, Source
from sorites.errors import SoritesError
from sorites.frame import Distance
from sorites.labels import Labels, open_labels
from sorites.measures._decompose import Decomposition
from sorites.measures._indexes import Index
from sorites.measures._neighbours import kth_distance
from sorites.pipeline import decomposition as decompositions
from sorites.pipeline.left_out import LeftOut, readable
from sorites.progress import Bar, Tick
from sorites.referees._features import features
from sorites.rng import fair_order

HALVES = ("semantic", "covariate")


@dataclass(frozen=True, eq=False)
class Ruler:
    """A ruler measures distances: a referee, the decomposition of its space, and the halves of the familiar features."""

    referee: Referee
    decomposition: Decomposition
    banks: dict[str, Features]
    k: int
    left: LeftOut = field(default_factory=LeftOut)
    """Familiar pictures that could not be read."""

    indexes: dict[str, Index] = field(default_factory=dict)
    """An index over each half, where neighbours are not searched exactly."""

    def distances(self, found: Features) -> dict[str, NDArray[np.float32]]:
        """Return cosine distances (0 to 2) to the k-th nearest familiar picture, by half."""
        halves = {half: getattr(self.decomposition, half)(found) for half in HALVES}
        if self.indexes:
            return {half: self.indexes[half].kth_distance(halves[half]) for half in HALVES}
        return {half: kth_distance(halves[half], self.banks[half], self.k) for half in HALVES}

    def searched(self, found: Features) -> dict[str, str]:
        """Name the search of each half with its measured recall; nothing where it is exact."""
        halves = {half: getattr(self.decomposition, half)(found) for half in self.indexes}
        return {half: index.name(halves[half], self.banks[half]) for half, index in self.indexes.items()}


def ruler(how: Distance, labels: Labels | None = None, bar: Bar | None = None) -> Ruler:
    """Load what ``how`` names; without a file the decomposition is learnt from the referee's classes, else from ``labels``."""
    judge = core.referee(how.referee)
    halves = halves_of(how, judge, labels)
    familiar = limited(familiar_pictures(how.against, labels, judge), how.limit)
    tick = bar("familiar", len(familiar)) if bar else lambda n: None
    left = LeftOut("familiar pictures")
    found = features(judge, ticked(((picture, sample.framed) for sample, picture in readable(familiar, left)), tick))
    banks = {half: getattr(halves, half)(found) for half in HALVES}
    kind = how.neighbours
    indexes = {} if kind == "exact" else {half: Index.build(bank, kind, how.k) for half, bank in banks.items()}
    return Ruler(judge, halves, banks, how.k, left, indexes)


def halves_of(how: Distance, judge: Referee, labels: Labels | None) -> Decomposition:
    """Return the decomposition that ``how`` names, else one learnt from the referee's classes or from ``labels``."""
    if how.decomposition:
        return decompositions.load(how.decomposition, judge)
    names = labels.names if labels and not judge.labels else ()
    return decompositions.cached(judge, decompositions.recipe(judge, names))


def familiar_pictures(spec: str, labels: Labels | None, judge: Referee) -> Source:
    """Return pictures of the given classes, or of any where the source has none of those."""
    try:
        return core.source(spec, labels or open_labels(judge.labels))
    except SoritesError:
        return core.source(spec, open_labels(judge.labels))


def limited(source: Source, limit: int | None) -> list[Sample]:
    """Return the first samples of a fair order, or all of them where there is no limit."""
    return fair_order(source, lambda sample: [sample.id])[:limit]


def ticked(items: Iterable[tuple[Picture, bool]], tick: Tick) -> Iterator[tuple[Picture, bool]]:
    """Yield the items and move a progress bar by one after each."""
    for item in items:
        yield item
        tick(1)

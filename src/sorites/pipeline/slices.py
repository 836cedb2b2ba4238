"""Features of a source's pictures by a referee, slice by slice on an engine: a slice is a file, which is kept and not made again.

A worker in another process lists the source again by its name. It refuses to go on where it finds other pictures.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites import core
from sorites.core import Picture, Referee, Sample
from sorites.engines import Engine
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.pipeline.encoding import encode, is_encoded
from sorites.pipeline.left_out import LeftOut, readable
from sorites.pipeline.rulers import familiar_pictures, limited
from sorites.progress import Tick
from sorites.rng import digest

SLICE = 2048
"""The number of pictures that are encoded into one file."""


@dataclass(frozen=True)
class Slices:
    """The pictures of a source in slices, and the referee that looks at them, by what other processes can open again."""

    source: str
    labels: Labels | None
    limit: int | None
    referee: str
    version: str
    count: int
    ids: str
    """A hash of the ids of all pictures in their order."""
    size: int
    """The number of pictures of a slice."""

    def starts(self) -> range:
        """Return where the slices begin."""
        return range(0, self.count, self.size)

    def folder(self, work: Path) -> Path:
        """Return the folder of the features. Its name follows from all that they follow from, but for the pictures themselves."""
        parts = (self.source, self.limit, self.referee, self.version, self.ids, self.size)
        return work / f"features-{digest(*parts, size=8).hex()}"

    def files(self, work: Path) -> list[Path]:
        """Return the files of the features, in the order of the pictures."""
        return [file_of(self.folder(work), start) for start in self.starts()]


def slices_of(source: str, labels: Labels | None, limit: int | None, referee: str) -> Slices:
    """List a source afresh and cut it into slices."""
    _opened.cache_clear()
    samples, judge, ids = _opened(source, labels, limit, referee)
    if not len(samples):
        raise SoritesError(f"the source {source} has no pictures")
    return Slices(source, labels, limit, referee, judge.version, len(samples), ids, SLICE)


def file_of(folder: Path, start: int) -> Path:
    """Return the file of the slice that begins there."""
    return folder / f"{start:09d}.safetensors"


def encode_slices(work: Path, slices: Slices, engine: Engine, workers: int, tick: Tick) -> None:
    """Encode the slices that are not encoded yet; each is a unit of the engine."""
    sizes = {start: min(slices.size, slices.count - start) for start in slices.starts()}
    todo = [start for start in sizes if not is_encoded(file_of(slices.folder(work), start), "sample_id", slices.version)]
    tick(slices.count - sum(sizes[start] for start in todo))
    for start, _ in engine(todo, functools.partial(encode_slice, work, slices), workers):
        tick(sizes[start])


def encode_slice(work: Path, slices: Slices, start: int) -> None:
    """A unit of work: read the pictures of a slice, encode them, and keep the features with the ids of the samples."""
    samples, judge, ids = _opened(slices.source, slices.labels, slices.limit, slices.referee)
    if (len(samples), ids) != (slices.count, slices.ids):
        raise SoritesError(
            f"{slices.source} lists other pictures to this process than when the work began: {len(samples)} of them"
        )
    left = LeftOut()
    encode(judge, _pictures(samples[start : start + slices.size], left), "sample_id", left, file_of(slices.folder(work), start))


def _pictures(samples: Sequence[Sample], left: LeftOut) -> Iterator[tuple[str, Picture, bool]]:
    for sample, picture in readable(samples, left):
        leave_if_asked()
        yield sample.id, picture, sample.framed


@functools.lru_cache(maxsize=2)
def _opened(source: str, labels: Labels | None, limit: int | None, referee: str) -> tuple[Sequence[Sample], Referee, str]:
    """Return the samples, the referee and the hash of all ids; a process opens them once."""
    judge = core.referee(referee)
    found = familiar_pictures(source, labels, judge)
    samples = found.samples if limit is None else limited(found, limit)
    hasher = hashlib.blake2b(digest_size=16)
    for sample in samples:
        spelled = sample.id.encode(errors="backslashreplace")
        hasher.update(len(spelled).to_bytes(8, "little") + spelled)
    return samples, judge, hasher.hexdigest()

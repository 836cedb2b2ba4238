"""Features of a source's pictures by a referee, slice by slice on an engine: a slice is a file, which is kept and not made again.

A slice is made again if one of its files changed, or could not be read before. A worker in another process lists the source again
by its name, and refuses to go on where it finds other pictures.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites import core
from sorites.core import Picture, Referee, Sample
from sorites.engines import Engine
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.pipeline.contents import stamp
from sorites.pipeline.encoding import encode, is_encoded, version_of
from sorites.pipeline.left_out import LeftOut, readable
from sorites.pipeline.rulers import familiar_pictures, limited
from sorites.progress import Tick
from sorites.rng import digest

SLICE = 2048
"""The number of pictures that are encoded into one file."""

_opening = threading.RLock()


@dataclass(frozen=True)
class Pictures:
    """The pictures of a source, by what other processes can open again.

    ``familiar`` ones may be of other classes than ``labels``, and a ``limit`` takes the first of a fair order.
    """

    source: str
    labels: Labels
    familiar: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Slices:
    """Pictures in slices, and the referee that looks at them."""

    pictures: Pictures
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
        """Return the folder of the features."""
        parts = (self.pictures.source, self.pictures.limit, self.referee, self.version, self.ids, self.size)
        return work / f"features-{digest(*parts, size=8).hex()}"

    def files(self, work: Path) -> list[Path]:
        """Return the files of the features, in the order of the pictures."""
        return [file_of(self.folder(work), start) for start in self.starts()]


def slices_of(pictures: Pictures, referee: str) -> Slices:
    """List a source and cut it into slices."""
    samples, ids = _listed(pictures, referee)
    if not len(samples):
        raise SoritesError(f"the source {pictures.source} has no pictures")
    return Slices(pictures, referee, version_of(judge_of(referee)), len(samples), ids, SLICE)


def forget() -> None:
    """Let go of the sources and the referee that this process holds."""
    _listed.cache_clear()
    judge_of.cache_clear()


def file_of(folder: Path, start: int) -> Path:
    """Return the file of the slice that begins there."""
    return folder / f"{start:09d}.safetensors"


def encode_slices(work: Path, slices: Slices, engine: Engine, workers: int, tick: Tick) -> None:
    """Encode the slices that are not encoded yet; each is a unit of the engine."""
    sizes = {start: min(slices.size, slices.count - start) for start in slices.starts()}
    folder, samples = slices.folder(work), _listed(slices.pictures, slices.referee)[0]
    there = {path.name for path in folder.glob("*.safetensors")}

    def is_kept(start: int) -> bool:
        file, some = file_of(folder, start), samples[start : start + slices.size]
        return file.name in there and is_encoded(file, "sample_id", slices.version, lambda: stamp(some))

    todo = [start for start in sizes if not is_kept(start)]
    tick(slices.count - sum(sizes[start] for start in todo))
    for start, _ in engine(todo, functools.partial(encode_slice, work, slices), workers):
        tick(sizes[start])


def encode_slice(work: Path, slices: Slices, start: int) -> None:
    """A unit of work: read the pictures of a slice, encode them, and keep the features with the ids of the samples."""
    with _opening:
        samples, ids = _listed(slices.pictures, slices.referee)
        judge = judge_of(slices.referee)
    if (len(samples), ids) != (slices.count, slices.ids):
        named = slices.pictures.source
        raise SoritesError(f"{named} lists other pictures to another process: {len(samples)}, wanted {slices.count}")
    some, left, file = samples[start : start + slices.size], LeftOut(), file_of(slices.folder(work), start)
    encode(judge, slices.version, _read(some, left), "sample_id", left, file, stamp(some))


def _read(samples: Sequence[Sample], left: LeftOut) -> Iterator[tuple[str, Picture, bool]]:
    for sample, picture in readable(samples, left):
        leave_if_asked()
        yield sample.id, picture, sample.framed


@functools.lru_cache(maxsize=1)
def judge_of(referee: str) -> Referee:
    """Return a referee, which a process loads once."""
    return core.referee(referee)


@functools.lru_cache(maxsize=2)
def _listed(pictures: Pictures, referee: str) -> tuple[Sequence[Sample], str]:
    """Return the samples and a hash of all ids; a process lists a source once."""
    spec, labels = pictures.source, pictures.labels
    found = familiar_pictures(spec, labels, judge_of(referee)) if pictures.familiar else core.source(spec, labels)
    samples = found.samples if pictures.limit is None else limited(found, pictures.limit)
    hasher = hashlib.blake2b(digest_size=16)
    for sample in samples:
        spelled = sample.id.encode(errors="backslashreplace")
        hasher.update(len(spelled).to_bytes(8, "little") + spelled)
    return samples, hasher.hexdigest()

"""Detect changed images by size, modification time and hash of the data that they are decoded from.

The data is what the references of a sample and of its dials declare: files, parts of files, bytes and arrays.
If they declare none, the content is unknown and counts as unchanged.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from sorites.core import ImageF32, ImageU8, Sample
from sorites.core.compute.machine import cores
from sorites.core.errors import BadImage, SoritesError
from sorites.core.refs import ArrayRef, BytesRef, FileRef, Generated, ImageRef, data_of
from sorites.io.stores import StorePath, read_span, to_path
from sorites.models.versions import array_bytes

# Size, modification time in nanoseconds, and hash; null if unknown.
COLUMNS = pl.Schema({"bytes": pl.Int64(), "modified": pl.Int64(), "content": pl.String()})
# Maximum size in bytes of a hashed file; a larger file contains more than an image and is identified by size
# and time.
MAX_HASHED_BYTES = 1 << 28

# Samples per chunk; bounds the memory.
SAMPLES_PER_CHUNK = 1 << 15
# Samples per thread task; handing over single samples costs more than checking them.
SAMPLES_PER_THREAD_TASK = 32

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """A byte range of a file, or all of it."""

    file: Path
    size: int
    modified: int
    offset: int = 0

    def hash(self) -> str | None:
        """Return a hash of the bytes, or None if they cannot be read or are too many."""
        if self.size > MAX_HASHED_BYTES:
            return None
        try:
            # The store's content tag is as good as reading the bytes.
            if isinstance(self.file, StorePath):
                tag = f"{self.file.tag()} {self.offset} {self.size}"
                return hashlib.blake2b(tag.encode(), digest_size=16).hexdigest()
            return hashlib.blake2b(read_span(self.file, self.offset, self.size), digest_size=16).hexdigest()
        except OSError:
            return None


# Data that an image is decoded from.
Source = Span | bytes | NDArray[Any]


def contents(
    samples: Sequence[Sample], before: pl.DataFrame | None = None, *, lazy: bool = False
) -> pl.DataFrame:
    """Return size, time and hash of each sample.

    Args:
        samples: The samples.
        before: What was known about them; a hash is reused if size and time are unchanged.
        lazy: Read no file whose hash was not known before; its hash is null.
    """
    shared: dict[Any, str | None] = {}
    parts = [pl.DataFrame(schema=COLUMNS)]
    with ThreadPoolExecutor(min(8, cores())) as pool:
        for first in range(0, len(samples), SAMPLES_PER_CHUNK):
            chunk = list(samples[first : first + SAMPLES_PER_CHUNK])
            stored: Sequence[Row] = (
                [{}] * len(chunk) if before is None else before.slice(first, SAMPLES_PER_CHUNK).to_dicts()
            )
            parts.append(_contents(chunk, stored, pool, shared, lazy))
    return pl.concat(parts)


def _contents(
    samples: list[Sample],
    stored: Sequence[Row],
    pool: Executor,
    shared: dict[Any, str | None],
    lazy: bool,
) -> pl.DataFrame:
    """Return the contents of some samples; hashes of data that several samples share are added to
    ``shared``.
    """
    chunks = (
        samples[first : first + SAMPLES_PER_THREAD_TASK]
        for first in range(0, len(samples), SAMPLES_PER_THREAD_TASK)
    )
    data = [
        objects for part in pool.map(lambda part: [_data_of(s) for s in part], chunks) for objects in part
    ]
    unread = [
        objects
        for objects, row in zip(data, stored, strict=True)
        if not _is_known(objects, row) and not (lazy and _is_deferred(objects, row))
    ]
    # samples may share a file or an array
    counts = Counter(_key(obj) for objects in unread for obj in objects)
    to_hash = {key: obj for objects in unread for obj in objects if (key := _key(obj)) not in shared}
    hashes = dict(zip(to_hash, pool.map(_hash, to_hash.values()), strict=True)) | shared
    shared.update((key, hashes[key]) for key, count in counts.items() if count > 1 and isinstance(key, Span))
    return pl.DataFrame(
        [_content(objects, row, hashes) for objects, row in zip(data, stored, strict=True)],
        COLUMNS,
        orient="row",
    )


def stamp(samples: Sequence[Sample]) -> str:
    """Return a hash of sample ids and of the sizes and times of their files, which are not read."""
    hasher = hashlib.blake2b(digest_size=16)
    for sample in samples:
        spans = [
            (s.size, s.modified, s.offset) if isinstance(s, Span) else _hash(s) for s in _data_of(sample)
        ]
        hasher.update(f"{len(sample.id)} {sample.id} {spans}".encode(errors="backslashreplace"))
    return hasher.hexdigest()


def changed(then: Row, now: Row) -> bool:
    """Return whether a sample has changed, by its hash, or else by size and time; False if unknown."""
    if then.get("content") is not None and now.get("content") is not None:
        return bool(then["content"] != now["content"])
    if then.get("bytes") is None or now.get("bytes") is None:
        return False
    return (then["bytes"], then["modified"]) != (now["bytes"], now["modified"])


def guard_sample(sample: Sample, then: Row) -> Sample:
    """Return a sample that raises ``BadImage`` if it has changed since the run; it can be pickled."""
    guarded = _Guarded(sample, {name: then[name] for name in COLUMNS.names()})
    dials = tuple(
        replace(dial, sweep=functools.partial(guarded.sweep, index))
        for index, dial in enumerate(sample.dials)
    )
    return replace(sample, image=Generated(guarded.load, (sample.image,)), dials=dials)


@dataclass(frozen=True)
class _Guarded:
    """A sample, and what was known about its data when the run started."""

    sample: Sample
    then: Row

    def _check(self) -> None:
        now = contents([self.sample], pl.DataFrame([self.then], COLUMNS)).row(0, named=True)
        if changed(self.then, now):
            raise BadImage(f"{self.sample.id} has changed since the run; repeat the run")

    def load(self, image: ImageRef) -> ImageU8:
        self._check()
        return image.load()

    def sweep(self, index: int, severities: Sequence[float]) -> Iterator[ImageF32]:
        self._check()
        yield from self.sample.dials[index].sweep(severities)


def _data_of(sample: Sample) -> list[Source]:
    return list(_found([sample.image, *(ref for dial in sample.dials for ref in dial.inputs)]))


def _content(
    objects: Sequence[Source], stored: Row, hashes: Mapping[Any, str | None]
) -> tuple[int | None, int | None, str | None]:
    spans = [obj for obj in objects if isinstance(obj, Span)]
    size = sum(span.size for span in spans) if spans else None
    modified = max(span.modified for span in spans) if spans else None
    if _is_known(objects, stored):
        return size, modified, str(stored["content"])
    return size, modified, _combine_hashes([hashes.get(_key(obj)) for obj in objects])


def _is_known(objects: Sequence[Source], stored: Row) -> bool:
    """Return whether files have the stored size and time, so that the stored hash is valid."""
    if not objects or stored.get("content") is None or not all(isinstance(obj, Span) for obj in objects):
        return False
    spans = [obj for obj in objects if isinstance(obj, Span)]
    return (sum(s.size for s in spans), max(s.modified for s in spans)) == (
        stored["bytes"],
        stored["modified"],
    )


def _is_deferred(objects: Sequence[Source], stored: Row) -> bool:
    """Return whether files can be hashed later: there is no hash to compare with, and size and time tell
    whether they change meanwhile.
    """
    return stored.get("content") is None and any(isinstance(obj, Span) for obj in objects)


def _key(obj: Source) -> Any:
    return obj if isinstance(obj, Span) else id(obj)


def _hash(obj: Source) -> str | None:
    if isinstance(obj, Span):
        return obj.hash()
    if isinstance(obj, bytes):
        return hashlib.blake2b(obj, digest_size=16).hexdigest()
    array = array_bytes(obj)
    return None if array is None else array.hex()[:32]


def _combine_hashes(hashes: Sequence[str | None]) -> str | None:
    """Return one hash of several, or None if one is unknown."""
    hashes_ = [hash_ for hash_ in hashes if hash_ is not None]
    if not hashes_ or len(hashes_) < len(hashes):
        return None
    return (
        hashes_[0]
        if len(hashes_) == 1
        else hashlib.blake2b("".join(hashes_).encode(), digest_size=16).hexdigest()
    )


def _found(refs: Iterable[ImageRef]) -> Iterator[Source]:
    """Yield the data of references, as far as it exists."""
    for data in (data for ref in refs for data in data_of(ref)):
        if isinstance(data, BytesRef):
            yield data.data
        elif isinstance(data, ArrayRef):
            yield data.array
        elif (span := _span(data)) is not None:
            yield span


def _span(ref: FileRef) -> Span | None:
    try:
        file = to_path(ref.path)
        info = file.stat() if isinstance(file, StorePath) else os.stat(file)
    except (OSError, ValueError, SoritesError):  # no such file, or not a file name
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return Span(file, info.st_size if ref.size is None else ref.size, info.st_mtime_ns, ref.offset)

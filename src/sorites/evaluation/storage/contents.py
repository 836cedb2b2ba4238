"""Detect changed images by size, modification time and hash of the data that they are decoded from.

The data is found in the closures and arguments of a sample's ``load`` and of its dials: a path, a folder and
a path in it, a member of a tar file, bytes or an array. If there is none of these, the content is unknown and
counts as unchanged.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import ImageF32, ImageU8, OwnDial, Sample
from sorites.core.errors import BadImage
from sorites.io.stores import StorePath, read_span, to_path
from sorites.models.versions import array_bytes
from sorites.sources.webdataset import Member

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


def contents(samples: Sequence[Sample], before: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return size, time and hash of each sample; hashes are reused from ``before`` if size and time are
    unchanged.
    """
    shared: dict[Any, str | None] = {}
    parts = [pl.DataFrame(schema=COLUMNS)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for first in range(0, len(samples), SAMPLES_PER_CHUNK):
            chunk = list(samples[first : first + SAMPLES_PER_CHUNK])
            stored: Sequence[Row] = (
                [{}] * len(chunk) if before is None else before.slice(first, SAMPLES_PER_CHUNK).to_dicts()
            )
            parts.append(_contents(chunk, stored, pool, shared))
    return pl.concat(parts)


def _contents(
    samples: list[Sample], stored: Sequence[Row], pool: Executor, shared: dict[Any, str | None]
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
    unread = [objects for objects, row in zip(data, stored, strict=True) if not _is_known(objects, row)]
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
    """Return a sample that raises ``BadImage`` if it has changed since the run."""

    def check() -> None:
        if changed(then, contents([sample], pl.DataFrame([then], COLUMNS)).row(0, named=True)):
            raise BadImage(f"{sample.id} has changed since the run; repeat the run")

    def load() -> ImageU8:
        check()
        return sample.load()

    def checked(dial: OwnDial) -> OwnDial:
        def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
            check()
            yield from dial.sweep(severities)

        return replace(dial, sweep=sweep)

    return replace(sample, load=load, dials=tuple(map(checked, sample.dials)))


def _data_of(sample: Sample) -> list[Source]:
    return [
        source for make in (sample.load, *(dial.sweep for dial in sample.dials)) for source in _sources(make)
    ]


def _content(
    objects: Sequence[Source], stored: Row, hashes: Mapping[Any, str | None]
) -> tuple[int | None, int | None, str | None]:
    spans = [obj for obj in objects if isinstance(obj, Span)]
    size = sum(span.size for span in spans) if spans else None
    modified = max(span.modified for span in spans) if spans else None
    if _is_known(objects, stored):
        return size, modified, str(stored["content"])
    return size, modified, _combine_hashes([hashes[_key(obj)] for obj in objects])


def _is_known(objects: Sequence[Source], stored: Row) -> bool:
    """Return whether files have the stored size and time, so that the stored hash is valid."""
    if not objects or stored.get("content") is None or not all(isinstance(obj, Span) for obj in objects):
        return False
    spans = [obj for obj in objects if isinstance(obj, Span)]
    return (sum(s.size for s in spans), max(s.modified for s in spans)) == (
        stored["bytes"],
        stored["modified"],
    )


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


def _sources(load: Any) -> Iterator[Source]:
    """Yield the files, arrays and bytes that ``load`` refers to directly."""
    values = list(_references(load))
    folders = [
        value
        for value in values
        if isinstance(value, Path) and not isinstance(value, StorePath) and value.is_dir()
    ]
    for value in values:
        if isinstance(value, Member):
            span_ = _span(value.tar)
            yield from [] if span_ is None else [Span(value.tar, value.size, span_.modified, value.offset)]
        elif isinstance(value, str | Path):
            paths = (
                [folder / value for folder in folders]
                if isinstance(value, str) and folders
                else [to_path(value)]
            )
            yield from (span for path in paths if (span := _span(path)) is not None)
        elif isinstance(value, bytes | np.ndarray):
            yield value


def _span(file: Path) -> Span | None:
    try:
        info = file.stat() if isinstance(file, StorePath) else os.stat(file)
    except (OSError, ValueError):  # no such file, or not a file name
        return None
    return Span(file, info.st_size, info.st_mtime_ns) if stat.S_ISREG(info.st_mode) else None


def _references(load: Any) -> Iterator[Any]:
    if isinstance(load, functools.partial):
        yield from (*load.args, *load.keywords.values())
        yield from _references(load.func)
    elif isinstance(load, types.FunctionType):
        yield from (cell.cell_contents for cell in load.__closure__ or () if _filled(cell))
        yield from (*(load.__defaults__ or ()), *(load.__kwdefaults__ or {}).values())


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False

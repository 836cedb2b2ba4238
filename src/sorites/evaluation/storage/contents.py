"""The content of samples: size, time and hash of what their images are decoded from, wherever that lies.

What a sample is read from is seen in what its ``load`` and the sweeps of its dials hold: a path, a
folder and a path in it, a member of a tar, bytes or an array. Where they hold none of these,
nothing is known of its content, and it counts as unchanged.
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
from sorites.io.stores import StorePath, place, read_span
from sorites.models.versions import array_bytes
from sorites.sources.webdataset import Member

# Size, time of the last change in nanoseconds, and hash; each null where it is not known.
COLUMNS = pl.Schema({"bytes": pl.Int64(), "modified": pl.Int64(), "content": pl.String()})
# Bytes of a whole file that are hashed; a larger one, which holds more than an image, is known by
# its size and time.
LARGEST = 1 << 28

# Samples that are looked at before what they hold is let go.
AT_ONCE = 1 << 15
# Samples that a thread looks at in one go: handing over one at a time costs more than looking at
# it.
TOGETHER = 32

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """Some bytes of a file, or all of it."""

    file: Path
    size: int
    modified: int
    offset: int = 0

    def hash(self) -> str | None:
        """Return a hash of the bytes, or None where they cannot be read or are too many."""
        if self.size > LARGEST:
            return None
        try:
            # what the store knows of the content says as much as reading it
            if isinstance(self.file, StorePath):
                told = f"{self.file.tag()} {self.offset} {self.size}"
                return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
            return hashlib.blake2b(read_span(self.file, self.offset, self.size), digest_size=16).hexdigest()
        except OSError:
            return None


# Something that an image is decoded from.
Source = Span | bytes | NDArray[Any]


def contents(samples: Sequence[Sample], before: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return size, time and hash of each sample; a sample whose size and time are those ``before``
    keeps its hash unread.
    """
    shared: dict[Any, str | None] = {}
    parts = [pl.DataFrame(schema=COLUMNS)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for first in range(0, len(samples), AT_ONCE):
            some = list(samples[first : first + AT_ONCE])
            known: Sequence[Row] = (
                [{}] * len(some) if before is None else before.slice(first, AT_ONCE).to_dicts()
            )
            parts.append(_contents(some, known, pool, shared))
    return pl.concat(parts)


def _contents(
    samples: list[Sample], known: Sequence[Row], pool: Executor, shared: dict[Any, str | None]
) -> pl.DataFrame:
    """Return the contents of some samples; hashes of what several of them hold are kept in
    ``shared`` for those that follow.
    """
    some = (samples[first : first + TOGETHER] for first in range(0, len(samples), TOGETHER))
    held = [objects for part in pool.map(lambda part: [_held_by(s) for s in part], some) for objects in part]
    unread = [objects for objects, row in zip(held, known, strict=True) if not _is_known(objects, row)]
    # samples may share a file or an array
    times = Counter(_key(obj) for objects in unread for obj in objects)
    once = {key: obj for objects in unread for obj in objects if (key := _key(obj)) not in shared}
    hashes = dict(zip(once, pool.map(_hash, once.values()), strict=True)) | shared
    shared.update((key, hashes[key]) for key, count in times.items() if count > 1 and isinstance(key, Span))
    return pl.DataFrame(
        [_content(objects, row, hashes) for objects, row in zip(held, known, strict=True)],
        COLUMNS,
        orient="row",
    )


def stamp(samples: Sequence[Sample]) -> str:
    """Return a hash of the ids of samples and of the size and time of their files, which are not read."""
    hasher = hashlib.blake2b(digest_size=16)
    for sample in samples:
        told = [(s.size, s.modified, s.offset) if isinstance(s, Span) else _hash(s) for s in _held_by(sample)]
        hasher.update(f"{len(sample.id)} {sample.id} {told}".encode(errors="backslashreplace"))
    return hasher.hexdigest()


def changed(then: Row, now: Row) -> bool:
    """Return whether a sample is another than it was: by its hash, else by its size and time; false
    where one is not known.
    """
    if then.get("content") is not None and now.get("content") is not None:
        return bool(then["content"] != now["content"])
    if then.get("bytes") is None or now.get("bytes") is None:
        return False
    return (then["bytes"], then["modified"]) != (now["bytes"], now["modified"])


def guarded(sample: Sample, then: Row) -> Sample:
    """Return a sample that gives no image once it is no longer the one that a run looked at."""

    def look() -> None:
        if changed(then, contents([sample], pl.DataFrame([then], COLUMNS)).row(0, named=True)):
            raise BadImage(
                f"{sample.id} has changed since the run looked at it; type the run's command again"
            )

    def load() -> ImageU8:
        look()
        return sample.load()

    def looking(dial: OwnDial) -> OwnDial:
        def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
            look()
            yield from dial.sweep(severities)

        return replace(dial, sweep=sweep)

    return replace(sample, load=load, dials=tuple(map(looking, sample.dials)))


def _held_by(sample: Sample) -> list[Source]:
    return [
        source for make in (sample.load, *(dial.sweep for dial in sample.dials)) for source in _sources(make)
    ]


def _content(
    objects: Sequence[Source], known: Row, hashes: Mapping[Any, str | None]
) -> tuple[int | None, int | None, str | None]:
    spans = [obj for obj in objects if isinstance(obj, Span)]
    size = sum(span.size for span in spans) if spans else None
    modified = max(span.modified for span in spans) if spans else None
    if _is_known(objects, known):
        return size, modified, str(known["content"])
    return size, modified, _together([hashes[_key(obj)] for obj in objects])


def _is_known(objects: Sequence[Source], known: Row) -> bool:
    """Return whether files have the size and time that are known, so that their hash is too."""
    if not objects or known.get("content") is None or not all(isinstance(obj, Span) for obj in objects):
        return False
    spans = [obj for obj in objects if isinstance(obj, Span)]
    return (sum(s.size for s in spans), max(s.modified for s in spans)) == (known["bytes"], known["modified"])


def _key(obj: Source) -> Any:
    return obj if isinstance(obj, Span) else id(obj)


def _hash(obj: Source) -> str | None:
    if isinstance(obj, Span):
        return obj.hash()
    if isinstance(obj, bytes):
        return hashlib.blake2b(obj, digest_size=16).hexdigest()
    array = array_bytes(obj)
    return None if array is None else array.hex()[:32]


def _together(hashes: Sequence[str | None]) -> str | None:
    """Return one hash of several, or None where one of them is not known."""
    read = [one for one in hashes if one is not None]
    if not read or len(read) < len(hashes):
        return None
    return read[0] if len(read) == 1 else hashlib.blake2b("".join(read).encode(), digest_size=16).hexdigest()


def _sources(load: Any) -> Iterator[Source]:
    """Yield the files, arrays and bytes that ``load`` holds itself; what is behind them is not looked at."""
    values = list(_held(load))
    folders = [
        value
        for value in values
        if isinstance(value, Path) and not isinstance(value, StorePath) and value.is_dir()
    ]
    for value in values:
        if isinstance(value, Member):
            found = _span(value.tar)
            yield from [] if found is None else [Span(value.tar, value.size, found.modified, value.offset)]
        elif isinstance(value, str | Path):
            places = (
                [folder / value for folder in folders]
                if isinstance(value, str) and folders
                else [place(value)]
            )
            yield from (span for place in places if (span := _span(place)) is not None)
        elif isinstance(value, bytes | np.ndarray):
            yield value


def _span(file: Path) -> Span | None:
    try:
        about = file.stat() if isinstance(file, StorePath) else os.stat(file)
    except (OSError, ValueError):  # no such file, or no name of a file at all
        return None
    return Span(file, about.st_size, about.st_mtime_ns) if stat.S_ISREG(about.st_mode) else None


def _held(load: Any) -> Iterator[Any]:
    if isinstance(load, functools.partial):
        yield from (*load.args, *load.keywords.values())
        yield from _held(load.func)
    elif isinstance(load, types.FunctionType):
        yield from (cell.cell_contents for cell in load.__closure__ or () if _filled(cell))
        yield from (*(load.__defaults__ or ()), *(load.__kwdefaults__ or {}).values())


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False

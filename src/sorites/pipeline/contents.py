"""The content of samples: size, time and hash of what their pictures are decoded from, wherever that lies.

What a sample is read from is seen in what its ``load`` holds: a path, a folder and a path in it, a member of a tar, bytes or an
array. Where it holds none of these, nothing is known of its content, and it counts as unchanged.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import types
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import Picture, Sample
from sorites.errors import BadPicture
from sorites.models._held import array_bytes
from sorites.sources._tars import Member

COLUMNS = pl.Schema({"bytes": pl.Int64(), "modified": pl.Int64(), "content": pl.String()})
"""Size, time of the last change in nanoseconds, and hash; each null where it is not known."""
LARGEST = 1 << 28
"""Bytes of a whole file that are hashed; a larger one, which holds more than a picture, is known by its size and time."""

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
            with self.file.open("rb") as file:
                file.seek(self.offset)
                return hashlib.blake2b(file.read(self.size), digest_size=16).hexdigest()
        except OSError:
            return None


def contents(samples: Sequence[Sample], before: Sequence[Row] = ()) -> pl.DataFrame:
    """Return size, time and hash of each sample; a sample whose size and time are those ``before`` keeps its hash unread."""
    known = before or [{}] * len(samples)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        rows = list(pool.map(_content, samples, known))
    return pl.DataFrame(rows, COLUMNS, orient="row")


def changed(then: Row, now: Row) -> bool:
    """Return whether a sample is another than it was: by its hash, else by its size and time; false where one is not known."""
    if then.get("content") is not None and now.get("content") is not None:
        return bool(then["content"] != now["content"])
    if then.get("bytes") is None or now.get("bytes") is None:
        return False
    return (then["bytes"], then["modified"]) != (now["bytes"], now["modified"])


def guarded(sample: Sample, then: Row) -> types.FunctionType | Any:
    """Return a ``load`` that refuses to decode a sample which is no longer the one that a run looked at."""

    def load() -> Picture:
        now = dict(zip(COLUMNS, _content(sample, then), strict=True))
        if changed(then, now):
            raise BadPicture(f"{sample.id} has changed since the run looked at it; type the run's command again")
        return sample.load()

    return load


def _content(sample: Sample, known: Row) -> tuple[int | None, int | None, str | None]:
    spans, hashes = list[Span](), list[str]()
    for thing in _sources(sample.load):
        if isinstance(thing, Span):
            spans.append(thing)
        else:
            hashes.append(thing)
    if not spans:
        return None, None, _together(hashes)
    size, modified = sum(span.size for span in spans), max(span.modified for span in spans)
    if not hashes and (size, modified) == (known.get("bytes"), known.get("modified")) and known.get("content") is not None:
        return size, modified, str(known["content"])
    read = [span.hash() for span in spans]
    return size, modified, None if None in read else _together([*hashes, *(one for one in read if one is not None)])


def _together(hashes: Sequence[str]) -> str | None:
    return None if not hashes else hashes[0] if len(hashes) == 1 else hashlib.blake2b("".join(hashes).encode()).hexdigest()[:32]


def _sources(load: Any) -> Iterator[Span | str]:
    """Yield the files, and the hashes of arrays and bytes, that ``load`` holds itself; what is behind them is not looked at."""
    values = list(_held(load))
    folders = [value for value in values if isinstance(value, Path) and value.is_dir()]
    for value in values:
        if isinstance(value, Member):
            found = _span(value.tar)
            yield from [] if found is None else [Span(value.tar, value.size, found.modified, value.offset)]
        elif isinstance(value, str | Path):
            places = [folder / value for folder in folders] if isinstance(value, str) and folders else [Path(value)]
            yield from (span for place in places if (span := _span(place)) is not None)
        elif isinstance(value, bytes):
            yield hashlib.blake2b(value, digest_size=16).hexdigest()
        elif isinstance(value, np.ndarray) and (array := array_bytes(value)) is not None:
            yield array.hex()[:32]


def _span(file: Path) -> Span | None:
    try:
        about = os.stat(file)
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

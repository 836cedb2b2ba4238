"""Damage to a file: what a disk, a copy or a person may do to it.

Each mutation keeps the modification time, and a flip keeps the size too, so that only reading the content finds it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

DAMAGES = ("flip", "truncate", "empty", "foreign")


def damaged(data: bytes, kind: str, rng: np.random.Generator, foreign: bytes) -> bytes:
    """Return the content of a file after damage: one flipped bit, a lost end, nothing, or another file."""
    if kind == "flip":
        place = int(rng.integers(len(data)))
        return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]
    if kind == "truncate":
        return data[: int(rng.integers(1, len(data)))]
    return {"empty": b"", "foreign": foreign}[kind]


@contextlib.contextmanager
def damage(path: Path, kind: str, rng: np.random.Generator, foreign: bytes) -> Iterator[None]:
    """Damage a file for the duration of a block."""
    before, state = path.read_bytes(), path.stat()
    after = damaged(before, kind, rng, foreign)
    assert after != before
    path.write_bytes(after)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@contextlib.contextmanager
def duplicate(path: Path) -> Iterator[Path]:
    """Put a copy beside a file, as file managers name it, for the duration of a block."""
    copy = path.with_name(f"{path.stem} copy{path.suffix}")
    shutil.copy2(path, copy)
    try:
        yield copy
    finally:
        copy.unlink()

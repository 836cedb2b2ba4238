"""What can happen to a file, and the kinds of files of a run folder: read by the fault tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: Its name in reports.
        pattern: Pattern of its paths, relative to the folder.
        recreated: Whether the commands that made the folder recreate it; else it must be restored.
    """

    name: str
    pattern: str
    recreated: bool = True

    def files(self, folder: Path) -> list[Path]:
        """Return the files of this kind in a folder."""
        return sorted(path for path in folder.glob(self.pattern) if path.is_file())


RUN = (
    Kind("record", "run.json", recreated=False),
    Kind("manifest", "manifest.parquet"),
    Kind("training images", "training.parquet"),
    Kind("retried images", "retried.json"),
    Kind("rows", "predictions/*.parquet"),
    Kind("facts", "facts/*.parquet"),
    Kind("metadata of facts", "facts/*.json"),
    Kind("features", "features/*.safetensors"),
    Kind("last layers", "heads/*.safetensors"),
    Kind("outputs of training images", "fits/*.safetensors"),
    Kind("record of fits", "fits/fitted.json"),
    Kind("encoded images", "encoded/*.safetensors"),
    Kind("neighbours", "neighbours/**/*.safetensors"),
    Kind("list of explanations", "explanations/explanations.json"),
    Kind("explanations", "explanations/*.webp"),
)
"""The kinds of files of a run folder; ``index.json`` is only in compacted ones."""

Mutation = Callable[[bytes, Random], bytes]


def flip(data: bytes, random: Random) -> bytes:
    """Flip one bit."""
    changed, bit = bytearray(data), random.randrange(8 * len(data))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def truncate(data: bytes, random: Random) -> bytes:
    """Cut off the end."""
    return data[: random.randrange(1, len(data))]


def empty(data: bytes, random: Random) -> bytes:
    """Leave nothing."""
    return b""


def foreign(data: bytes, random: Random) -> bytes:
    """Replace the content by another one of the same length."""
    return random.randbytes(len(data))


MUTATIONS: tuple[Mutation, ...] = (flip, truncate, empty, foreign)
"""Mutations of the content of a file. A duplicate is another file (see ``duplicates``)."""


def duplicates(path: Path) -> Iterator[Path]:
    """Yield names that file managers give to copies of a file."""
    yield path.with_name(f"{path.stem} copy{path.suffix}")
    yield path.with_name(f"{path.stem} (1){path.suffix}")
    yield path.with_name(f"{path.name}.bak")


def whole(folder: Path) -> dict[Path, bytes]:
    """Return the content of all files of a folder, without locks and what was set aside."""
    aside = ("damaged", "replaced")
    return {
        path: path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.relative_to(folder).parts[0] not in aside
    }

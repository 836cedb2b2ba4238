"""Long lists of images in columns: millions of lines become samples only when they are accessed, and lines
whose files are absent never do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import Attr, FileRef, Setting
from sorites.core.errors import SoritesError
from sorites.core.packed import Block, Column, ComputedColumn, ConstantColumn, IntegerColumn, TextColumn
from sorites.core.rng import hashed_order
from sorites.io.paths import PLAIN, is_relative_inside
from sorites.io.readers import lines

# Lines that are joined to their folder as they are: normalised, without dots that have a meaning.
_AS_IS = rf"^{PLAIN.pattern}$"
_DOTS = r"^\.|/\."


def read_list(file: Path, each: int | None = None) -> pl.Series:
    """Return the paths of a list without leading ``./``; with ``each``, a deterministic random subset.

    Raises:
        SoritesError: A path leads out of its folder.
    """
    texts = pl.Series("line", lines(file, "a list of images, one path per line"), pl.String)
    stripped = texts.str.strip_chars().str.strip_prefix("./")
    unusual = (stripped != "") & (~stripped.str.contains(_AS_IS) | stripped.str.contains("..", literal=True))
    for number in unusual.arg_true().to_list():
        if not is_relative_inside(stripped[number]):
            raise SoritesError(
                f"{file}, line {number + 1}: expected a path below the folder of the images, got"
                f" {stripped[number]!r}"
            )
    paths = stripped.filter(stripped != "")
    if each is None:
        return paths
    return pl.Series("line", hashed_order(paths.to_list(), lambda line: [line])[:each], pl.String)


def ids_below(paths: pl.Series, folder: str) -> pl.Series:
    """Return the paths below a folder of the root, normalised: the ids of their samples."""
    odd = ~paths.str.contains(_AS_IS) | paths.str.contains(_DOTS)
    if odd.any():
        normal = {path: Path(path).as_posix() for path in paths.filter(odd).to_list()}
        paths = paths.replace(normal)
    return pl.select(pl.concat_str(pl.lit(f"{folder}/"), paths)).to_series().alias("id")


@dataclass
class PresentFiles:
    """The files of some folders below a root, as hashes of their paths; each folder is listed once.

    Args:
        root: The root.
    """

    root: Path
    _folders: set[str] = field(default_factory=set)
    _parts: list[NDArray[np.uint64]] = field(default_factory=list)
    _known: NDArray[np.uint64] | None = None

    def list_folders_of(self, ids: pl.Series) -> None:
        """List the folders of these paths."""
        for folder in ids.str.replace(r"/[^/]*$", "").unique().to_list():
            if folder in self._folders:
                continue
            self._folders.add(folder)
            where = self.root / folder
            if where.is_dir() and (names := os.listdir(where)):
                # Names that are not UTF-8 are in no list.
                utf8 = [
                    name for name in names if name.isascii() or max(name) < "\udc80" or max(name) > "\udcff"
                ]
                self._parts.append(_hashes(pl.Series([f"{folder}/{name}" for name in utf8], dtype=pl.String)))
                self._known = None

    def among(self, ids: pl.Series) -> pl.Series:
        """Return whether the file of each path is present."""
        if self._known is None:
            self._known = np.sort(np.concatenate([np.zeros(0, np.uint64), *self._parts]))
        asked = _hashes(ids)
        places = np.searchsorted(self._known, asked)
        found = np.zeros(len(asked), bool)
        inside = places < len(self._known)
        found[inside] = self._known[places[inside]] == asked[inside]
        return pl.Series("present", found)


def _hashes(texts: pl.Series) -> NDArray[np.uint64]:
    return texts.hash(17).to_numpy()


@dataclass(frozen=True)
class Graded:
    """What the images of one list share.

    Attributes:
        prefix: The root as text, to which an id is appended.
        shift: The shift.
        part: The split of images of known classes.
        levels: The attributes of the cell.
        setting: The setting of the cell.
        words: Returns further attributes of an id, or None.
        digests: Digests of images by id.
    """

    prefix: str
    shift: str
    part: str
    levels: tuple[Attr, ...]
    setting: Setting
    words: Callable[[str], tuple[Attr, ...]] | None
    digests: Mapping[str, str]

    def image(self, id_: str) -> FileRef:
        """Return the file of an image."""
        return FileRef(f"{self.prefix}{id_}", digest=self.digests.get(id_, ""))

    def split(self, label: int | None) -> str:
        """Return the split of an image."""
        return "unknown" if label is None else self.part

    def attrs(self, id_: str) -> tuple[Attr, ...]:
        """Return the attributes of an image."""
        return (*self.levels, *(self.words(id_) if self.words else ()))

    def block(self, ids: pl.Series, labels: pl.Series) -> Block:
        """Return the images as samples in columns."""
        texts = _text_column(ids)
        numbers: Column = (
            ConstantColumn(None) if labels.null_count() == len(labels) else IntegerColumn(labels.to_list())
        )
        return Block(
            len(ids),
            id=texts,
            image=ComputedColumn(self.image, [texts]),
            label=numbers,
            split=ComputedColumn(self.split, [numbers]),
            attrs=ComputedColumn(self.attrs, [texts]) if self.words else ConstantColumn(self.levels),
            shift=ConstantColumn(self.shift),
            setting=ConstantColumn(self.setting),
        )


def _text_column(texts: pl.Series) -> TextColumn:
    ends = texts.str.len_bytes().cast(pl.Int64).cum_sum().to_numpy()
    return TextColumn.joined(str(texts.str.join("").item()).encode(), ends)


def labels_of(ids: pl.Series, pattern: str, label_of: Mapping[str, int]) -> pl.Series:
    """Return the label of the first class id in each path, or null."""
    found = ids.str.extract(f"({pattern})")
    return found.replace_strict(list(label_of), list(label_of.values()), default=None, return_dtype=pl.Int64)


@dataclass
class Missing:
    """Counts the missing images of each set, and keeps the first few."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[str]] = field(default_factory=dict)

    def add(self, ids: Iterable[str], count: int) -> None:
        """Add missing images of one set, given the first few of them."""
        chosen = list(ids)
        if count:
            name = chosen[0].partition("/")[0]
            self.counts[name] = self.counts.get(name, 0) + count
            self.first[name] = [*self.first.get(name, ()), *chosen][:3]

    @functools.cached_property
    def total(self) -> int:
        """The number of missing images."""
        return sum(self.counts.values())

    def lines(self, root: Path) -> Sequence[str]:
        """Return a line about each set."""
        return [
            f"  {name}: {count}{'' if (root / name).is_dir() else f'; no folder {root / name}'}, first"
            f" {', '.join(self.first[name])}"
            for name, count in sorted(self.counts.items())
        ]

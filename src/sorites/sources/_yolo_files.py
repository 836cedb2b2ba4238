"""Find where a YOLO dataset keeps its pictures, its labels and its classes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError
from sorites.reading import yaml_part
from sorites.sources._decode import SUFFIXES

NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
SPLITS = ("val", "test", "train")
"""The splits in the order in which they are taken where none is named."""


@dataclass(frozen=True)
class Dataset:
    """A data.yaml: its file, the folder that its paths are relative to, class numbers and names, and the paths of its splits."""

    file: Path
    root: Path
    names: dict[int, str]
    splits: dict[str, list[str]]
    points: bool
    """True where its label lines end in key points."""


def dataset(path: Path) -> Dataset:
    """Read the data.yaml of a folder, or the one that is named."""
    if not path.exists():
        raise SoritesError(f"wanted a YOLO folder with a data.yaml, got {path}, which does not exist")
    found = [path] if path.is_file() else [path / name for name in NAMES if (path / name).is_file()]
    found = found or sorted(path.glob("*.yaml"))[:1]
    if not found:
        raise SoritesError(f"there is no data.yaml in {path}. Write one with the lines: names: [person, car] and: val: images")
    file = found[0]
    try:
        data = yaml_part.parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read {file}: {error}") from error
    for key in ("names", "path", "kpt_shape", *SPLITS):
        if isinstance(data.get(key), yaml_part.NotUnderstood):
            where = f"{file}, line {data[key].line}"
            raise SoritesError(f"{where}: {key} is YAML that is not understood; write plain text, [a, b] or {{0: a, 1: b}}")
    return Dataset(file, _root(file, data.get("path")), _class_names(file, data), _splits(data), "kpt_shape" in data)


def _root(file: Path, path: Any) -> Path:
    """Return the folder that ``path`` names: absolute, or relative to the file; where that does not exist, the file's own."""
    named = file.parent / Path(path).expanduser() if isinstance(path, str) and path else file.parent
    return named if named.is_dir() else file.parent


def _class_names(file: Path, data: dict[str, Any]) -> dict[int, str]:
    names = data.get("names")
    if isinstance(names, list) and names:
        return dict(enumerate(names))
    if isinstance(names, dict) and names and all(key.isdecimal() for key in names):
        return {int(key): name for key, name in names.items()}
    raise SoritesError(f"{file}: wanted names as a list of classes or as numbers with classes, got {names!r}")


def _splits(data: dict[str, Any]) -> dict[str, list[str]]:
    given = {split: data[split] for split in SPLITS if data.get(split) and not isinstance(data[split], dict)}
    return {split: [found] if isinstance(found, str) else found for split, found in given.items()}


def pictures(data: Dataset, split: str | None) -> tuple[list[tuple[str, Path]], str]:
    """Return the ids and files of a split's pictures in order, and the split; without a name the first of val, test and train.

    A data.yaml that names no split has its pictures in ``images``. Ids are paths in the dataset's folder.
    """
    chosen = split or next((name for name in SPLITS if name in data.splits), None)
    if chosen is not None and chosen not in data.splits:
        raise SoritesError(f"{data.file} has no split {chosen!r}; it has {', '.join(data.splits) or 'none'}")
    places = [_place(data, text) for text in (data.splits[chosen] if chosen else ["images"])]
    files = sorted({file for place in places for file in _listed(data, place)})
    if not files:
        raise SoritesError(f"{data.file}: there are no pictures in {', '.join(map(str, places))}")
    if not any(label_file(file).parent.is_dir() for file in files):
        raise SoritesError(f"{data.file}: the folder of label files, such as {label_file(files[0]).parent}, does not exist")
    return _named(files, data.root), chosen or ""


def _place(data: Dataset, text: str) -> Path:
    """Return a folder or list of pictures; a leading ``../`` that leads nowhere is dropped, as exports of Roboflow need it."""
    tried = [data.root / text, data.file.parent / text, data.root / text.removeprefix("../")]
    found = next((place for place in tried if place.exists()), None)
    if found is None:
        raise SoritesError(f"{data.file} names the pictures {text!r}, and {tried[0]} does not exist")
    return found


def _listed(data: Dataset, place: Path) -> Iterable[Path]:
    """Yield the pictures below a folder, or those that a text file lists, one per line."""
    if place.is_dir():
        return (file for file in place.rglob("*") if file.name.lower().endswith(SUFFIXES) and not file.name.startswith("."))
    if place.suffix != ".txt":
        raise SoritesError(f"{data.file}: wanted a folder of pictures or a .txt list of them, got {place}")
    try:
        lines = place.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read the list of pictures {place}: {error}") from error
    return [place.parent / line.strip() for line in lines if line.strip()]


def _named(files: list[Path], root: Path) -> list[tuple[str, Path]]:
    above = (
        root if all(file.is_relative_to(root) for file in files) else Path(os.path.commonpath([file.parent for file in files]))
    )
    return [(file.relative_to(above).as_posix().encode("utf-8", "backslashreplace").decode(), file) for file in files]


def label_file(picture: Path) -> Path:
    """Return the label file of a picture: ``labels`` in the place of the last ``images`` in its path, and .txt at its end."""
    parts = list(picture.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            return Path(*parts[:place], "labels", *parts[place + 1 :]).with_suffix(".txt")
    return picture.with_suffix(".txt")

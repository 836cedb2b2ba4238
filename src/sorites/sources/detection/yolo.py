"""Read images with boxes from a YOLO dataset: ``data.yaml``, ``images/`` and ``labels/`` with one
text file per image.

A line of a label file is ``class x y width height``, with the middle and the size as shares of the
image; a line with three points or more (``class x1 y1 x2 y2 x3 y3 ...``) is an outline, and its
box is taken. The label file of ``images/a/b.jpg`` is ``labels/a/b.txt``; an image without one
shows nothing, as YOLO's own tools have it.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.core import Box, Sample, add_source
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.specs import split_options
from sorites.sources.decode import SUFFIXES, decode, size
from sorites.sources.detection.boxes import FOREIGN, Tally, broken, ground_truth_box, known_classes

# The part of YAML that ``data.yaml`` files of detection datasets use, so that no library is needed for
# it.


_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#:'"\-\[\]{},][^#:]*?)\s*:(?:\s+(.*))?$""")

# The first characters of values that are not plain scalars.
_MARKS = tuple("[{&*!|>%@`")


@dataclass(frozen=True)
class NotUnderstood:
    """A value that is not in the part of YAML that is read, and the number of its line."""

    line: int


def parse(text: str) -> dict[str, Any]:
    """Return the keys of a YAML mapping with their values: text, a list of text, a mapping of text,
    or ``NotUnderstood``.
    """
    lines = [(number, _bare(line)) for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line.strip() not in ("", "---", "...")]
    found: dict[str, Any] = {}
    at = 0
    while at < len(lines):
        number, line = lines[at]
        end = at + 1
        while end < len(lines) and (lines[end][1][0] in " \t-]}"):
            end += 1
        match = _KEY.match(line)
        if match:
            value = _value((match[2] or "").strip(), [below for _, below in lines[at + 1 : end]])
            found[_scalar(match[1])] = NotUnderstood(number) if value is None else value
        at = end
    return found


def _bare(line: str) -> str:
    """Return a line without its comment."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (place == 0 or line[place - 1] in " \t[{,:"):
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place].rstrip()
    return line.rstrip()


def _value(first: str, below: Sequence[str]) -> Any:
    """Return the value that begins on its key's line and may go on below it, or None if it is not
    understood.
    """
    if first[:1] in ("[", "{"):
        whole = " ".join([first, *(line.strip() for line in below)])
        return _flow(whole)
    if first:
        return None if below or first[0] in _MARKS else _scalar(first)
    if not below:
        return ""
    if all(line.lstrip().startswith("- ") for line in below):
        items = [line.lstrip()[2:].strip() for line in below]
        return (
            None
            if any(item[:1] in _MARKS or _KEY.match(item) for item in items)
            else [_scalar(item) for item in items]
        )
    return _mapping(below)


def _mapping(below: Sequence[str]) -> dict[str, str] | None:
    indents = {len(line) - len(line.lstrip()) for line in below}
    pairs = [_KEY.match(line.strip()) for line in below]
    plain = all(pair and pair[2] and pair[2].strip()[:1] not in _MARKS for pair in pairs)
    if len(indents) != 1 or not plain:
        return None
    return {_scalar(pair[1]): _scalar(pair[2].strip()) for pair in pairs if pair}


def _flow(text: str) -> Any:
    parts = _split(text[1:-1]) if (text[0], text[-1]) in (("[", "]"), ("{", "}")) else None
    if parts is None:
        return None
    if text[0] == "[":
        return [_scalar(part) for part in parts]
    pairs = [_KEY.match(part) for part in parts]
    return (
        {_scalar(pair[1]): _scalar((pair[2] or "").strip()) for pair in pairs if pair} if all(pairs) else None
    )


def _split(text: str) -> list[str] | None:
    """Return the parts of a flow list between its commas, or None where brackets are nested or a
    quote does not end.
    """
    parts, part, quote = [], "", ""
    for letter in text:
        if not quote and letter == ",":
            parts.append(part.strip())
            part = ""
            continue
        if not quote and letter in "[]{}":
            return None
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (not part.strip() or part.rstrip().endswith(":")):
            quote = letter
        part += letter
    return None if quote else [found for found in (*parts, part.strip()) if found]


def _scalar(text: str) -> str:
    """Return a scalar as text, without its quotes."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1].replace("''", "'") if quoted and text[0] == "'" else text[1:-1] if quoted else text


# Find where a YOLO dataset keeps its images, its labels and its classes.


NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
# The splits in the order in which they are taken where none is named.
SPLITS = ("val", "test", "train")


@dataclass(frozen=True)
class Dataset:
    """A data.yaml: its file, the folder that its paths are relative to, class numbers and names,
    and the paths of its splits.
    """

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
        raise SoritesError(
            f"there is no data.yaml in {path}. Write one with the lines: names: [person, car] and: val:"
            " images"
        )
    file = found[0]
    try:
        data = parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read {file}: {error}") from error
    for key in ("names", "path", "kpt_shape", *SPLITS):
        if isinstance(data.get(key), NotUnderstood):
            where = f"{file}, line {data[key].line}"
            raise SoritesError(
                f"{where}: {key} is YAML that is not understood; write plain text, [a, b] or {{0: a, 1: b}}"
            )
    return Dataset(
        file, _root(file, data.get("path")), _class_names(file, data), _splits(data), "kpt_shape" in data
    )


def _root(file: Path, path: Any) -> Path:
    """Return the folder that ``path`` names: absolute, or relative to the file; where that does not
    exist, the file's own.
    """
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


def images(data: Dataset, split: str | None) -> tuple[list[tuple[str, Path]], str]:
    """Return the ids and files of a split's images in order, and the split; without a name the
    first of val, test and train.

    A data.yaml that names no split has its images in ``images``. Ids are paths in the dataset's folder.
    """
    chosen = split or next((name for name in SPLITS if name in data.splits), None)
    if chosen is not None and chosen not in data.splits:
        raise SoritesError(f"{data.file} has no split {chosen!r}; it has {', '.join(data.splits) or 'none'}")
    places = [_place(data, text) for text in (data.splits[chosen] if chosen else ["images"])]
    files = sorted({file for place in places for file in _listed(data, place)})
    if not files:
        raise SoritesError(f"{data.file}: there are no images in {', '.join(map(str, places))}")
    if not any(label_file(file).parent.is_dir() for file in files):
        raise SoritesError(
            f"{data.file}: the folder of label files, such as {label_file(files[0]).parent}, does not exist"
        )
    return _named(files, data.root), chosen or ""


def _place(data: Dataset, text: str) -> Path:
    """Return a folder or list of images; a leading ``../`` that leads nowhere is dropped, as
    exports of Roboflow need it.
    """
    tried = [data.root / text, data.file.parent / text, data.root / text.removeprefix("../")]
    found = next((place for place in tried if place.exists()), None)
    if found is None:
        raise SoritesError(f"{data.file} names the images {text!r}, and {tried[0]} does not exist")
    return found


def _listed(data: Dataset, place: Path) -> Iterable[Path]:
    """Yield the images below a folder, or those that a text file lists, one per line."""
    if place.is_dir():
        return (
            file
            for file in place.rglob("*")
            if file.name.lower().endswith(SUFFIXES) and not file.name.startswith(".")
        )
    if place.suffix != ".txt":
        raise SoritesError(f"{data.file}: wanted a folder of images or a .txt list of them, got {place}")
    try:
        lines = place.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read the list of images {place}: {error}") from error
    return [place.parent / line.strip() for line in lines if line.strip()]


def _named(files: list[Path], root: Path) -> list[tuple[str, Path]]:
    above = (
        root
        if all(file.is_relative_to(root) for file in files)
        else Path(os.path.commonpath([file.parent for file in files]))
    )
    return [
        (file.relative_to(above).as_posix().encode("utf-8", "backslashreplace").decode(), file)
        for file in files
    ]


def label_file(image: Path) -> Path:
    """Return the label file of an image: ``labels`` in the place of the last ``images`` in its
    path, and .txt at its end.
    """
    parts = list(image.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            return Path(*parts[:place], "labels", *parts[place + 1 :]).with_suffix(".txt")
    return image.with_suffix(".txt")


# The most bytes of a label file.
LONGEST = 1 << 24
# No share of an image is as far outside of 0 to 1 as this.
FAR = 2.0


@add_source
def yolo(path: str | None, labels: Labels) -> list[Sample]:
    """Read images with ground-truth boxes from a YOLO folder or its data.yaml; ``yolo:DIR?split=train``
    chooses another split than val.

    Classes go to the suite's labels by name. An image whose label file cannot be understood
    becomes a row with its error.
    """
    folder, given = split_options("yolo", path, {"split": ("train", "val", "test")})
    data = dataset(Path(folder).expanduser())
    found, split = images(data, given.get("split"))
    known, tally = known_classes(data.names.values(), labels, data.file), Tally(data.file)
    samples = [_sample(data, file, id_, known, split, tally) for id_, file in found]
    tally.warn()
    return samples


def _sample(
    data: Dataset, file: Path, id_: str, known: Mapping[str, int], split: str, tally: Tally
) -> Sample:
    try:
        ground_truth = _ground_truth(data, file, id_, known, tally)
    except BadImage as error:
        return broken(id_, str(error))
    return Sample(id_, functools.partial(decode, file), ground_truth=ground_truth, split=split)


def _ground_truth(
    data: Dataset, file: Path, id_: str, known: Mapping[str, int], tally: Tally
) -> tuple[Box, ...]:
    listed = label_file(file)
    if not listed.is_file():
        return ()
    if listed.stat().st_size > LONGEST:
        raise BadImage(f"{listed}: wanted lines of boxes, got {listed.stat().st_size:,} bytes")
    try:
        lines = listed.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadImage(f"{listed}: cannot be read as text: {error}") from None
    wide, high = size(file)
    boxes: list[Box] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{listed.name}, line {number}"
        name, corners, area = _parsed(line, data, where)
        if name not in known:
            tally.add(FOREIGN, repr(name))
            continue
        x0, y0, x1, y1 = corners
        pixels = (x0 * wide, y0 * high, x1 * wide, y1 * high)
        box = ground_truth_box(
            pixels, known[name], (wide, high), where, tally, None if area is None else area * wide * high
        )
        boxes += [] if box is None else [box]
    return tuple(boxes)


def _parsed(
    line: str, data: Dataset, where: str
) -> tuple[str, tuple[float, float, float, float], float | None]:
    """Return the class of a line, its box as shares of the image, and the area of an outline."""
    try:
        first, *numbers = (float(word) for word in line.split())
    except ValueError:
        raise BadImage(
            f"{where}: wanted numbers (class x y width height), got {line.strip()[:80]!r}"
        ) from None
    if not first.is_integer() or int(first) not in data.names:
        raise BadImage(f"{where}: wanted a class of {data.file.name}, 0 to {max(data.names)}, got {first:g}")
    if data.points and len(numbers) > 4:
        numbers = numbers[:4]
    if any(FAR < abs(number) < math.inf for number in numbers):
        came = " ".join(f"{number:g}" for number in numbers[:4])
        raise BadImage(
            f"{where}: wanted middle and size as shares of the image, 0 to 1, got {came} (pixels?)"
        )
    if len(numbers) == 4:
        x, y, width, height = numbers
        return data.names[int(first)], (x - width / 2, y - height / 2, x + width / 2, y + height / 2), None
    if len(numbers) < 6 or len(numbers) % 2:
        hint = " (five and a confidence are predictions, not truth)" if len(numbers) == 5 else ""
        raise BadImage(
            f"{where}: wanted class x y width height, or an outline, got {len(numbers) + 1} numbers{hint}"
        )
    xs, ys = numbers[::2], numbers[1::2]
    return data.names[int(first)], (min(xs), min(ys), max(xs), max(ys)), _outline(xs, ys)


def _outline(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the area of a polygon, as a share of the image."""
    turned = zip(xs, ys, (*xs[1:], xs[0]), (*ys[1:], ys[0]), strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for x0, y0, x1, y1 in turned)) / 2

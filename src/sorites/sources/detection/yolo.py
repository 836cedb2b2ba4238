"""Read images with boxes from a YOLO dataset: ``data.yaml``, ``images/``, and ``labels/`` with one text
file per image.

A line of a label file is ``class x y width height``: centre and size relative to the image. A line
with three or more points (``class x1 y1 x2 y2 x3 y3 ...``) is a polygon, which is reduced to its
bounding box; a dataset whose polygons are all rotated rectangles is refused, because these are oriented
boxes (OBB). The label file of ``images/a/b.jpg`` is ``labels/a/b.txt``; an image without one contains
no objects, as in other YOLO tools.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.core import Box, FileRef, Sample, add_source
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.specs import split_options
from sorites.io.decode import SUFFIXES, size
from sorites.sources.detection.boxes import (
    FOREIGN,
    Tally,
    broken,
    ground_truth_box,
    known_classes,
    oriented,
)

# A parser for the subset of YAML that data.yaml files use, so that no YAML library is needed.

_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#:'"\-\[\]{},][^#:]*?)\s*:(?:\s+(.*))?$""")

# The first characters of values other than plain scalars.
_MARKS = tuple("[{&*!|>%@`")


@dataclass(frozen=True)
class NotUnderstood:
    """A value outside the supported subset of YAML, with its line number."""

    line: int


def parse(text: str) -> dict[str, Any]:
    """Parse a YAML mapping whose values are text, a list of text, a mapping of text, or ``NotUnderstood``."""
    lines = [
        (number, _without_comment(line))
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
    ]
    lines = [(number, line) for number, line in lines if line.strip() not in ("", "---", "...")]
    values: dict[str, Any] = {}
    start = 0
    while start < len(lines):
        number, line = lines[start]
        end = start + 1
        while end < len(lines) and (lines[end][1][0] in " \t-]}"):
            end += 1
        match = _KEY.match(line)
        if match:
            value = _value((match[2] or "").strip(), [below for _, below in lines[start + 1 : end]])
            values[_scalar(match[1])] = NotUnderstood(number) if value is None else value
        start = end
    return values


def _without_comment(line: str) -> str:
    quote = ""
    for i, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (i == 0 or line[i - 1] in " \t[{,:"):
            quote = letter
        elif letter == "#" and (i == 0 or line[i - 1] in " \t"):
            return line[:i].rstrip()
    return line.rstrip()


def _value(first: str, below: Sequence[str]) -> Any:
    """Parse a value that starts on the line of its key and may continue below; None if not supported."""
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
    """Split a flow list at its commas; None if brackets are nested or a quote is not closed."""
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
    return None if quote else [item for item in (*parts, part.strip()) if item]


def _scalar(text: str) -> str:
    """Return a scalar without its quotes."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1].replace("''", "'") if quoted and text[0] == "'" else text[1:-1] if quoted else text


# The layout of a YOLO dataset: images, label files and classes.


NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
# The splits in order of preference.
SPLITS = ("val", "test", "train")


@dataclass(frozen=True)
class Dataset:
    """A data.yaml: its file, the folder of its relative paths, its classes by number, and the paths of its
    splits.
    """

    file: Path
    root: Path
    names: dict[int, str]
    splits: dict[str, list[str]]
    points: bool
    """True if label lines end in keypoints."""


def dataset(path: Path) -> Dataset:
    """Read a data.yaml, given by its path or its folder."""
    if not path.exists():
        raise SoritesError(f"expected a YOLO folder with a data.yaml, but {path} does not exist")
    candidates = [path] if path.is_file() else [path / name for name in NAMES if (path / name).is_file()]
    candidates = candidates or sorted(path.glob("*.yaml"))[:1]
    if not candidates:
        raise SoritesError(
            f"no data.yaml in {path}. Write one with the lines: names: [person, car] and: val: images"
        )
    file = candidates[0]
    try:
        data = parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read {file}: {error}") from error
    for key in ("names", "path", "kpt_shape", *SPLITS):
        if isinstance(data.get(key), NotUnderstood):
            where = f"{file}, line {data[key].line}"
            raise SoritesError(
                f"{where}: {key} uses unsupported YAML; write plain text, [a, b] or {{0: a, 1: b}}"
            )
    return Dataset(
        file, _root(file, data.get("path")), _class_names(file, data), _splits(data), "kpt_shape" in data
    )


def _root(file: Path, path: Any) -> Path:
    """Return the folder ``path``, absolute or relative to the file; default: the folder of the file."""
    named = file.parent / Path(path).expanduser() if isinstance(path, str) and path else file.parent
    return named if named.is_dir() else file.parent


def _class_names(file: Path, data: dict[str, Any]) -> dict[int, str]:
    names = data.get("names")
    if isinstance(names, list) and names:
        return dict(enumerate(names))
    if isinstance(names, dict) and names and all(key.isdecimal() for key in names):
        return {int(key): name for key, name in names.items()}
    raise SoritesError(
        f"{file}: expected names as a list of classes or a mapping from numbers, got {names!r}"
    )


def _splits(data: dict[str, Any]) -> dict[str, list[str]]:
    paths = {split: data[split] for split in SPLITS if data.get(split) and not isinstance(data[split], dict)}
    return {split: [value] if isinstance(value, str) else value for split, value in paths.items()}


def images(data: Dataset, split: str | None) -> tuple[list[tuple[str, Path]], str]:
    """List the images of a split.

    Args:
        data: The dataset. Without splits, its images are in ``images``.
        split: The split; None takes the first of val, test and train that exists.

    Returns:
        The sorted (id, file) pairs and the split. Ids are paths relative to the dataset folder.
    """
    chosen = split or next((name for name in SPLITS if name in data.splits), None)
    if chosen is not None and chosen not in data.splits:
        raise SoritesError(f"{data.file} has no split {chosen!r}; it has {', '.join(data.splits) or 'none'}")
    folders = [_resolve(data, text) for text in (data.splits[chosen] if chosen else ["images"])]
    files = sorted({file for folder in folders for file in _image_files(data, folder)})
    if not files:
        raise SoritesError(f"{data.file}: no images in {', '.join(map(str, folders))}")
    if not any(label_file(file).parent.is_dir() for file in files):
        raise SoritesError(
            f"{data.file}: the folder of label files, such as {label_file(files[0]).parent}, does not exist"
        )
    return _with_ids(files, data.root), chosen or ""


def _resolve(data: Dataset, text: str) -> Path:
    """Return a folder or list of images; an invalid leading ``../``, as in Roboflow exports, is dropped."""
    candidates = [data.root / text, data.file.parent / text, data.root / text.removeprefix("../")]
    path = next((candidate for candidate in candidates if candidate.exists()), None)
    if path is None:
        raise SoritesError(f"{data.file} refers to images at {text!r}, but {candidates[0]} does not exist")
    return path


def _image_files(data: Dataset, path: Path) -> Iterable[Path]:
    """Return the images below a folder, or those listed in a text file, one per line."""
    if path.is_dir():
        return (
            file
            for file in path.rglob("*")
            if file.name.lower().endswith(SUFFIXES) and not file.name.startswith(".")
        )
    if path.suffix != ".txt":
        raise SoritesError(f"{data.file}: expected a folder of images or a .txt list of them, got {path}")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SoritesError(f"cannot read the list of images {path}: {error}") from error
    return [path.parent / line.strip() for line in lines if line.strip()]


def _with_ids(files: list[Path], root: Path) -> list[tuple[str, Path]]:
    base = (
        root
        if all(file.is_relative_to(root) for file in files)
        else Path(os.path.commonpath([file.parent for file in files]))
    )
    return [
        (file.relative_to(base).as_posix().encode("utf-8", "backslashreplace").decode(), file)
        for file in files
    ]


def label_file(image: Path) -> Path:
    """Return the label file of an image: the last ``images`` of its path becomes ``labels``."""
    parts = list(image.parts)
    for i in range(len(parts) - 2, -1, -1):
        if parts[i] == "images":
            return Path(*parts[:i], "labels", *parts[i + 1 :]).with_suffix(".txt")
    return image.with_suffix(".txt")


# The maximum size of a label file in bytes.
MAX_LABEL_BYTES = 1 << 24
# Relative coordinates with a larger absolute value are taken for pixels.
MAX_COORDINATE = 2.0


@add_source
def yolo(path: str | None, labels: Labels) -> list[Sample]:
    """Read images with ground-truth boxes from a YOLO folder or its data.yaml; ``yolo:DIR?split=train``
    selects another split than val.

    Classes are matched to the labels by name. An image whose label file is invalid becomes a row with
    an error.
    """
    folder, options = split_options("yolo", path, {"split": ("train", "val", "test")})
    data = dataset(Path(folder).expanduser())
    files, split = images(data, options.get("split"))
    label_of, tally = known_classes(data.names.values(), labels, data.file), Tally(data.file)
    shapes = Shapes()
    samples = [_sample(data, file, id_, label_of, split, tally, shapes) for id_, file in files]
    shapes.refuse_oriented(data.file)
    tally.warn()
    return samples


@dataclass
class Shapes:
    """Counts of the polygons in label files.

    Attributes:
        rotated: The number of rotated rectangles.
        others: The number of all other polygons.
        first: The first rotated rectangle, for messages.
    """

    rotated: int = 0
    others: int = 0
    first: str = ""

    def add(self, xs: Sequence[float], ys: Sequence[float], where: str) -> None:
        """Count a polygon with corners in px."""
        if is_rotated_rectangle(xs, ys):
            self.rotated += 1
            self.first = self.first or where
        else:
            self.others += 1

    def refuse_oriented(self, file: Path) -> None:
        """Raise an error if all polygons are rotated rectangles."""
        if self.rotated and not self.others:
            raise oriented(
                f"{file}: all polygons of its label files are rotated rectangles, first {self.first}"
            )


def is_rotated_rectangle(xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Return whether four corners form a rectangle, to 1 px, that is not upright.

    Example:
        >>> is_rotated_rectangle([20, 40, 20, 0], [0, 20, 40, 20])
        True
    """
    if len(xs) != 4:
        return False
    (x0, x1, x2, x3), (y0, y1, y2, y3) = xs, ys
    parallel = math.hypot(x0 + x2 - x1 - x3, y0 + y2 - y1 - y3) <= 2
    diagonals = abs(math.hypot(x2 - x0, y2 - y0) - math.hypot(x3 - x1, y3 - y1)) <= 2
    upright = min(abs(x1 - x0), abs(y1 - y0)) <= 1
    return parallel and diagonals and not upright


def _sample(
    data: Dataset,
    file: Path,
    id_: str,
    label_of: Mapping[str, int],
    split: str,
    tally: Tally,
    shapes: Shapes,
) -> Sample:
    try:
        ground_truth = _ground_truth(data, file, id_, label_of, tally, shapes)
    except BadImage as error:
        return broken(id_, f"{error}")
    return Sample(id_, FileRef(file), ground_truth=ground_truth, split=split)


def _ground_truth(
    data: Dataset, file: Path, id_: str, label_of: Mapping[str, int], tally: Tally, shapes: Shapes
) -> tuple[Box, ...]:
    labels_path = label_file(file)
    if not labels_path.is_file():
        return ()
    if labels_path.stat().st_size > MAX_LABEL_BYTES:
        raise BadImage(f"{labels_path}: expected lines of boxes, got {labels_path.stat().st_size:,} bytes")
    try:
        lines = labels_path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadImage(f"{labels_path}: cannot be read as text: {error}") from None
    width, height = size(file)
    boxes: list[Box] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{labels_path.name}, line {number}"
        name, corners, area = _parse_line(line, data, where)
        if area is not None:
            numbers = [float(word) for word in line.split()[1:]]
            shapes.add([x * width for x in numbers[::2]], [y * height for y in numbers[1::2]], where)
        if name not in label_of:
            tally.add(FOREIGN, repr(name))
            continue
        x0, y0, x1, y1 = corners
        pixels = (x0 * width, y0 * height, x1 * width, y1 * height)
        area_px = None if area is None else area * width * height
        box = ground_truth_box(pixels, label_of[name], (width, height), where, tally, area_px)
        boxes += [] if box is None else [box]
    return tuple(boxes)


def _parse_line(
    line: str, data: Dataset, where: str
) -> tuple[str, tuple[float, float, float, float], float | None]:
    """Return the class of a line, its box relative to the image, and the area of a polygon."""
    try:
        first, *numbers = (float(word) for word in line.split())
    except ValueError:
        raise BadImage(
            f"{where}: expected numbers (class x y width height), got {line.strip()[:80]!r}"
        ) from None
    if not first.is_integer() or int(first) not in data.names:
        raise BadImage(
            f"{where}: expected a class of {data.file.name}, 0 to {max(data.names)}, got {first:g}"
        )
    if data.points and len(numbers) > 4:
        numbers = numbers[:4]
    if any(MAX_COORDINATE < abs(number) < math.inf for number in numbers):
        actual = " ".join(f"{number:g}" for number in numbers[:4])
        raise BadImage(
            f"{where}: expected centre and size relative to the image, 0 to 1, got {actual} (pixels?)"
        )
    if len(numbers) == 4:
        x, y, width, height = numbers
        return data.names[int(first)], (x - width / 2, y - height / 2, x + width / 2, y + height / 2), None
    if len(numbers) < 6 or len(numbers) % 2:
        hint = " (six numbers are predictions with a confidence)" if len(numbers) == 5 else ""
        raise BadImage(
            f"{where}: expected class x y width height, or a polygon, got {len(numbers) + 1} numbers{hint}"
        )
    xs, ys = numbers[::2], numbers[1::2]
    return data.names[int(first)], (min(xs), min(ys), max(xs), max(ys)), _polygon_area(xs, ys)


def _polygon_area(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the area of a polygon relative to the image (shoelace formula)."""
    edges = zip(xs, ys, (*xs[1:], xs[0]), (*ys[1:], ys[0]), strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for x0, y0, x1, y1 in edges)) / 2

"""FOCUS's attributes of ImageNet's own validation pictures: ``image, time, weather, locations``, the last a list of nine 0 and 1.

The table has no category: it follows from the class of the picture, which is the class folder it lies in
(``ROOT/n02123045/ILSVRC2012_val_00000293.JPEG``), or what a text file says of it (``?truth=FILE``, lines of file name and class).
Kattakinda & Feizi, "FOCUS: Familiar Objects in Common and Uncommon Settings", ICML 2022, section 4.4.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.reading.places import is_dir, is_file, path_of
from sorites.reading.texts import lines, whole
from sorites.sources._uncommon import NONE, WORDS

COLUMNS = ("image", "time", "weather", "locations")
_LIST = re.compile(r"\[?\s*[01](?:\.0*)?(?:[\s,]+[01](?:\.0*)?)*\s*\]?")


def words_of_list(text: str, where: str) -> list[str]:
    """Return the locations of a list such as ``[0, 1, 0, 0, 0, 0, 0, 0, 0]``, in the order of ``WORDS``."""
    places = WORDS["location"]
    marks = re.findall(r"[01](?:\.0*)?", text) if _LIST.fullmatch(text.strip()) else []
    if len(marks) != len(places):
        raise SoritesError(f"{where}: wanted locations as a list of {len(places)} zeros and ones, got {text!r}")
    return [word for word, mark in zip(places, marks, strict=True) if mark.startswith("1")] or [NONE]


def with_categories(
    rows: Sequence[dict[str, Any]], file: Path, options: Mapping[str, str], labels: Labels, accept: Mapping[str, frozenset[int]]
) -> tuple[Path, list[dict[str, Any]]]:
    """Return the root of the pictures, and the rows as those of FOCUS: with the category and the label of each picture.

    Pictures of a class that belongs to none of the ten categories are left out with a warning, since what is uncommon for them is
    not known.
    """
    root = path_of(options.get("images", file.parent))
    classes, of = _classes(root, options.get("truth"), labels), {label: c for c, some in accept.items() for label in some}
    made, outside = [], 0
    for i, row in enumerate(rows, start=1):
        where = f"{file}, row {i} ({row['image']})"
        if any(row[name] is None for name in COLUMNS) or not isinstance(row["image"], str):
            raise SoritesError(f"{where}: wanted a value in each of {', '.join(COLUMNS)}, and image as text")
        name = PurePosixPath(row["image"]).name
        if name not in classes:
            raise SoritesError(f"{where}: {root} has no such picture in a class folder; name the folder with ?images=DIR")
        found, label = classes[name]
        if label not in of:
            outside += 1
            continue
        locations = ",".join(words_of_list(str(row["locations"]), where))
        told = {"file_name": found, "category": of[label], "locations": locations, "label": label, "where": where}
        made.append({**row, **told})
    if not made:
        raise SoritesError(f"{file}: none of its {len(rows)} pictures is of a class of {', '.join(accept)}")
    if outside:
        warnings.warn(f"{outside} of {len(rows)} pictures are of none of the categories and are left out", stacklevel=4)
    return root, made


def _classes(root: Path, truth: str | None, labels: Labels) -> dict[str, tuple[str, int | None]]:
    """Map the name of each picture to its path below the root and its label, None where that is not among the labels."""
    position = {id_: i for i, id_ in enumerate(labels.ids)}
    if truth is not None:
        return _told(truth, root, labels)
    if not is_dir(root):
        raise SoritesError(f"focus: wanted images=DIR, the folder of ImageNet's validation pictures, got {root}")
    found: dict[str, tuple[str, int | None]] = {}
    for picture in sorted(root.rglob("*")):
        if re.fullmatch(r"n\d{8}", picture.parent.name) and is_file(picture):
            found[picture.name] = (picture.relative_to(root).as_posix(), position.get(picture.parent.name))
    return found


def _told(truth: str, root: Path, labels: Labels) -> dict[str, tuple[str, int | None]]:
    found: dict[str, tuple[str, int | None]] = {}
    for number, line in enumerate(lines(path_of(truth), "lines of file name and class"), start=1):
        if not line.strip():
            continue
        path, _, name = line.strip().rpartition(" ")
        if not path:
            raise SoritesError(f"{truth}, line {number}: wanted a file name and a class with a space between them, got {line!r}")
        relative = PurePosixPath(path.strip())
        position = whole(name)
        known = name in labels.ids or (position is not None and position < len(labels))
        found[relative.name] = (relative.as_posix(), labels.find(name) if known else None)
    return found

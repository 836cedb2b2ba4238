"""Read FOCUS as published, or any table with its columns: objects in common and uncommon settings.

    ROOT/annotations.db      SQLite: annotations(file_name, category, time, weather, locations, humans)
    ROOT/cat-night/86.jpeg   the images; file_name is their path with a leading slash

``locations`` is a set: words with commas between them. The table of ImageNet's own images
(``image, time, weather, locations``) is read too. Two tables beside this file say which ImageNet
classes a category stands for, and which settings are uncommon for it; both can be replaced.
Kattakinda & Feizi, "FOCUS: Familiar Objects in Common and Uncommon Settings", ICML 2022.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from sorites.core import Attr, Sample, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.specs import split_options
from sorites.io.paths import is_dir, is_file, path_of
from sorites.io.readers import lines, whole
from sorites.io.readers import text as read_text
from sorites.io.tables import sheet, table
from sorites.sources.sidecar import load

# Find which settings are uncommon for which category, from a table or from the counts of an annotated
# set.


# The word for an attribute that cannot be seen; it is neither common nor uncommon.
NONE = "none"

# The words that each kind of attribute may have.
WORDS: Mapping[str, tuple[str, ...]] = {
    "time": ("day", "night", NONE),
    "weather": ("cloudy", "foggy", "partly cloudy", "raining", "snowing", "sunny", NONE),
    "location": ("forest", "grass", "indoors", "rocks", "sand", "street", "snow", "water", NONE),
}

# The surroundings of a category: category, kind of attribute, word.
CategorySetting = tuple[str, str, str]


def read_uncommon(text: str, name: str) -> frozenset[CategorySetting]:
    """Read a table of uncommon settings: one line per category, one column per kind of attribute,
    commas between words.
    """
    head, *lines = [line.split("\t") for line in text.splitlines() if line.strip()] or [[""]]
    if head[0] != "category" or not set(head[1:]) <= set(WORDS):
        raise SoritesError(
            f"{name}: wanted the columns category, {', '.join(WORDS)} with tabs between them; got"
            f" {', '.join(head)}"
        )
    found: set[CategorySetting] = set()
    for row, line in enumerate(lines, start=2):
        for kind, cell in zip(head[1:], line[1:], strict=False):
            for word in filter(None, (part.strip().lower() for part in cell.split(","))):
                if word not in WORDS[kind]:
                    raise SoritesError(
                        f"{name}, line {row}: there is no {kind} {word!r}. It is one of"
                        f" {', '.join(WORDS[kind])}"
                    )
                found.add((line[0].strip().lower(), kind, word))
    return frozenset(found)


def inferred(
    rows: Iterable[tuple[str, Mapping[str, Sequence[str]]]], below: float
) -> frozenset[CategorySetting]:
    """Return the settings seen in less than the share ``below`` of a category's images.

    An image counts once for each of its words. Only words that some category has are judged: a
    word that nobody annotated says nothing.
    """
    if not 0 < below < 1:
        raise SoritesError(f"uncommon by counts: below is a share between 0 and 1, got {below}")
    images: Counter[str] = Counter()
    seen: Counter[CategorySetting] = Counter()
    for category, words in rows:
        images[category] += 1
        seen.update((category, kind, word) for kind in WORDS for word in words[kind] if word != NONE)
    annotated = {(kind, word) for _, kind, word in seen}
    return frozenset(
        (category, kind, word)
        for category in images
        for kind, word in annotated
        if seen[category, kind, word] < below * images[category]
    )


def is_common(uncommon: frozenset[CategorySetting], category: str, kind: str, word: str) -> bool:
    """Return whether a setting is not among the uncommon ones."""
    return (category, kind, word) not in uncommon


# FOCUS's attributes of ImageNet's own validation images: ``image, time, weather, locations``, the last
# a list of nine 0 and 1.


COLUMNS = ("image", "time", "weather", "locations")
_LIST = re.compile(r"\[?\s*[01](?:\.0*)?(?:[\s,]+[01](?:\.0*)?)*\s*\]?")


def words_of_list(text: str, where: str) -> list[str]:
    """Return the locations of a list such as ``[0, 1, 0, 0, 0, 0, 0, 0, 0]``, in the order of ``WORDS``."""
    places = WORDS["location"]
    marks = re.findall(r"[01](?:\.0*)?", text) if _LIST.fullmatch(text.strip()) else []
    if len(marks) != len(places):
        raise SoritesError(
            f"{where}: wanted locations as a list of {len(places)} zeros and ones, got {text!r}"
        )
    return [word for word, mark in zip(places, marks, strict=True) if mark.startswith("1")] or [NONE]


def with_categories(
    rows: Sequence[dict[str, Any]],
    file: Path,
    options: Mapping[str, str],
    labels: Labels,
    accept: Mapping[str, frozenset[int]],
) -> tuple[Path, list[dict[str, Any]]]:
    """Return the root of the images, and the rows as those of FOCUS: with the category and the
    label of each image.

    Images of a class that belongs to none of the ten categories are left out with a warning,
    since what is uncommon for them is not known.
    """
    root = path_of(options.get("images", file.parent))
    classes, of = (
        _classes(root, options.get("ground_truth"), labels),
        {label: c for c, some in accept.items() for label in some},
    )
    made, outside = [], 0
    for i, row in enumerate(rows, start=1):
        where = f"{file}, row {i} ({row['image']})"
        if any(row[name] is None for name in COLUMNS) or not isinstance(row["image"], str):
            raise SoritesError(f"{where}: wanted a value in each of {', '.join(COLUMNS)}, and image as text")
        name = PurePosixPath(row["image"]).name
        if name not in classes:
            raise SoritesError(
                f"{where}: {root} has no such image in a class folder; name the folder with ?images=DIR"
            )
        found, label = classes[name]
        if label not in of:
            outside += 1
            continue
        locations = ",".join(words_of_list(str(row["locations"]), where))
        told = {
            "file_name": found,
            "category": of[label],
            "locations": locations,
            "label": label,
            "where": where,
        }
        made.append({**row, **told})
    if not made:
        raise SoritesError(f"{file}: none of its {len(rows)} images is of a class of {', '.join(accept)}")
    if outside:
        warnings.warn(
            f"{outside} of {len(rows)} images are of none of the categories and are left out", stacklevel=4
        )
    return root, made


def _classes(root: Path, ground_truth: str | None, labels: Labels) -> dict[str, tuple[str, int | None]]:
    """Map the name of each image to its path below the root and its label, None where that is not
    among the labels.
    """
    position = {id_: i for i, id_ in enumerate(labels.ids)}
    if ground_truth is not None:
        return _told(ground_truth, root, labels)
    if not is_dir(root):
        raise SoritesError(
            f"focus: wanted images=DIR, the folder of ImageNet's validation images, got {root}"
        )
    found: dict[str, tuple[str, int | None]] = {}
    for image in sorted(root.rglob("*")):
        if re.fullmatch(r"n\d{8}", image.parent.name) and is_file(image):
            found[image.name] = (image.relative_to(root).as_posix(), position.get(image.parent.name))
    return found


def _told(ground_truth: str, root: Path, labels: Labels) -> dict[str, tuple[str, int | None]]:
    found: dict[str, tuple[str, int | None]] = {}
    for number, line in enumerate(lines(path_of(ground_truth), "lines of file name and class"), start=1):
        if not line.strip():
            continue
        path, _, name = line.strip().rpartition(" ")
        if not path:
            raise SoritesError(
                f"{ground_truth}, line {number}: wanted a file name and a class with a space between them, got"
                f" {line!r}"
            )
        relative = PurePosixPath(path.strip())
        position = whole(name)
        known = name in labels.ids or (position is not None and position < len(labels))
        found[relative.name] = (relative.as_posix(), labels.find(name) if known else None)
    return found


FOCUS_COLUMNS = ("file_name", "category", "time", "weather", "locations")
DATABASE, TABLE = "annotations.db", "annotations"
# The share of a category's images below which ``?uncommon=counts`` calls a setting uncommon.
BELOW = "0.11"
# The two published tables of uncommon settings by name, and whether rocks are uncommon for birds in
# them.
VERSIONS = {"evaluation": False, "notebook": True}
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "uncommon": (), "below": (), "bird_rocks": ("common", "uncommon"), "classes": (), "images": (), "ground_truth": ()
}  # fmt: skip


@add_source
def focus(path: str | None, labels: Labels) -> list[Sample]:
    """Read FOCUS from its folder, or a SQLite, CSV or parquet table with its columns; images lie
    below the table's folder.

    Any ImageNet class of the category counts as right. The attributes are ``class`` (the category),
    ``time``, ``weather`` and one ``location`` for each in the set, with ``common`` null where the
    word is "none". ``?uncommon=evaluation`` (the default) is the table of the published evaluation,
    ``?uncommon=notebook`` that of its notebook, where rocks are uncommon for birds;
    ``?uncommon=FILE`` names another; ``?uncommon=counts&below=0.1`` takes those seen in less than a
    tenth of a category's images. ``?classes=FILE`` names another map to the labels. A table of
    ImageNet's own images takes ``?images=DIR``, the folder of their class folders.
    """
    where, options = split_options("focus", path, OPTIONS)
    file = _file(path_of(where))
    accept = accepted(labels, options.get("classes"))
    root, annotations = file.parent, read_annotations(file)
    if annotations and "image" in annotations[0]:
        root, annotations = with_categories(annotations, file, options, labels, accept)
    elif options.keys() & {"images", "ground_truth"}:
        has = ", ".join(COLUMNS)
        raise SoritesError(
            f"focus: the options images and truth are for a table of ImageNet's images, which has {has}"
        )
    rows = [
        _row(row, row.get("where", f"{file}, row {i} ({row['file_name']})"))
        for i, row in enumerate(annotations, start=1)
    ]
    if not rows:
        raise SoritesError(f"{file} holds no annotations")
    uncommon = _uncommon(rows, options)
    return [_sample(root, row, accept, uncommon) for row in rows]


def _file(path: Path) -> Path:
    found = path / DATABASE if is_dir(path) else path
    if not is_file(found):
        raise SoritesError(
            f"wanted FOCUS's folder with {DATABASE}, or a .db, .csv or .parquet table; got {path}"
        )
    return found


def read_annotations(file: Path) -> list[dict[str, Any]]:
    """Return the rows of an annotation table as they stand; the file is opened read-only."""
    frame = (
        _sqlite(file)
        if file.suffix.lower() not in (".csv", ".parquet")
        else sheet(file, f"the columns {', '.join(FOCUS_COLUMNS)}")
    )
    if "file_name" not in frame.columns and set(COLUMNS) <= set(frame.columns):
        return frame.select(COLUMNS).to_dicts()
    lost = [name for name in FOCUS_COLUMNS if name not in frame.columns]
    if lost:
        raise SoritesError(
            f"{file}: wanted the columns {', '.join(FOCUS_COLUMNS)}; {', '.join(lost)} missing"
        )
    return frame.select(FOCUS_COLUMNS).to_dicts()


def _sqlite(file: Path) -> pl.DataFrame:
    names, rows = table(file, TABLE, "file_name")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _row(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the checked words of a row: its category, and a sorted set of words for each kind of
    attribute.
    """
    listed = row["locations"] if isinstance(row["locations"], list) else [row["locations"]]
    if not all(
        isinstance(word, str)
        for word in (*(row[name] for name in FOCUS_COLUMNS if name != "locations"), *listed)
    ):
        raise SoritesError(f"{where}: wanted a word in each of {', '.join(FOCUS_COLUMNS)}")
    checked: dict[str, Any] = {
        "file": row["file_name"].lstrip("/"),
        "category": row["category"].strip().lower(),
        "where": where,
    }
    if not checked["file"]:
        raise SoritesError(f"{where}: wanted the path of an image as file_name, got {row['file_name']!r}")
    checked["label"] = row.get("label")
    locations = listed if isinstance(row["locations"], list) else row["locations"].split(",")
    for kind, words in (("time", [row["time"]]), ("weather", [row["weather"]]), ("location", locations)):
        checked[kind] = tuple(sorted({_word(kind, word, where) for word in words}))
    return checked


def _word(kind: str, text: str, where: str) -> str:
    word = text.strip().lower().replace("_", " ").replace("-", " ")
    if word not in WORDS[kind]:
        hint = "; put commas between several" if kind == "location" else ""
        raise SoritesError(
            f"{where}: there is no {kind} {text!r}. It is one of {', '.join(WORDS[kind])}{hint}"
        )
    return word


def accepted(labels: Labels, file: str | None = None) -> dict[str, frozenset[int]]:
    """Map each category to the labels that count as right: the category itself if it is a label,
    else its ImageNet classes.
    """
    text = _text(file, "focus_classes.tsv")
    lines = [line.split("\t") for line in text.splitlines()[1:] if line.strip()]
    if any(len(line) < 2 for line in lines):
        raise SoritesError(f"{file}: wanted lines of category, class id and name with tabs between them")
    place = {id_: i for i, id_ in enumerate(labels.ids)}
    found: dict[str, set[int]] = {}
    for category, id_, *_ in lines:
        label = category if category in place else id_
        found.setdefault(category, set()).update({place[label]} if label in place else ())
    return {category: frozenset(some) for category, some in found.items()}


def _text(file: str | None, default: str) -> str:
    """Return the text of a table: the user's file, or the default beside this module."""
    if file is None:
        return files("sorites.sources").joinpath(default).read_text(encoding="utf-8")
    return read_text(path_of(file), "a table of text, with tabs between its columns")


def _uncommon(rows: Sequence[dict[str, Any]], options: Mapping[str, str]) -> frozenset[CategorySetting]:
    chosen = options.get("uncommon")
    if chosen == "counts":
        return inferred(((row["category"], row) for row in rows), _share(options.get("below", BELOW)))
    own = None if chosen in VERSIONS else chosen
    uncommon = read_uncommon(_text(own, "focus_uncommon.tsv"), own or "focus_uncommon.tsv")
    if VERSIONS.get(chosen or "evaluation", False) or options.get("bird_rocks") == "uncommon":
        uncommon |= {("bird", "location", "rocks")}
    return uncommon


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SoritesError(f"focus: below is a share between 0 and 1, got {text!r}") from None


def _sample(
    root: Path,
    row: dict[str, Any],
    accept: Mapping[str, frozenset[int]],
    uncommon: frozenset[CategorySetting],
) -> Sample:
    category = row["category"]
    if not accept.get(category):
        covered = ", ".join(name for name, some in accept.items() if some)
        raise SoritesError(
            f"{row['where']}: the labels do not cover the category {category!r}. They cover"
            f" {covered or 'none'}"
        )
    attrs = [Attr("class", category)]
    for kind in WORDS:
        attrs += [
            Attr(kind, word, None if word == NONE else is_common(uncommon, category, kind, word))
            for word in row[kind]
        ]
    only = next(iter(accept[category])) if len(accept[category]) == 1 else None
    label = row.get("label") if row.get("label") is not None else only
    return Sample(
        row["file"], functools.partial(load, root, row["file"]), label, accept[category], attrs=tuple(attrs)
    )

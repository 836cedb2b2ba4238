"""Read FOCUS as published, or any table with its columns: objects in common and uncommon settings.

    ROOT/annotations.db      SQLite: annotations(file_name, category, time, weather, locations, humans)
    ROOT/cat-night/86.jpeg   the images; file_name is their path with a leading slash

``locations`` is a comma-separated set. The published table of ImageNet images (``image, time, weather,
locations``) is read too. Two tables beside this file map categories to ImageNet classes and list the
uncommon settings of each category; both can be replaced. Kattakinda & Feizi, "FOCUS: Familiar Objects
in Common and Uncommon Settings", ICML 2022.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from sorites.core import Attr, Sample, add_source
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import Labels
from sorites.core.specs import split_options
from sorites.io.paths import is_dir, is_file, path_of
from sorites.io.readers import lines, parse_integer
from sorites.io.readers import text as read_text
from sorites.io.tables import sheet, table
from sorites.sources.sidecar import file_in

# Uncommon settings, from a table or from the counts of an annotated dataset.

# The value of an attribute that cannot be determined; it is neither common nor uncommon.
NONE = "none"

# The allowed values of each attribute.
WORDS: Mapping[str, tuple[str, ...]] = {
    "time": ("day", "night", NONE),
    "weather": ("cloudy", "foggy", "partly cloudy", "raining", "snowing", "sunny", NONE),
    "location": ("forest", "grass", "indoors", "rocks", "sand", "street", "snow", "water", NONE),
}

# A category, an attribute and its value.
CategorySetting = tuple[str, str, str]


def read_uncommon(text: str, name: str) -> frozenset[CategorySetting]:
    """Parse a tab-separated table of uncommon settings: one row per category, one column per attribute,
    comma-separated values.
    """
    head, *lines = [line.split("\t") for line in text.splitlines() if line.strip()] or [[""]]
    if head[0] != "category" or not set(head[1:]) <= set(WORDS):
        raise SoritesError(
            f"{name}: expected the tab-separated columns category, {', '.join(WORDS)}; got {', '.join(head)}"
        )
    uncommon: set[CategorySetting] = set()
    for row, line in enumerate(lines, start=2):
        for kind, cell in zip(head[1:], line[1:], strict=False):
            for word in filter(None, (part.strip().lower() for part in cell.split(","))):
                if word not in WORDS[kind]:
                    raise SoritesError(
                        f"{name}, line {row}: unknown {kind} {word!r}; expected one of"
                        f" {', '.join(WORDS[kind])}"
                    )
                uncommon.add((line[0].strip().lower(), kind, word))
    return frozenset(uncommon)


def infer_uncommon(
    rows: Iterable[tuple[str, Mapping[str, Sequence[str]]]], below: float
) -> frozenset[CategorySetting]:
    """Return the settings that occur in less than the share ``below`` of a category's images.

    An image counts once for each of its values. Only values that occur in some category are considered.
    """
    if not 0 < below < 1:
        raise SoritesError(f"uncommon by counts: below must be a share between 0 and 1, got {below}")
    images: Counter[str] = Counter()
    counts: Counter[CategorySetting] = Counter()
    for category, words in rows:
        images[category] += 1
        counts.update((category, kind, word) for kind in WORDS for word in words[kind] if word != NONE)
    annotated = {(kind, word) for _, kind, word in counts}
    return frozenset(
        (category, kind, word)
        for category in images
        for kind, word in annotated
        if counts[category, kind, word] < below * images[category]
    )


def is_common(uncommon: frozenset[CategorySetting], category: str, kind: str, word: str) -> bool:
    return (category, kind, word) not in uncommon


# The attributes of ImageNet validation images published with FOCUS: image, time, weather, and locations as a
# list of nine zeros and ones.

COLUMNS = ("image", "time", "weather", "locations")
_LIST = re.compile(r"\[?\s*[01](?:\.0*)?(?:[\s,]+[01](?:\.0*)?)*\s*\]?")


def words_of_list(text: str, where: str) -> list[str]:
    """Parse locations such as ``[0, 1, 0, 0, 0, 0, 0, 0, 0]``, in the order of ``WORDS``."""
    words = WORDS["location"]
    marks = re.findall(r"[01](?:\.0*)?", text) if _LIST.fullmatch(text.strip()) else []
    if len(marks) != len(words):
        raise SoritesError(
            f"{where}: expected locations as a list of {len(words)} zeros and ones, got {text!r}"
        )
    return [word for word, mark in zip(words, marks, strict=True) if mark.startswith("1")] or [NONE]


def with_categories(
    rows: Sequence[dict[str, Any]],
    file: Path,
    options: Mapping[str, str],
    labels: Labels,
    accept: Mapping[str, frozenset[int]],
) -> tuple[Path, list[dict[str, Any]]]:
    """Add the category and label of each image to the rows of the ImageNet table.

    Images whose class belongs to none of the categories are dropped with a warning, because their
    uncommon settings are unknown.

    Returns:
        The root of the images, and the rows with the columns of FOCUS.
    """
    root = path_of(options.get("images", file.parent))
    classes = _classes(root, options.get("ground_truth"), labels)
    category_of = {label: category for category, accepted in accept.items() for label in accepted}
    converted: list[dict[str, Any]] = []
    outside = 0
    for i, row in enumerate(rows, start=1):
        where = f"{file}, row {i} ({row['image']})"
        if any(row[name] is None for name in COLUMNS) or not isinstance(row["image"], str):
            raise SoritesError(
                f"{where}: expected a value in each of {', '.join(COLUMNS)}, and image as text"
            )
        name = PurePosixPath(row["image"]).name
        if name not in classes:
            raise SoritesError(
                f"{where}: {root} has no such image in a class folder; pass the folder as ?images=DIR"
            )
        file_name, label = classes[name]
        if label not in category_of:
            outside += 1
            continue
        added = {
            "file_name": file_name,
            "category": category_of[label],
            "locations": ",".join(words_of_list(str(row["locations"]), where)),
            "label": label,
            "where": where,
        }
        converted.append({**row, **added})
    if not converted:
        raise SoritesError(f"{file}: none of its {len(rows)} images has a class of {', '.join(accept)}")
    if outside:
        text = f"{outside} of {len(rows)} images belong to none of the categories and are left out"
        warnings.warn(Notice(text, code="images_without_category", count=outside), stacklevel=4)
    return root, converted


def _classes(root: Path, ground_truth: str | None, labels: Labels) -> dict[str, tuple[str, int | None]]:
    """Map the name of each image to its path below the root and its label, None if not among the labels."""
    position = {id_: i for i, id_ in enumerate(labels.ids)}
    if ground_truth is not None:
        return _read_classes(ground_truth, root, labels)
    if not is_dir(root):
        raise SoritesError(
            f"focus: expected images=DIR, the folder of ImageNet's validation images, got {root}"
        )
    classes: dict[str, tuple[str, int | None]] = {}
    for image in sorted(root.rglob("*")):
        if re.fullmatch(r"n\d{8}", image.parent.name) and is_file(image):
            classes[image.name] = (image.relative_to(root).as_posix(), position.get(image.parent.name))
    return classes


def _read_classes(ground_truth: str, root: Path, labels: Labels) -> dict[str, tuple[str, int | None]]:
    classes: dict[str, tuple[str, int | None]] = {}
    for number, line in enumerate(lines(path_of(ground_truth), "lines of file name and class"), start=1):
        if not line.strip():
            continue
        path, _, name = line.strip().rpartition(" ")
        if not path:
            raise SoritesError(
                f"{ground_truth}, line {number}: expected a file name and a class separated by a space, got"
                f" {line!r}"
            )
        relative = PurePosixPath(path.strip())
        position = parse_integer(name)
        known = name in labels.ids or (position is not None and position < len(labels))
        classes[relative.name] = (relative.as_posix(), labels.find(name) if known else None)
    return classes


FOCUS_COLUMNS = ("file_name", "category", "time", "weather", "locations")
DATABASE, TABLE = "annotations.db", "annotations"
# With ``?uncommon=counts``, settings in less than this share of a category's images are uncommon.
BELOW = "0.11"
# The published tables of uncommon settings, and whether rocks are uncommon for birds in them.
VERSIONS = {"evaluation": False, "notebook": True}
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "uncommon": (),
    "below": (),
    "bird_rocks": ("common", "uncommon"),
    "classes": (),
    "images": (),
    "ground_truth": (),
}


@add_source
def focus(path: str | None, labels: Labels) -> list[Sample]:
    """Read FOCUS from its folder, or a SQLite, CSV or parquet table with its columns; images are below
    the folder of the table.

    Every ImageNet class of the category counts as correct. The attributes are ``class`` (the category),
    ``time``, ``weather`` and one ``location`` per element of the set, with ``common`` null for "none".
    ``?uncommon=evaluation`` (the default) uses the table of the published evaluation,
    ``?uncommon=notebook`` that of its notebook, in which rocks are uncommon for birds,
    ``?uncommon=FILE`` another table, and ``?uncommon=counts&below=0.1`` the settings that occur in less
    than a tenth of a category's images. ``?classes=FILE`` replaces the map from categories to labels. A
    table of ImageNet images needs ``?images=DIR``, the folder with their class folders.
    """
    where, options = split_options("focus", path, OPTIONS)
    file = _file(path_of(where))
    accept = accepted_labels(labels, options.get("classes"))
    root, annotations = file.parent, read_annotations(file)
    if annotations and "image" in annotations[0]:
        root, annotations = with_categories(annotations, file, options, labels, accept)
    elif options.keys() & {"images", "ground_truth"}:
        raise SoritesError(
            "focus: the options images and ground_truth are for a table of ImageNet images, which has the"
            f" columns {', '.join(COLUMNS)}"
        )
    rows = [
        _row(row, row.get("where", f"{file}, row {i} ({row['file_name']})"))
        for i, row in enumerate(annotations, start=1)
    ]
    if not rows:
        raise SoritesError(f"{file} contains no annotations")
    uncommon = _uncommon(rows, options)
    return [_sample(root, row, accept, uncommon) for row in rows]


def _file(path: Path) -> Path:
    file = path / DATABASE if is_dir(path) else path
    if not is_file(file):
        raise SoritesError(
            f"expected the folder of FOCUS with {DATABASE}, or a .db, .csv or .parquet table; got {path}"
        )
    return file


def read_annotations(file: Path) -> list[dict[str, Any]]:
    """Return the unchanged rows of an annotation table; the file is opened read-only."""
    frame = (
        _sqlite(file)
        if file.suffix.lower() not in (".csv", ".parquet")
        else sheet(file, f"the columns {', '.join(FOCUS_COLUMNS)}")
    )
    if "file_name" not in frame.columns and set(COLUMNS) <= set(frame.columns):
        return frame.select(COLUMNS).to_dicts()
    missing = [name for name in FOCUS_COLUMNS if name not in frame.columns]
    if missing:
        raise SoritesError(
            f"{file}: expected the columns {', '.join(FOCUS_COLUMNS)}; missing: {', '.join(missing)}"
        )
    return frame.select(FOCUS_COLUMNS).to_dicts()


def _sqlite(file: Path) -> pl.DataFrame:
    names, rows = table(file, TABLE, "file_name")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _row(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Validate a row; return its category and a sorted tuple of values for each attribute."""
    listed = row["locations"] if isinstance(row["locations"], list) else [row["locations"]]
    if not all(
        isinstance(word, str)
        for word in (*(row[name] for name in FOCUS_COLUMNS if name != "locations"), *listed)
    ):
        raise SoritesError(f"{where}: expected text in each of {', '.join(FOCUS_COLUMNS)}")
    checked: dict[str, Any] = {
        "file": row["file_name"].lstrip("/"),
        "category": row["category"].strip().lower(),
        "where": where,
    }
    if not checked["file"]:
        raise SoritesError(f"{where}: expected the path of an image as file_name, got {row['file_name']!r}")
    checked["label"] = row.get("label")
    locations = listed if isinstance(row["locations"], list) else row["locations"].split(",")
    for kind, words in (("time", [row["time"]]), ("weather", [row["weather"]]), ("location", locations)):
        checked[kind] = tuple(sorted({_word(kind, word, where) for word in words}))
    return checked


def _word(kind: str, text: str, where: str) -> str:
    word = text.strip().lower().replace("_", " ").replace("-", " ")
    if word not in WORDS[kind]:
        hint = "; separate several with commas" if kind == "location" else ""
        raise SoritesError(
            f"{where}: unknown {kind} {text!r}; expected one of {', '.join(WORDS[kind])}{hint}"
        )
    return word


def accepted_labels(labels: Labels, file: str | None = None) -> dict[str, frozenset[int]]:
    """Map each category to its correct labels: the category itself if it is a label, otherwise its
    ImageNet classes.
    """
    text = _text(file, "focus_classes.tsv")
    lines = [line.split("\t") for line in text.splitlines()[1:] if line.strip()]
    if any(len(line) < 2 for line in lines):
        raise SoritesError(f"{file}: expected tab-separated lines of category, class id and name")
    index_of = {id_: i for i, id_ in enumerate(labels.ids)}
    accept: dict[str, set[int]] = {}
    for category, id_, *_ in lines:
        label = category if category in index_of else id_
        accept.setdefault(category, set()).update({index_of[label]} if label in index_of else ())
    return {category: frozenset(indices) for category, indices in accept.items()}


def _text(file: str | None, default: str) -> str:
    """Return the text of the user's table, or of the default one."""
    if file is None:
        return files("sorites.sources").joinpath(default).read_text(encoding="utf-8")
    return read_text(path_of(file), "a text table with tab-separated columns")


def _uncommon(rows: Sequence[dict[str, Any]], options: Mapping[str, str]) -> frozenset[CategorySetting]:
    chosen = options.get("uncommon")
    if chosen == "counts":
        return infer_uncommon(((row["category"], row) for row in rows), _share(options.get("below", BELOW)))
    own = None if chosen in VERSIONS else chosen
    uncommon = read_uncommon(_text(own, "focus_uncommon.tsv"), own or "focus_uncommon.tsv")
    if VERSIONS.get(chosen or "evaluation", False) or options.get("bird_rocks") == "uncommon":
        uncommon |= {("bird", "location", "rocks")}
    return uncommon


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SoritesError(f"focus: below must be a share between 0 and 1, got {text!r}") from None


def _sample(
    root: Path,
    row: dict[str, Any],
    accept: Mapping[str, frozenset[int]],
    uncommon: frozenset[CategorySetting],
) -> Sample:
    category = row["category"]
    if not accept.get(category):
        covered = ", ".join(name for name, accepted in accept.items() if accepted)
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
    return Sample(row["file"], file_in(root, row["file"]), label, accept[category], attrs=tuple(attrs))

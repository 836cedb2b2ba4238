"""Read FOCUS as published, or any table with its columns: things in common and uncommon settings.

    ROOT/annotations.db      SQLite: annotations(file_name, category, time, weather, locations, humans)
    ROOT/cat-night/86.jpeg   the pictures; file_name is their path with a leading slash

``locations`` is a set: words with commas between them. The table of ImageNet's own pictures (``image, time, weather,
locations``) is read too. Two tables beside this file say which ImageNet classes a category stands for, and which settings are
uncommon for it; both can be replaced.
Kattakinda & Feizi, "FOCUS: Familiar Objects in Common and Uncommon Settings", ICML 2022.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import Attr, Sample, add_source
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.reading.databases import table
from sorites.reading.frames import sheet
from sorites.reading.places import is_dir, is_file, path_of
from sorites.reading.texts import text as read_text
from sorites.sources._focus_imagenet import COLUMNS as IMAGENET_COLUMNS
from sorites.sources._focus_imagenet import with_categories
from sorites.sources._options import split_options
from sorites.sources._sidecar import load
from sorites.sources._uncommon import NONE, WORDS, CategorySetting, inferred, is_common, read_uncommon

COLUMNS = ("file_name", "category", "time", "weather", "locations")
DATABASE, TABLE = "annotations.db", "annotations"
BELOW = "0.11"
"""The share of a category's pictures below which ``?uncommon=counts`` calls a setting uncommon."""
VERSIONS = {"evaluation": False, "notebook": True}
"""The two published tables of uncommon settings by name, and whether rocks are uncommon for birds in them."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "uncommon": (), "below": (), "bird_rocks": ("common", "uncommon"), "classes": (), "images": (), "truth": ()
}  # fmt: skip


@add_source
def focus(path: str | None, labels: Labels) -> list[Sample]:
    """Read FOCUS from its folder, or a SQLite, CSV or parquet table with its columns; pictures lie below the table's folder.

    Any ImageNet class of the category counts as right. The attributes are ``class`` (the category), ``time``, ``weather`` and one
    ``location`` for each in the set, with ``common`` null where the word is "none". ``?uncommon=evaluation`` (the default) is the
    table of the published evaluation, ``?uncommon=notebook`` that of its notebook, where rocks are uncommon for birds;
    ``?uncommon=FILE`` names another; ``?uncommon=counts&below=0.1`` takes those seen in less than a tenth of a category's
    pictures. ``?classes=FILE`` names another map to the labels. A table of ImageNet's own pictures takes ``?images=DIR``, the
    folder of their class folders.
    """
    where, options = split_options("focus", path, OPTIONS)
    file = _file(path_of(where))
    accept = accepted(labels, options.get("classes"))
    root, annotations = file.parent, read_annotations(file)
    if annotations and "image" in annotations[0]:
        root, annotations = with_categories(annotations, file, options, labels, accept)
    elif options.keys() & {"images", "truth"}:
        has = ", ".join(IMAGENET_COLUMNS)
        raise SoritesError(f"focus: the options images and truth are for a table of ImageNet's pictures, which has {has}")
    rows = [_row(row, row.get("where", f"{file}, row {i} ({row['file_name']})")) for i, row in enumerate(annotations, start=1)]
    if not rows:
        raise SoritesError(f"{file} holds no annotations")
    uncommon = _uncommon(rows, options)
    return [_sample(root, row, accept, uncommon) for row in rows]


def _file(path: Path) -> Path:
    found = path / DATABASE if is_dir(path) else path
    if not is_file(found):
        raise SoritesError(f"wanted FOCUS's folder with {DATABASE}, or a .db, .csv or .parquet table; got {path}")
    return found


def read_annotations(file: Path) -> list[dict[str, Any]]:
    """Return the rows of an annotation table as they stand; the file is opened read-only."""
    frame = _sqlite(file) if file.suffix.lower() not in (".csv", ".parquet") else sheet(file, f"the columns {', '.join(COLUMNS)}")
    if "file_name" not in frame.columns and set(IMAGENET_COLUMNS) <= set(frame.columns):
        return frame.select(IMAGENET_COLUMNS).to_dicts()
    lost = [name for name in COLUMNS if name not in frame.columns]
    if lost:
        raise SoritesError(f"{file}: wanted the columns {', '.join(COLUMNS)}; {', '.join(lost)} missing")
    return frame.select(COLUMNS).to_dicts()


def _sqlite(file: Path) -> pl.DataFrame:
    names, rows = table(file, TABLE, "file_name")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _row(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the checked words of a row: its category, and a sorted set of words for each kind of attribute."""
    listed = row["locations"] if isinstance(row["locations"], list) else [row["locations"]]
    if not all(isinstance(word, str) for word in (*(row[name] for name in COLUMNS if name != "locations"), *listed)):
        raise SoritesError(f"{where}: wanted a word in each of {', '.join(COLUMNS)}")
    checked: dict[str, Any] = {"file": row["file_name"].lstrip("/"), "category": row["category"].strip().lower(), "where": where}
    if not checked["file"]:
        raise SoritesError(f"{where}: wanted the path of a picture as file_name, got {row['file_name']!r}")
    checked["label"] = row.get("label")
    locations = listed if isinstance(row["locations"], list) else row["locations"].split(",")
    for kind, words in (("time", [row["time"]]), ("weather", [row["weather"]]), ("location", locations)):
        checked[kind] = tuple(sorted({_word(kind, word, where) for word in words}))
    return checked


def _word(kind: str, text: str, where: str) -> str:
    word = text.strip().lower().replace("_", " ").replace("-", " ")
    if word not in WORDS[kind]:
        hint = "; put commas between several" if kind == "location" else ""
        raise SoritesError(f"{where}: there is no {kind} {text!r}. It is one of {', '.join(WORDS[kind])}{hint}")
    return word


def accepted(labels: Labels, file: str | None = None) -> dict[str, frozenset[int]]:
    """Map each category to the labels that count as right: the category itself if it is a label, else its ImageNet classes."""
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
    root: Path, row: dict[str, Any], accept: Mapping[str, frozenset[int]], uncommon: frozenset[CategorySetting]
) -> Sample:
    category = row["category"]
    if not accept.get(category):
        covered = ", ".join(name for name, some in accept.items() if some)
        raise SoritesError(f"{row['where']}: the labels do not cover the category {category!r}. They cover {covered or 'none'}")
    attrs = [Attr("class", category)]
    for kind in WORDS:
        attrs += [Attr(kind, word, None if word == NONE else is_common(uncommon, category, kind, word)) for word in row[kind]]
    only = next(iter(accept[category])) if len(accept[category]) == 1 else None
    label = row.get("label") if row.get("label") is not None else only
    return Sample(row["file"], functools.partial(load, root, row["file"]), label, accept[category], attrs=tuple(attrs))

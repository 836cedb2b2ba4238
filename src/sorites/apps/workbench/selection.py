"""What a selection of images becomes: a folder of images, a tag that metrics can group by, or an annotation
task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from sorites.apps.annotation.begin import begin
from sorites.apps.annotation.images import from_run, origin_of
from sorites.apps.annotation.task import load
from sorites.apps.workbench.library import RunEntry
from sorites.apps.workbench.query import Query
from sorites.apps.workbench.turning import png
from sorites.core.errors import SoritesError
from sorites.core.table import write_facts
from sorites.io.files import write_bytes

# Images that are written at once, and those of an annotation task.
MAX_WRITTEN, MAX_ANNOTATED = 2000, 20_000
# The attributes of tagged images begin with this; one for each tag, so that an image can have several.
TAG, TAGGED = "tag.", "yes"
# The list of the images in a folder.
LIST = "images.csv"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def write_folder(entry: RunEntry, query: Query, folder: Path) -> int:
    """Write the selected images as PNG files by class, with a list that ``csv:`` reads; return their number.

    Files that exist are kept, so that an interrupted call can be repeated.

    Raises:
        SoritesError: There are none or too many, or an image is not available.
    """
    opened = entry.opened()
    rows = opened.rows(query).to_list()
    if not 0 < len(rows) <= MAX_WRITTEN:
        raise SoritesError(f"a folder takes 1 to {MAX_WRITTEN} images, and {len(rows)} are selected")
    chosen = opened.images.select("sample_id", "image_id", "shift", "severity", "class")[rows]
    paths = list(_paths(chosen))
    for row, path in zip(rows, paths, strict=True):
        if not (folder / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(png(entry.image(row)), folder / path)
    listed = chosen.select("sample_id", "shift", "severity", pl.col("class").cast(pl.String).alias("label"))
    listed = listed.with_columns(image=pl.Series(paths, dtype=pl.String))
    write_bytes(listed.write_csv().encode(), folder / LIST)
    return len(rows)


def _paths(chosen: pl.DataFrame) -> Iterator[str]:
    """Yield a path below a folder for each image; names of classes are made safe."""
    for line in chosen.iter_rows(named=True):
        label = re.sub(r"[^A-Za-z0-9_-]+", "_", line["class"] or "no_label").strip("_") or "no_label"
        yield f"{label}/{line['image_id']}.png"


def tag(entry: RunEntry, query: Query, name: str) -> int:
    """Give the selected images the attribute ``tag.NAME`` with the value "yes"; return their number.

    Metrics group by it (``sorites.accuracy(run, by=["model", "attrs.tag.NAME"])``). The same name replaces
    the earlier tag.

    Raises:
        SoritesError: There are none, or the name is not valid.
    """
    checked_name(name)
    opened = entry.opened()
    rows = opened.rows(query).to_list()
    if not rows:
        raise SoritesError("no image is selected")
    entry_of_tag = pl.struct(
        key=pl.lit(f"{TAG}{name}"), value=pl.lit(TAGGED), common=pl.lit(None, pl.Boolean)
    )
    facts = opened.images[rows].select("image_id", attrs=pl.concat_list(entry_of_tag))
    write_facts(entry.folder, f"tag-{name}", facts)
    return len(rows)


def begin_annotation(entry: RunEntry, query: Query, task: str, file: Path) -> int:
    """Make an annotation file of the selected images, with their list beside it; return their number.

    Args:
        entry: The run.
        query: The selection.
        task: A built-in task of ``sorites annotate``, or the path of a .toml file.
        file: The annotation file; one that exists with the same task gets the images that it lacks.

    Raises:
        SoritesError: There are none or too many, they cannot be made again, or the file has another task.
    """
    opened = entry.opened()
    ids = opened.images["image_id"][opened.rows(query).to_list()].unique(maintain_order=True).to_list()
    if not 0 < len(ids) <= MAX_ANNOTATED:
        raise SoritesError(
            f"an annotation task takes 1 to {MAX_ANNOTATED} images, and {len(ids)} are selected"
        )
    _, text = load(task)
    entries = from_run(entry.folder, frozenset(ids))
    if len(entries) < len(ids):
        raise SoritesError(
            f"{len(ids) - len(entries)} of {len(ids)} images cannot be made again for annotators"
        )
    write_bytes(pl.DataFrame({"image_id": ids}).write_csv().encode(), file.with_suffix(".csv"))
    begin(file, text, entries, origin_of(entry.folder))
    return len(ids)


def checked_name(name: str) -> str:
    """Return the name of a selection.

    Raises:
        SoritesError: It is not valid.
    """
    if not _NAME.fullmatch(name):
        raise SoritesError("a selection needs a name of letters, digits, dots, dashes and underscores")
    return name

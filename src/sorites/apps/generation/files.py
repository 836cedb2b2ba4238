"""The files of folders of generated images: which are damaged, and which are drawn again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from sorites.core.errors import Damaged, Notice, SoritesError
from sorites.core.table import parquet
from sorites.io.digests import (
    Verifier,
    all_shards_in,
    digest_of,
    digest_of_file,
    named_digests,
    read_sealed,
)
from sorites.io.listed import (
    ANOTHER,
    RESTORE,
    listed_files,
    listed_problems,
    others,
    read_verified,
    refuse,
    unchanged,
    write_listed,
)
from sorites.sources.written import GENERATED, REPEAT, STYLED, ImageTable

# Folders of a folder of styles: parts of its measurements, and counts per cell.
PARTS, CELLS = "prompts", "cells"
# The dataset card, which publishers edit.
CARD = "README.md"
FORMATS = ("jpg", "png")


def check_format(kind: str) -> None:
    """Raise an error for a format in which images are not written."""
    if kind not in FORMATS:
        raise SoritesError(f"the image format must be {' or '.join(FORMATS)}, got {kind!r}")


def known_digests(out: Path, table: ImageTable) -> dict[str, str]:
    """Return the digests of the images that a folder has so far; empty if its table is damaged.

    A damaged table is written again from the images, and then compared with its digest.
    """
    try:
        return table.digests(out)
    except Damaged as error:
        if error.fields.get("path") != str(out / table.table):
            raise
        return {}


def intact(record: Path, name: str) -> bytes | None:
    """Return the content of a listed file; None if it is missing, damaged or not listed, and must be made.

    Raises:
        Damaged: The record is damaged.
    """
    accepted = listed_files(record).get(name, ())
    try:
        return read_verified(record.parent / name, accepted, REPEAT)
    except Damaged:
        return None


def delete_damaged(out: Path, digests: Mapping[str, str]) -> dict[str, str]:
    """Delete the images of a folder that differ from their digests, so that they are drawn again.

    Returns:
        The digests of the other images.
    """
    existing = {out / name: digest for name, digest in digests.items() if (out / name).exists()}
    damaged = Verifier(out).problems(existing)
    for path in damaged:
        path.unlink()
    if damaged:
        text = f"{len(damaged)} images of {out} were damaged and are drawn again, first {min(damaged)}"
        warnings.warn(Notice(text, code="damaged_images", count=len(damaged)), stacklevel=3)
    return {name: digest for name, digest in digests.items() if (out / name).exists()}


def write_table(out: Path, table: ImageTable, rows: pl.DataFrame) -> None:
    """Write the table of the images, and list its digest in the record.

    Raises:
        Damaged: The former table is damaged, and the images are not those that it had.
    """
    data, record = parquet(rows), out / table.record
    accepted = listed_files(record).get(table.table)
    if accepted and (out / table.table).exists():
        is_whole = digest_of_file(out / table.table) in accepted
        if not is_whole and digest_of(data) not in accepted:
            remedy = f"{ANOTHER} If you delete it, the images are taken as they are."
            raise Damaged(out / table.table, "it has changed, and so have the images that it lists", remedy)
    write_listed(record, table.table, data)


def check_generated(folder: Path) -> str:
    """Compare every file of a folder of images along sliders with its digest.

    Raises:
        Damaged: Files are damaged; the message names them.
        SoritesError: The folder is not finished.
    """
    return _check(folder, GENERATED)


def check_styled(folder: Path) -> str:
    """Compare every file of a folder of images in styles with its digest.

    Raises:
        Damaged: Files are damaged; the message names them.
        SoritesError: The folder is not finished.
    """
    return _check(folder, STYLED)


def _check(folder: Path, table: ImageTable) -> str:
    files = listed_files(folder / table.record)
    if table.table not in files:
        raise SoritesError(f"the images in {folder} are not finished. {REPEAT}")
    refuse(listed_problems(folder, files), REPEAT)
    images = table.digests(folder)
    refuse(listed_problems(folder, images), REPEAT)
    shards = [path for paths in all_shards_in(folder / PARTS, ".parquet").values() for path in paths]
    refuse(Verifier(folder, remember=False).problems(named_digests(shards)), REPEAT)
    cells = sorted((folder / CELLS).glob("cov_[0-9]*_sem_[0-9]*.json"))
    for cell in cells:
        read_sealed(cell, RESTORE)
    own = [path.relative_to(folder).as_posix() for path in (*shards, *cells)]
    text = f"generated images: {len(images)} images and {len(files) + 1} other files"
    return unchanged(text, others(folder, {*files, *images, table.record, CARD, *own}))

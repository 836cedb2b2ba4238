"""The digests of images in folders that Sorites wrote: generated images, images in styles, and collections.

A folder of generated images has a sealed record, which lists a table, which has a digest per image. A
collection has a journal of its images. Published datasets and folders of users have neither.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.core.errors import Damaged
from sorites.io.listed import RESTORE, listed_files, read_listed
from sorites.io.logs import read_log
from sorites.io.paths import is_file

REPEAT = "Repeat the command that made the images, which recreates damaged files."
# The journal of a collection and the files that ``collect`` writes beside it.
JOURNAL, IMAGES, CREDITS = "journal.jsonl", "images.parquet", "ATTRIBUTION.md"
# How many folders the listed files of a folder are below it at most.
MAX_DEPTH = 4
START_OVER = "Move the file away to start over; existing images are not downloaded again."


@dataclass(frozen=True)
class ImageTable:
    """A table with a digest per image, and the record that lists the table.

    Attributes:
        record: The name of the record.
        table: The name of the table, whose column ``path`` has paths in the folder.
        column: The column of the digests.
    """

    record: str
    table: str
    column: str

    def digests(self, root: Path) -> dict[str, str]:
        """Return the digests of the images by path in the folder; empty if no record lists the table.

        Raises:
            Damaged: The record or the table is damaged.
        """
        record = root / self.record
        if not is_file(record) or self.table not in listed_files(record, RESTORE):
            return {}
        data = read_listed(record, self.table, REPEAT)
        try:
            frame = pl.read_parquet(io.BytesIO(data), columns=["path", self.column])
            return {str(path): str(digest) for path, digest in frame.iter_rows()}
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise Damaged(root / self.table, str(error).split("\n")[0], REPEAT) from None

    def verify(self, file: Path) -> None:
        """Compare a file with its digest, if the record of its folder lists it.

        Raises:
            Damaged: The record or the file is damaged.
        """
        for root in file.parents[:MAX_DEPTH]:
            name, record = file.relative_to(root).as_posix(), root / self.record
            if is_file(record) and name in listed_files(record, RESTORE):
                read_listed(record, name, REPEAT)


# Images along sliders, in the layout of CNS-Bench, and images in styles, in the layout of IS-OOD.
GENERATED = ImageTable("generation.json", "manifest.parquet", "hash")
STYLED = ImageTable("styles.json", "images.parquet", "hash")


def is_collection(root: Path) -> bool:
    """Return whether a folder is a finished or interrupted collection."""
    return all(is_file(root / name) for name in (JOURNAL, IMAGES, CREDITS))


def collected_digests(root: Path) -> dict[str, str]:
    """Return the digests (SHA-256) of the images of a collection by file name.

    Raises:
        Damaged: The journal is damaged.
    """
    outcomes: dict[str, tuple[str, str]] = {}
    for entry in read_log(root / JOURNAL, START_OVER):
        image = entry.get("image")
        if isinstance(image, dict):
            outcomes[str(image.get("key"))] = str(image.get("file") or ""), str(image.get("sha256") or "")
    return {file: digest for file, digest in outcomes.values() if file}

"""Check that the files of a dataset that Sorites wrote are unchanged."""

from __future__ import annotations

from pathlib import Path

from sorites.core.errors import SoritesError
from sorites.io.listed import listed_files, listed_problems, others, refuse, unchanged
from sorites.io.tables import parquet
from sorites.sources import sidecar


def check_dataset(folder: Path) -> str:
    """Compare every file of a dataset with its digest.

    Args:
        folder: A folder with ``sorites.json``.

    Returns:
        A summary, which names files that do not belong to the dataset.

    Raises:
        Damaged: Files are damaged; the message names them.
        SoritesError: The dataset is not finished.
    """
    files = listed_files(folder / sidecar.RECORD, sidecar.RESTORE)
    if sidecar.NAME not in files:
        raise SoritesError(f"the dataset in {folder} is not finished. {sidecar.REBUILD}")
    refuse(listed_problems(folder, files), sidecar.REBUILD)
    images = dict(parquet(folder / sidecar.NAME, columns=["path", sidecar.DIGEST]).iter_rows())
    refuse(listed_problems(folder, images), sidecar.REBUILD)
    foreign = others(folder, {*images, *files, sidecar.RECORD})
    return unchanged(f"dataset: {len(images)} images and {len(files)} other files", foreign)

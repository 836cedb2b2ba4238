"""Check that the files of a collection are unchanged."""

from __future__ import annotations

from pathlib import Path

from sorites.apps.collecting.records import Journal
from sorites.io.listed import listed_problems, others, refuse, unchanged
from sorites.sources.written import CREDITS, IMAGES, JOURNAL

REPEAT = "Repeat the command that collected the images, which downloads damaged images again."


def check_collection(folder: Path) -> str:
    """Compare every image of a collection, its table and its credits with the journal.

    Args:
        folder: A folder with ``journal.jsonl``.

    Returns:
        A summary, which names files that do not belong to the collection.

    Raises:
        Damaged: Files are damaged; the message names them.
    """
    journal = Journal.read(folder)
    images = {outcome.file: outcome.sha256 or "" for outcome in journal.outcomes.values() if outcome.file}
    refuse(listed_problems(folder, images), REPEAT)
    refuse(listed_problems(folder, journal.tables), REPEAT)
    tables = journal.tables or {IMAGES: (), CREDITS: ()}
    return unchanged(f"collection: {len(images)} images", others(folder, {*images, *tables, JOURNAL}))

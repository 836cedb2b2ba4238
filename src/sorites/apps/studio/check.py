"""Check that the files of a capture are unchanged."""

from __future__ import annotations

from pathlib import Path

from sorites.apps.studio.folder import REMOVE_VERDICT, REVIEWS_NAME, SETUP
from sorites.apps.studio.sheets import FOLDER as SHEETS
from sorites.io.listed import RESTORE, listed_files, listed_problems, others, refuse, unchanged
from sorites.sources.captures import RECORD, SHOTS, VERDICTS, events, photograph_digests

REPEAT = "Repeat the capture, which takes damaged photographs again and writes damaged references again."


def check_capture(folder: Path) -> str:
    """Compare every file of a capture with its digest.

    Args:
        folder: A folder with ``capture.json``.

    Returns:
        A summary, which names files that do not belong to the capture.

    Raises:
        Damaged: Files are damaged; the message names them.
    """
    files = listed_files(folder / RECORD, RESTORE)
    refuse(listed_problems(folder, files), REPEAT)
    verdicts = sum(1 for _ in events(folder, REVIEWS_NAME, VERDICTS, REMOVE_VERDICT))
    taken = photograph_digests(folder)
    refuse(listed_problems(folder, taken), REPEAT)
    known = {*files, *taken, RECORD, SHOTS, REVIEWS_NAME, SETUP}
    foreign = [path for path in others(folder, known) if not path.is_relative_to(folder / SHEETS)]
    text = f"capture: {len(files)} references and grids, {len(taken)} photographs, {verdicts} verdicts"
    return unchanged(text, [path for path in foreign if path.suffix != ".lock"])

"""Check that the files of a passport, and of the runs that it rests on, are unchanged."""

from __future__ import annotations

from pathlib import Path

from sorites.analysis.passport.battery import LOCK, RUNS, context_in, run_folders
from sorites.analysis.passport.document import FILES, REPEAT, read_passport
from sorites.core.errors import SoritesError
from sorites.datasets.check import check_dataset
from sorites.evaluation.integrity.check import check_run
from sorites.io.listed import listed_files, listed_problems, others, refuse, unchanged


def check_passport(folder: Path) -> str:
    """Compare every file of a passport with its digest, and check its runs.

    Args:
        folder: A folder with ``passport.json``.

    Returns:
        A summary, which names files that do not belong to the passport.

    Raises:
        Damaged: Files are damaged; the message names them.
        SoritesError: The passport is not finished, or a run is damaged or incomplete.
    """
    passport = read_passport(folder)
    if not (folder / FILES).exists():
        raise SoritesError(f"the passport in {folder} is not finished: it has no {FILES}. {REPEAT}")
    files = listed_files(folder / FILES, REPEAT)
    refuse(listed_problems(folder, files), REPEAT)
    for run in run_folders(folder, [run.part for run in passport.runs]).values():
        check_run(run)
    context = context_in(folder)
    if context.is_dir():
        check_dataset(context)
    foreign = [path for path in others(folder, {*files, FILES, LOCK}) if not _is_below(path, folder, context)]
    return unchanged(f"passport: {len(files) + 1} files and {len(passport.runs)} runs", foreign)


def _is_below(path: Path, folder: Path, context: Path) -> bool:
    return path.is_relative_to(folder / RUNS) or path.is_relative_to(context)

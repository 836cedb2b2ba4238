"""Check a suite, or any folder that Sorites wrote.

This may be a run, a dataset, a training, a passport, a capture, generated images or a collection.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sorites.analysis.passport.document import FILES
from sorites.analysis.passport.document import NAME as PASSPORT
from sorites.apps.collecting.check import check_collection
from sorites.apps.generation.files import check_generated, check_styled
from sorites.apps.studio.check import check_capture
from sorites.core.errors import SoritesError
from sorites.core.messages import in_python, option
from sorites.datasets.check import check_dataset
from sorites.evaluation.integrity import check as runs
from sorites.evaluation.storage.record import DATASET
from sorites.io.listed import RUN
from sorites.io.paths import is_file
from sorites.io.stores import to_path
from sorites.models.trained import RECORD, UNFINISHED
from sorites.reports.passport.check import check_passport
from sorites.sources.captures import RECORD as CAPTURE
from sorites.sources.written import GENERATED, JOURNAL, STYLED
from sorites.training.check import check_training

# Checks a folder and returns a summary.
Check = Callable[[Path], str]
# By the file that tells the kind of a folder.
KINDS: dict[str, Check] = {
    DATASET: check_dataset,
    RECORD: check_training,
    UNFINISHED: check_training,
    PASSPORT: check_passport,
    FILES: check_passport,
    CAPTURE: check_capture,
    GENERATED.record: check_generated,
    STYLED.record: check_styled,
    JOURNAL: check_collection,
}


def check(what: str | Path, repair: bool = False) -> str:
    """Check that a suite can run, or that a folder is complete and unchanged, and return a summary.

    Args:
        what: A folder written by Sorites, a built-in suite or a .toml file.
        repair: Move damaged files of a run folder to RUN/damaged, so that the run can recreate them.

    Raises:
        SoritesError: The run is incomplete, files are damaged, or the suite cannot run.
    """
    return in_python(summary(what, repair))


def summary(what: str | Path, repair: bool = False) -> str:
    """Like ``check``, but keep references to options, so that the caller can render them."""
    folder = to_path(what)
    kind = None if is_file(folder / RUN) else next((n for n in KINDS if is_file(folder / n)), None)
    if kind is None:
        return runs.summary(what, repair)
    if repair:
        raise SoritesError(f"{option('repair')} needs a run folder, got {what}")
    return KINDS[kind](folder)

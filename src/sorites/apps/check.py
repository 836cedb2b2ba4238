"""Check a suite, or any folder that Sorites wrote.

This may be a run, a dataset, a training, a passport, a capture, generated images or a collection.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sorites.analysis.passport.battery import LOCK, RUNS, context_in, run_folders
from sorites.analysis.passport.document import FILES, REPEAT, read_passport
from sorites.analysis.passport.document import NAME as PASSPORT
from sorites.apps.collecting.records import Journal
from sorites.apps.generation.files import check_generated, check_styled
from sorites.apps.studio.folder import REMOVE_VERDICT, REVIEWS_NAME, SETUP
from sorites.apps.studio.sheets import FOLDER as SHEETS
from sorites.core.errors import SoritesError
from sorites.core.messages import in_python, option
from sorites.datasets.check import check_dataset
from sorites.evaluation.integrity import check as runs
from sorites.evaluation.integrity.check import check_run
from sorites.evaluation.storage.record import DATASET
from sorites.io.digests import Verifier, all_shards_in, named_digests
from sorites.io.listed import RESTORE, RUN, Digests, listed_files, listed_problems, others, refuse, unchanged
from sorites.io.paths import is_file
from sorites.io.stores import to_path
from sorites.models.trained import RECORD, TRAIN_AGAIN, UNFINISHED
from sorites.sources.captures import RECORD as CAPTURE
from sorites.sources.captures import SHOTS, VERDICTS, events, photograph_digests
from sorites.sources.written import CREDITS, GENERATED, IMAGES, JOURNAL, STYLED
from sorites.training import history
from sorites.training.checkpoints import REMEDY, SUFFIX
from sorites.training.loop import PAGE
from sorites.training.session import FAILED_IMAGES_FILE, is_finished

# What to do about damaged files of a collection, and of a capture.
COLLECT_AGAIN = "Repeat the command that collected the images, which downloads damaged images again."
CAPTURE_AGAIN = (
    "Repeat the capture, which takes damaged photographs again and writes damaged references again."
)
# Files of a training that are written for readers only.
DERIVED = (PAGE, FAILED_IMAGES_FILE, history.FILE)


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
    refuse(listed_problems(folder, images), COLLECT_AGAIN)
    refuse(listed_problems(folder, journal.tables), COLLECT_AGAIN)
    tables = journal.tables or {IMAGES: (), CREDITS: ()}
    return unchanged(f"collection: {len(images)} images", others(folder, {*images, *tables, JOURNAL}))


def check_capture(folder: Path) -> str:
    """Compare every file of a capture with its digest.

    Args:
        folder: A folder with ``capture.json``.

    Returns:
        A summary, which names files that do not belong to the capture.

    Raises:
        Damaged: Files are damaged; the message names them.
    """
    files = listed_files(folder / CAPTURE, RESTORE)
    refuse(listed_problems(folder, files), CAPTURE_AGAIN)
    verdicts = sum(1 for _ in events(folder, REVIEWS_NAME, VERDICTS, REMOVE_VERDICT))
    taken = photograph_digests(folder)
    refuse(listed_problems(folder, taken), CAPTURE_AGAIN)
    known = {*files, *taken, CAPTURE, SHOTS, REVIEWS_NAME, SETUP}
    foreign = [path for path in others(folder, known) if not path.is_relative_to(folder / SHEETS)]
    text = f"capture: {len(files)} references and grids, {len(taken)} photographs, {verdicts} verdicts"
    return unchanged(text, [path for path in foreign if path.suffix != ".lock"])


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


def check_training(folder: Path) -> str:
    """Compare every file of a training with its digest.

    Args:
        folder: A folder with ``model.json`` or ``train.json``.

    Returns:
        A summary, which names files that do not belong to the training.

    Raises:
        Damaged: Files are damaged; the message names them.
    """
    finished = is_finished(folder)
    records = [name for name in (UNFINISHED, RECORD) if (folder / name).exists()]
    files: dict[str, Digests] = {}
    for record in records:
        files |= listed_files(folder / record, TRAIN_AGAIN)
    refuse(listed_problems(folder, files), TRAIN_AGAIN)
    shards = [path for paths in all_shards_in(folder, SUFFIX).values() for path in paths]
    refuse(Verifier(folder, remember=False).problems(named_digests(shards)), REMEDY)
    known = {*files, *records, *DERIVED, *(path.name for path in shards)}
    state = "finished training" if finished else f"unfinished training, {len(shards)} checkpoints"
    return unchanged(f"{state}: {len(known & {*files, *records})} files", others(folder, known))


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

"""The verb ``log``: log a finished run to an experiment tracker, with its page and passport."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sorites.analysis.passport.document import FILES
from sorites.analysis.passport.document import NAME as PASSPORT
from sorites.core.errors import MissingFile, UnfinishedRun
from sorites.core.table import RunLike, run_folder
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.options import LogOptions
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.trackers.base import curves, facts_of, naming, tracker
from sorites.reports.report import PAGE, report


def log(
    run: str | Path | RunLike,
    to: str,
    *,
    passport: str | Path | None = None,
    max_pixels: int | None = None,
) -> str:
    """Log a finished run to an experiment tracker: curves, its page and perhaps a passport.

    The severity is the step. Trackers count steps in integers, so the severities of a shift are multiplied by
    1, 10, 100 or 1000 until they are whole numbers; the severity itself is logged beside each number.

    Args:
        run: A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN. Also a ``Run``.
        to: The tracker: mlflow[:URI], wandb[:PROJECT] or tensorboard[:DIR].
        passport: Also store the files of this passport folder.
        max_pixels: Refuse images with more pixels than this; default: 100 million.

    Returns:
        Where the results are.

    Raises:
        MissingExtra: The tracker is not installed.
        UnfinishedRun: The run is not finished.
    """
    return log_run(LogOptions(run=run, to=to, passport=passport, max_pixels=max_pixels))


def log_run(options: LogOptions) -> str:
    """Log a run, like ``log``, with options as one object."""
    start, folder = tracker(options.to), run_folder(options.run)
    record = read_record(folder)
    if (incomplete := unfinished(folder)) is not None:
        raise UnfinishedRun(folder, f"{incomplete.found()} Repeat the run to finish it, then log it.")
    files = [] if options.passport is None else _files(Path(options.passport))
    with tempfile.TemporaryDirectory() as kept:
        page = report(options.run, Path(kept) / PAGE, max_pixels=options.max_pixels)
        points = curves(folder)
        logging = start(folder.name, facts_of(record))
        finished = False
        try:
            with naming(options.to.partition(":")[0]):
                logging.points(points)
                for file in (page, *files):
                    logging.file(file)
            finished = True
        finally:
            logging.close(failed=not finished)
    return logging.where


def _files(folder: Path) -> list[Path]:
    if not (folder / PASSPORT).is_file():
        raise MissingFile(folder, f"{folder} is no passport: it has no {PASSPORT}")
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != FILES)

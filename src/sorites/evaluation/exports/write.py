"""The verb ``export``: write the results of a run in the format of other tools."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sorites.core.errors import SoritesError, UnfinishedRun, UnknownName
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import RunLike, run_folder
from sorites.evaluation.exports.coco import Exporting, write_coco
from sorites.evaluation.exports.fiftyone import write_fiftyone
from sorites.evaluation.exports.openood import write_openood
from sorites.evaluation.exports.tables import write_csv, write_huggingface, write_parquet
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.options import ExportOptions
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.run import Run
from sorites.evaluation.storage.record import read_record
from sorites.io.paths import exists, is_dir

# The writers by the name of the format.
WRITERS: dict[str, Callable[[Exporting], None]] = {
    "coco": write_coco,
    "openood": write_openood,
    "csv": write_csv,
    "parquet": write_parquet,
    "huggingface": write_huggingface,
    "fiftyone": write_fiftyone,
}


def export(
    run: str | Path | RunLike,
    kind: str,
    *,
    out: str | Path,
    models: Sequence[str] = (),
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Write the results of a run in the format of other tools, all of it or nothing.

    Args:
        run: A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN. Also a ``Run``.
        kind: Format: coco (boxes), openood (result tables), csv, parquet, huggingface (a dataset) or
            fiftyone.
        out: The folder to make.
        models: Export only these models of the run.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: Creates a progress bar.

    Returns:
        The folder.
    """
    options = ExportOptions(run=run, kind=kind, out=out, models=models, max_pixels=max_pixels)
    with options.reading():
        return export_run(options, bar)


def _plan(options: ExportOptions) -> Plan:
    return options.run.plan if isinstance(options.run, Run) else plan_of(run_folder(options.run))


def export_run(options: ExportOptions, bar: Bar | None = None) -> Path:
    """Write the results of a run, like ``export``, with options as one object."""
    if options.kind not in WRITERS:
        formats = f"The formats are {', '.join(WRITERS)}."
        raise UnknownName("format", options.kind, WRITERS, formats)
    folder, out = run_folder(options.run), Path(options.out)
    record = read_record(folder)
    for name in options.models:
        if name not in record.models:
            raise UnknownName("model of this run", name, record.models, f"It has {', '.join(record.models)}.")
    if (incomplete := unfinished(folder)) is not None:
        raise UnfinishedRun(folder, f"{incomplete.found()} Repeat the run to finish it, then export it.")
    if exists(out) and (not is_dir(out) or any(out.iterdir())):
        raise SoritesError(f"{out} is not empty; choose another {option('out', 'DIR')}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".sorites-", suffix=".tmp", dir=out.parent))
        try:
            WRITERS[options.kind](
                Exporting(folder, record, options.models, draft, bar, lambda: _plan(options))
            )
            if out.exists():
                out.rmdir()
            draft.chmod(0o755)
            draft.rename(out)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise SoritesError(f"cannot write {out}: {error}") from error
    return out

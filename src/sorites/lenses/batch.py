"""Trace a batch of prescriptions into a folder of lenses in parallel; refused ones do not end it, and reasons are kept."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.errors import SoritesError, UnknownName
from sorites.files import write_bytes
from sorites.lenses.store import SUFFIX, existing_names, load
from sorites.lenses.trace import Glasses, name_of, trace_file
from sorites.progress import Bar
from sorites.reading.places import is_dir, is_file

if TYPE_CHECKING:
    import polars as pl


def trace_all(
    paths: Iterable[str],
    folder: Path,
    focus: str = "best",
    workers: int = 1,
    glasses: Glasses | None = None,
    bar: Bar | None = None,
) -> pl.DataFrame:
    """Trace a batch, ``workers`` lenses at a time, and return one row per prescription: lens, accepted, reason.

    A refused prescription does not end the batch. A lens that is the same as an earlier one is removed again and counts as
    refused.
    """
    import polars as pl

    given = list(dict.fromkeys(found for path in paths for found in _prescriptions(path)))
    twice = [name for name, n in Counter(map(name_of, given)).items() if n > 1]
    if twice:
        raise SoritesError(f"two prescriptions would both become the lens {twice[0]}; rename one of the files")
    _make_folder(folder)
    before = existing_names(folder)
    work = functools.partial(trace_file, folder=str(folder), focus=focus, glasses=dict(glasses or {}))
    tick = bar("tracing", len(given)) if bar else lambda n: None
    rows = []
    for row in _each(work, given, workers):
        rows.append(row)
        tick(1)
    _remove_duplicates(rows, folder, before)
    schema = {"lens": pl.String, "accepted": pl.Boolean, "reason": pl.String}
    table = pl.DataFrame([{key: row[key] for key in schema} for row in rows], schema=schema)
    _keep_reasons(table, folder / "refused.csv")
    return table


def _prescriptions(path: str) -> list[str]:
    """Return the objective or file of that name, or the .zmx files of a folder; anything else raises an error before any work."""
    from sorites.optics.tracing.assembly import OBJECTIVES

    where = Path(path)
    if path in OBJECTIVES or is_file(where):
        return [path]
    if is_dir(where):
        found = sorted(str(one) for one in where.rglob("*") if one.suffix.lower() == ".zmx" and one.is_file())
        if not found:
            raise SoritesError(f"no .zmx files in {path}; give .zmx files or folders that have some")
        return found
    raise UnknownName("lens file or objective", path, OBJECTIVES, "Give .zmx files, folders of them, or optiland's objectives.")


def _make_folder(folder: Path) -> None:
    """Create the folder, or say why it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoritesError(f"cannot make the folder {folder}: {error.strerror}; choose another --out DIR") from error


def _keep_reasons(table: pl.DataFrame, sheet: Path) -> None:
    """Write the refusals of this batch to a CSV file, and keep those that earlier batches wrote for other lenses."""
    import polars as pl

    from sorites.reading.frames import csv

    refused = table.filter(~pl.col("accepted"))
    if sheet.is_file():
        earlier = csv(sheet, infer_schema=True, schema=table.schema)
        refused = pl.concat([earlier.join(table, on="lens", how="anti"), refused])
    write_bytes(refused.write_csv().encode(), sheet)


def _each(work: functools.partial[dict[str, Any]], given: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    """Yield the row of each prescription in order, computed in this process or in several."""
    if workers == 1 or len(given) < 2:
        yield from map(work, given)
        return
    with one_thread_each(), ProcessPoolExecutor(min(workers, len(given)), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, given)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limit processes that start within this context to one thread each, so that they do not compete for the cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ |= dict.fromkeys(names, "1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _remove_duplicates(rows: list[dict[str, Any]], folder: Path, before: Sequence[str]) -> None:
    """Remove duplicates: of equal lenses the one that the folder had ``before`` stays, or else the first of the batch."""
    batch = {row["lens"]: row for row in rows if row["accepted"]}
    first = _known(folder, sorted(set(existing_names(folder)) - {row["lens"] for row in rows}))
    for name in [*(name for name in before if name in batch), *batch]:
        row = batch[name]
        twin = first.setdefault(row["digest"], name)
        if row["accepted"] and twin != name:
            (folder / f"{name}{SUFFIX}").unlink()
            row.update(accepted=False, reason=f"it is the same lens as {twin}")


def _known(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the names of lenses in the folder by digest, without those that cannot be read."""
    found = {}
    for name in names:
        with suppress(SoritesError):
            found[str(load(folder, name).about["lens"])] = name
    return found

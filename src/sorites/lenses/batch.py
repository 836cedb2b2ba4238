"""A batch of prescriptions into a folder of lenses, side by side: it goes on past what is refused and keeps the reasons."""

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
from sorites.lenses.store import SUFFIX, held, load
from sorites.lenses.trace import Glasses, name_of, trace_file
from sorites.progress import Bar

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
    """A batch, ``workers`` lenses at a time; it goes on past what is refused, and a lens that came before is set aside."""
    import polars as pl

    given = list(dict.fromkeys(found for path in paths for found in _prescriptions(path)))
    twice = [name for name, n in Counter(map(name_of, given)).items() if n > 1]
    if twice:
        raise SoritesError(f"two prescriptions would be the lens {twice[0]}: give one of the files another name")
    _made(folder)
    before = held(folder)
    work = functools.partial(trace_file, folder=str(folder), focus=focus, glasses=dict(glasses or {}))
    tick = bar("tracing", len(given)) if bar else lambda n: None
    rows = []
    for row in _each(work, given, workers):
        rows.append(row)
        tick(1)
    _set_aside(rows, folder, before)
    schema = {"lens": pl.String, "accepted": pl.Boolean, "reason": pl.String}
    table = pl.DataFrame([{key: row[key] for key in schema} for row in rows], schema=schema)
    _keep_reasons(table, folder / "refused.csv")
    return table


def _prescriptions(path: str) -> list[str]:
    """The objective or file of that name, or the .zmx files of a folder; what is none of these is an error before any work."""
    from sorites.optics.tracing.assembly import OBJECTIVES

    where = Path(path)
    if path in OBJECTIVES or where.is_file():
        return [path]
    if where.is_dir():
        found = sorted(str(one) for one in where.rglob("*") if one.suffix.lower() == ".zmx" and one.is_file())
        if not found:
            raise SoritesError(f"{path} holds no .zmx files")
        return found
    raise UnknownName("lens file or objective", path, OBJECTIVES, "Give .zmx files, folders of them, or optiland's objectives.")


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoritesError(f"cannot make the folder {folder}: {error.strerror}; choose another --out DIR") from error


def _keep_reasons(table: pl.DataFrame, sheet: Path) -> None:
    """What this batch refused, and what earlier ones did of other names."""
    import polars as pl

    refused = table.filter(~pl.col("accepted"))
    if sheet.is_file():
        earlier = pl.read_csv(sheet, schema=table.schema)
        refused = pl.concat([earlier.join(table, on="lens", how="anti"), refused])
    write_bytes(refused.write_csv().encode(), sheet)


def _each(work: functools.partial[dict[str, Any]], given: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    if workers == 1 or len(given) < 2:
        yield from map(work, given)
        return
    with _one_thread_each(), ProcessPoolExecutor(min(workers, len(given)), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, given)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started meanwhile keep to one thread, so that they do not wait for each other."""
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


def _set_aside(rows: list[dict[str, Any]], folder: Path, before: Sequence[str]) -> None:
    """Of lenses that are the same, the one that the folder had ``before`` stays, or else the first of the batch."""
    batch = {row["lens"]: row for row in rows if row["accepted"]}
    first = _known(folder, sorted(set(held(folder)) - {row["lens"] for row in rows}))
    for name in [*(name for name in before if name in batch), *batch]:
        row = batch[name]
        twin = first.setdefault(row["digest"], name)
        if row["accepted"] and twin != name:
            (folder / f"{name}{SUFFIX}").unlink()
            row.update(accepted=False, reason=f"it is the same lens as {twin}")


def _known(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Digest to name of lenses in the folder, without those that cannot be read."""
    found = {}
    for name in names:
        with suppress(SoritesError):
            found[str(load(folder, name).about["lens"])] = name
    return found

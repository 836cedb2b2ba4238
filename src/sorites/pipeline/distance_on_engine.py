"""Distances on an engine: encode the pictures asked about and the familiar ones, then search, each in units that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sorites.engines import Engine
from sorites.errors import SoritesError
from sorites.files import locked, sweep_temporaries
from sorites.frame import Distance
from sorites.labels import Labels
from sorites.pipeline import neighbours, slices
from sorites.pipeline.encoding import about_encoded
from sorites.pipeline.left_out import LeftOut
from sorites.pipeline.levels import Distances, made_from, with_levels
from sorites.pipeline.neighbours import found_rows, make_bank, search_all, search_names
from sorites.pipeline.rulers import halves_of
from sorites.pipeline.slices import Pictures, encode_slices, judge_of, slices_of
from sorites.progress import Bar


def work_of(out: Path) -> Path:
    """Return the folder beside a file of distances that keeps the work on them."""
    return out.with_name(f"{out.stem}.work")


@contextmanager
def afresh() -> Iterator[None]:
    """Let this process hold nothing of an earlier job, and nothing of this one after it."""
    for room in (slices, neighbours):
        room.forget()
    try:
        yield
    finally:
        for room in (slices, neighbours):
            room.forget()


def distance_of_slices(
    source: str, how: Distance, labels: Labels, work: Path, engine: Engine, workers: int | None, bar: Bar | None = None
) -> Distances:
    """Measure every picture of a source on an engine. Features and distances are kept in ``work``: stopped, it goes on there."""
    with locked(work, "work", ".sorites.lock"), afresh():
        sweep_temporaries(work)
        asked, many = slices_of(Pictures(source, labels), how.referee), workers or engine.cores()
        encode_slices(work, asked, engine, many, bar("measuring", asked.count) if bar else lambda n: None)
        groups = [[file] for file in asked.files(work)]
        return search_encoded(groups, "sample_id", how, labels, work, engine, many, LeftOut(), bar)


def search_encoded(
    groups: Sequence[Sequence[Path]],
    key: str,
    how: Distance,
    labels: Labels,
    work: Path,
    engine: Engine,
    workers: int,
    left: LeftOut,
    bar: Bar | None,
) -> Distances:
    """Encode the familiar pictures on an engine, search them for all encoded ones, and return distances with levels."""
    familiar = slices_of(Pictures(how.against, labels, familiar=True, limit=how.limit), how.referee)
    encode_slices(work, familiar, engine, workers, bar("familiar", familiar.count) if bar else lambda n: None)
    judge, gone = judge_of(how.referee), LeftOut("familiar pictures")
    for file in familiar.files(work):
        gone.join(*about_encoded(file, "sample_id")["left_out"])
    bank = make_bank(work, familiar.files(work), halves_of(how, judge, labels), how.k, how.neighbours)
    search_all(bank, work, groups, key, engine, workers, bar("searching", len(groups)) if bar else lambda n: None)
    rows = found_rows(bank, work, groups, key, left)
    if not rows.height:
        raise SoritesError(f"there are no pictures for referee {judge.name} to look at")
    searched = search_names(bank, [file for files in groups for file in files], key)
    return with_levels(rows, how, made_from(judge.version, bank.rows, (gone, left), searched))

"""Distance of images to in-distribution images, in meaning and in appearance, with levels.

Algorithm 1 of the IS-OOD paper: an encoder's features are decomposed into two halves; the distance of
an image in a half is its cosine distance to the k-th nearest in-distribution image; levels are
intervals of it, counted from 1. Lower is nearer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from sorites import core
from sorites.core import ImageU8, Source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, open_labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import write, write_facts
from sorites.encoders.features import features
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.facts import encoding as slices
from sorites.evaluation.facts import neighbours
from sorites.evaluation.facts.encoding import (
    Images,
    about_encoded,
    encode_run,
    encode_slices,
    judge_of,
    slices_of,
)
from sorites.evaluation.facts.neighbours import found_rows, make_bank, search_all, search_names
from sorites.evaluation.facts.rulers import (
    HALVES,
    LEVEL_COLUMNS,
    Distances,
    halves_of,
    metadata_of,
    options_record,
    rows_of,
    ruler,
    ruler_metadata,
    ticked,
    with_levels,
)
from sorites.evaluation.images import LeftOut, readable, shots
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.storage.shards import read_facts, read_record
from sorites.evaluation.worker import chosen_engine, share_plan
from sorites.io.files import locked, sweep_temporaries, write_bytes
from sorites.io.paths import is_file
from sorites.io.readers import numbers
from sorites.io.stores import to_path
from sorites.io.validation import problems
from sorites.suites.suite import Distance


def work_of(out: Path) -> Path:
    """Return the folder beside a file of distances that stores intermediate results."""
    return out.with_name(f"{out.stem}.work")


@contextmanager
def afresh() -> Iterator[None]:
    """Clear the caches of this process before and after a job."""
    for module in (slices, neighbours):
        module.forget()
    try:
        yield
    finally:
        for module in (slices, neighbours):
            module.forget()


def distance_of_slices(
    source: str,
    how: Distance,
    labels: Labels,
    work: Path,
    engine: Engine,
    workers: int | None,
    bar: Bar | None = None,
) -> Distances:
    """Measure every image of a source on an engine; ``work`` stores features and distances, so that
    stopped work resumes.
    """
    with locked(work, "work", ".sorites.lock"), afresh():
        sweep_temporaries(work)
        queries, processes = slices_of(Images(source, labels), how.encoder), workers or engine.cores()
        encode_slices(
            work, queries, engine, processes, bar("measuring", queries.count) if bar else lambda n: None
        )
        groups = [[file] for file in queries.files(work)]
        return search_encoded(groups, "sample_id", how, labels, work, engine, processes, LeftOut(), bar)


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
    """Encode the in-distribution images on an engine, search them for all encoded images, and return
    distances with levels.
    """
    in_distribution = slices_of(
        Images(how.against, labels, in_distribution=True, limit=how.limit), how.encoder
    )
    encode_slices(
        work, in_distribution, engine, workers, bar("id", in_distribution.count) if bar else lambda n: None
    )
    encoder, unreadable = judge_of(how.encoder), LeftOut("in-distribution images")
    for file in in_distribution.files(work):
        unreadable.join(*about_encoded(file, "sample_id")["left_out"])
    bank = make_bank(
        work, in_distribution.files(work), halves_of(how, encoder, labels), how.k, how.neighbours
    )
    search_all(
        bank, work, groups, key, engine, workers, bar("searching", len(groups)) if bar else lambda n: None
    )
    rows = found_rows(bank, work, groups, key, left)
    if not rows.height:
        raise SoritesError(f"there are no images for encoder {encoder.name} to encode")
    searched = search_names(bank, [file for files in groups for file in files], key)
    return with_levels(rows, how, metadata_of(encoder.version, bank.rows, (unreadable, left), searched))


# The name of the files in ``facts/`` with distances.
NAME = "distance"
# The folder in a run for in-distribution features and distances computed on an engine.
WORK = "neighbours"


def distance_options(sem_edges: str = "", cov_edges: str = "", **options: Any) -> Distance:
    """Return distance options with edges given as text, such as ``"0.1,0.2"``."""
    edges = [
        numbers(text, name) if text else ()
        for name, text in ((option("sem_edges", None), sem_edges), (option("cov_edges", None), cov_edges))
    ]
    return _validate({**options, "sem_edges": edges[0], "cov_edges": edges[1]})


def _validate(options: Mapping[str, Any]) -> Distance:
    try:
        return Distance(**options)
    except ValidationError as error:
        raise SoritesError(f"distance, {problems(error, Distance)[0]}") from error


def distance(
    what: str | Path,
    how: Distance | None = None,
    labels: str | None = None,
    out: str | Path = "distance.parquet",
    bar: Bar | None = None,
    engine: str | Engine | None = None,
    workers: int | None = None,
    **options: Any,
) -> Distances:
    """Measure the images of a run folder or of a source.

    Distances of a run become facts beside its table; those of a source are written to ``out``. With an
    engine, features and distances are stored (for a source, in a folder beside ``out``), so that
    stopped work resumes.

    Args:
        what: A run folder, or the name of a source.
        how: The options; or pass them as keywords.
        labels: The classes of a source; the default accepts images of any class.
        out: The file for the distances of a source.
        bar: A progress bar.
        engine: An engine or its name.
        workers: The number of processes on the engine.
        **options: Keys of a suite's ``[distance]``: ``distance("runs/demo", encoder="cifar",
            against="cifar:train")``.
    """
    what = str(what)
    how = how or _validate(options)
    if is_file(to_path(what) / "run.json"):
        if labels:
            raise SoritesError(f"{what} is a run and has labels already: remove {option('labels', None)}")
        return distance_of_run(plan_of(what), to_path(what), how, bar, engine, workers)
    space = labels_of(labels) if labels else open_labels(core.encoder(how.encoder).labels)
    if engine is not None:
        measured = distance_of_slices(
            what,
            how,
            space,
            work_of(to_path(out)),
            ENGINES.get(engine) if isinstance(engine, str) else engine,
            workers,
            bar,
        )
    else:
        measured = distance_of_source(core.source(what, space), how, space, bar)
    write(measured.rows, to_path(out))
    return replace(measured, record={**measured.record, "path": str(out)})


def distance_of_source(
    source: Source, how: Distance, labels: Labels | None = None, bar: Bar | None = None
) -> Distances:
    """Measure every image of a source; unreadable images are left out and counted."""
    against = ruler(how, labels, bar)
    keys: list[str] = []
    unreadable = LeftOut()
    tick = bar("measuring", len(source)) if bar else lambda n: None

    def images() -> Iterator[tuple[ImageU8, bool]]:
        for sample, image in readable(source, unreadable):
            keys.append(sample.id)
            yield image, sample.framed

    image_features = features(against.encoder, ticked(images(), tick))
    record = ruler_metadata(against, unreadable, against.searched(image_features))
    return with_levels(rows_of("sample_id", keys, against.distances(image_features)), how, record)


def distance_of_run(
    plan: Plan,
    folder: Path,
    how: Distance,
    bar: Bar | None = None,
    engine: str | Engine | None = None,
    workers: int | None = None,
) -> Distances:
    """Measure every image of a run; distances and levels become facts beside its table, with the edges in
    a record.

    Images are recomputed, not stored. Distances that were measured with the same options are reused.
    With an engine, tasks of the run are encoded and searched there, and their results are stored in the
    folder, so that stopped work resumes.
    """
    if (previous := _measured_before(folder, how)) is not None:
        return previous
    tick = bar("measuring", plan.images()) if bar else lambda n: None
    unreadable = LeftOut("images")
    if engine is None:
        against = ruler(how, plan.labels, bar)
        keys: list[str] = []
        image_features = features(against.encoder, ticked(_images(plan, keys, unreadable), tick))
        metadata = ruler_metadata(against, unreadable, against.searched(image_features))
        measured = with_levels(rows_of("image_id", keys, against.distances(image_features)), how, metadata)
    else:
        chosen = chosen_engine(engine, plan)
        processes, work = workers or chosen.cores(), folder / WORK
        with share_plan(folder, plan, read_info(folder)["run_id"]), locked(folder), afresh():
            sweep_temporaries(folder)
            groups = encode_run(folder, plan, judge_of(how.encoder), chosen, processes, tick)
            measured = search_encoded(
                groups, "image_id", how, plan.labels, work, chosen, processes, unreadable, bar
            )
    path = write_facts(folder, NAME, as_facts(measured.rows, measured.record.get("searched", {})))
    record = {**measured.record, "asked": options_record(how, "json"), "path": str(path)}
    write_bytes(json.dumps(record, indent=1).encode(), folder / "facts" / f"{NAME}.json")
    return replace(measured, record=record)


def _measured_before(folder: Path, how: Distance) -> Distances | None:
    """Return the distances of the run if they were measured with the same options."""
    record, facts = folder / "facts" / f"{NAME}.json", folder / "facts" / f"{NAME}.parquet"
    if not record.exists() or not facts.exists():
        return None
    previous, rows = read_record(record), read_facts(facts)
    complete = (
        isinstance(previous.get("edges"), dict)
        and "path" in previous
        and set(LEVEL_COLUMNS.values()) <= set(rows.columns)
    )
    return Distances(rows, previous) if complete and _same(previous.get("asked"), how) else None


def _same(options: Any, how: Distance) -> bool:
    try:
        return Distance.model_validate(options) == how
    except ValidationError:
        return False


def as_facts(rows: pl.DataFrame, searched: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Return the rows of a run's images for ``table.write_facts``; approximate searches are part of the
    measure's name.
    """
    names = {
        half: f"{half}, {(searched or {})[half]}" if half in (searched or {}) else half for half in HALVES
    }
    entries = pl.concat_list([pl.struct(measure=pl.lit(names[half]), value=pl.col(half)) for half in HALVES])
    return rows.select("image_id", "sem_level", "cov_level", degrees=entries)


def _images(plan: Plan, keys: list[str], unreadable: LeftOut) -> Iterator[tuple[ImageU8, bool]]:
    """Yield the images of a run and append their ids to ``keys``; count unreadable images."""
    for unit in plan.units():
        for shot in shots(plan, unit):
            if shot.image is None:
                unreadable.add(f"{shot.sample.id}, {shot.shift}", shot.error or "no image")
            else:
                keys.append(plan.image_id(shot.sample, shot.shift, shot.setting))
                yield shot.image, plan.is_framed(shot.sample)


def write_published_levels(plan: Plan, folder: Path) -> Path | None:
    """Write levels that a source provides (attributes ``sem_level`` and ``cov_level``) as facts of the
    run.
    """
    rows = []
    for shift, samples in plan.groups.items():
        for sample in samples if shift not in plan.shifts else ():
            attrs = {attr.key: attr.value for attr in sample.attrs}
            if "sem_level" in attrs and "cov_level" in attrs:
                key = plan.image_id(sample, sample.shift, sample.setting)
                rows.append((key, int(attrs["sem_level"]), int(attrs["cov_level"])))
    facts = pl.DataFrame(
        rows, {"image_id": pl.String, "sem_level": pl.Int32, "cov_level": pl.Int32}, orient="row"
    )
    return write_facts(folder, "published_levels", facts) if rows else None

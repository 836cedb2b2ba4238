"""Distance of images to in-distribution images, in meaning and in appearance, with levels.

Algorithm 1 of the IS-OOD paper: an encoder's features are decomposed into two halves; the distance of
an image in a half is its cosine distance to the k-th nearest in-distribution image; levels are
intervals of it, counted from 1. Lower is nearer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError

from sorites import core
from sorites.core import ImageU8, Source
from sorites.core.errors import Information, SoritesError, tell
from sorites.core.labels import Labels, OpenLabels, open_labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import RunLike, run_folder, write, write_facts
from sorites.encoders.features import features
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.facts import decomposition as decompositions
from sorites.evaluation.facts import encoding as slices
from sorites.evaluation.facts import neighbours
from sorites.evaluation.facts.encoding import (
    Images,
    about_encoded,
    encode_run,
    encode_slices,
    judge_of,
    run_images,
    slices_of,
)
from sorites.evaluation.facts.neighbours import found_rows, make_bank, search_all, search_names
from sorites.evaluation.facts.rulers import (
    HALVES,
    LEVEL_COLUMNS,
    DistanceRecord,
    Distances,
    halves_of,
    images_of,
    levels_by,
    rows_of,
    ruler,
    ticked,
    with_levels,
)
from sorites.evaluation.images import LeftOut, readable
from sorites.evaluation.options import DistanceOptions
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import read_facts, read_metadata, write_metadata
from sorites.evaluation.worker import Running, chosen_engine
from sorites.io.files import locked, sweep_temporaries
from sorites.io.paths import is_file
from sorites.io.readers import lines
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
    source: Images,
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
        queries, processes = slices_of(source, how.encoder), workers or engine.cores()
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
    return with_levels(rows, how, encoder.version, bank.rows, (unreadable, left), searched)


# The name of the files in ``facts/`` with distances.
NAME = "distance"
# The folder in a run for in-distribution features and distances computed on an engine.
WORK = "neighbours"


def checked_distance(**options: Any) -> Distance:
    """Return the distance of a suite (``[distance]``), with an error that users understand."""
    try:
        return Distance(**options)
    except ValidationError as error:
        raise SoritesError(f"distance, {problems(error, Distance)[0]}") from error


def distance(
    what: str | Path | RunLike | None = None,
    *,
    against: str,
    texts: str | Path | None = None,
    encoder: str = "cifar",
    decomposition: str | None = None,
    labels: str | None = None,
    limit: int | None = None,
    k: int = 10,
    levels: int = 8,
    sem_edges: Sequence[float] = (),
    cov_edges: Sequence[float] = (),
    neighbours: str = "exact",
    out: str | Path = "distance.parquet",
    engine: str | Engine | None = None,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float = 0.0,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> Distances:
    """Measure the distance of images from in-distribution images.

    Distances of a run become facts beside its table; those of a source are written to ``out``. With an
    engine, features and distances are stored (for a source, in a folder beside ``out``), so that
    stopped work resumes.

    Args:
        what: A source of images, or a run folder. Also a ``Run``.
        against: In-distribution images.
        texts: Measure texts instead: a file with one per line.
        encoder: Image-text encoder: cifar, cifar:N, open_clip:NAME@WEIGHTS, python:module:name.
        decomposition: A decomposition, made by "sorites decompose train".
        labels: Use only in-distribution images of these classes, one per line; the source keeps its own
            classes; default: all images.
        limit: Use the first N in-distribution images of a fixed random order.
        k: Use the distance to the k-th nearest neighbour.
        levels: Number of levels per axis.
        sem_edges: Inner edges of the semantic levels.
        cov_edges: Inner edges of the covariate levels.
        neighbours: Search exactly, or approximately with a faiss index (ivf, hnsw), whose recall is measured.
        out: The file for the distances of a source.
        engine: Encode and search in resumable tasks on local, processes or ray; run the same command to
            continue. Also an ``Engine``.
        workers: Number of tasks to run in parallel; default: one per core.
        address: Head of the Ray cluster, for the engine ray; default: RAY_ADDRESS, or a local Ray instance.
        gpus_per_worker: Fraction of a GPU for each worker of the engine ray.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: A progress bar.

    Returns:
        The distances, with their levels.

    Example:
        sorites.distance("runs/demo", against="cifar:train")
    """
    options = DistanceOptions(
        what=what,
        against=against,
        texts=texts,
        encoder=encoder,
        decomposition=decomposition,
        labels=labels,
        limit=limit,
        k=k,
        levels=levels,
        sem_edges=sem_edges,
        cov_edges=cov_edges,
        neighbours=neighbours,
        out=out,
        engine=engine,
        workers=workers,
        address=address,
        gpus_per_worker=gpus_per_worker,
        max_pixels=max_pixels,
    )
    return measure_distance(options, bar)


def measure_distance(options: DistanceOptions, bar: Bar | None = None) -> Distances:
    """Measure distances, like ``distance``, with options as one object."""
    if (options.what is None) == (options.texts is None):
        raise SoritesError(
            f"expected a source of images, a run folder, or {option('texts', 'FILE')} (exactly one)"
        )
    engine = _chosen_engine(options)
    if options.encoder.partition(":")[0] == "cifar":
        tell(_note_on_cifar())
    how = checked_distance(
        encoder=options.encoder,
        against=options.against,
        decomposition=options.decomposition,
        limit=options.limit,
        k=options.k,
        levels=options.levels,
        sem_edges=tuple(options.sem_edges),
        cov_edges=tuple(options.cov_edges),
        neighbours=options.neighbours,
    )
    with options.reading():
        if options.what is None:
            return distance_of_file(str(options.texts), how, options.labels, Path(options.out), bar)
        where = options.what if isinstance(options.what, str) else str(run_folder(options.what))
        return distance_of(where, how, options.labels, options.out, bar, engine, options.workers)


def _chosen_engine(options: DistanceOptions) -> str | Engine | None:
    """Return the engine, if one is wanted."""
    if options.engine is not None:
        if options.texts is not None:
            raise SoritesError(
                f"{option('engine', None)} does not apply to {option('texts', None)}: texts are measured in"
                " this process"
            )
        return options.chosen_engine()
    if options.workers or options.address or options.gpus_per_worker:
        names = [option(name, None) for name in ("workers", "address", "gpus_per_worker")]
        raise SoritesError(
            f"{', '.join(names)} require an engine: {option('engine', 'local')}, processes or ray"
        )
    return None


def _note_on_cifar() -> Information:
    from sorites.encoders.cifar import CLASSES

    classes = f"the default encoder, cifar, has ten classes at 32 px ({', '.join(CLASSES)})"
    other = option("encoder", "open_clip:NAME@WEIGHTS")
    return Information(f"{classes}; for other images pass {other}", code="encoder")


def distance_of(
    what: str,
    how: Distance,
    labels: str | None = None,
    out: str | Path = "distance.parquet",
    bar: Bar | None = None,
    engine: str | Engine | None = None,
    workers: int | None = None,
) -> Distances:
    """Measure the images of a run folder or of a source."""
    if is_file(to_path(what) / "run.json"):
        if labels:
            raise SoritesError(f"{what} is a run and has labels already: remove {option('labels', None)}")
        run = Running(to_path(what), plan_of(what), read_record(what).run_id)
        return distance_of_run(run, how, bar, engine, workers)
    space = _classes(labels, how)
    # The measured images may have any class.
    own = OpenLabels(space.ids, space.names, dict(space.aliases))
    if engine is not None:
        measured = distance_of_slices(
            Images(what, own),
            how,
            space,
            work_of(to_path(out)),
            ENGINES.get(engine) if isinstance(engine, str) else engine,
            workers,
            bar,
        )
    else:
        measured = distance_of_source(core.source(what, own), how, space, bar)
    write(measured.rows, to_path(out))
    return measured.having(path=str(out))


def _classes(labels: str | None, how: Distance) -> Labels:
    """Return the classes of the in-distribution images: those of ``labels``, which must occur, or any."""
    if not labels:
        return open_labels(core.encoder(how.encoder).labels)
    space = labels_of(labels)
    if not images_of(how.against, space).samples:
        names = ", ".join(space.names[:3]) + (" ..." if len(space) > 3 else "")
        raise SoritesError(
            f"{option('labels', labels)}: expected classes of {how.against}, which has no image of {names}."
            f" Name its classes, or use all its images without {option('labels', None)}."
        )
    return space


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
    rows = rows_of("sample_id", keys, against.distances(image_features))
    return levels_by(against, rows, how, [unreadable], against.searched(image_features))


def distance_of_run(
    run: Running,
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
    plan, folder = run.plan, run.folder
    if (previous := _measured_before(folder, how)) is not None:
        return previous
    tick = bar("measuring", plan.images()) if bar else lambda n: None
    unreadable = LeftOut("images")
    if engine is None:
        against = ruler(how, plan.labels, bar)
        keys: list[str] = []

        def images() -> Iterator[tuple[ImageU8, bool]]:
            for name, image, framed in run_images(plan, plan.units(), unreadable):
                keys.append(name)
                yield image, framed

        image_features = features(against.encoder, ticked(images(), tick))
        rows = rows_of("image_id", keys, against.distances(image_features))
        measured = levels_by(against, rows, how, [unreadable], against.searched(image_features))
    else:
        chosen = chosen_engine(engine, plan)
        processes, work = workers or chosen.cores(), folder / WORK
        with locked(folder), afresh():
            sweep_temporaries(folder)
            groups = encode_run(run, judge_of(how.encoder), chosen, processes, tick)
            measured = search_encoded(
                groups, "image_id", how, plan.labels, work, chosen, processes, unreadable, bar
            )
    path = write_facts(folder, NAME, as_facts(measured.rows, measured.record.searched))
    measured = measured.having(asked=how, path=str(path))
    write_metadata(folder, NAME, measured.record.as_json())
    return measured


def _measured_before(folder: Path, how: Distance) -> Distances | None:
    """Return the distances of the run if they were measured with the same options."""
    content, rows = read_metadata(folder, NAME), read_facts(folder, NAME)
    if content is None or rows is None:
        return None
    try:
        previous = DistanceRecord.model_validate(content)
    except ValidationError:
        return None
    complete = previous.path is not None and set(LEVEL_COLUMNS.values()) <= set(rows.columns)
    return Distances(rows, previous) if complete and previous.asked == how else None


def as_facts(rows: pl.DataFrame, searched: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows of a run's images for ``table.write_facts``; approximate searches are part of the
    measure's name.
    """
    names = {half: f"{half}, {searched[half]}" if half in searched else half for half in HALVES}
    entries = pl.concat_list([pl.struct(measure=pl.lit(names[half]), value=pl.col(half)) for half in HALVES])
    return rows.select("image_id", "sem_level", "cov_level", degrees=entries)


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


def distance_of_texts(
    texts: Iterable[str], how: Distance, labels: Labels | None = None, bar: Bar | None = None
) -> Distances:
    """Measure the distances of texts to the in-distribution *images*, with levels; rows are keyed by
    ``text``.

    IS-OOD sorts its prompts this way before it generates images (Syn-IS, section 2.3). Texts are
    farther from images than images are, so levels are chosen from the distances of the texts unless
    ``how`` sets the edges.
    """
    sentences = list(texts)
    if not sentences:
        raise SoritesError("there are no texts to measure")
    against = ruler(how, labels, bar)
    tick = bar("measuring", len(sentences)) if bar else lambda n: None
    parts = [
        against.distances(text_features)
        for text_features in decompositions.text_features(against.encoder, sentences, tick)
    ]
    distances = {half: np.concatenate([part[half] for part in parts]) for half in HALVES}
    return levels_by(against, rows_of("text", sentences, distances), how)


def distance_of_file(
    file: str | Path,
    how: Distance,
    labels: str | None = None,
    out: str | Path = "distance.parquet",
    bar: Bar | None = None,
) -> Distances:
    """Measure the texts of a file, one per line, and write their rows to ``out``."""
    sentences = lines(Path(file), f"{option('texts', None)} as UTF-8 text with one text per line")
    space = _classes(labels, how)
    measured = distance_of_texts([line.strip() for line in sentences if line.strip()], how, space, bar)
    write(measured.rows, to_path(out))
    return measured.having(path=str(out))

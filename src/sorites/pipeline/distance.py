"""Distance: how far every picture is from familiar pictures, in meaning and in appearance, and the level of each.

Algorithm 1 of the IS-OOD paper: a referee's features are decomposed into two halves; the distance of a picture in a half is its
cosine distance to the k-th nearest familiar picture; levels are intervals of it, counted from 1. Lower is nearer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ValidationError

from sorites import core
from sorites.core import Features, Picture, Referee, Sample, Source
from sorites.engines import Engine
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.frame import Distance
from sorites.labels import Labels, open_labels
from sorites.labels import labels as labels_of
from sorites.measures._decompose import Decomposition
from sorites.measures._indexes import Index
from sorites.measures._levels import level_of, uniform
from sorites.measures._neighbours import kth_distance
from sorites.pipeline import decomposition as decompositions
from sorites.pipeline.encoding import encoded
from sorites.pipeline.folder import read_info
from sorites.pipeline.left_out import LeftOut, readable
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan
from sorites.pipeline.reopen import plan_of
from sorites.pipeline.running import chosen_engine, lent
from sorites.pipeline.shards import read_facts, read_record
from sorites.progress import Bar, Tick
from sorites.reading.places import is_file
from sorites.reading.texts import numbers
from sorites.referees._features import features
from sorites.rng import fair_order
from sorites.stores import place
from sorites.table import write, write_facts

NAME, OLD_NAME = "distance", "degrees"
"""The files in ``facts/`` that hold distances; runs of release 0.2 and before hold them under the old name."""
HALVES = ("semantic", "covariate")
COLUMNS = {"semantic": "sem_level", "covariate": "cov_level"}


@dataclass(frozen=True, eq=False)
class Ruler:
    """A ruler measures distances: a referee, the decomposition of its space, and the halves of the familiar features."""

    referee: Referee
    decomposition: Decomposition
    banks: dict[str, Features]
    k: int
    left: LeftOut = field(default_factory=LeftOut)
    """Familiar pictures that could not be read."""

    indexes: dict[str, Index] = field(default_factory=dict)
    """An index over each half, where neighbours are not searched exactly."""

    def distances(self, found: Features) -> dict[str, NDArray[np.float32]]:
        """Return cosine distances (0 to 2) to the k-th nearest familiar picture, by half."""
        halves = {half: getattr(self.decomposition, half)(found) for half in HALVES}
        if self.indexes:
            return {half: self.indexes[half].kth_distance(halves[half]) for half in HALVES}
        return {half: kth_distance(halves[half], self.banks[half], self.k) for half in HALVES}

    def searched(self, found: Features) -> dict[str, str]:
        """Name the search of each half with its measured recall; nothing where it is exact."""
        return {half: index.name(getattr(self.decomposition, half)(found)) for half, index in self.indexes.items()}


def ruler(how: Distance, labels: Labels | None = None, bar: Bar | None = None) -> Ruler:
    """Load what ``how`` names; without a file the decomposition is learnt from the referee's classes, else from ``labels``."""
    judge = core.referee(how.referee)
    if how.decomposition:
        halves = decompositions.load(how.decomposition, judge)
    else:
        names = labels.names if labels and not judge.labels else ()
        halves = decompositions.cached(judge, decompositions.recipe(judge, names))
    familiar = limited(_familiar(how.against, labels, judge), how.limit)
    tick = bar("familiar", len(familiar)) if bar else lambda n: None
    left = LeftOut("familiar pictures")
    found = features(judge, ticked(((picture, sample.framed) for sample, picture in readable(familiar, left)), tick))
    banks = {half: getattr(halves, half)(found) for half in HALVES}
    indexes = {} if how.neighbours == "exact" else {half: Index(bank, how.neighbours, how.k) for half, bank in banks.items()}
    return Ruler(judge, halves, banks, how.k, left, indexes)


def _familiar(spec: str, labels: Labels | None, judge: Referee) -> Source:
    """Return pictures of the given classes, or of any where the source has none of those."""
    try:
        return core.source(spec, labels or open_labels(judge.labels))
    except SoritesError:
        return core.source(spec, open_labels(judge.labels))


def limited(source: Source, limit: int | None) -> list[Sample]:
    """Return the first samples of a fair order, or all of them where there is no limit."""
    return fair_order(source, lambda sample: [sample.id])[:limit]


def ticked(items: Iterable[tuple[Picture, bool]], tick: Tick) -> Iterator[tuple[Picture, bool]]:
    """Yield the items and move a progress bar by one after each."""
    for item in items:
        yield item
        tick(1)


def distance_options(sem_edges: str = "", cov_edges: str = "", **options: Any) -> Distance:
    """Return options as the command line gives them; edges are text such as ``"0.1,0.2"``."""
    edges = [numbers(text, name) if text else () for name, text in (("--sem-edges", sem_edges), ("--cov-edges", cov_edges))]
    return _asked({**options, "sem_edges": edges[0], "cov_edges": edges[1]})


def _asked(options: Mapping[str, Any]) -> Distance:
    try:
        return Distance(**options)
    except ValidationError as error:
        first = error.errors()[0]
        raise SoritesError(f"distance, {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@dataclass(frozen=True, eq=False)
class Distances:
    """One row per picture (key, ``semantic``, ``covariate``, ``sem_level``, ``cov_level``), and a record of their making."""

    rows: pl.DataFrame
    record: dict[str, Any]

    def cells(self) -> pl.DataFrame:
        """Count the pictures of each pair of levels."""
        return self.rows.group_by("sem_level", "cov_level").len("n").sort("sem_level", "cov_level")

    def grid(self) -> pl.DataFrame:
        """Return the counts for printing: a row per covariate level, a column per semantic level; an empty pair is null."""
        wide = self.cells().pivot("sem_level", index="cov_level", values="n").sort("cov_level")
        across = {level: f"sem {level}" for level in sorted(wide.columns[1:], key=int)}
        return wide.select(pl.format("cov {}", "cov_level").alias("pictures"), *across).rename(across)


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
    """Measure a run folder, whose images get facts beside its table, or a source by name, whose rows are written to ``out``.

    ``options`` are the keys of a suite's ``[distance]``: ``distance("runs/demo", referee="cifar", against="cifar:train")``.
    Distances need no classes: unless ``labels`` name some, pictures of any class are taken.
    """
    what = str(what)
    how = how or _asked(options)
    if is_file(place(what) / "run.json"):
        if labels:
            raise SoritesError(f"{what} is a run, which has its own labels: leave --labels out")
        return distance_of_run(plan_of(what), place(what), how, bar, engine, workers)
    if engine is not None:
        raise SoritesError(f"--engine is for a run, whose pictures lie in units of work, and {what} is no run folder")
    space = labels_of(labels) if labels else open_labels(core.referee(how.referee).labels)
    found = distance_of_source(core.source(what, space), how, space, bar)
    write(found.rows, place(out))
    return replace(found, record={**found.record, "path": str(out)})


def distance_of_source(source: Source, how: Distance, labels: Labels | None = None, bar: Bar | None = None) -> Distances:
    """Measure every picture of a source; those that cannot be read are left out and counted."""
    against = ruler(how, labels, bar)
    keys: list[str] = []
    left = LeftOut()
    tick = bar("measuring", len(source)) if bar else lambda n: None

    def pictures() -> Iterator[tuple[Picture, bool]]:
        for sample, picture in readable(source, left):
            keys.append(sample.id)
            yield picture, sample.framed

    found = features(against.referee, ticked(pictures(), tick))
    return with_levels("sample_id", keys, against.distances(found), how, against, left, against.searched(found))


def with_levels(
    key: str,
    keys: Sequence[str],
    distances: dict[str, NDArray[np.float32]],
    how: Distance,
    against: Ruler,
    left: LeftOut | None = None,
    searched: Mapping[str, str] | None = None,
) -> Distances:
    """Return distances as rows under a key, with the level of each and a record of how they were made."""
    given = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    edges = {half: list(given[half] or uniform(distances[half], how.levels)) for half in HALVES}
    levels = {COLUMNS[half]: level_of(distances[half], edges[half]) for half in HALVES}
    rows = pl.DataFrame({key: list(keys), **{half: distances[half].astype(np.float64) for half in HALVES}, **levels})
    made_of: dict[str, Any] = {"version": against.referee.version, "familiar": len(against.banks["semantic"])}
    made_of |= {"searched": dict(searched)} if searched else {}
    said = [one.say() for one in (against.left, left) if one is not None and one.count]
    return Distances(rows, {**_told(how), **made_of, "edges": edges, **({"left_out": said} if said else {})})


def distance_of_run(
    plan: Plan,
    folder: Path,
    how: Distance,
    bar: Bar | None = None,
    engine: str | Engine | None = None,
    workers: int | None = None,
) -> Distances:
    """Measure every image of a run; distances and levels become facts beside its table, with the edges in a record.

    Pictures are made again, not stored. What was measured in the same way before is not measured again. With an engine, units of
    the run are encoded there, and their features are kept in the folder, so that the work can be stopped and continued.
    """
    if (before := _measured_before(folder, how)) is not None:
        return before
    against = ruler(how, plan.labels, bar)
    keys: list[str] = []
    tick = bar("measuring", plan.images()) if bar else lambda n: None
    left = LeftOut("images")
    if engine is None:
        found = features(against.referee, ticked(_images(plan, keys, left), tick))
    else:
        start = chosen_engine(engine, plan)
        with lent(folder, plan, read_info(folder)["run_id"]):
            keys, found = encoded(folder, plan, against.referee, start, workers or start.cores(), tick, left)
    measured = with_levels("image_id", keys, against.distances(found), how, against, left, against.searched(found))
    path = write_facts(folder, NAME, as_facts(measured.rows, measured.record.get("searched", {})))
    record = {**measured.record, "asked": _told(how, "json"), "path": str(path)}
    write_bytes(json.dumps(record, indent=1).encode(), folder / "facts" / f"{NAME}.json")
    for old in (folder / "facts").glob(f"{OLD_NAME}.*"):
        old.unlink()
    return replace(measured, record=record)


def _told(how: Distance, mode: str = "python") -> dict[str, Any]:
    """Return how distances were asked for; the exact search, which earlier releases did not name, is not named."""
    return how.model_dump(mode=mode, exclude={"neighbours"} if how.neighbours == "exact" else None)


def _measured_before(folder: Path, how: Distance) -> Distances | None:
    """Return the distances that the run holds already, where they were measured in this way."""
    for name in (NAME, OLD_NAME):
        record, facts = folder / "facts" / f"{name}.json", folder / "facts" / f"{name}.parquet"
        if record.exists() and facts.exists():
            held, rows = read_record(record), read_facts(facts)
            whole = isinstance(held.get("edges"), dict) and "path" in held and set(COLUMNS.values()) <= set(rows.columns)
            return Distances(rows, held) if whole and _same(held.get("asked"), how) else None
    return None


def _same(asked: Any, how: Distance) -> bool:
    try:
        return Distance.model_validate(asked) == how
    except ValidationError:
        return False


def as_facts(rows: pl.DataFrame, searched: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Return the rows of a run's images as ``table.write_facts`` takes them; what was not searched exactly is named so."""
    names = {half: f"{half}, {(searched or {})[half]}" if half in (searched or {}) else half for half in HALVES}
    entries = pl.concat_list([pl.struct(measure=pl.lit(names[half]), value=pl.col(half)) for half in HALVES])
    return rows.select("image_id", "sem_level", "cov_level", degrees=entries)


def _images(plan: Plan, keys: list[str], left: LeftOut) -> Iterator[tuple[Picture, bool]]:
    """Yield the pictures of a run that can be made; their image ids are appended to ``keys``, the others are counted."""
    for unit in plan.units():
        for shot in shots(plan, unit):
            if shot.picture is None:
                left.add(f"{shot.sample.id}, {shot.shift}", shot.error or "no picture")
            else:
                keys.append(plan.image_id(shot.sample, shot.shift, shot.setting))
                yield shot.picture, plan.is_framed(shot.sample)


def write_published_levels(plan: Plan, folder: Path) -> Path | None:
    """Write levels that a source brings with its pictures (attributes ``sem_level`` and ``cov_level``) as facts of the run."""
    rows = []
    for shift, samples in plan.groups.items():
        for sample in samples if shift not in plan.shifts else ():
            attrs = {attr.key: attr.value for attr in sample.attrs}
            if "sem_level" in attrs and "cov_level" in attrs:
                key = plan.image_id(sample, sample.shift, sample.setting)
                rows.append((key, int(attrs["sem_level"]), int(attrs["cov_level"])))
    facts = pl.DataFrame(rows, {"image_id": pl.String, "sem_level": pl.Int32, "cov_level": pl.Int32}, orient="row")
    return write_facts(folder, "published_levels", facts) if rows else None

"""How strange every picture is, by degree: its distance to the familiar in meaning and in appearance, and the level of each.

Algorithm 1 of the IS-OOD paper: a referee's features are split in two halves; the degree of a picture in a half is its cosine
distance to the k-th nearest familiar picture; levels are intervals of it, counted from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.core import Picture, Sample, Source
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.labels import Labels, open_labels
from sorites.labels import labels as labels_of
from sorites.measures._decompose import Split
from sorites.measures._levels import level_of, uniform
from sorites.measures._neighbours import kth_distance
from sorites.pipeline import decomposition as splits
from sorites.pipeline import plan as plans
from sorites.pipeline.folder import read_info
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan
from sorites.progress import Bar, Tick
from sorites.referees._referee import Features, Referee, features
from sorites.referees._referee import referee as named
from sorites.rng import digest
from sorites.suite import Measure, parse
from sorites.table import write, write_facts

HALVES = ("semantic", "covariate")
COLUMNS = {"semantic": "sem_level", "covariate": "cov_level"}


@dataclass(frozen=True, eq=False)
class Ruler:
    """A referee, its split, and the two halves of the familiar pictures' features."""

    referee: Referee
    split: Split
    banks: dict[str, Features]
    k: int

    def degrees(self, found: Features) -> dict[str, NDArray[np.float32]]:
        """Cosine distances (0 to 2) to the k-th familiar neighbour, by half."""
        return {half: kth_distance(getattr(self.split, half)(found), self.banks[half], self.k) for half in HALVES}


def ruler(how: Measure, labels: Labels | None = None, bar: Bar | None = None) -> Ruler:
    """What ``how`` names, loaded; without a file the split is learnt from the referee's own classes, else from ``labels``."""
    judge = named(how.referee)
    names = labels.names if labels and not judge.labels else ()
    split = splits.load(how.split, judge) if how.split else splits.kept(judge, splits.recipe(judge, names))
    familiar = limited(_familiar(how.against, labels, judge), how.limit)
    tick = bar("familiar", len(familiar)) if bar else lambda n: None
    found = features(judge, ticked(((sample.load(), sample.framed) for sample in familiar), tick))
    return Ruler(judge, split, {half: getattr(split, half)(found) for half in HALVES}, how.k)


def _familiar(spec: str, labels: Labels | None, judge: Referee) -> Source:
    """Pictures of the given classes, or of any where the source has none of those."""
    try:
        return core.source(spec, labels or open_labels(judge.labels))
    except SoritesError:
        return core.source(spec, open_labels(judge.labels))


def limited(source: Source, limit: int | None) -> list[Sample]:
    """The first samples of a fair order, all of them where there is no limit."""
    return sorted(source, key=lambda sample: digest(sample.id))[:limit]


def ticked(items: Iterable[tuple[Picture, bool]], tick: Tick) -> Iterator[tuple[Picture, bool]]:
    for item in items:
        yield item
        tick(1)


def asked(sem_edges: str = "", cov_edges: str = "", **plain: Any) -> Measure:
    """From words of the command line."""
    try:
        edges = [tuple(float(part) for part in text.split(",") if part) for text in (sem_edges, cov_edges)]
    except ValueError as error:
        raise SoritesError(f"edges are numbers with commas between, such as 0.1,0.2: {error}") from error
    return Measure(**plain, sem_edges=edges[0], cov_edges=edges[1])


def measure(
    what: str, how: Measure, labels: str | None = None, out: str | Path = "degrees.parquet", bar: Bar | None = None
) -> Measured:
    """A run folder, whose images get facts beside its table; or a source by name, whose degrees are written to ``out``.

    Degrees need no classes: unless ``labels`` name some, pictures of any are taken.
    """
    if (Path(what) / "run.json").exists():
        if labels:
            raise SoritesError(f"{what} is a run, which has its own labels: leave --labels out")
        info = read_info(what)
        return measure_run(plans.make(parse({**info["suite"], "models": ()}, "run.json")), Path(what), how, bar)
    space = labels_of(labels) if labels else open_labels(named(how.referee).labels)
    found = measure_source(core.source(what, space), how, space, bar)
    write(found.rows, Path(out))
    return replace(found, told={**found.told, "path": str(out)})


def measure_source(source: Source, how: Measure, labels: Labels | None = None, bar: Bar | None = None) -> Measured:
    """Every picture of a source; one that cannot be read is left out, and counted."""
    held = ruler(how, labels, bar)
    keys: list[str] = []
    tick = bar("measuring", len(source)) if bar else lambda n: None

    def pictures() -> Iterator[tuple[Picture, bool]]:
        for sample in source:
            try:
                picture = sample.load()
            except SoritesError:
                continue
            keys.append(sample.id)
            yield picture, sample.framed

    found = features(held.referee, ticked(pictures(), tick))
    return _measured("sample_id", keys, held.degrees(found), how, held)


@dataclass(frozen=True, eq=False)
class Measured:
    """A row a picture (key, ``semantic``, ``covariate``, ``sem_level``, ``cov_level``), and what the numbers follow from."""

    rows: pl.DataFrame
    told: dict[str, Any]

    def cells(self) -> pl.DataFrame:
        """How many pictures each pair of levels holds."""
        return self.rows.group_by("sem_level", "cov_level").len("n").sort("sem_level", "cov_level")

    def grid(self) -> pl.DataFrame:
        """The same for the eye: a row a covariate level, a column a semantic one, in order; a pair without pictures is null."""
        wide = self.cells().pivot("sem_level", index="cov_level", values="n").sort("cov_level")
        across = {level: f"sem {level}" for level in sorted(wide.columns[1:], key=int)}
        return wide.select(pl.format("cov {}", "cov_level").alias("pictures"), *across).rename(across)


def _measured(key: str, keys: Sequence[str], degrees: dict[str, NDArray[np.float32]], how: Measure, held: Ruler) -> Measured:
    asked = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    edges = {half: list(asked[half] or uniform(degrees[half], how.levels)) for half in HALVES}
    levels = {COLUMNS[half]: level_of(degrees[half], edges[half]) for half in HALVES}
    rows = pl.DataFrame({key: list(keys), **{half: degrees[half].astype(np.float64) for half in HALVES}, **levels})
    told = {**how.model_dump(), "version": held.referee.version, "familiar": len(held.banks["semantic"]), "edges": edges}
    return Measured(rows, told)


def measure_run(plan: Plan, folder: Path, how: Measure, bar: Bar | None = None) -> Measured:
    """Every image of a run: degrees and levels as facts beside its table, and the edges beside those.

    Pictures are made again, not stored. What was measured in the same way already is not measured again.
    """
    if held := _held(folder, how):
        return held
    judge = ruler(how, plan.labels, bar)
    keys: list[str] = []
    tick = bar("measuring", plan.images()) if bar else lambda n: None
    found = features(judge.referee, ticked(_images(plan, keys), tick))
    measured = _measured("image_id", keys, judge.degrees(found), how, judge)
    path = write_facts(folder, "degrees", as_facts(measured.rows))
    told = {**measured.told, "asked": how.model_dump(mode="json"), "path": str(path)}
    write_bytes(json.dumps(told, indent=1).encode(), folder / "facts" / "degrees.json")
    return replace(measured, told=told)


def _held(folder: Path, how: Measure) -> Measured | None:
    record, facts = folder / "facts" / "degrees.json", folder / "facts" / "degrees.parquet"
    if not record.exists() or not facts.exists():
        return None
    told = json.loads(record.read_text(encoding="utf-8"))
    return Measured(pl.read_parquet(facts), told) if told["asked"] == how.model_dump(mode="json") else None


def as_facts(rows: pl.DataFrame) -> pl.DataFrame:
    entries = pl.concat_list([pl.struct(measure=pl.lit(half), value=pl.col(half)) for half in HALVES])
    return rows.select("image_id", "sem_level", "cov_level", degrees=entries)


def _images(plan: Plan, keys: list[str]) -> Iterator[tuple[Picture, bool]]:
    """The pictures of a run that can be made; ``keys`` takes their image ids."""
    for unit in plan.units():
        for shot in shots(plan, unit):
            if shot.picture is not None:
                keys.append(plan.image_id(shot.sample, shot.shift, shot.setting))
                yield shot.picture, shot.sample.framed or plan.suite.frame is not None


def published(plan: Plan, folder: Path) -> Path | None:
    """Levels that a source brings with its pictures (attributes ``sem_level`` and ``cov_level``) as facts of the run."""
    rows = []
    for shift, samples in plan.groups.items():
        for sample in samples if shift not in plan.shifts else ():
            told = {attr.key: attr.value for attr in sample.attrs}
            if "sem_level" in told and "cov_level" in told:
                key = plan.image_id(sample, sample.shift, sample.setting)
                rows.append((key, int(told["sem_level"]), int(told["cov_level"])))
    facts = pl.DataFrame(rows, {"image_id": pl.String, "sem_level": pl.Int32, "cov_level": pl.Int32}, orient="row")
    return write_facts(folder, "published_levels", facts) if rows else None

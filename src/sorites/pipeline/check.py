"""Is a suite ready to run; is a run folder whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core, table
from sorites.core import MODELS, SHIFTS, SOURCES, split_spec
from sorites.errors import SoritesError
from sorites.labels import labels
from sorites.pipeline import plan as plans
from sorites.pipeline.fit import note_overlap
from sorites.pipeline.folder import read_info, read_manifest
from sorites.pipeline.reopen import plan_of
from sorites.pipeline.shards import missing
from sorites.reading.places import is_dir, is_file
from sorites.suite import builtin_suites, load

AGAIN = ": type the run's command again"


def check(what: str) -> str:
    """Return one paragraph about a run folder or a suite; raise an error when something is wrong."""
    folder = Path(what)
    is_run = is_file(folder / "run.json") or (is_dir(folder) and what not in builtin_suites() and folder.suffix != ".toml")
    return check_run(folder) if is_run else check_suite(what)


def check_suite(spec: str) -> str:
    """Check that every name resolves and the source can be read; nothing is evaluated."""
    suite = load(spec)
    names = labels(suite.labels)
    SOURCES.get(split_spec(suite.source)[0])
    for model in suite.models:
        MODELS.get(split_spec(model)[0])
    for scorer in suite.scorers:
        core.scorer(scorer)
    source = core.source(suite.source, names)
    bare = suite.model_copy(update={"models": ()})
    held = {sample.shift for sample in source}
    stops = {d.name: ("captured",) if d.name in held else d.stops() for d in suite.shifts}
    is_file = str(suite.reference).endswith(".csv")
    if suite.reference and suite.models and suite.reference not in suite.models and not is_file:
        raise SoritesError(f"suite {suite.name}: reference {suite.reference!r} is not among its models {', '.join(suite.models)}")
    lines = [f"suite {suite.name}: {suite.about}", f"source {suite.source}: {len(source)} pictures, {len(names)} labels"]
    if suite.sources:
        counts = Counter(s.source for group in plans.make(bare, source).groups.values() for s in group)
        lines += [f"{e.role} source {e.name} ({e.spec}): {counts[e.name]} pictures" for e in suite.sources]
    lines += [f"shift {name}: {', '.join(map(str, at))}{_unit(name)}" for name, at in stops.items()]
    if suite.fit and (note := note_overlap(plans.make(bare, source))):
        lines.append(note)
    lines += [f"models: {', '.join(suite.models) or 'none; name some with --model'}", f"next: sorites run {spec}"]
    return "\n".join(lines)


def _unit(name: str) -> str:
    return f" ({SHIFTS.get(name).unit})" if name in SHIFTS.names() else ""


def check_run(folder: Path) -> str:
    """Check that the shards can be read, have the table's columns and keys, and cover every sample, stop and model."""
    info = read_info(folder)
    for shard in sorted((folder / "predictions").glob("*.parquet")):
        _readable(shard)
    rows = table.read(folder)
    wrong = table.check(rows)
    others = rows.filter(pl.col("run_id") != info["run_id"]).select(pl.len()).collect(engine="streaming").item()
    if others:
        wrong.append(f"{others} rows of another run")
    if wrong:
        raise SoritesError(f"{folder}: " + "; ".join(wrong))
    if "imported" in info:
        return _imported(folder, rows, info)
    return _coverage(folder, rows, info, _unrefined(folder, info))


def _readable(shard: Path) -> None:
    """Read every value of a shard, not only its footer."""
    try:
        pl.read_parquet(shard, glob=False)
    except Exception as error:
        raise SoritesError(f"{shard} cannot be read ({error}). Delete it and type the run's command again.") from error


def _unrefined(folder: Path, info: Mapping[str, Any]) -> Counter[str]:
    """Count the slices of each model whose probes are missing."""
    if not info["suite"].get("refine"):
        return Counter()
    return Counter(name for names in missing(folder, plan_of(folder).probes(), info["models"]).values() for name in names)


def _imported(folder: Path, rows: pl.LazyFrame, info: Mapping[str, Any]) -> str:
    """An import is whole if it has the rows that its files held; they need not be the same images for every model."""
    wanted, held = info["imported"]["rows"], rows.select(pl.len()).collect(engine="streaming").item()
    if held != wanted:
        raise SoritesError(f"{folder}: {held} of {wanted} imported rows: type the import's command again")
    grid = rows.filter(pl.col("output") == "label", ~pl.col("probe"))
    counted = grid.group_by("model").agg(pl.len(), pl.col("error").count().alias("errors")).collect(engine="streaming")
    counts = {model: (seen, errors) for model, seen, errors in counted.iter_rows()}
    images = read_manifest(folder).height
    lines = [f"run {info['run_id']}: {images} images, imported as {info['imported']['as']}"]
    for name in info["models"]:
        seen, errors = counts.get(name, (0, 0))
        lines.append(f"{name}: {seen} rows, {errors} errors" + _not_in_files(info, images - seen))
    return "\n".join(lines)


def _not_in_files(info: Mapping[str, Any], images: int) -> str:
    """Images that other models have; images made up from counts belong to one model by nature."""
    return f", {images} images not in its files" if images and info["imported"]["as"] != "counts" else ""


def _coverage(folder: Path, rows: pl.LazyFrame, info: Mapping[str, Any], unrefined: Counter[str]) -> str:
    grid = rows.filter(pl.col("output") == "label", ~pl.col("probe"))
    counted = grid.group_by("model").agg(pl.len(), pl.col("error").count().alias("errors")).collect(engine="streaming")
    counts = {model: (seen, errors) for model, seen, errors in counted.iter_rows()}
    manifest = read_manifest(folder)
    clean = manifest.filter(pl.col("shift") == core.CLEAN).height
    wanted = manifest.height + clean * sum(len(stops) for stops in info["stops"].values())
    lines, whole = [f"run {info['run_id']}: {wanted} images per model"], True
    for name in info["models"]:
        seen, errors = counts.get(name, (0, 0))
        lacks = [f"{wanted - seen} missing"] * (seen != wanted)
        lacks += [f"{unrefined[name]} slice not refined"] * (name in unrefined)
        whole = whole and not lacks
        lines.append(f"{name}: {seen} rows, {errors} errors, {', '.join(lacks) + AGAIN if lacks else 'whole'}")
    if not whole:
        raise SoritesError("\n".join(lines))
    return "\n".join(lines)

"""Is a suite ready to run; is a run folder whole."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sorites import core, table
from sorites.core import MODELS, SCORERS, SHIFTS, SOURCES, split_spec
from sorites.errors import SoritesError
from sorites.folder import read_info
from sorites.labels import labels
from sorites.suite import load


def check(what: str) -> str:
    """One paragraph about a run folder or a suite; an error when something is wrong."""
    return check_run(Path(what)) if (Path(what) / "run.json").exists() else check_suite(what)


def check_suite(spec: str) -> str:
    """Every name resolves and the source can be read; nothing is evaluated."""
    suite = load(spec)
    names = labels(suite.labels)
    SOURCES.get(split_spec(suite.source)[0])
    for model in suite.models:
        MODELS.get(split_spec(model)[0])
    for scorer in suite.scorers:
        SCORERS.get(scorer)
    source = core.source(suite.source, names)
    held = {sample.shift for sample in source}
    stops = {d.name: ("captured",) if d.name in held else d.stops() for d in suite.shifts}
    if suite.reference and suite.models and suite.reference not in suite.models:
        raise SoritesError(f"suite {suite.name}: reference {suite.reference!r} is not among its models {', '.join(suite.models)}")
    lines = [f"suite {suite.name}: {suite.about}", f"source {suite.source}: {len(source)} pictures, {len(names)} labels"]
    lines += [f"shift {name}: {', '.join(map(str, at))}{_unit(name)}" for name, at in stops.items()]
    lines += [f"models: {', '.join(suite.models) or 'none; name some with --model'}", f"next: sorites run {spec}"]
    return "\n".join(lines)


def _unit(name: str) -> str:
    return f" ({SHIFTS.get(name).unit})" if name in SHIFTS.names() else ""


def check_run(folder: Path) -> str:
    """The shards can be read, have the table's columns and keys, and cover every sample, stop and model."""
    info = read_info(folder)
    for shard in sorted((folder / "predictions").glob("*.parquet")):
        try:
            pl.read_parquet_schema(shard)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise SoritesError(f"{shard} cannot be read ({error}). Delete it and type the run's command again.") from error
    held = table.read(folder)
    wrong = table.check(held)
    if wrong:
        raise SoritesError(f"{folder}: " + "; ".join(wrong))
    return _coverage(folder, held, info)


def _coverage(folder: Path, held: pl.LazyFrame, info: dict[str, object]) -> str:
    grid = held.filter(pl.col("output") == "label", ~pl.col("probe"))
    counts = (
        grid.group_by("model").agg(pl.len(), pl.col("error").count().alias("errors")).sort("model").collect(engine="streaming")
    )
    manifest = pl.read_parquet(folder / "manifest.parquet")
    clean = manifest.filter(pl.col("shift") == core.CLEAN).height
    severities = info["stops"]
    made = sum(len(stops) for stops in severities.values()) if isinstance(severities, dict) else 0
    wanted = manifest.height + clean * made
    lines = [f"run {info['run_id']}: {wanted} images a model"]
    models = info["models"]
    for name in models if isinstance(models, dict) else ():
        found = counts.filter(pl.col("model") == name)
        seen, errors = (found["len"].item(), found["errors"].item()) if found.height else (0, 0)
        state = "whole" if seen == wanted else f"{wanted - seen} missing: type the run's command again"
        lines.append(f"{name}: {seen} rows, {errors} errors, {state}")
    return "\n".join(lines)

"""Check whether a suite is ready to run, or whether a run folder is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core, table
from sorites.core import MODELS, SHIFTS, SOURCES, split_spec
from sorites.errors import SoritesError
from sorites.labels import labels
from sorites.pipeline import plan as plans
from sorites.pipeline.damage import damage, set_aside
from sorites.pipeline.damage import lines as lines_of
from sorites.pipeline.fit import note_overlap
from sorites.pipeline.folder import read_info, read_manifest, sampled_by
from sorites.pipeline.groups import grouped
from sorites.pipeline.reopen import plan_of
from sorites.pipeline.shards import missing
from sorites.reading.places import is_dir, is_file
from sorites.stores import place
from sorites.suite import builtin_suites, load

AGAIN = "the run's command again"


def check(what: str | Path, repair: bool = False) -> str:
    """Return one paragraph about a run folder or a suite; raise an error when something is wrong.

    ``repair`` sets damaged files of a run folder aside, so that the run's command makes them again.
    """
    what = str(what)
    folder = place(what)
    is_run = is_file(folder / "run.json") or (is_dir(folder) and what not in builtin_suites() and folder.suffix != ".toml")
    if repair and not is_run:
        raise SoritesError(f"--repair wants a run folder, got {what}")
    return repair_run(folder) if repair else check_run(folder) if is_run else check_suite(what)


def check_suite(spec: str) -> str:
    """Check that every name resolves and the source can be read; nothing is evaluated."""
    suite = load(spec)
    names = labels(suite.labels)
    SOURCES.get(split_spec(suite.source)[0])
    for model in suite.models:
        MODELS.get(split_spec(core.named_spec(model)[1])[0])
    for scorer in suite.scorers:
        core.scorer(scorer)
    source = core.source(suite.source, names)
    bare = suite.model_copy(update={"models": ()})
    taken = grouped(suite, suite.source, source.samples)
    asked = [dial.name for dial in suite.shifts] or list(taken.own)
    stops = {name: taken.stops.get(name, ("captured",)) for name in asked}
    is_file = str(suite.reference).endswith(".csv")
    if suite.reference and suite.models and suite.reference not in suite.model_names and not is_file:
        among = ", ".join(suite.model_names)
        raise SoritesError(f"suite {suite.name}: reference {suite.reference!r} is not among its models {among}")
    lines = [
        f"suite {suite.name}: {suite.about}".removesuffix(": "),
        f"source {suite.source}: {len(source)} pictures, {len(names)} labels",
    ]
    lines += [f"limit: at most {suite.limit} samples of it are taken; --limit N changes that"] if suite.limit else []
    if suite.sources:
        counts = Counter(s.source for group in plans.make(bare, source).groups.values() for s in group)
        lines += [f"{e.role} source {e.name} ({e.spec}): {counts[e.name]} pictures" for e in suite.sources]
    units = {name: f" ({dial.unit or 'severity'}, a dial of its samples)" for name, dial in taken.own.items()}
    lines += [f"shift {name}: {', '.join(map(str, at))}{units.get(name) or _unit(name)}" for name, at in stops.items()]
    if suite.fit and (note := note_overlap(plans.make(bare, source))):
        lines.append(note)
    lines += [f"models: {', '.join(suite.models) or 'none; name some with --model'}"]
    lines += [f"next: sorites run {spec}{'' if suite.models else ' --model NAME'}"]
    return "\n".join(lines)


def _unit(name: str) -> str:
    return f" ({SHIFTS.get(name).unit})" if name in SHIFTS.names() else ""


def check_run(folder: Path) -> str:
    """Check that every file can be read, that the shards have the table's columns and keys, and that they cover every sample,
    stop, model and scorer."""
    info = read_info(folder)
    manifest = read_manifest(folder)
    if found := damage(folder):
        raise SoritesError("\n".join([*lines_of(found), table.repair(folder)]))
    rows = table.read(folder)
    wrong = table.check(rows)
    strangers = _count(rows.join(manifest.lazy().select("sample_id"), on="sample_id", how="anti"))
    if strangers:
        wrong.append(f"{strangers} rows of samples that its manifest does not list")
    if wrong:
        raise SoritesError(f"{folder}: " + "; ".join(wrong))
    if "imported" in info:
        return _imported(folder, rows, info)
    return _coverage(rows, manifest, info, _unrefined(folder, info))


def _count(rows: pl.LazyFrame) -> int:
    return int(rows.select(pl.len()).collect(engine="streaming").item())


def repair_run(folder: Path) -> str:
    """Set the damaged files of a run folder aside and return what was done, a line each, with what makes them again."""
    read_info(folder)
    read_manifest(folder)
    moved = set_aside(folder)
    if not moved:
        return f"nothing in {folder} is damaged\n{check_run(folder)}"
    said = [f"set aside {one.path} ({one.why}): now {place}" for one, place in moved]
    remedies = dict.fromkeys(one.remedy for one, _ in moved)
    return "\n".join([*said, f"next: {'; '.join(remedies)}"])


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


def _coverage(rows: pl.LazyFrame, manifest: pl.DataFrame, info: Mapping[str, Any], unrefined: Counter[str]) -> str:
    grid = rows.filter(~pl.col("probe"))
    by = grid.group_by("model", "output", "scorer", "shift").agg(pl.len(), errors=pl.col("error").count())
    seen: Counter[tuple[str, str | None, str]] = Counter()
    errors: Counter[str] = Counter()
    for model, output, scorer, shift, count, failed in by.collect(engine="streaming").iter_rows():
        seen[model, scorer if output == "ood" else None, shift] += count
        errors[model] += failed if output == "label" else 0
    wanted = _wanted(manifest, info)
    lines, whole = [f"run {info['run_id']}: {sum(wanted.values())} images per model"], True
    for name in info["models"]:
        held = sum(seen[name, None, shift] for shift in wanted)
        lacks = [f"{lack} missing"] if (lack := _lack(seen, wanted, name)) else []
        lacks += [f"{unrefined[name]} slice not refined"] * (name in unrefined)
        gone = {scorer: n - lack for scorer in _scorers(info) if (n := _lack(seen, wanted, name, scorer)) > lack}
        whole = whole and not lacks and not gone
        lines.append(f"{name}: {held} rows, {errors[name]} errors, {_lacking(lacks, gone, info.get('scored', ()))}")
    if not whole:
        raise SoritesError("\n".join(lines))
    return "\n".join(lines)


def _lacking(lacks: Sequence[str], gone: Mapping[str, int], later: Collection[str]) -> str:
    """Say what a model lacks and what to type; rows of scorers that were added ``later`` are not made by the run's command."""
    typed = [AGAIN] * (bool(lacks) or not gone.keys() <= set(later))
    typed += [f"sorites score RUN --scorer {scorer}" for scorer in gone if scorer in later]
    said = [*lacks, *(f"{n} rows of {scorer} missing" for scorer, n in gone.items())]
    return f"{', '.join(said)}: type {', then '.join(typed)}" if said else "whole"


def _wanted(manifest: pl.DataFrame, info: Mapping[str, Any]) -> dict[str, int]:
    """Return how many images each shift has: as many as the source holds, or one per clean picture and stop."""
    held = dict(manifest.group_by("shift", maintain_order=True).len().iter_rows())
    return held | {shift: sampled_by(manifest, shift).height * len(stops) for shift, stops in info["stops"].items()}


def _lack(seen: Counter[tuple[str, str | None, str]], wanted: Mapping[str, int], model: str, scorer: str | None = None) -> int:
    return sum(max(0, count - seen[model, scorer, shift]) for shift, count in wanted.items())


def _scorers(info: Mapping[str, Any]) -> list[str]:
    """List the scorers of the run and those added to it later."""
    return list(dict.fromkeys([*info.get("scorers", info["suite"].get("scorers", ())), *info.get("scored", ())]))

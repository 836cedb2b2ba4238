"""Check whether a suite is ready to run and whether a run folder is complete; repair damaged run folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites import core
from sorites.core import MODELS, SHIFTS, SOURCES, split_spec, table
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.core.messages import command, in_python, option
from sorites.evaluation import plan as plans
from sorites.evaluation.fit import note_overlap
from sorites.evaluation.integrity.damage import REPEAT_RUN, Damage, damage, foreign, lines, set_aside
from sorites.evaluation.integrity.unfinished import missing_probes
from sorites.evaluation.plan import group_samples
from sorites.evaluation.storage.folder import read_manifest, sampled_by
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import ImportRecord, RunRecord
from sorites.io.paths import following_links, is_dir, is_file
from sorites.io.stores import to_path
from sorites.suites.suite import Suite, builtin_suites, load


def check(what: str | Path, repair: bool = False) -> str:
    """Check that a suite can run, or that a run folder is complete, and return a summary.

    Args:
        what: A run folder, a built-in suite or a .toml file.
        repair: Move damaged files of a run folder to RUN/damaged, so that the run can recreate them.

    Raises:
        SoritesError: The run is incomplete or damaged, or the suite cannot run.
    """
    return in_python(summary(what, repair))


def summary(what: str | Path, repair: bool = False) -> str:
    """Like ``check``, but keep references to options, so that the caller can render them."""
    what = str(what)
    folder = to_path(what)
    is_run = is_file(folder / "run.json") or (
        is_dir(folder) and what not in builtin_suites() and folder.suffix != ".toml"
    )
    if repair and not is_run:
        raise SoritesError(f"{option('repair')} needs a run folder, got {what}")
    return repair_run(folder) if repair else check_run(folder) if is_run else check_suite(what)


def check_suite(spec: str) -> str:
    """Check that every name resolves and the source can be read; nothing is evaluated."""
    suite = load(spec)
    class_labels = labels(suite.labels)
    _resolve_names(suite)
    with following_links(suite.follow_links):
        source = core.source(suite.source, class_labels)
    groups = group_samples(suite, suite.source, source.samples)
    lines = [
        f"suite {suite.name}: {suite.about}".removesuffix(": "),
        f"source {suite.source}: {len(source)} images, {len(class_labels)} labels",
    ]
    if suite.limit:
        limit = option("limit", "N")
        lines.append(f"limit: at most {suite.limit} samples of it are used; change this with {limit}")
    lines += _further_source_lines(suite, source)
    lines += _shift_lines(suite, groups)
    if suite.fit and (note := note_overlap(_plan_without_models(suite, source))):
        lines.append(note)
    name_models = f"none; choose some with {option('models', ['NAME'])}"
    lines.append(f"models: {', '.join(suite.models) or name_models}")
    lines.append(f"next: {command('run', spec) if suite.models else command('run', spec, models=['NAME'])}")
    return "\n".join(lines)


def _resolve_names(suite: Suite) -> None:
    SOURCES.get(split_spec(suite.source)[0])
    for model in suite.models:
        MODELS.get(split_spec(core.named_spec(model)[1])[0])
    for scorer in suite.scorers:
        core.scorer(scorer)
    is_csv = str(suite.reference).endswith(".csv")
    if suite.reference and suite.models and suite.reference not in suite.model_names and not is_csv:
        raise SoritesError(
            f"suite {suite.name}: reference {suite.reference!r} is not among its models"
            f" {', '.join(suite.model_names)}"
        )


def _plan_without_models(suite: Suite, source: core.Source) -> plans.Plan:
    return plans.make(suite.model_copy(update={"models": ()}), source)


def _further_source_lines(suite: Suite, source: core.Source) -> list[str]:
    if not suite.sources:
        return []
    groups = _plan_without_models(suite, source).groups
    counts = Counter(sample.source for group in groups.values() for sample in group)
    return [
        f"{entry.role} source {entry.name} ({entry.spec}): {counts[entry.name]} images"
        for entry in suite.sources
    ]


def _shift_lines(suite: Suite, groups: plans.Groups) -> list[str]:
    names = [dial.name for dial in suite.dials] or list(groups.own)
    settings = {name: groups.settings.get(name, ("captured",)) for name in names}
    units = {
        name: f" ({dial.unit or 'severity'}, a dial of its samples)" for name, dial in groups.own.items()
    }
    return [
        f"shift {name}: {', '.join(map(_setting, values))}{units.get(name) or _unit(name)}"
        for name, values in settings.items()
    ]


def _setting(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _unit(name: str) -> str:
    return f" ({SHIFTS.get(name).unit})" if name in SHIFTS else ""


def check_run(folder: Path) -> str:
    """Check that every file of a run can be read, and that the table is valid and complete.

    Raises:
        SoritesError: A file is damaged, or rows are missing or invalid.
    """
    record = read_record(folder)
    if damaged := damage(folder):
        raise SoritesError("\n".join([*lines(damaged), _advice(folder, damaged)]))
    manifest = read_manifest(folder)
    rows = table.read(folder)
    problems = table.check(rows)
    unlisted = _count(rows.join(manifest.lazy().select("sample_id"), on="sample_id", how="anti"))
    if unlisted:
        problems.append(f"{unlisted} rows of samples that the manifest does not list")
    if problems:
        raise SoritesError(f"{folder}: " + "; ".join(problems))
    notes = _foreign_lines(folder)
    if record.imported is not None:
        return "\n".join([_check_imported(folder, rows, record, record.imported), *notes])
    return "\n".join([_coverage(rows, manifest, record, _count_unrefined(folder, record)), *notes])


def _advice(folder: Path, damaged: Sequence[Damage]) -> str:
    lost = [str(problem.path) for problem in damaged if not problem.remedy]
    return f"Restore from a backup: {', '.join(lost)}" if lost else table.repair(folder)


def _foreign_lines(folder: Path) -> list[str]:
    """Return a line for each file that is not part of the run, at most ten and a count of the rest."""
    found = foreign(folder)
    more = [f"and {len(found) - 10} more"] if len(found) > 10 else []
    return [f"not part of this run and not read: {path}" for path in found[:10]] + more


def _count(rows: pl.LazyFrame) -> int:
    return int(rows.select(pl.len()).collect(engine="streaming").item())


def repair_run(folder: Path) -> str:
    """Move damaged files of a run folder away and return what was done and how to recreate them."""
    read_record(folder)
    moved = set_aside(folder)
    if not moved:
        return f"nothing in {folder} is damaged\n{check_run(folder)}"
    lines = [
        f"moved {path} ({problem.why}) to {target}"
        if target
        else f"{path} ({problem.why}) cannot be recreated: restore it from a backup"
        if not problem.remedy
        else f"{path} is missing"
        for path, (problem, target) in moved.items()
    ]
    remedies = dict.fromkeys(problem.remedy for problem, _ in moved.values() if problem.remedy)
    return "\n".join([*lines, *([f"next: {'; '.join(remedies)}"] if remedies else [])])


def _count_unrefined(folder: Path, record: RunRecord) -> Counter[str]:
    """Count the slices of each model whose probes are missing."""
    return Counter(name for names in missing_probes(folder, record).values() for name in names)


def _check_imported(folder: Path, rows: pl.LazyFrame, record: RunRecord, imported: ImportRecord) -> str:
    """Check that an imported run has all rows of its files; models may have different images."""
    if (actual := _count(rows)) != imported.rows:
        raise SoritesError(f"{folder}: {actual} of {imported.rows} imported rows: repeat the import")
    grid = rows.filter(pl.col("output") == "label", ~pl.col("probe"))
    counted = (
        grid.group_by("model")
        .agg(pl.len(), pl.col("error").count().alias("errors"))
        .collect(engine="streaming")
    )
    counts = {model: (row_count, errors) for model, row_count, errors in counted.iter_rows()}
    images = read_manifest(folder).height
    lines = [f"run {record.run_id}: {images} images, imported as {imported.kind}"]
    for name in record.models:
        row_count, errors = counts.get(name, (0, 0))
        # Images that were reconstructed from counts always belong to one model.
        others = images - row_count if imported.kind != "counts" else 0
        missing_text = f", {others} images not in its files" if others else ""
        lines.append(f"{name}: {row_count} rows, {errors} errors{missing_text}")
    return "\n".join(lines)


def _coverage(rows: pl.LazyFrame, manifest: pl.DataFrame, record: RunRecord, unrefined: Counter[str]) -> str:
    grid = rows.filter(~pl.col("probe"))
    counts = grid.group_by("model", "output", "scorer", "shift").agg(pl.len(), errors=pl.col("error").count())
    actual: Counter[tuple[str, str | None, str]] = Counter()
    errors: Counter[str] = Counter()
    for model, output, scorer, shift, count, failed in counts.collect(engine="streaming").iter_rows():
        actual[model, scorer if output == "ood" else None, shift] += count
        errors[model] += failed if output == "label" else 0
    expected = _expected_counts(manifest, record)
    lines, complete = [f"run {record.run_id}: {sum(expected.values())} images per model"], True
    for name in record.models:
        row_count = sum(actual[name, None, shift] for shift in expected)
        problems = (
            [f"{missing_rows} missing"] if (missing_rows := _count_missing(actual, expected, name)) else []
        )
        problems += [f"{unrefined[name]} slice not refined"] * (name in unrefined)
        missing_scores = {
            scorer: count - missing_rows
            for scorer in record.scorer_names()
            if (count := _count_missing(actual, expected, name, scorer)) > missing_rows
        }
        complete = complete and not problems and not missing_scores
        lines.append(
            f"{name}: {row_count} rows, {errors[name]} errors,"
            f" {_describe_missing(problems, missing_scores, record.scored)}"
        )
    if not complete:
        raise SoritesError("\n".join(lines))
    return "\n".join(lines)


def _describe_missing(
    problems: Sequence[str], missing_scores: Mapping[str, int], later: Collection[str]
) -> str:
    """Describe what a model lacks and what to do; scorers that were added ``later`` are not recomputed by the
    run.
    """
    remedies = [REPEAT_RUN] * (bool(problems) or not missing_scores.keys() <= set(later))
    remedies += [command("score", "RUN", scorers=[scorer]) for scorer in missing_scores if scorer in later]
    descriptions = [*problems, *(f"{n} rows of {scorer} missing" for scorer, n in missing_scores.items())]
    return f"{', '.join(descriptions)}: {', then '.join(remedies)}" if descriptions else "complete"


def _expected_counts(manifest: pl.DataFrame, record: RunRecord) -> dict[str, int]:
    """Return the number of images per shift: those in the source, or one per clean image and setting."""
    captured_counts = dict(manifest.group_by("shift", maintain_order=True).len().iter_rows())
    return captured_counts | {
        shift: sampled_by(manifest, shift).height * len(settings)
        for shift, settings in record.settings.items()
    }


def _count_missing(
    actual: Counter[tuple[str, str | None, str]],
    expected: Mapping[str, int],
    model: str,
    scorer: str | None = None,
) -> int:
    return sum(max(0, count - actual[model, scorer, shift]) for shift, count in expected.items())

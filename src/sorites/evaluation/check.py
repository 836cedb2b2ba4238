"""Check whether a suite is ready to run and whether a run folder is complete; repair damaged run folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites import core
from sorites.core import MODELS, SHIFTS, SOURCES, split_spec, table
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.core.messages import command, in_python, option
from sorites.evaluation import plan as plans
from sorites.evaluation.explanations import LIST, ROOM, read_image, read_list
from sorites.evaluation.fit import note_overlap
from sorites.evaluation.plan import group_samples
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage.folder import read_info, read_manifest, sampled_by
from sorites.evaluation.storage.shards import missing, read_facts, read_record, read_shard
from sorites.evaluation.storage.tensors import read_head_file, read_tensors
from sorites.io.files import locked
from sorites.io.paths import is_dir, is_file
from sorites.io.stores import to_path
from sorites.suites.suite import Suite, builtin_suites, load

# Subfolder of a run folder to which damaged files are moved; nothing reads it.
DAMAGED_FOLDER = "damaged"

Read = Callable[[Path], object]
# Subfolder, file pattern, function that reads a file completely, and what recreates it.
_READERS: tuple[tuple[str, str, Read, str], ...] = (
    ("predictions", "*.parquet", read_shard, "repeat the run"),
    (
        "features",
        "*.safetensors",
        lambda path: read_tensors(path, ("image_id",)),
        f"repeat the run with {option('keep_features')}",
    ),
    (
        "fits",
        "*.safetensors",
        lambda path: read_tensors(path, ("sample_id", "label")),
        "repeat the run",
    ),
    ("heads", "*.safetensors", read_head_file, f"repeat the run with {option('keep_features')}"),
    ("facts", "*.parquet", read_facts, "repeat the command that measured them"),
    ("facts", "*.json", read_record, "repeat the command that measured them"),
    (ROOM, LIST, read_list, f"type {command('explain', 'RUN')}"),
    (ROOM, "*.webp", read_image, f"type {command('explain', 'RUN')}"),
)


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read, why, and what recreates it."""

    path: Path
    why: str
    remedy: str


def damage(folder: Path) -> list[Damage]:
    """Read all files of a run folder that can be recreated, and return those that cannot be read."""
    return list(_find_damage(folder, read_info(folder)["run_id"]))


def _find_damage(folder: Path, run_id: str) -> Iterator[Damage]:
    for room, names, read, remedy in _READERS:
        for path in sorted((folder / room).glob(names)):
            try:
                content = read(path)
            except SoritesError as error:
                why = str(error).removeprefix(f"{path} cannot be read: ").partition(". Type: ")[0]
                yield Damage(path, why, remedy)
                continue
            if (
                room == "predictions"
                and isinstance(content, pl.DataFrame)
                and (content["run_id"].ne_missing(run_id)).any()
            ):
                yield Damage(path, "it contains rows of another run", remedy)


def set_aside(folder: Path) -> list[tuple[Damage, Path]]:
    """Move damaged files into the subfolder ``damaged``, so that they are recreated; nothing is deleted.

    Facts and their metadata are moved together.

    Returns:
        Each damaged file with its new path.
    """
    moved: list[tuple[Damage, Path]] = []
    with locked(folder):
        for problem in damage(folder):
            twin = problem.path.with_suffix(".json" if problem.path.suffix == ".parquet" else ".parquet")
            together = (problem.path, twin) if problem.path.parent.name == "facts" else (problem.path,)
            moved += [
                (problem, _move(path, folder / DAMAGED_FOLDER / path.parent.name))
                for path in together
                if path.exists()
            ]
    return moved


def _move(path: Path, into: Path) -> Path:
    """Move a file into a folder; number the name if it is taken."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        names = (path.name, *(f"{path.stem}~{n}{path.suffix}" for n in range(2, 10_000)))
        target = next(into / name for name in names if not (into / name).exists())
        return path.rename(target)
    except OSError as error:
        raise SoritesError(f"cannot move {path} to {into}: {error.strerror or error}") from error


def lines(damaged: list[Damage]) -> list[str]:
    """Return a line for each damaged file, at most ten and a count of the rest."""
    more = [f"and {len(damaged) - 10} more"] if len(damaged) > 10 else []
    return [f"{problem.path} cannot be read: {problem.why}" for problem in damaged[:10]] + more


REPEAT_RUN = "repeat the run"


def check(what: str | Path, repair: bool = False) -> str:
    """Return a summary of a run folder or a suite.

    Args:
        what: Path of a run folder, or a suite by name or path.
        repair: Move damaged files of a run folder away, so that repeating the run recreates them.

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
    name_models = f"none; choose some with {option('model', 'NAME')}"
    lines.append(f"models: {', '.join(suite.models) or name_models}")
    lines.append(f"next: {command('run', spec) if suite.models else command('run', spec, model='NAME')}")
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
    names = [dial.name for dial in suite.shifts] or list(groups.own)
    settings = {name: groups.settings.get(name, ("captured",)) for name in names}
    units = {
        name: f" ({dial.unit or 'severity'}, a dial of its samples)" for name, dial in groups.own.items()
    }
    return [
        f"shift {name}: {', '.join(map(str, values))}{units.get(name) or _unit(name)}"
        for name, values in settings.items()
    ]


def _unit(name: str) -> str:
    return f" ({SHIFTS.get(name).unit})" if name in SHIFTS.names() else ""


def check_run(folder: Path) -> str:
    """Check that every file of a run can be read, and that the table is valid and complete.

    Raises:
        SoritesError: A file is damaged, or rows are missing or invalid.
    """
    info = read_info(folder)
    manifest = read_manifest(folder)
    if damaged := damage(folder):
        raise SoritesError("\n".join([*lines(damaged), table.repair(folder)]))
    rows = table.read(folder)
    problems = table.check(rows)
    unlisted = _count(rows.join(manifest.lazy().select("sample_id"), on="sample_id", how="anti"))
    if unlisted:
        problems.append(f"{unlisted} rows of samples that the manifest does not list")
    if problems:
        raise SoritesError(f"{folder}: " + "; ".join(problems))
    if "imported" in info:
        return _check_imported(folder, rows, info)
    return _coverage(rows, manifest, info, _count_unrefined(folder, info))


def _count(rows: pl.LazyFrame) -> int:
    return int(rows.select(pl.len()).collect(engine="streaming").item())


def repair_run(folder: Path) -> str:
    """Move damaged files of a run folder away and return what was done and how to recreate them."""
    read_info(folder)
    read_manifest(folder)
    moved = set_aside(folder)
    if not moved:
        return f"nothing in {folder} is damaged\n{check_run(folder)}"
    lines = [f"moved {problem.path} ({problem.why}) to {target}" for problem, target in moved]
    remedies = dict.fromkeys(problem.remedy for problem, _ in moved)
    return "\n".join([*lines, f"next: {'; '.join(remedies)}"])


def _count_unrefined(folder: Path, info: Mapping[str, Any]) -> Counter[str]:
    """Count the slices of each model whose probes are missing."""
    if not info["suite"].get("refine"):
        return Counter()
    return Counter(
        name for names in missing(folder, plan_of(folder).probes(), info["models"]).values() for name in names
    )


def _check_imported(folder: Path, rows: pl.LazyFrame, info: Mapping[str, Any]) -> str:
    """Check that an imported run has all rows of its files; models may have different images."""
    expected, actual = info["imported"]["rows"], rows.select(pl.len()).collect(engine="streaming").item()
    if actual != expected:
        raise SoritesError(f"{folder}: {actual} of {expected} imported rows: repeat the import")
    grid = rows.filter(pl.col("output") == "label", ~pl.col("probe"))
    counted = (
        grid.group_by("model")
        .agg(pl.len(), pl.col("error").count().alias("errors"))
        .collect(engine="streaming")
    )
    counts = {model: (row_count, errors) for model, row_count, errors in counted.iter_rows()}
    images = read_manifest(folder).height
    lines = [f"run {info['run_id']}: {images} images, imported as {info['imported']['as']}"]
    for name in info["models"]:
        row_count, errors = counts.get(name, (0, 0))
        lines.append(f"{name}: {row_count} rows, {errors} errors" + _not_in_files(info, images - row_count))
    return "\n".join(lines)


def _not_in_files(info: Mapping[str, Any], images: int) -> str:
    """Describe images that only other models have; images reconstructed from counts always belong to one
    model.
    """
    return f", {images} images not in its files" if images and info["imported"]["as"] != "counts" else ""


def _coverage(
    rows: pl.LazyFrame, manifest: pl.DataFrame, info: Mapping[str, Any], unrefined: Counter[str]
) -> str:
    grid = rows.filter(~pl.col("probe"))
    counts = grid.group_by("model", "output", "scorer", "shift").agg(pl.len(), errors=pl.col("error").count())
    actual: Counter[tuple[str, str | None, str]] = Counter()
    errors: Counter[str] = Counter()
    for model, output, scorer, shift, count, failed in counts.collect(engine="streaming").iter_rows():
        actual[model, scorer if output == "ood" else None, shift] += count
        errors[model] += failed if output == "label" else 0
    expected = _expected_counts(manifest, info)
    lines, complete = [f"run {info['run_id']}: {sum(expected.values())} images per model"], True
    for name in info["models"]:
        row_count = sum(actual[name, None, shift] for shift in expected)
        problems = (
            [f"{missing_rows} missing"] if (missing_rows := _count_missing(actual, expected, name)) else []
        )
        problems += [f"{unrefined[name]} slice not refined"] * (name in unrefined)
        missing_scores = {
            scorer: count - missing_rows
            for scorer in _scorers(info)
            if (count := _count_missing(actual, expected, name, scorer)) > missing_rows
        }
        complete = complete and not problems and not missing_scores
        lines.append(
            f"{name}: {row_count} rows, {errors[name]} errors,"
            f" {_describe_missing(problems, missing_scores, info.get('scored', ()))}"
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
    remedies += [command("score", "RUN", scorer=scorer) for scorer in missing_scores if scorer in later]
    descriptions = [*problems, *(f"{n} rows of {scorer} missing" for scorer, n in missing_scores.items())]
    return f"{', '.join(descriptions)}: {', then '.join(remedies)}" if descriptions else "complete"


def _expected_counts(manifest: pl.DataFrame, info: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of images per shift: those in the source, or one per clean image and setting."""
    captured_counts = dict(manifest.group_by("shift", maintain_order=True).len().iter_rows())
    return captured_counts | {
        shift: sampled_by(manifest, shift).height * len(settings)
        for shift, settings in info["settings"].items()
    }


def _count_missing(
    actual: Counter[tuple[str, str | None, str]],
    expected: Mapping[str, int],
    model: str,
    scorer: str | None = None,
) -> int:
    return sum(max(0, count - actual[model, scorer, shift]) for shift, count in expected.items())


def _scorers(info: Mapping[str, Any]) -> list[str]:
    """Return the scorers of the run, including those added later."""
    return list(
        dict.fromkeys([*info.get("scorers", info["suite"].get("scorers", ())), *info.get("scored", ())])
    )

"""Compute a metric with options given as text, and explain an empty answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from sorites import core
from sorites.core import METRICS
from sorites.core.errors import InvalidOption, SoritesError, UnknownName
from sorites.core.labels import class_name
from sorites.core.messages import command, option, parameter
from sorites.core.registry import first_sentence
from sorites.core.table import Table, read
from sorites.evaluation.reopen import class_names
from sorites.evaluation.storage.record import place_now, read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.metrics.detection.scenes import without_ground_truth

# Metrics of detectors.
OF_BOXES = (
    "map",
    "map_numbers",
    "mean_map",
    "mean_map_numbers",
    "dial_map",
    "map_drop",
    "map_corruption_error",
    "map_rank",
    "tide",
    "mean_tide",
    "box_failure_severity",
    "box_survival",
    "box_failure_histogram",
)
NO_GROUND_TRUTH = "the source has no ground-truth boxes for these images"
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def answer_metric(
    runs: Path | Sequence[Path],
    metric: str,
    by: Sequence[str] | None = None,
    reference: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    table: Table | None = None,
) -> pl.DataFrame:
    """Compute a metric of one or more runs.

    Args:
        runs: The run folders.
        metric: The name of the metric.
        by: The columns to group by; default: those of the metric.
        reference: The reference model, for metrics that need one; default: that of the suite.
        options: Further options of the metric, as text.
        table: The table of the runs, if it was already read.

    Returns:
        The frame that the metric returns.

    Raises:
        SoritesError: An option is invalid, or the metric does not apply to these models.
    """
    folders = [runs] if isinstance(runs, Path) else list(runs)
    function = METRICS.get(metric)
    arguments = {name: _option_value(metric, function, name, text) for name, text in options.items()}
    if by is not None:
        arguments["by"] = by
    arguments |= _reference_argument(metric, function, reference, folders)
    rows = read(folders[0]) if table is None else table
    answer = function(rows, **arguments)
    if answer.is_empty() and _outputs(rows) == {"boxes"}:
        if metric in OF_BOXES and without_ground_truth(rows):
            raise SoritesError(f"{metric} does not apply: {NO_GROUND_TRUTH}")
        others = "map, map_numbers, map_drop, tide or box_failure_severity"
        raise SoritesError(
            f"{metric} does not apply: the models are detectors, which predict boxes. Use {others}"
        )
    return answer


def _reference_argument(
    metric: str, function: Callable[..., Any], reference: str | None, folders: Sequence[Path]
) -> dict[str, str]:
    """Return the reference model that the metric needs; the default is that of the suites."""
    if "reference" not in inspect.signature(function).parameters:
        if reference is not None:
            typed = parameter("reference")
            raise InvalidOption("reference", f"{metric} has no reference model: remove {typed}")
        return {}
    named = reference or next(filter(None, map(_reference, folders)), None)
    if named is None:
        typed = parameter("reference", "MODEL")
        raise InvalidOption("reference", f"{metric} needs a reference model: add {typed}")
    return {"reference": named}


def _reference(run: Path) -> str | None:
    """Return the reference of a run's suite; a file is resolved to its current place."""
    record = read_record(run)
    named = record.suite.reference
    return place_now(run, record.places, named) if named else None


def _outputs(table: Table) -> set[str]:
    return set(table.lazy().select(pl.col("output").unique()).collect(engine="streaming")["output"])


def _option_value(metric: str, function: Callable[..., Any], name: str, text: str) -> Any:
    """Parse an option as the type of its default, or an optional number: bool, int, float or text."""
    known = {
        key: p
        for key, p in inspect.signature(function).parameters.items()
        if key not in ("table", "by", "reference")
    }
    if name not in known:
        raise UnknownName(f"option of {metric}", name, known, f"Options: {', '.join(known) or 'none'}.")
    optional = {"float | None": float, "int | None": int}.get(str(known[name].annotation))
    kind = optional or type(known[name].default)
    try:
        return (
            {"true": True, "false": False}[text.lower()]
            if kind is bool
            else kind(text)
            if kind in (int, float)
            else text
        )
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise SoritesError(f"option {name} of {metric} must be {expected}, got {text!r}") from None


def explain_empty(
    answer: pl.DataFrame, metric: str, options: Mapping[str, str] = NO_OPTIONS, run: Path | None = None
) -> str:
    """Explain why an answer has no values; return an empty string if it has some."""
    if answer.is_empty():
        return _why_no_rows(metric, run)
    if "value" not in answer.columns or answer["value"].null_count() < answer.height:
        return ""
    if "objects" in answer.columns and answer["n"].sum() and not answer["objects"].sum():
        return f"every value is null: {NO_GROUND_TRUTH}"
    about = first_sentence(METRICS.get(metric))
    reason = f"every value is null, n up to {max(answer['n'].to_list())}. {metric}: {about}"
    if "ood" in answer.columns and not answer["ood"].sum() and options.get("framework") != "model-specific":
        specific = parameter("framework", "model-specific")
        return f"{reason} None of these images is OOD; to count misclassified images as OOD, add {specific}"
    return reason


def _why_no_rows(metric: str, run: Path | None) -> str:
    function = METRICS.get(metric)
    about = first_sentence(function)
    imported = None if run is None else read_record(run).imported
    if imported is not None and imported.kind == "counts":
        return f"no rows. {metric}: {about} {run} was imported from counts, so its samples cannot be paired."
    if "measure" in inspect.signature(function).parameters:
        return f"no rows: this run has no measurements. Run: {command('similarity', str(run or 'RUN'))}"
    return f"no rows. {metric}: {about} No row of this run matches, given these options."


def measure_note(metric: str, options: Mapping[str, str] = NO_OPTIONS) -> str:
    """Name the measure that a metric averages, with its direction; empty if it averages none."""
    found = inspect.signature(METRICS.get(metric)).parameters.get("measure")
    if found is None:
        return ""
    named = options.get("measure", found.default)
    known = core.MEASURES.names()
    nearer = f": {core.measure(named).nearer} is nearer" if named in known else ""
    return f"values of the measure {named}{nearer} (for another: {parameter('measure', 'NAME')})"


def with_class_names(answer: pl.DataFrame, records: Sequence[RunRecord | None]) -> pl.DataFrame:
    """Add the name of each class beside its number, if all runs use the same class names."""
    columns = [name for name in ("label", "pred") if name in answer.columns]
    if not columns:
        return answer
    labels = [class_names(record) for record in records if record]
    if (
        len(labels) < len(records)
        or labels[0] is None
        or any(other is None or other.names != labels[0].names for other in labels)
    ):
        return answer
    named = answer.clone()
    for column in columns:
        names = [class_name(labels[0], label) for label in answer[column]]
        named.insert_column(named.columns.index(column) + 1, pl.Series(f"{column}_name", names, pl.String))
    return named


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``["min_n=20"]`` into names and texts."""
    for text in texts:
        if "=" not in text:
            raise InvalidOption("option", f"{option('option', None)} expects NAME=VALUE, got {text!r}")
    return dict(text.split("=", 1) for text in texts)

"""Compute a metric with options given as text, and explain an empty answer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from sorites import core
from sorites.cli.printing import first_sentence
from sorites.core import METRICS
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import class_name
from sorites.core.table import Table, read
from sorites.evaluation.reopen import class_names
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.storage.record import place_now
from sorites.metrics.detection.scenes import without_ground_truth

# Metrics of detectors.
OF_BOXES = (
    "map",
    "map_numbers",
    "mean_map",
    "dial_map",
    "map_drop",
    "map_corruption_error",
    "map_rank",
    "tide",
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
    if "reference" in inspect.signature(function).parameters:
        named = reference or next(filter(None, map(_reference, folders)), None)
        if named is None:
            raise SoritesError(f"{metric} needs a reference model: add --reference MODEL")
        arguments["reference"] = named
    elif reference is not None:
        raise SoritesError(f"{metric} has no reference model: remove --reference")
    rows = read(folders[0]) if table is None else table
    try:
        answer = function(rows, **arguments)
    except UnknownName:
        raise
    except SoritesError as error:
        raise SoritesError(as_typed(str(error), list(inspect.signature(function).parameters)[1:])) from error
    if answer.is_empty() and _outputs(rows) == {"boxes"}:
        if metric in OF_BOXES and without_ground_truth(rows):
            raise SoritesError(f"{metric} does not apply: {NO_GROUND_TRUTH}")
        others = "map, map_numbers, map_drop, tide or box_failure_severity"
        raise SoritesError(
            f"{metric} does not apply: the models are detectors, which predict boxes. Use {others}"
        )
    return answer


def as_typed(message: str, options: Sequence[str]) -> str:
    """Rewrite the Python option names in a metric's message as command-line options."""
    own = {"by": "--by", "reference": "--reference", "framework": "--framework"}
    for name in options:
        typed = own.get(name, f"--option {name}")
        between = " " if name in own else "="
        message = re.sub(rf"\b{name}=([\w.]+)", rf"{typed}{between}\1", message)
        message = re.sub(rf"(?<![\w-]){name}(?= (?:is|wants|needs|must|expects) |\.?$)", typed, message)
        message = re.sub(rf"(?<=\bto ){name}\b|(?<=\bout of ){name}\b", typed, message)
    return message.replace("=True", "=true").replace("=False", "=false")


def _reference(run: Path) -> str | None:
    """Return the reference of a run's suite; a file is resolved to its current place."""
    info = read_info(run)
    named = info["suite"].get("reference")
    return place_now(run, info.get("places", {}), named) if named else None


def _outputs(table: Table) -> set[str]:
    return set(table.lazy().select(pl.col("output").unique()).collect(engine="streaming")["output"])


def _option_value(metric: str, function: Callable[..., Any], name: str, text: str) -> Any:
    """Parse an option as the type of its default: bool, int, float or text."""
    known = {
        key: p.default
        for key, p in inspect.signature(function).parameters.items()
        if key not in ("table", "by", "reference")
    }
    if name not in known:
        raise UnknownName(f"option of {metric}", name, known, f"Options: {', '.join(known) or 'none'}.")
    kind = type(known[name])
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
    about = first_sentence(METRICS.get(metric))
    if answer.is_empty() and run is not None and (read_info(run).get("imported") or {}).get("as") == "counts":
        unpaired = "was imported from counts, so its samples cannot be paired."
        return f"no rows. {metric}: {about} {run} {unpaired}"
    if answer.is_empty() and "measure" in inspect.signature(METRICS.get(metric)).parameters:
        return f"no rows: this run has no measurements. Run: sorites similarity {run or 'RUN'}"
    if answer.is_empty():
        return f"no rows. {metric}: {about} No row of this run matches, given these options."
    if "value" not in answer.columns or answer["value"].null_count() < answer.height:
        return ""
    if "objects" in answer.columns and answer["n"].sum() and not answer["objects"].sum():
        return f"every value is null: {NO_GROUND_TRUTH}"
    reason = f"every value is null, n up to {max(answer['n'].to_list())}. {metric}: {about}"
    if "ood" in answer.columns and not answer["ood"].sum() and options.get("framework") != "model-specific":
        return (
            f"{reason} None of these images is OOD; to count misclassified images as OOD, add"
            " --framework model-specific"
        )
    return reason


def measure_note(metric: str, options: Mapping[str, str] = NO_OPTIONS) -> str:
    """Name the measure that a metric averages, with its direction; empty if it averages none."""
    parameter = inspect.signature(METRICS.get(metric)).parameters.get("measure")
    if parameter is None:
        return ""
    named = options.get("measure", parameter.default)
    known = core.MEASURES.names()
    nearer = f": {core.measure(named).nearer} is nearer" if named in known else ""
    return f"values of the measure {named}{nearer} (for another: --option measure=NAME)"


def with_class_names(answer: pl.DataFrame, infos: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Add the name of each class beside its number, if all runs use the same class names."""
    columns = [name for name in ("label", "pred") if name in answer.columns]
    if not columns:
        return answer
    labels = [class_names(info) for info in infos if info]
    if (
        len(labels) < len(infos)
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
            raise SoritesError(f"--option expects NAME=VALUE, got {text!r}")
    return dict(text.split("=", 1) for text in texts)

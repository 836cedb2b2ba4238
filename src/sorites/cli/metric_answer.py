"""A metric of a run with its options as they are typed: the answer, and why it is empty where it is."""

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

# The metrics of detectors.
OF_BOXES = (
    "map", "map_numbers", "mean_map", "dial_map", "map_drop", "map_corruption_error", "map_rank", "tide", "box_failure_severity",
    "box_survival", "box_failure_histogram",
)  # fmt: skip
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
    """Return one metric of a run, or of the ``table`` of several; ``options`` are texts as typed.

    A metric that needs a reference model takes the suite's where none is named.
    """
    several = [runs] if isinstance(runs, Path) else list(runs)
    question = METRICS.get(metric)
    given = {name: _option_value(metric, question, name, text) for name, text in options.items()}
    if by is not None:
        given["by"] = by
    if "reference" in inspect.signature(question).parameters:
        named = reference or next(filter(None, map(_reference, several)), None)
        if named is None:
            raise SoritesError(f"{metric} is relative to a reference model: add --reference MODEL")
        given["reference"] = named
    elif reference is not None:
        raise SoritesError(f"{metric} takes no reference model")
    held = read(several[0]) if table is None else table
    try:
        answer = question(held, **given)
    except UnknownName:
        raise
    except SoritesError as error:
        raise SoritesError(as_typed(str(error), list(inspect.signature(question).parameters)[1:])) from error
    if answer.is_empty() and _outputs(held) == {"boxes"}:
        if metric in OF_BOXES and without_ground_truth(held):
            raise SoritesError(f"{metric} has nothing to say here: {NO_GROUND_TRUTH}")
        others = "map, map_numbers, map_drop, tide or box_failure_severity"
        raise SoritesError(
            f"{metric} has nothing to say here: the models are detectors, which give boxes. Ask {others}"
        )
    return answer


def as_typed(message: str, options: Sequence[str]) -> str:
    """Return what a metric says of its options, which it names as Python does, as they are typed on
    the command line.
    """
    own = {"by": "--by", "reference": "--reference", "framework": "--framework"}
    for name in options:
        typed = own.get(name, f"--option {name}")
        between = " " if name in own else "="
        message = re.sub(rf"\b{name}=([\w.]+)", rf"{typed}{between}\1", message)
        message = re.sub(rf"(?<![\w-]){name}(?= (?:is|wants|needs) |\.?$)", typed, message)
        message = re.sub(rf"(?<=\bto ){name}\b|(?<=\bout of ){name}\b", typed, message)
    return message.replace("=True", "=true").replace("=False", "=false")


def _reference(run: Path) -> str | None:
    """Return the reference that a run's suite names; a file where it stands now."""
    info = read_info(run)
    named = info["suite"].get("reference")
    return place_now(run, info.get("places", {}), named) if named else None


def _outputs(table: Table) -> set[str]:
    return set(table.lazy().select(pl.col("output").unique()).collect(engine="streaming")["output"])


def _option_value(metric: str, question: Callable[..., Any], name: str, text: str) -> Any:
    """Read ``text`` as the type of the metric's default for it: a whole number, a number, true or
    false, or text.
    """
    known = {
        key: p.default
        for key, p in inspect.signature(question).parameters.items()
        if key not in ("table", "by", "reference")
    }
    if name not in known:
        raise UnknownName(f"option of {metric}", name, known, f"It has {', '.join(known) or 'none'}.")
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
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise SoritesError(f"the option {name} of {metric} wants {wanted}, got {text!r}") from None


def explain_empty(
    answer: pl.DataFrame, metric: str, options: Mapping[str, str] = NO_OPTIONS, run: Path | None = None
) -> str:
    """Say in words why an answer holds nothing; return no words where it holds something."""
    about = first_sentence(METRICS.get(metric))
    if answer.is_empty() and run is not None and (read_info(run).get("imported") or {}).get("as") == "counts":
        made_up = "was imported from counts: its samples are made up, and nothing can be paired."
        return f"no rows. {metric} answers: {about} {run} {made_up}"
    if answer.is_empty() and "measure" in inspect.signature(METRICS.get(metric)).parameters:
        return f"no rows: nothing was measured here. Type: sorites similarity {run or 'RUN'}"
    if answer.is_empty():
        return (
            f"no rows. {metric} answers: {about} This run holds nothing to answer that with, given these"
            " options."
        )
    if "value" not in answer.columns or answer["value"].null_count() < answer.height:
        return ""
    if "objects" in answer.columns and answer["n"].sum() and not answer["objects"].sum():
        return f"every value is null: {NO_GROUND_TRUTH}"
    reason = f"every value is null, n up to {max(answer['n'].to_list())}. {metric} answers: {about}"
    if "ood" in answer.columns and not answer["ood"].sum() and options.get("framework") != "model-specific":
        return (
            f"{reason} None of these images is OOD; to count those that the model gets wrong:"
            " --framework model-specific"
        )
    return reason


def measure_note(metric: str, options: Mapping[str, str] = NO_OPTIONS) -> str:
    """Say which measure a metric averages, and which direction is nearer; no words where it averages none."""
    parameter = inspect.signature(METRICS.get(metric)).parameters.get("measure")
    if parameter is None:
        return ""
    named = options.get("measure", parameter.default)
    known = core.MEASURES.names()
    nearer = f": {core.measure(named).nearer} is nearer" if named in known else ""
    return f"these are values of the measure {named}{nearer} (another: --option measure=NAME)"


def with_class_names(answer: pl.DataFrame, infos: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return an answer with the name of each class beside its number, where it has such and all
    runs call them alike.
    """
    columns = [name for name in ("label", "pred") if name in answer.columns]
    if not columns:
        return answer
    found = [class_names(info) for info in infos if info]
    if (
        len(found) < len(infos)
        or found[0] is None
        or any(one is None or one.names != found[0].names for one in found)
    ):
        return answer
    named = answer.clone()
    for column in columns:
        names = [class_name(found[0], label) for label in answer[column]]
        named.insert_column(named.columns.index(column) + 1, pl.Series(f"{column}_name", names, pl.String))
    return named


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Return ``["min_n=20"]`` as names and texts."""
    for text in texts:
        if "=" not in text:
            raise SoritesError(f"--option wants NAME=VALUE, got {text!r}")
    return dict(text.split("=", 1) for text in texts)

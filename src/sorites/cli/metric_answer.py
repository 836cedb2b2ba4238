"""A metric of a run with its options as they are typed: the answer, and why it is empty where it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from sorites.cli.printing import first_sentence
from sorites.core import METRICS
from sorites.errors import SoritesError, UnknownName
from sorites.pipeline.folder import read_info
from sorites.pipeline.places import place_now
from sorites.table import read

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def answer_metric(
    run: Path,
    metric: str,
    by: Sequence[str] | None = None,
    reference: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
) -> pl.DataFrame:
    """Return one metric of a run; ``options`` are texts as typed.

    A metric that needs a reference model takes the suite's where none is named.
    """
    question = METRICS.get(metric)
    given = {name: _option_value(metric, question, name, text) for name, text in options.items()}
    if by is not None:
        given["by"] = by
    if "reference" in inspect.signature(question).parameters:
        info = read_info(run)
        named = reference or info["suite"].get("reference")
        if named is None:
            raise SoritesError(f"{metric} is relative to a reference model: add --reference MODEL")
        named = reference or place_now(run, info.get("places", {}), named)
        given["reference"] = named
    elif reference is not None:
        raise SoritesError(f"{metric} takes no reference model")
    return question(read(run), **given)


def _option_value(metric: str, question: Callable[..., Any], name: str, text: str) -> Any:
    """Read ``text`` as the type of the metric's default for it: a whole number, a number, true or false, or text."""
    known = {
        key: p.default for key, p in inspect.signature(question).parameters.items() if key not in ("table", "by", "reference")
    }
    if name not in known:
        raise UnknownName(f"option of {metric}", name, known, f"It has {', '.join(known) or 'none'}.")
    kind = type(known[name])
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text) if kind in (int, float) else text
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise SoritesError(f"the option {name} of {metric} wants {wanted}, got {text!r}") from None


def explain_empty(answer: pl.DataFrame, metric: str, options: Mapping[str, str] = NO_OPTIONS, run: Path | None = None) -> str:
    """Say in words why an answer holds nothing; return no words where it holds something."""
    about = first_sentence(METRICS.get(metric))
    if answer.is_empty() and run is not None and (read_info(run).get("imported") or {}).get("as") == "counts":
        made_up = "was imported from counts: its samples are made up, and nothing can be paired."
        return f"no rows. {metric} answers: {about} {run} {made_up}"
    if answer.is_empty():
        return f"no rows. {metric} answers: {about} This run holds nothing to answer that with, given these options."
    if "value" not in answer.columns or answer["value"].null_count() < answer.height:
        return ""
    reason = f"every value is null, n up to {max(answer['n'].to_list())}. {metric} answers: {about}"
    if "strange" in answer.columns and not answer["strange"].sum() and options.get("framework") != "model-specific":
        return f"{reason} None of these pictures is strange; to count those that the model gets wrong: --framework model-specific"
    return reason


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Return ``["min_n=20"]`` as names and texts."""
    for text in texts:
        if "=" not in text:
            raise SoritesError(f"--option wants NAME=VALUE, got {text!r}")
    return dict(text.split("=", 1) for text in texts)

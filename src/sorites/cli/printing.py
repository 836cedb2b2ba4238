"""What the verbs print: a run's closing table, a metric's answer, and what can be named."""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from sorites.core import CLEAN, MEASURES, METRICS, MODELS, REFEREES, SCORERS, SHIFTS, SOURCES, Shift
from sorites.errors import SoritesError, UnknownName
from sorites.pipeline.folder import read_info
from sorites.registry import Registry
from sorites.suite import builtin_suites, load
from sorites.table import read


def ask(
    run: Path,
    metric: str,
    by: Sequence[str] | None = None,
    reference: str | None = None,
    asked: Mapping[str, str] = MappingProxyType({}),
) -> pl.DataFrame:
    """One metric of a run, with options as they are typed. A metric that needs a reference model takes the suite's where none is
    named."""
    question = METRICS.get(metric)
    options = {name: _option(metric, question, name, text) for name, text in asked.items()}
    if by is not None:
        options["by"] = by
    if "reference" in inspect.signature(question).parameters:
        named = reference or read_info(run)["suite"].get("reference")
        if named is None:
            raise SoritesError(f"{metric} is relative to a reference model: add --reference MODEL")
        options["reference"] = named
    elif reference is not None:
        raise SoritesError(f"{metric} takes no reference model")
    return question(read(run), **options)


def _option(metric: str, question: Callable[..., Any], name: str, text: str) -> Any:
    """``text`` as what the metric's own default is: a whole number, a number, true or false, or text."""
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


def empty(answer: pl.DataFrame, metric: str, asked: Mapping[str, str] = MappingProxyType({})) -> str:
    """Why there is nothing in an answer, in words; no words where there is something."""
    about = _first_sentence(METRICS.get(metric))
    if answer.is_empty():
        return f"no rows. {metric} asks: {about} This run holds nothing of that, asked in this way."
    if "value" not in answer.columns or answer["value"].null_count() < answer.height:
        return ""
    said = f"every value is null, n up to {max(answer['n'].to_list())}. {metric} asks: {about}"
    if "strange" in answer.columns and not answer["strange"].sum() and asked.get("framework") != "model-specific":
        return f"{said} Of these pictures none is strange; to ask of those that the model gets wrong: --framework model-specific"
    return said


def options(texts: Sequence[str]) -> dict[str, str]:
    """``["min_n=20"]`` as names and texts."""
    for text in texts:
        if "=" not in text:
            raise SoritesError(f"--option wants NAME=VALUE, got {text!r}")
    return dict(text.split("=", 1) for text in texts)


def printed(frame: pl.DataFrame, format: str) -> str:
    """A frame as text: for the eye, or whole and exact for another program."""
    if format == "csv":
        nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
        spelled = [pl.Series(name, [json.dumps(value) for value in frame[name].to_list()], pl.String) for name in nested]
        return frame.with_columns(spelled).write_csv()
    if format == "json":
        return frame.write_json() + "\n"
    if format != "table":
        raise SoritesError(f"--format wants table, csv or json, got {format!r}")
    return _drawn(frame)


WIDE = 10_000
"""Columns of a page on which no name is ever cut or folded."""


def _drawn(frame: pl.DataFrame) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numeric = {name for name, dtype in frame.schema.items() if dtype.is_numeric()}
    drawn = Table(box=box.SIMPLE, pad_edge=False)
    for name in frame.columns:
        drawn.add_column(name, justify="right" if name in numeric else "left", no_wrap=True)
    for row in frame.iter_rows():
        drawn.add_row(*("–" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    screen = io.StringIO()
    Console(file=screen, width=WIDE, markup=False).print(drawn)
    return "\n".join(line.rstrip() for line in screen.getvalue().splitlines()) + "\n"


def said(folder: Path, say: Callable[[str], None] = print, worked: bool = True) -> None:
    """How a run went: the headline a model, what failed, what was written, what to type next."""
    say(printed(headline(folder), "table"))
    table = read(folder)
    counts = table.select(rows=pl.len(), errors=pl.col("error").count(), probes=pl.col("probe").sum()).collect(engine="streaming")
    rows, errors, probes = counts.row(0)
    if errors:
        first = table.filter(pl.col("error").is_not_null()).select("sample_id", "error").head(1).collect().row(0)
        say(f"{errors} rows are errors, kept as such and left out of every mean; the first, {first[0]}: {first[1]}")
    what = f"wrote {rows} rows to" if worked else f"nothing left to do; {rows} rows in"
    say(f"{what} {folder / 'predictions'}" + (f", {probes} of them probes" if probes else ""))
    say(f"next: sorites report {folder}   or   sorites metrics {folder} accuracy --by model,shift")


def headline(folder: Path) -> pl.DataFrame:
    """Per model: accuracy clean and under shift with their intervals, the drop, and where half the pictures are lost."""
    table = read(folder)
    models = table.select(pl.col("model").unique().sort()).collect(engine="streaming")
    clean = METRICS.get("accuracy")(table.filter(pl.col("shift") == CLEAN), by=["model"])
    shifted = METRICS.get("mean_accuracy")(table)
    drop = METRICS.get("accuracy_drop")(table, by=["model"])
    half = METRICS.get("failure_point")(table, by=["model"], relative=True)
    frame = models.join(clean.select("model", "n"), on="model", how="left")
    for name, part in (("clean", clean), ("shifted", shifted), ("drop", drop), ("half lost at (% of dial)", half)):
        frame = frame.join(part.select("model", _points().alias(name)), on="model", how="left")
    return frame


def _points() -> pl.Expr:
    """A share as percent with its 95 % interval."""

    def number(column: str) -> pl.Expr:
        return (100 * pl.col(column)).round(1).cast(pl.String).fill_null("–")

    return pl.format("{}  [{}, {}]", number("value"), number("low"), number("high"))


def _first_sentence(thing: Any) -> str:
    paragraph = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph)[0]


def _listed_plain(registry: Registry[Any]) -> list[tuple[str, str]]:
    return [(name, _first_sentence(registry.get(name))) for name in registry.names()]


def _listed_shifts() -> list[tuple[str, str]]:
    found = [(SHIFTS.get(name), name) for name in SHIFTS.names()]
    return [(name, f"{shift.about}  [{shift.family}; {_stops(shift)}]") for shift, name in found]


def _listed_measures() -> list[tuple[str, str]]:
    found = [MEASURES.get(name) for name in MEASURES.names()]
    return [(one.name, f"{one.about}  [{one.unit + '; ' if one.unit else ''}{one.nearer} is nearer]") for one in found]


def _stops(shift: Shift) -> str:
    if not shift.levels:
        return f"{len(shift.settings)} settings"
    return f"{shift.unit}; levels {', '.join(f'{level:.3g}' for level in shift.levels)}"


KINDS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "shifts": _listed_shifts,
    "models": lambda: _listed_plain(MODELS),
    "sources": lambda: _listed_plain(SOURCES),
    "metrics": lambda: _listed_plain(METRICS),
    "scorers": lambda: _listed_plain(SCORERS),
    "measures": _listed_measures,
    "referees": lambda: _listed_plain(REFEREES),
    "suites": lambda: [(name, load(name).about) for name in builtin_suites()],
}


def listed(kind: str | None = None) -> str:
    """Names with a line each, of one kind or of all."""
    if kind is not None and kind not in KINDS:
        raise UnknownName("kind", kind, KINDS, f"One of {', '.join(KINDS)}.")
    blocks = []
    for name in [kind] if kind else KINDS:
        entries = KINDS[name]()
        width = max((len(entry) for entry, _ in entries), default=0)
        lines = [f"  {entry:<{width}}  {about}".rstrip() for entry, about in entries]
        blocks.append("\n".join([*([] if kind else [f"{name}:"]), *lines]))
    return "\n".join(blocks) + "\n"

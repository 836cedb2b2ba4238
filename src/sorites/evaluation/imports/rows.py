"""From the cells of a prediction file to rows of the table: what is absent is filled in, and the
verdict follows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites.core import CLEAN, SHIFTS, Setting
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.rng import digest
from sorites.core.table import SCHEMA
from sorites.evaluation.imports.cells import ROW, Sheet, typed

# True on rows that a file may say more than once: the image at severity 0 of each shift, the
# answer beside each score.
SHARED = "(shared)"

# The source of rows whose file names none.
SOURCE = "imported"

_DEFAULTS: Mapping[str, Any] = {
    "source": SOURCE,
    "split": "",
    "shift": CLEAN,
    "seed": 0,
    "probe": False,
    "params": "{}",
}
_IMAGE = ["source", "sample_id", "shift", "severity", "params", "seed"]


def table_rows(sheet: Sheet, labels: Labels, higher: str = "unknown") -> pl.DataFrame:
    """Return the sheet as rows of the table, with ``ROW`` and ``SHARED`` beside them; nothing has a
    ``run_id`` yet.
    """
    _refuse_absent(sheet)
    known = _filled(typed(sheet, labels))
    moved = _with_clean(_with_parts(known))
    judged = _judged(sheet, _with_accept(moved))
    if "image_id" not in judged.columns:
        judged = _with_image_ids(judged)
    made = _outputs(judged.with_columns(_family(judged)), higher)
    _refuse_gaps(sheet, made)
    absent = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in made.columns]
    return made.with_columns(absent).select(
        *(pl.col(name).cast(kind) for name, kind in SCHEMA.items()), ROW, SHARED
    )


def _refuse_absent(sheet: Sheet) -> None:
    have = set(sheet.frame.columns)
    lacks = [name for name in ("sample_id", "model") if name not in have]
    if "correct" not in have and not ("pred" in have and have & {"label", "accept"}):
        lacks += [name for name in ("label", "pred") if name not in have]
    if lacks:
        hint = (
            "name the model with --model NAME"
            if lacks == ["model"]
            else "name columns with --columns FILE.toml"
        )
        taken = ", ".join(f"{name} from {mine}" for name, mine in sheet.called.items()) or "nothing"
        raise SoritesError(f"{sheet.file}: expected columns for {', '.join(lacks)}; {hint}. Found {taken}")


def _filled(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the default where a column or a cell of it is absent."""
    absent = {
        name: pl.lit(value, SCHEMA[name]) for name, value in _DEFAULTS.items() if name not in rows.columns
    }
    gaps = [pl.col(name).fill_null(value) for name, value in _DEFAULTS.items() if name in rows.columns]
    numbers = {name: pl.lit(None, SCHEMA[name]) for name in ("severity", "level") if name not in rows.columns}
    return rows.with_columns(*gaps, **absent, **numbers)


def _with_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Put columns such as ``params.iso`` and ``attrs.weather`` into ``params`` and ``attrs``."""
    for kind, put in (("params", _put_params), ("attrs", _put_attrs)):
        names = [name for name in rows.columns if name.startswith(f"{kind}.")]
        if names:
            held = rows[kind].to_list() if kind in rows.columns else [None] * rows.height
            parts = (
                rows.select(names).rename({name: name.removeprefix(f"{kind}.") for name in names}).to_dicts()
            )
            whole = pl.Series(
                kind, [put(one, more) for one, more in zip(held, parts, strict=True)], SCHEMA[kind]
            )
            rows = rows.drop(names).with_columns(whole)
    return rows


def _put_params(held: str | None, parts: Mapping[str, Any]) -> str:
    given = {key: number(value) for key, value in parts.items() if value is not None}
    return json.dumps({**json.loads(held or "{}"), **given}, sort_keys=True)


def number(value: Any) -> Any:
    """Return text that is a number as one: the cells of a CSV file are all text."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _put_attrs(held: Any, parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    more = [
        {"key": key, "value": str(value), "common": None} for key, value in parts.items() if value is not None
    ]
    return [*(held or ()), *more]


def _with_clean(rows: pl.DataFrame) -> pl.DataFrame:
    """Call the image at severity 0 clean, whatever shift it starts, and put clean images at
    severity 0.
    """
    start = (pl.col("shift") != CLEAN) & (pl.col("severity") == 0)
    named = rows.with_columns(
        pl.when(start).then(pl.lit(CLEAN)).otherwise("shift").alias("shift"), start.alias(SHARED)
    )
    clean = pl.col("shift") == CLEAN
    return named.with_columns(
        pl.col(SHARED).fill_null(False),
        severity=pl.when(clean).then(0.0).otherwise("severity"),
        level=pl.when(~clean).then("level"),
    )


def _with_accept(rows: pl.DataFrame) -> pl.DataFrame:
    none = pl.lit([], SCHEMA["accept"])
    label = pl.col("label") if "label" in rows.columns else pl.lit(None, SCHEMA["label"])
    own = pl.when(label.is_not_null()).then(pl.concat_list(label)).otherwise(none)
    accept = pl.col("accept").fill_null(own).list.sort() if "accept" in rows.columns else own
    told = rows.with_columns(label=label, accept=accept)
    knows = pl.when((pl.col("accept").list.len() > 0) | pl.lit("correct" in rows.columns)).then(True)
    return told if "known" in rows.columns else told.with_columns(known=knows)


def _judged(sheet: Sheet, rows: pl.DataFrame) -> pl.DataFrame:
    """Say whether each prediction is right; a file that says so itself is believed unless its own
    columns contradict it.
    """
    pred = pl.col("pred") if "pred" in rows.columns else pl.lit(None, SCHEMA["pred"])
    error = pl.col("error") if "error" in rows.columns else pl.lit(None, SCHEMA["error"])
    can_know = (pl.col("accept").list.len() > 0) & pl.col("known").fill_null(True) & error.is_null()
    told = rows.with_columns(pred=pred, error=error)
    follows = told.with_columns(
        right=pl.when(can_know & pred.is_not_null()).then(pl.col("accept").list.contains(pred))
    )
    if "correct" not in rows.columns:
        return follows.rename({"right": "correct"})
    against = (follows["correct"] != follows["right"]).fill_null(False)
    if against.any():
        index = against.arg_max() or 0
        pair = (
            f"pred is {follows['pred'][index]} and the right labels are {follows['accept'].to_list()[index]}"
        )
        raise sheet.wrong(index, "correct", f"says {str(follows['correct'][index]).lower()}, but {pair}")
    return follows.drop("right")


def _with_image_ids(rows: pl.DataFrame) -> pl.DataFrame:
    images = rows.select(_IMAGE).unique(maintain_order=True)
    ids = [
        digest(source, sample, shift, SOURCE, Setting(severity, json.loads(params)).canonical, seed).hex()
        for source, sample, shift, severity, params, seed in images.iter_rows()
    ]
    named = images.with_columns(image_id=pl.Series(ids, dtype=pl.String))
    return rows.join(named, on=_IMAGE, how="left", nulls_equal=True, maintain_order="left")


def _family(rows: pl.DataFrame) -> pl.Expr:
    if "family" in rows.columns:
        return pl.col("family")
    names = rows["shift"].unique().to_list()
    families = {name: SHIFTS.get(name).family if name in SHIFTS.names() else "captured" for name in names}
    return pl.col("shift").replace_strict({**families, CLEAN: CLEAN}, return_dtype=pl.String).alias("family")


def _outputs(rows: pl.DataFrame, higher: str) -> pl.DataFrame:
    """Make an answer and a score of a row that holds both; rows that say which ``output`` they are
    stay as they are.
    """
    if "score" in rows.columns and higher == "id":
        rows = rows.with_columns(-pl.col("score"))
    if "output" in rows.columns:
        return rows.with_columns(pl.col("output").fill_null("label"))
    if "score" not in rows.columns:
        return rows.drop("scorer", strict=False).with_columns(output=pl.lit("label"))
    scorer = pl.col("scorer").fill_null("score") if "scorer" in rows.columns else pl.lit("score")
    scored = rows.filter(pl.col("score").is_not_null()).with_columns(output=pl.lit("ood"), scorer=scorer)
    nothing = {"score": pl.lit(None, SCHEMA["score"]), "scorer": pl.lit(None, SCHEMA["scorer"])}
    answers = rows.filter(
        pl.col("pred").is_not_null() | pl.col("correct").is_not_null() | pl.col("error").is_not_null()
    )
    shared = answers.with_columns(pl.lit(True).alias(SHARED), output=pl.lit("label"), **nothing)
    return pl.concat([shared, scored.select(shared.columns)])


OUTPUTS = ("label", "boxes", "ood")


def _refuse_gaps(sheet: Sheet, rows: pl.DataFrame) -> None:
    """Name the first row without a sample, a model, an answer or a known output."""
    answered = pl.col("pred").is_not_null() | pl.col("correct").is_not_null() | pl.col("error").is_not_null()
    rules = {
        "sample_id": (pl.col("sample_id").is_null(), "expected an id, got nothing"),
        "image_id": (pl.col("image_id").is_null(), "expected an id, got nothing"),
        "model": (pl.col("model").is_null(), "expected a model, got nothing"),
        "output": (~pl.col("output").is_in(OUTPUTS), f"expected one of {', '.join(OUTPUTS)}"),
        "pred": (
            (pl.col("output") == "label") & ~answered,
            "empty: give a prediction, or say why in a column error",
        ),
    }
    for name, (gap, why) in rules.items():
        found = rows.filter(gap)
        if found.height:
            raise sheet.wrong((sheet.frame[ROW] == found[ROW][0]).arg_max() or 0, name, why)

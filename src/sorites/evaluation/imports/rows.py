"""Convert the cells of a prediction file to rows of the table: fill in defaults and compute what is
correct.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites.core import CLEAN, SHIFTS, Setting
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.core.table import SCHEMA
from sorites.evaluation.imports.read import ROW, Sheet, typed

# The column that marks rows which a file may repeat: the image at severity 0 of each shift, and the
# prediction beside each score.
SHARED = "(shared)"

# The source of rows whose file has none.
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


def table_rows(sheet: Sheet, labels: Labels, higher: str = "ood") -> pl.DataFrame:
    """Return a sheet as rows of the table, without ``run_id`` and with the columns ``ROW`` and ``SHARED``.

    Args:
        sheet: The file.
        labels: The classes.
        higher: What a high score means in the file, "ood" or "id".

    Raises:
        SoritesError: If columns are missing, or a row is incomplete or contradicts itself.
    """
    _refuse_absent(sheet)
    filled = _fill_defaults(typed(sheet, labels))
    with_clean = _with_clean(_merge_entries(filled))
    with_correct = _judge(sheet, _with_accept(with_clean))
    if "image_id" not in with_correct.columns:
        with_correct = _with_image_ids(with_correct)
    rows = _outputs(with_correct.with_columns(_family(with_correct)), higher)
    _refuse_gaps(sheet, rows)
    absent = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in rows.columns]
    return rows.with_columns(absent).select(
        *(pl.col(name).cast(kind) for name, kind in SCHEMA.items()), ROW, SHARED
    )


def _refuse_absent(sheet: Sheet) -> None:
    present = set(sheet.frame.columns)
    missing = [name for name in ("sample_id", "model") if name not in present]
    if "correct" not in present and not ("pred" in present and present & {"label", "accept"}):
        missing += [name for name in ("label", "pred") if name not in present]
    if missing:
        hint = (
            f"name the model with {option('model', 'NAME')}"
            if missing == ["model"]
            else f"name columns with {option('columns', 'FILE')}"
        )
        matched = ", ".join(f"{name} from {column}" for name, column in sheet.called.items()) or "nothing"
        raise SoritesError(
            f"{sheet.file}: expected columns for {', '.join(missing)}; {hint}. Found {matched}"
        )


def _fill_defaults(rows: pl.DataFrame) -> pl.DataFrame:
    """Fill absent columns and cells with their defaults."""
    absent = {
        name: pl.lit(value, SCHEMA[name]) for name, value in _DEFAULTS.items() if name not in rows.columns
    }
    gaps = [pl.col(name).fill_null(value) for name, value in _DEFAULTS.items() if name in rows.columns]
    numbers = {name: pl.lit(None, SCHEMA[name]) for name in ("severity", "level") if name not in rows.columns}
    return rows.with_columns(*gaps, **absent, **numbers)


def _merge_entries(rows: pl.DataFrame) -> pl.DataFrame:
    """Merge columns such as ``params.iso`` and ``attrs.weather`` into ``params`` and ``attrs``."""
    for kind, merge in (("params", _merge_params), ("attrs", _merge_attrs)):
        names = [name for name in rows.columns if name.startswith(f"{kind}.")]
        if names:
            values = rows[kind].to_list() if kind in rows.columns else [None] * rows.height
            parts = (
                rows.select(names).rename({name: name.removeprefix(f"{kind}.") for name in names}).to_dicts()
            )
            merged = pl.Series(
                kind,
                [merge(value, entries) for value, entries in zip(values, parts, strict=True)],
                SCHEMA[kind],
            )
            rows = rows.drop(names).with_columns(merged)
    return rows


def _merge_params(params: str | None, parts: Mapping[str, Any]) -> str:
    more = {key: number(value) for key, value in parts.items() if value is not None}
    return json.dumps({**json.loads(params or "{}"), **more}, sort_keys=True)


def number(value: Any) -> Any:
    """Return a number for text that is one, because all cells of a CSV file are text."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _merge_attrs(attrs: Any, parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    more = [
        {"key": key, "value": str(value), "common": None} for key, value in parts.items() if value is not None
    ]
    return [*(attrs or ()), *more]


def _with_clean(rows: pl.DataFrame) -> pl.DataFrame:
    """Rename images at severity 0 of any shift to clean, and set the severity of clean images to 0."""
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
    label_only = pl.when(label.is_not_null()).then(pl.concat_list(label)).otherwise(none)
    accept = pl.col("accept").fill_null(label_only).list.sort() if "accept" in rows.columns else label_only
    completed = rows.with_columns(label=label, accept=accept)
    is_known = pl.when((pl.col("accept").list.len() > 0) | pl.lit("correct" in rows.columns)).then(True)
    return completed if "known" in rows.columns else completed.with_columns(known=is_known)


def _judge(sheet: Sheet, rows: pl.DataFrame) -> pl.DataFrame:
    """Add whether each prediction is correct; the file's own column is used unless other columns
    contradict it.
    """
    pred = pl.col("pred") if "pred" in rows.columns else pl.lit(None, SCHEMA["pred"])
    error = pl.col("error") if "error" in rows.columns else pl.lit(None, SCHEMA["error"])
    can_know = (pl.col("accept").list.len() > 0) & pl.col("known").fill_null(True) & error.is_null()
    completed = rows.with_columns(pred=pred, error=error)
    computed = completed.with_columns(
        right=pl.when(can_know & pred.is_not_null()).then(pl.col("accept").list.contains(pred))
    )
    if "correct" not in rows.columns:
        return computed.rename({"right": "correct"})
    contradicts = (computed["correct"] != computed["right"]).fill_null(False)
    if contradicts.any():
        index = contradicts.arg_max() or 0
        accept = computed["accept"].to_list()[index]
        pair = f"pred is {computed['pred'][index]} and the correct labels are {accept}"
        raise sheet.wrong(index, "correct", f"is {str(computed['correct'][index]).lower()}, but {pair}")
    return computed.drop("right")


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
    families = {name: SHIFTS.get(name).family if name in SHIFTS else "captured" for name in names}
    return pl.col("shift").replace_strict({**families, CLEAN: CLEAN}, return_dtype=pl.String).alias("family")


def _outputs(rows: pl.DataFrame, higher: str) -> pl.DataFrame:
    """Split rows with a prediction and a score into two; rows with an ``output`` stay as they are."""
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
    """Raise an error for the first row without a sample, model or prediction, or with an unknown output."""
    answered = pl.col("pred").is_not_null() | pl.col("correct").is_not_null() | pl.col("error").is_not_null()
    rules = {
        "sample_id": (pl.col("sample_id").is_null(), "expected an id, got nothing"),
        "image_id": (pl.col("image_id").is_null(), "expected an id, got nothing"),
        "model": (pl.col("model").is_null(), "expected a model, got nothing"),
        "output": (~pl.col("output").is_in(OUTPUTS), f"expected one of {', '.join(OUTPUTS)}"),
        "pred": (
            (pl.col("output") == "label") & ~answered,
            "empty: add a prediction, or the reason in a column error",
        ),
    }
    for name, (condition, message) in rules.items():
        bad_rows = rows.filter(condition)
        if bad_rows.height:
            raise sheet.wrong((sheet.frame[ROW] == bad_rows[ROW][0]).arg_max() or 0, name, message)

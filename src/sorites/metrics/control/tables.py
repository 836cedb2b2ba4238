"""Camera control from the table: accuracy of each policy against the number of shots, also with one model
choosing for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics.camera import AUTO, DIALS, effective_weight, fold_of, with_settings
from sorites.metrics.control.policies import (
    SEARCHES,
    Policy,
    Views,
    budgets,
    cross_fitted,
    first_setting,
)
from sorites.metrics.intervals import clustered_wilson_interval
from sorites.metrics.rows import REAL_SAMPLES, SAMPLE_KEY, answer_frame, judged_rows, select_rows

# Photographs are compared within a run and a part of a source.
PART = ("run_id", "source", "split")
SCENE = (*PART, "sample_id", "light")
# The scorer whose score is the entropy of the softmax.
ENTROPY = "entropy"
# Columns that differ between the photographs of a scene.
WITHIN = (
    *("params", "exposure", *DIALS, "image_id", "seed"),
    *("pred", "conf", "top5", "correct", "error", "degrees"),
)
OUTCOME = {
    "chooser": pl.String,
    "policy": pl.String,
    "shots": pl.Int64,
    "kept_by": pl.String,
    "share": pl.Float64,
    "exposure_ms": pl.Float64,
    "images": pl.Int64,
}


@add_metric
def control_policies(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Accuracy of policies that choose camera settings (``policy``) against the photographs taken per scene
    (``shots``).

    A scene is a sample under one light; scenes without all settings are left out. ``auto`` is one automatic
    shot. ``fixed`` is one setting for all samples and lights. ``confidence`` trusts the most confident of
    ``shots`` photographs, ``mvp`` keeps half of them, those of lowest entropy, and lets these vote, and
    ``oracle`` is correct if any of them is. The settings are learnt on other samples than those they are
    judged on (five folds), whatever the light. ``kept_by`` says what the vote is ordered by: the scorer
    ``entropy`` if the run has it, else the confidence. ``exposure_ms`` is the exposure time of the shots,
    where it is known; the time to read and set the camera is not in it. The interval is by sample.
    """
    return _summary(table, by, own=True)


@add_metric
def control_transfer(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Accuracy of a model on photographs that another model (``chooser``) chose, by ``policy``.

    The policies are those of ``control_policies`` with all settings of the grid; ``fixed`` and ``oracle``
    follow what the chooser gets right. Only scenes that both models were judged on at all settings count. The
    interval is by sample.
    """
    return _summary(table, by, own=False)


def _summary(table: Table, by: Sequence[str], own: bool) -> pl.DataFrame:
    rows, keys = select_rows(with_settings(table), by, refuse=WITHIN)
    columns = list(dict.fromkeys([*keys, *SAMPLE_KEY, "model", *PART, "light"]))
    judged = judged_rows(rows).filter(REAL_SAMPLES)
    shots = judged.select(
        *columns,
        "exposure",
        *DIALS,
        "pred",
        "conf",
        "correct",
        "image_id",
        auto_s=pl.col("params").str.json_path_match("$.shutter").cast(pl.Float64),
    )
    frame = shots.join(_entropies(table), on=_IMAGE, how="left", nulls_equal=True).collect(engine="streaming")
    scenes = frame.select(*columns).unique(["model", *SCENE], keep="any", maintain_order=False)
    kinds: dict[str, Any] = {"model": pl.String, **{name: frame.schema[name] for name in SCENE}, **OUTCOME}
    outcomes = pl.concat([pl.DataFrame(schema=kinds), *_outcomes(frame, own)])
    named = outcomes.join(scenes, on=["model", *SCENE], nulls_equal=True)
    then = ["policy", "shots", "kept_by"] if own else ["chooser", "policy", "kept_by"]
    of_sample = named.group_by(*dict.fromkeys([*keys, *SAMPLE_KEY, *then])).agg(
        pl.col("share").mean(),
        pl.col("exposure_ms").mean(),
        weights=effective_weight(pl.col("images")),
    )
    sums = of_sample.group_by(*keys, *then).agg(
        value=pl.col("share").mean(),
        spread=pl.col("share").var(ddof=0),
        n=pl.len().cast(pl.Int64),
        rows=pl.len().cast(pl.Float64) ** 2 / pl.col("weights").sum(),
        exposure_ms=pl.col("exposure_ms").mean(),
    )
    bounds = clustered_wilson_interval(pl.col("value"), pl.col("spread"), pl.col("n"), pl.col("rows"))
    more = ["exposure_ms", "kept_by"] if own else ["kept_by"]
    order = then[:-1]
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high", *more, then=order)


# What identifies an image for a model: two sources may use the same names.
_IMAGE = ("run_id", "source", "image_id", "model")


def _entropies(table: Table) -> pl.LazyFrame:
    rows = table.lazy().filter((pl.col("output") == "ood") & (pl.col("scorer") == ENTROPY))
    return rows.select(*_IMAGE, entropy="score").unique(_IMAGE)


@dataclass(frozen=True)
class _Part:
    """The complete scenes of one model in one part of a source."""

    scenes: pl.DataFrame
    views: Views
    folds: NDArray[np.int64]
    milliseconds: NDArray[np.float64]
    kept_by: str | None
    """What a vote is ordered by; None if the confidence is unknown."""

    @property
    def searches(self) -> dict[str, Policy]:
        """The policies that can be followed."""
        return SEARCHES if self.kept_by else {"oracle": SEARCHES["oracle"]}

    def common(self, other: _Part) -> tuple[_Part, _Part]:
        """Return both parts with the scenes of both only."""
        numbered = [part.scenes.with_row_index("row") for part in (self, other)]
        joined = numbered[0].join(numbered[1], on=list(SCENE), nulls_equal=True, suffix="_other").sort(SCENE)
        return self._at(joined["row"].to_numpy()), other._at(joined["row_other"].to_numpy())

    def _at(self, rows: NDArray[Any]) -> _Part:
        index = rows.astype(np.int64)
        views = self.views.at(index, np.arange(self.views.correct.shape[1]))
        return _Part(self.scenes[index.tolist()], views, self.folds[index], self.milliseconds, self.kept_by)


def _outcomes(frame: pl.DataFrame, own: bool) -> Iterator[pl.DataFrame]:
    """Yield one row per scene for each policy and number of shots."""
    for _, part in sorted(frame.partition_by(list(PART), as_dict=True).items(), key=str):
        models = sorted(part["model"].unique().to_list())
        parts = {model: _complete(part.filter(pl.col("model") == model)) for model in models}
        for model in models:
            judge = parts[model]
            if own:
                yield _automatic(part.filter(pl.col("model") == model), model)
            if judge is None:
                continue
            if own:
                yield from _budgets(judge, model)
            else:
                for chooser in models:
                    if (choosing := parts[chooser]) is not None:
                        yield from _transferred(chooser, choosing, model, judge)


def _complete(rows: pl.DataFrame) -> _Part | None:
    """Return the scenes of a model that were judged at every manual setting, as arrays."""
    manual = rows.filter(~AUTO).unique([*SCENE, *DIALS], keep="any").sort(*SCENE, *DIALS)
    settings = manual.select(DIALS).unique().sort(DIALS)
    counts = manual.group_by(SCENE).agg(count=pl.len())
    whole = counts.filter(pl.col("count") == settings.height).select(SCENE)
    if not whole.height:
        return None
    kept = manual.join(whole, on=list(SCENE), nulls_equal=True).sort(*SCENE, *DIALS)
    shape = (whole.height, settings.height)
    confidence = kept["conf"].cast(pl.Float64)
    unscored, unknown = kept["entropy"].is_null().any(), confidence.is_null().any()
    certain = -confidence if unscored else kept["entropy"]
    kept_by = None if unknown else "confidence" if unscored else ENTROPY
    views = Views(
        kept["correct"].to_numpy().reshape(shape),
        kept["pred"].cast(pl.Int64).fill_null(-1).to_numpy().reshape(shape),
        confidence.fill_null(0.0).to_numpy().reshape(shape),
        certain.fill_null(0.0).to_numpy().reshape(shape),
    )
    scenes = whole.sort(SCENE)
    folds = np.array([fold_of(sample) for sample in scenes["sample_id"]])
    seconds = settings["shutter"].cast(pl.Float64).to_numpy()
    return _Part(scenes, views, folds, 1000 * seconds, kept_by)


def _automatic(rows: pl.DataFrame, model: str) -> pl.DataFrame:
    """Return the automatic shots: one shot per scene, the mean over its repetitions."""
    shots = (
        rows.filter(AUTO)
        .group_by(SCENE)
        .agg(
            share=pl.col("correct").cast(pl.Float64).mean(),
            exposure_ms=1000 * pl.col("auto_s").mean(),
            images=pl.len().cast(pl.Int64),
        )
    )
    named = shots.sort(SCENE).with_columns(
        model=pl.lit(model), chooser=pl.lit(model), policy=pl.lit("auto"),
        shots=pl.lit(1, pl.Int64), kept_by=pl.lit(None, pl.String),
    )  # fmt: skip
    return named.select("model", *SCENE, *OUTCOME)


def _budgets(part: _Part, model: str) -> Iterator[pl.DataFrame]:
    yield from _rows(part, part, "fixed", first_setting, 1, model, model)
    for shots in budgets(part.views.correct.shape[1]):
        for name, policy in part.searches.items():
            yield from _rows(part, part, name, policy, shots, model, model)


def _transferred(chooser: str, choosing: _Part, model: str, judge: _Part) -> Iterator[pl.DataFrame]:
    if choosing.views.correct.shape[1] != judge.views.correct.shape[1]:
        return
    first, second = choosing.common(judge)
    shots = judge.views.correct.shape[1]
    yield from _rows(first, second, "fixed", first_setting, 1, chooser, model)
    for name, policy in choosing.searches.items():
        yield from _rows(first, second, name, policy, shots, chooser, model)


def _rows(
    choosing: _Part, judge: _Part, name: str, policy: Policy, shots: int, chooser: str, model: str
) -> Iterator[pl.DataFrame]:
    """Yield the outcomes of one policy, if there are any."""
    if not judge.scenes.height:
        return
    answer = cross_fitted(choosing.views, judge.views, choosing.folds, policy, shots)
    if answer is None:
        return
    correct, used = answer
    spent = pl.Series(choosing.milliseconds[used].sum(1)).fill_nan(None)
    kept_by = choosing.kept_by if name == "mvp" else None
    outcomes = judge.scenes.with_columns(
        model=pl.lit(model), chooser=pl.lit(chooser), policy=pl.lit(name), shots=pl.lit(shots, pl.Int64),
        kept_by=pl.lit(kept_by, pl.String), share=pl.Series(correct.astype(np.float64)), exposure_ms=spent,
        images=pl.lit(1, pl.Int64),
    )  # fmt: skip
    yield outcomes.select("model", *SCENE, *OUTCOME)

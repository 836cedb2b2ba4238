"""Selective prediction: the model answers the images with the lowest OOD scores first.

Coverage is the share of images answered; risk is the share of those answers that are wrong. Tied scores
use the mean risk over all orders of the ties. A model without scores is ranked by its confidence, which
is the scorer msp; the column ``scorer`` is then ``conf``. Where samples accept several classes, msp is
ranked by the confidence too, which sums the probabilities of classes that mean the same answer: a verdict on
a category is not ranked by the probability of one of its classes. Intervals are over samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.errors import InvalidOption
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics import intervals as bounds
from sorites.metrics.ood import key_types
from sorites.metrics.rows import answer_frame
from sorites.metrics.separation import (
    BY_SCORER,
    HAS_SCORE,
    UNKNOWN_CLASS,
    by_model_and_scorer,
    scored_rows,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RankedAnswers:
    """The judged images of a group, lowest OOD score first.

    Attributes:
        key: The values of the group columns.
        wrong: 1 where the image is misclassified, else 0.
        block: The index of the group of tied scores, ascending.
        sample: The sample of each image.
        ood: Whether the image is OOD, where OOD images are included.
    """

    key: tuple[Any, ...]
    wrong: Floats
    block: NDArray[np.intp]
    sample: NDArray[np.uint64]
    ood: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.wrong)

    def over_ties(self, values: Floats) -> Floats:
        """Replace each value by the mean of the values whose scores tie with it."""
        return (np.bincount(self.block, values) / np.bincount(self.block))[self.block]

    @property
    def risk(self) -> Floats:
        """The risk of answering the first k + 1 images, at index k."""
        return np.cumsum(self.over_ties(self.wrong)) / np.arange(1, len(self) + 1)

    def by_sample(self, values: Floats) -> Floats:
        """Return the sums of the values of each sample."""
        _, codes = np.unique(self.sample, return_inverse=True)
        return np.bincount(codes, values).astype(np.float64, copy=False)

    def risk_near(self, answered: int) -> float:
        """Return the share of errors among the images whose scores are nearest to the threshold.

        The number of these images grows with the group more slowly than the group itself.
        """
        reach = max(math.ceil(len(self) ** 0.6 / 2), 3)
        near = self.over_ties(self.wrong)[max(answered - reach, 0) : answered + reach]
        return float(near.mean())


@add_metric
def aurc(table: Table, by: Sequence[str] = BY_SCORER) -> pl.DataFrame:
    """Area under the risk-coverage curve: the risk averaged over all coverages (Geifman and El-Yaniv,
    NeurIPS 2017); 0 is best.

    ``risk`` is the risk at full coverage, which is also the expected area of a random score. ``best``
    is the area of a score that ranks every error last. The interval uses the influence of each sample, on
    a logarithmic scale; it is null where all answers are correct or all are wrong.
    """
    keys, groups = _answers(table, by)
    return _areas(table, keys, (_area(keys, group) for group in groups))


@add_metric
def augrc(table: Table, by: Sequence[str] = BY_SCORER) -> pl.DataFrame:
    """Area under the generalised risk-coverage curve: the share of all images that are answered and wrong,
    averaged over all coverages (Traub et al., NeurIPS 2024); 0 is best.

    It equals (1 - AUROC) * accuracy * error + error² / 2, where the AUROC separates errors from correct
    answers, so it weighs an error by the images ranked after it and not by those ranked before it. ``risk``
    and ``best`` are as in ``aurc``. The interval uses the influence of each sample.
    """
    keys, groups = _answers(table, by)
    return _areas(table, keys, (_generalised(keys, group) for group in groups))


@add_metric
def scod(table: Table, by: Sequence[str] = BY_SCORER) -> pl.DataFrame:
    """Area under the risk-coverage curve of in-distribution and OOD images together, where every answered
    OOD image is an error (selective classification with OOD data, Xia and Bouganis 2022; Narasimhan et al.
    2024).

    ``id`` and ``ood`` count the images: the value depends on their shares, so compare it only at the same
    ones. ``generalised`` is the area under the generalised curve (``augrc``) of the same images. ``risk``,
    ``best`` and the interval are as in ``aurc``. Groups without OOD images have no value.
    """
    keys, groups = _answers(table, by, ood_errors=True)
    return _areas(table, keys, (_with_ood(keys, group) for group in groups), ("id", "ood"), ("generalised",))


@add_metric
def risk_coverage(table: Table, by: Sequence[str] = BY_SCORER, points: int = 50) -> pl.DataFrame:
    """Risk at ``points`` equal steps of ``coverage``; ``n`` counts answered images.

    The interval is Wilson's with an effective number of answers, from the influence of each sample on the
    risk. It includes the uncertainty of the threshold, which is estimated on the same images.
    """
    if points < 1:
        raise InvalidOption("points", f"{parameter('points')} must be at least 1, got {points}")
    keys, groups = _answers(table, by)
    records = [line for group in groups for line in _curve(keys, group, points)]
    numbers = dict.fromkeys(("coverage", "value", "low", "high"), pl.Float64())
    frame = pl.DataFrame(records, schema={**key_types(table, keys), **numbers, "n": pl.Int64()})
    return answer_frame(frame, keys, "value", "n", "low", "high", then=["coverage"])


# The scorer of rows that are ranked by confidence.
CONFIDENCE = "conf"
# The scorer whose probability is that of the answer.
MSP = "msp"


def with_confidence(table: Table) -> pl.LazyFrame:
    """Return the table with ``ood`` rows for models without scores: the score is 1 - ``conf`` and the scorer
    is called ``conf``.

    If samples accept several classes, the score of msp is replaced by 1 - ``conf`` as well.
    """
    lazy = table.lazy()
    schema = lazy.collect_schema()
    scored = lazy.filter(pl.col("output") == "ood").select(pl.col("model").unique())
    models = scored.collect(engine="streaming")["model"].to_list()
    ranked = lazy.filter(
        (pl.col("output") == "label") & pl.col("conf").is_not_null() & ~pl.col("model").is_in(models)
    ).with_columns(
        output=pl.lit("ood"),
        scorer=pl.lit(CONFIDENCE, schema["scorer"]),
        score=(1 - pl.col("conf").cast(pl.Float64)).cast(schema["score"]),
    )
    return pl.concat([_msp_of_answers(lazy), ranked.select(schema.names())])


def _msp_of_answers(lazy: pl.LazyFrame) -> pl.LazyFrame:
    """Return the table with the score of msp replaced by 1 - ``conf`` if samples accept several classes."""
    if "accept" not in lazy.collect_schema():
        return lazy
    msp = (pl.col("output") == "ood") & (pl.col("scorer") == MSP) & pl.col("conf").is_not_null()
    several = lazy.filter(msp).select((pl.col("accept").list.len() > 1).any())
    if not several.collect(engine="streaming").item():
        return lazy
    replaced = (1 - pl.col("conf").cast(pl.Float64)).cast(lazy.collect_schema()["score"])
    return lazy.with_columns(
        score=pl.when(msp & pl.col("score").is_not_null()).then(replaced).otherwise("score")
    )


def _areas(
    table: Table,
    keys: Sequence[str],
    records: Iterable[dict[str, object]],
    counts: Sequence[str] = (),
    further: Sequence[str] = (),
) -> pl.DataFrame:
    """Return the answer of a metric of areas."""
    numbers = dict.fromkeys(("value", "low", "high", "risk", "best", *further), pl.Float64())
    integers = dict.fromkeys(("n", *counts), pl.Int64())
    frame = pl.DataFrame(list(records), schema={**key_types(table, keys), **numbers, **integers})
    return answer_frame(frame, keys, "value", "n", "low", "high", "risk", "best", *further, *counts)


def _answers(
    table: Table, by: Sequence[str], ood_errors: bool = False
) -> tuple[list[str], Iterator[RankedAnswers]]:
    """Return the group columns and the ranked images of each group: those that are judged, and with
    ``ood_errors`` also the OOD ones, which are wrong.
    """
    rows, keys = scored_rows(with_confidence(table), by)
    ood = UNKNOWN_CLASS if ood_errors else pl.lit(False)
    correct = pl.when(ood).then(False).otherwise("correct")
    usable = (
        rows.filter(HAS_SCORE)
        .select(*keys, "score", "sample", correct=correct, ood=ood)
        .filter(pl.col("correct").is_not_null())
    )
    ordered = (part.sort("score", "sample", "correct", "ood") for part in by_model_and_scorer(usable))
    return keys, (
        _rank(key, rows) for part in ordered for key, rows in part.group_by(keys, maintain_order=True)
    )


def _rank(key: tuple[Any, ...], rows: pl.DataFrame) -> RankedAnswers:
    wrong = rows["correct"].not_().cast(pl.Float64).to_numpy()
    _, block = np.unique(rows["score"].to_numpy(), return_inverse=True)
    return RankedAnswers(key, wrong, block, rows["sample"].to_numpy(), rows["ood"].to_numpy())


def _area(keys: Sequence[str], group: RankedAnswers) -> dict[str, object]:
    value, overall = float(group.risk.mean()), float(group.wrong.mean())
    best = np.cumsum(np.sort(group.wrong)) / np.arange(1, len(group) + 1)
    low, high = _bounds(group, value) if 0 < overall < 1 else (None, None)
    numbers = {
        "value": value,
        "n": len(group),
        "low": low,
        "high": high,
        "risk": overall,
        "best": float(best.mean()),
    }
    return {**dict(zip(keys, group.key, strict=True)), **numbers}


def _with_ood(keys: Sequence[str], group: RankedAnswers) -> dict[str, object]:
    counts = {"id": int((~group.ood).sum()), "ood": int(group.ood.sum())}
    record = {**_area(keys, group), **counts, "generalised": _generalised_area(group)}
    without = dict.fromkeys(("value", "low", "high", "risk", "best", "generalised"))
    return record if counts["ood"] else {**record, **without}


def _generalised(keys: Sequence[str], group: RankedAnswers) -> dict[str, object]:
    record = _area(keys, group)
    overall, value = float(group.wrong.mean()), _generalised_area(group)
    low, high = bounds.influence_bounds(value, group.by_sample(_pair_influence(group)) / len(group))
    if low is None or high is None or not 0 < overall < 1:
        low = high = None
    else:
        low, high = max(low, 0.0), min(high, overall)
    return {**record, "value": value, "low": low, "high": high, "best": overall**2 / 2}


def _generalised_area(group: RankedAnswers) -> float:
    """Return the mean over pairs of images of: the first is wrong and ranked before the second."""
    return float((group.wrong * _share_after(group)).mean())


def _share_after(group: RankedAnswers) -> Floats:
    """Return the share of images ranked after each image; ties, and the image itself, count half."""
    sizes = np.bincount(group.block)
    after = len(group) - np.cumsum(sizes) + sizes / 2
    return np.asarray(after[group.block] / len(group))


def _pair_influence(group: RankedAnswers) -> Floats:
    """Return the influence of each image on the generalised area, as the first and the second of a pair."""
    errors = np.bincount(group.block, group.wrong)
    before = (np.cumsum(errors) - errors / 2)[group.block] / len(group)
    influence = group.wrong * _share_after(group) + before
    return np.asarray(influence - influence.mean())


def _bounds(group: RankedAnswers, value: float) -> bounds.Bounds:
    """Return the interval from the influence of each sample, the sum of the influences of its images."""
    total = group.by_sample(_influence(group)) / len(group)
    low, high = bounds.influence_bounds(0.0, total)
    if low is None or high is None:
        return None, None
    return value * math.exp(low / value), min(value * math.exp(high / value), 1.0)


def _influence(group: RankedAnswers) -> Floats:
    """Return the influence of each image on the area.

    The area is E[wrong * -log F(score)]: an image adds its own term and changes F for all images with
    the same or a higher score.
    """
    n = len(group)
    harmonic_tails = np.cumsum((1 / np.arange(1, n + 1))[::-1])[::-1]
    ranks_at_ties = np.cumsum(np.bincount(group.block))
    weight = np.bincount(group.block, group.wrong) / ranks_at_ties
    shift_of_f = np.cumsum(weight[::-1])[::-1][group.block]
    influence = group.wrong * group.over_ties(harmonic_tails) - shift_of_f
    # The numbers of in-distribution and of OOD images are chosen, not drawn.
    for stratum in (group.ood, ~group.ood):
        if stratum.any():
            influence[stratum] -= influence[stratum].mean()
    return np.asarray(influence)


def _curve(keys: Sequence[str], group: RankedAnswers, points: int) -> Iterator[dict[str, object]]:
    risk = group.risk
    for step in range(1, points + 1):
        answered = max(round(len(group) * step / points), 1)
        value = float(risk[answered - 1])
        low, high = bounds.share(value, _effective_answers(group, answered, value))
        numbers = {"coverage": step / points, "value": value, "n": answered, "low": low, "high": high}
        yield {**dict(zip(keys, group.key, strict=True)), **numbers}


def _effective_answers(group: RankedAnswers, answered: int, risk: float) -> float:
    """Return the number of independent answers with the same variance of the risk.

    The risk of the answered images is their errors divided by a fixed number of answers. An additional
    answered image moves the threshold down, so that an image at the threshold is no longer answered; its
    influence is its own error less the risk at the threshold.
    """
    included = group.over_ties((np.arange(len(group)) < answered).astype(np.float64))
    at_threshold = group.risk_near(answered)
    own = included * (group.wrong - at_threshold)
    influence = group.by_sample(own - (risk - at_threshold) * answered / len(group)) / answered
    clusters = len(influence)
    variance = clusters / max(clusters - 1, 1) * float(np.sum(influence**2))
    largest = float(np.sum(group.by_sample(included) ** 2)) / answered
    return bounds.effective_size(risk, variance, answered, max(largest, 1.0))

"""F1 at a threshold, in two definitions that answer two questions.

``f1`` asks whether strange pictures are found: strange is positive, and the threshold is chosen on one split and judged on the
others. ``f1_at_tpr95`` is that of ImageNet-ES: familiar is positive, and each setting has its own threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics import _bounds as bounds
from sorites.metrics._pools import BY_SCORER, Group, groups
from sorites.metrics._rows import answer_frame
from sorites.metrics._separation import Pair
from sorites.metrics.ood import COLUMNS, key_types
from sorites.metrics.scores import SETTING
from sorites.table import Table

TPR = 0.95
"""The share of the familiar pictures that pass the threshold of ``f1_at_tpr95``."""


@add_metric
def f1(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same", split: str | None = None
) -> pl.DataFrame:
    """F1 of flagging strange pictures at the threshold that is best on the rows of ``split``; those rows are not judged.

    A picture is flagged at the threshold or above it. Each model and scorer has one threshold, given in the last column; of
    equally good ones it is the highest. F1 is null where ``split`` lacks one of the two pools. The interval is Wilson's of
    J = TP / (TP + FP + FN), converted by F1 = 2 J / (1 + J), with as many cases as there are different samples.
    """
    splits = _splits(table, split)
    thresholds = dict(_thresholds(table, framework, split)) if splits else {}
    rest = table.lazy().filter(pl.col("split").ne_missing(pl.lit(split, pl.String)))
    keys, found = groups(rest, by, framework, against)
    judge = [keys.index(key) for key in BY_SCORER]
    lines = [_line(keys, group, thresholds.get(tuple(group.key[place] for place in judge))) for group in found]
    return _answer(table, lines, keys)


@add_metric
def f1_at_tpr95(
    table: Table, by: Sequence[str] = (*BY_SCORER, *SETTING), framework: str = "model-specific", against: str = "same"
) -> pl.DataFrame:
    """F1 of passing familiar pictures at the threshold that 95 % of each setting's familiar pictures pass (ImageNet-ES).

    In the framework of that paper familiar is what the model gets right: TP is right and passed, FP wrong and passed, FN right
    and not passed, and F1 = 2 TP / (2 TP + FP + FN). A picture passes at the ``threshold`` or below it; the threshold is the
    lowest that at least 95 % pass. It falls with accuracy even where the score separates equally well, because wrong pictures
    outnumber right ones. It is null without a familiar picture; a setting without any score is absent. The interval is that of
    ``f1``, with the threshold held fixed. (The released code takes the point of the ROC curve whose TPR is nearest to 95 %.)
    """
    keys, found = groups(table, by, framework, against)
    return _answer(table, [_passing_line(keys, group) for group in found if group.counts["n"]], keys)


def _answer(table: Table, lines: Sequence[dict[str, object]], keys: Sequence[str]) -> pl.DataFrame:
    numbers = dict.fromkeys(("value", "low", "high", "threshold"), pl.Float64())
    counts = dict.fromkeys(("n", "familiar", "strange", "missing"), pl.Int64())
    frame = pl.DataFrame(lines, schema={**key_types(table, keys), **numbers, **counts})
    return answer_frame(frame, keys, *COLUMNS, "threshold")


def _passing_line(keys: Sequence[str], group: Group) -> dict[str, object]:
    line = {**dict(zip(keys, group.key, strict=True)), **group.counts}
    familiar = group.familiar.scores
    if not len(familiar):
        return {**line, "value": None, "low": None, "high": None, "threshold": None}
    threshold = float(familiar[math.ceil(TPR * len(familiar) - 1e-9) - 1])
    return {**line, "threshold": threshold, **_f1(Pair(group.familiar, group.strange).flipped, -threshold)}


def _splits(table: Table, split: str | None) -> list[str]:
    """Return the splits that have scores; it is an error if ``split`` is not one of them."""
    found = table.lazy().filter(pl.col("output") == "ood").select(pl.col("split").unique()).collect(engine="streaming")
    names = sorted({name or "" for name in found["split"]})
    wanted = "F1 needs a threshold, and a threshold a validation split of its own"
    if names == [""] and split != "":
        raise SoritesError(f"{wanted}, and the pictures of this table belong to no split. Ask f1_at_tpr95, which needs none.")
    if names and (split is None or split not in names):
        came = "no split was named" if split is None else f"there is no {split!r}"
        raise SoritesError(f"{wanted}: {came}. Type split=NAME, with a NAME of {', '.join(map(repr, names))}.")
    return names


def _thresholds(table: Table, framework: str, split: str | None) -> list[tuple[tuple[str, ...], float]]:
    """Return the best threshold of each model and scorer on the rows of ``split``."""
    _, found = groups(table.lazy().filter(pl.col("split") == pl.lit(split, pl.String)), BY_SCORER, framework)
    return [(group.key, best_threshold(group.pair)) for group in found if group.pair is not None]


def best_threshold(two: Pair) -> float:
    """Return the threshold with the best F1 on these pools; it is always the score of a strange picture."""
    caught = len(two.strange) - two.strange.firsts
    flagged = caught + len(two.familiar) - two.below
    worth = 2 * caught / (flagged + len(two.strange))
    return float(two.strange.scores[len(worth) - 1 - int(np.argmax(worth[::-1]))])


def _line(keys: Sequence[str], group: Group, threshold: float | None) -> dict[str, object]:
    line = {**dict(zip(keys, group.key, strict=True)), **group.counts, "threshold": threshold}
    if group.pair is None or threshold is None:
        return {**line, "value": None, "low": None, "high": None}
    return {**line, **_f1(group.pair, threshold)}


def _f1(two: Pair, threshold: float) -> dict[str, float | None]:
    strange, familiar = two.strange, two.familiar
    caught = int((strange.scores >= threshold).sum())
    cases = len(strange) + int((familiar.scores >= threshold).sum())
    apart = (strange.samples + familiar.samples) / (len(strange) + len(familiar))
    low, high = bounds.share(caught / cases, cases * apart)
    return {"value": _from_jaccard(caught / cases), "low": _from_jaccard(low), "high": _from_jaccard(high)}


def _from_jaccard(share: float | None) -> float | None:
    return None if share is None else 2 * share / (1 + share)

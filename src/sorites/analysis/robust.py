"""An assertion for tests: the accuracy of a model under one shift, with the verdict of a gate."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from scipy.stats import beta, binom

from sorites.analysis.comparison.rules import parse
from sorites.analysis.comparison.statistics import TIE
from sorites.analysis.comparison.verdicts import Verdict
from sorites.core import Source
from sorites.core.errors import InvalidOption, SoritesError
from sorites.evaluation.run import run
from sorites.suites.suite import parse as parse_suite

if TYPE_CHECKING:
    from sorites.evaluation.options import AnyModel


def assert_robust(
    model: AnyModel,
    *,
    shift: str,
    at: float,
    accuracy_at_least: float,
    source: str | Source = "stamps",
    labels: str | Path | Sequence[str] | None = None,
    limit: int | None = None,
    options: Mapping[str, Any] | None = None,
    error_rate: float = 0.05,
    judge: Literal["bound", "estimate"] = "bound",
    seed: int = 0,
) -> Verdict:
    """Assert that a classifier keeps an accuracy under a shift, for tests with pytest.

    The check is that of the rule ``accuracy.SHIFT < X`` of a gate: it fails if the images show that the
    accuracy is below the limit, at the stated rate of false alarms, and not if chance explains it. It also
    fails if there are too few images to show it. With one model and one image per sample the test is the
    exact binomial one, in the place of a gate's permutations of two models.

    Args:
        model: The model: a spec, a ``Model``, a torch module or a function.
        shift: Name of the shift.
        at: The severity, in the unit of the shift.
        accuracy_at_least: The limit, as a fraction.
        source: The images: ``folder:PATH``, or a ``Source``.
        labels: Class names, or a file of them; default: the 1000 classes of ImageNet.
        limit: Use only the first N samples of a fixed random order.
        options: Options of the shift.
        error_rate: The rate at most at which a model of exactly this accuracy fails.
        judge: With ``estimate``, fail as soon as the estimate is below the limit.
        seed: Seed of the shift's random draws.

    Returns:
        The verdict, with the estimate, its bound, p and the number of images.

    Raises:
        AssertionError: The accuracy is below the limit, or there are too few images to tell.
        SoritesError: The model or the images cannot be evaluated.

    Example:
        >>> import sorites
        >>> sorites.assert_robust(  # doctest: +SKIP
        ...     "lite0", shift="defocus_disk", at=3, accuracy_at_least=0.5
        ... )
    """
    if not 0 <= accuracy_at_least <= 1:
        text = f"expected an accuracy from 0 to 1, got {accuracy_at_least!r}"
        raise InvalidOption("accuracy_at_least", text)
    if not 0 < error_rate < 0.5:
        text = f"expected a rate above 0 and below 0.5, got {error_rate!r}"
        raise InvalidOption("error_rate", text)
    if judge not in ("bound", "estimate"):
        raise InvalidOption("judge", f"expected bound or estimate, got {judge!r}")
    correct = _outcomes(model, shift, at, source, labels, limit, options, seed)
    verdict = judged(correct, shift, accuracy_at_least, error_rate, judge)
    if verdict.outcome != "met":
        raise AssertionError(f"{verdict.outcome}: {shift} at {at:g}: {verdict}")
    return verdict


def judged(
    correct: Sequence[bool], shift: str, least: float, rate: float, how: Literal["bound", "estimate"]
) -> Verdict:
    """Return the verdict on outcomes of images of different samples.

    Example:
        >>> judged([True] * 9 + [False] * 31, "fog", 0.7, 0.05, "bound").outcome
        'broken'
        >>> judged([False] * 2, "fog", 0.7, 0.05, "bound").outcome
        'not judged'
    """
    rule = parse(f"accuracy.{shift} < {100 * least:.10g}")
    hits, n = sum(correct), len(correct)
    mean, p = hits / n, float(binom.cdf(hits, n, least))
    # The largest accuracy that these outcomes do not contradict (Clopper & Pearson 1934).
    bound = 1.0 if hits == n else float(beta.ppf(1 - rate, hits + 1, n - hits))
    if how == "estimate":
        return Verdict(rule, shift, mean, bound, least, mean < least - TIE, n, p)
    if 0 < least < 1 and (1 - least) ** n > rate:
        needed = math.ceil(math.log(rate) / math.log1p(-least))
        why = f"{n} images are too few for an error rate of {100 * rate:.3g} %; at least {needed} are needed"
        return Verdict(rule, shift, mean, None, least, False, n, unjudged=why)
    return Verdict(rule, shift, mean, bound, least, p <= rate, n, p)


def _outcomes(
    model: AnyModel,
    shift: str,
    at: float,
    source: str | Source,
    labels: str | Path | Sequence[str] | None,
    limit: int | None,
    options: Mapping[str, Any] | None,
    seed: int,
) -> list[bool]:
    """Return for each image whether the model is correct."""
    suite = parse_suite({"name": "assert_robust", "shifts": [shift]}, "assert_robust")
    with tempfile.TemporaryDirectory() as folder:
        done = run(
            suite,
            source=source,
            models=[model],
            shifts=[shift],
            severities=[at],
            labels=labels,
            limit=limit,
            options=options,
            seed=seed,
            engine="local",
            out=Path(folder) / "run",
        )
        rows = done.table.filter((pl.col("shift") == shift) & (pl.col("output") == "label"))
        found = rows.select("correct", "error").collect()
    failed = found["error"].drop_nulls()
    if len(failed):
        raise SoritesError(f"{len(failed)} of {found.height} images have errors; the first: {failed[0]}")
    outcomes: list[bool] = found["correct"].drop_nulls().to_list()
    if not outcomes:
        raise SoritesError(f"no image of {source} has a label that the model can answer")
    return outcomes

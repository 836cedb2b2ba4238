"""Two-sided 95 % intervals as polars expressions."""

from __future__ import annotations

import polars as pl

Z = 1.959963984540054
"""The 97.5 % point of the standard normal distribution, for two-sided 95 % intervals."""


def wilson_interval(value: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """Return ``low`` and ``high`` of a share observed in ``n`` independent rows (Wilson 1927); both are null where ``n`` is 0."""
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = (Z / shrink) * (value * (1 - value) / n + (Z / (2 * n)) ** 2).sqrt()
    return {
        "low": pl.when(n > 0).then((middle - half).clip(0, 1)),
        "high": pl.when(n > 0).then((middle + half).clip(0, 1)),
    }


def normal_interval(value: pl.Expr, variance: pl.Expr) -> dict[str, pl.Expr]:
    """Return ``low`` and ``high`` of a normally distributed estimate with a known variance."""
    half = Z * variance.clip(0).sqrt()
    return {"low": value - half, "high": value + half}


def clustered_wilson_interval(value: pl.Expr, spread: pl.Expr, n: pl.Expr, rows: pl.Expr) -> dict[str, pl.Expr]:
    """Return Wilson's interval of a mean over ``n`` samples whose own means of verdicts have the variance ``spread``.

    ``rows`` verdicts are divided by their design effect, which lies between 1 (pictures of a sample are independent) and the
    verdicts per sample (they are all alike). It is estimated (Korn & Graubard 1998), and drawn towards the verdicts per sample as
    by one more sample that is wrong throughout: where few verdicts are wrong, little is known of how they fall, and where none
    is, samples count. So the interval does not jump where the last wrong verdict becomes right. With one verdict per sample it is
    Wilson's.
    """
    varies, size = value * (1 - value), rows / n
    estimate = rows * spread.clip(0) / ((n - 1).clip(1) * varies)
    effect = pl.when(varies > 0).then(estimate.clip(1, None)).otherwise(size)
    effect = pl.min_horizontal(effect, size)
    seen = rows * pl.min_horizontal(value, 1 - value).clip(0) / effect
    return wilson_interval(value, rows / ((seen * effect + size) / (seen + 1)))


def paired_interval(value: pl.Expr, square: pl.Expr, apart: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """Return the interval of a mean over ``n`` samples of differences between two verdicts, whose mean square is ``square``.

    Half a pair is added to each of the four ways in which two verdicts can fall (Agresti & Min 2005), so that the interval does
    not collapse where no verdict differs. ``apart`` is the mean share of a sample's pictures on which the verdicts differ. Where
    a sample has several pictures, its mean difference has a smaller square than that; the added pairs are scaled alike.
    """
    scale = (square * n + 1) / (apart * n + 1)
    middle = value * n / (n + 2 * scale)
    variance = ((square * n + scale) / (n + 2 * scale) - middle**2) / (n + 2 * scale)
    return {name: bound.clip(-1, 1) for name, bound in normal_interval(middle, variance).items()}

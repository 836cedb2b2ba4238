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

    ``n`` is replaced by the number of independent verdicts that would vary as much (Korn & Graubard 1998), at most ``rows``.
    With one verdict per sample that number is ``n`` itself.
    """
    as_many = (
        pl.when(value * (1 - value) > 0).then((value * (1 - value) * n / spread.clip(0)).clip(upper_bound=rows)).otherwise(n)
    )
    return wilson_interval(value, as_many)


def paired_interval(value: pl.Expr, square: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """Return the interval of a mean over ``n`` samples of differences between two verdicts, whose mean square is ``square``.

    Half a pair is added to each of the four ways in which two verdicts can fall (Agresti & Min 2005), so that the interval does
    not collapse where no verdict differs.
    """
    middle = value * n / (n + 2)
    variance = ((square * n + 1) / (n + 2) - middle**2) / (n + 2)
    return {name: bound.clip(-1, 1) for name, bound in normal_interval(middle, variance).items()}

"""Intervals, all at 95 %, as polars expressions."""

from __future__ import annotations

import polars as pl

Z = 1.959963984540054
"""The 97.5 % point of the standard normal: two-sided 95 %."""


def wilson(value: pl.Expr, n: pl.Expr) -> dict[str, pl.Expr]:
    """``low`` and ``high`` of a share seen in ``n`` independent rows (Wilson 1927); null where ``n`` is 0."""
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = (Z / shrink) * (value * (1 - value) / n + (Z / (2 * n)) ** 2).sqrt()
    return {
        "low": pl.when(n > 0).then((middle - half).clip(0, 1)),
        "high": pl.when(n > 0).then((middle + half).clip(0, 1)),
    }


def normal(value: pl.Expr, variance: pl.Expr) -> dict[str, pl.Expr]:
    """``low`` and ``high`` of an estimate with a known variance."""
    half = Z * variance.clip(0).sqrt()
    return {"low": value - half, "high": value + half}


def clustered_wilson(value: pl.Expr, spread: pl.Expr, n: pl.Expr, rows: pl.Expr) -> dict[str, pl.Expr]:
    """Wilson's interval of a mean over ``n`` samples, each itself a mean of verdicts with variance ``spread`` among samples.

    ``n`` is replaced by the number of independent verdicts that would vary as much (Korn & Graubard 1998), at most ``rows``:
    with one verdict a sample that is ``n`` itself.
    """
    as_many = (
        pl.when(value * (1 - value) > 0).then((value * (1 - value) * n / spread.clip(0)).clip(upper_bound=rows)).otherwise(n)
    )
    return wilson(value, as_many)

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from sorites.metrics.intervals import (
    Z,
    clustered_wilson_interval,
    normal_interval,
    paired_interval,
    wilson_interval,
)


def test_z_is_the_two_sided_95_percent_point() -> None:
    assert norm.ppf(0.975) == pytest.approx(Z, abs=1e-15)


@settings(deadline=None)
@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_matches_scipy(counts: tuple[int, int]) -> None:
    right, n = counts
    low, high = pl.select(**wilson_interval(pl.lit(right / n), pl.lit(n))).row(0)
    theirs = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_wilson_of_nothing_is_null() -> None:
    assert pl.select(**wilson_interval(pl.lit(None, pl.Float64), pl.lit(0))).row(0) == (None, None)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_one_verdict_a_sample_is_plain_wilson(value: float) -> None:
    n = pl.lit(50)
    clustered = pl.select(**clustered_wilson_interval(pl.lit(value), pl.lit(value * (1 - value)), n, n)).row(
        0
    )
    assert clustered == pytest.approx(pl.select(**wilson_interval(pl.lit(value), n)).row(0), abs=1e-12)


def clustered(value: float, spread: float, n: int, rows: int) -> tuple[float, float]:
    low, high = pl.select(
        **clustered_wilson_interval(pl.lit(value), pl.lit(spread), pl.lit(n), pl.lit(rows))
    ).row(0)
    return low, high


def plain(value: float, n: float) -> tuple[float, float]:
    low, high = pl.select(**wilson_interval(pl.lit(value), pl.lit(n))).row(0)
    return low, high


def test_samples_that_agree_are_worth_their_rows_but_for_one_that_might_not() -> None:
    effect = (100 * 1 + 4) / (100 + 1)
    assert clustered(0.5, 0.0, 50, 200) == pytest.approx(plain(0.5, 200 / effect))


def test_samples_whose_images_are_all_alike_count_as_one_each() -> None:
    assert clustered(0.3, 0.21, 50, 200) == pytest.approx(plain(0.3, 50))


def test_the_interval_does_not_jump_at_a_perfect_score() -> None:
    """Five samples of fifteen images: with one wrong image it was [.93, 1], with none [.57, 1]."""
    perfect, nearly = clustered(1.0, 0.0, 5, 75), clustered(74 / 75, (1 / 15) ** 2 * 0.16, 5, 75)
    assert perfect == pytest.approx(plain(1.0, 5))
    assert nearly[0] - perfect[0] < 0.15
    lows = [
        clustered(1 - share, share * share * 0.16 * 25, 5, 75)[0] for share in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
    ]
    assert abs(lows[-1] - perfect[0]) < 1e-3, "it comes to that of a perfect score without a step"


def test_paired_differences_of_one_image_per_sample_are_agresti_and_mins() -> None:
    n, more, less = 40, 9, 3
    value, square = (more - less) / n, (more + less) / n
    low, high = pl.select(**paired_interval(pl.lit(value), pl.lit(square), pl.lit(square), pl.lit(n))).row(0)
    b, c, total = more + 0.5, less + 0.5, n + 2
    middle, error = (b - c) / total, ((b + c) - (b - c) ** 2 / total) ** 0.5 / total
    assert (low, high) == pytest.approx((middle - Z * error, middle + Z * error))


def test_normal_matches_scipy() -> None:
    assert pl.select(**normal_interval(pl.lit(0.2), pl.lit(0.04))).row(0) == pytest.approx(
        norm.interval(0.95, 0.2, 0.2)
    )

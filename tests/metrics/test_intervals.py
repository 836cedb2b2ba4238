import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from sorites.metrics._intervals import Z, clustered_wilson_interval, normal_interval, wilson_interval


def test_z_is_the_two_sided_95_percent_point() -> None:
    assert norm.ppf(0.975) == pytest.approx(Z, abs=1e-15)


@settings(deadline=None)
@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts: tuple[int, int]) -> None:
    right, n = counts
    low, high = pl.select(**wilson_interval(pl.lit(right / n), pl.lit(n))).row(0)
    theirs = binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_wilson_of_nothing_is_null() -> None:
    assert pl.select(**wilson_interval(pl.lit(None, pl.Float64), pl.lit(0))).row(0) == (None, None)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_one_verdict_a_sample_is_plain_wilson(value: float) -> None:
    n = pl.lit(50)
    clustered = pl.select(**clustered_wilson_interval(pl.lit(value), pl.lit(value * (1 - value)), n, n)).row(0)
    assert clustered == pytest.approx(pl.select(**wilson_interval(pl.lit(value), n)).row(0), abs=1e-12)


def test_samples_that_agree_are_worth_at_most_their_rows() -> None:
    spreadless = pl.select(**clustered_wilson_interval(pl.lit(0.5), pl.lit(0.0), pl.lit(50), pl.lit(200))).row(0)
    assert spreadless == pytest.approx(pl.select(**wilson_interval(pl.lit(0.5), pl.lit(200))).row(0))


def test_normal_is_scipys() -> None:
    assert pl.select(**normal_interval(pl.lit(0.2), pl.lit(0.04))).row(0) == pytest.approx(norm.interval(0.95, 0.2, 0.2))

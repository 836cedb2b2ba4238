"""What every metric owes, asked of the table of a real run; ``tests/metrics/test_contract.py`` has the rest."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.core import METRICS, Generated, Metric, Model, Sample, Source, source
from sorites.core.errors import SoritesError
from sorites.suites.suite import parse

every_metric = pytest.mark.parametrize("name", METRICS.names())


@pytest.fixture(scope="module")
def table(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Two models, two dials refined, a score, an image that cannot be read and one of no known class."""

    def broken() -> np.ndarray:
        raise SoritesError("truncated")

    odd = [
        Sample("bad", Generated(broken), 0),
        Sample("far", Generated(lambda: np.full((40, 40, 3), 90, np.uint8)), 999),
    ]
    suite = parse(
        {"name": "s", "shifts": ["contrast", "gaussian_noise"], "scorers": ["msp"], "frame": {"resize": 40}},
        "test",
    )
    held = Source("mine", [*source(f"folder:{photos}"), *odd])
    other = tiny("other")
    other.prepare = lambda image, framed: image[::2, ::2]
    out = tmp_path_factory.mktemp("metrics") / "run"
    return sorites.run(suite, source=held, models=[tiny(), other], refine=0.05, out=out).collect()


def ask(name: str, table: pl.DataFrame | pl.LazyFrame, **more: Any) -> pl.DataFrame:
    """The metric's answer; the few options that have no sensible default are filled in by name."""
    metric: Metric = METRICS.get(name)
    known = {
        "reference": "tiny",
        "split": "",
        "facts": {"tiny": {"parameters": 1}, "other": {"parameters": 2}},
    }
    asked = {key: value for key, value in known.items() if key in inspect.signature(metric).parameters}
    return metric(table, **{**asked, **more})


@pytest.fixture(scope="module")
def answer_of(table: pl.DataFrame) -> Callable[[str], pl.DataFrame]:
    """Each metric's answer on the table, asked once; the table must be as it was."""

    @functools.cache
    def answer(name: str) -> pl.DataFrame:
        before = table.clone()
        found = ask(name, table)
        assert_frame_equal(table, before)
        return found

    return answer


@every_metric
def test_an_error_is_missing_and_not_wrong(
    name: str, table: pl.DataFrame, answer_of: Callable[[str], pl.DataFrame]
) -> None:
    """Without the rows that are errors the values are the same; only the count of what is missing
    may differ.
    """
    sound = ask(name, table.filter(pl.col("error").is_null()))
    kept = [column for column in sound.columns if column != "missing"]
    assert_frame_equal(answer_of(name).select(kept), sound.select(kept), rel_tol=1e-9, abs_tol=1e-12)

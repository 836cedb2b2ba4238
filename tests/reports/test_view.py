from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from tests.reports import worlds

from sorites import metrics
from sorites.core import CLEAN, SHIFTS, ImageU8
from sorites.core.errors import SoritesError
from sorites.evaluation.storage.schema import DialRecord
from sorites.reports.view import RunView, merge


def part(run: RunView, run_id: str, *shifts: str) -> RunView:
    """Return the run restricted to these shifts."""
    kept = run.table.filter(pl.col("shift").is_in([CLEAN, *shifts])).with_columns(run_id=pl.lit(run_id))
    return dataclasses.replace(run, table=kept)


def test_models_and_shifts_follow_the_suite(run: RunView) -> None:
    view = merge(
        [dataclasses.replace(run, record=worlds.record({"models": ["lite2", "absent"], "shifts": ["jpeg"]}))]
    )
    assert view.models == ("lite2", "lite0", "lite1")
    assert view.shifts == ("jpeg", "defocus_disk", "gaussian_noise")


def test_two_runs_of_one_source_are_as_one_run(run: RunView) -> None:
    whole = merge([run])
    halves = merge([part(run, "a", "jpeg", "defocus_disk"), part(run, "b", "gaussian_noise", "jpeg")])
    for metric in (metrics.accuracy, metrics.failure_severity, metrics.accuracy_drop):
        assert halves.compute(metric).equals(whole.compute(metric))


def test_runs_of_other_sources_stay_apart(run: RunView) -> None:
    other = dataclasses.replace(run, record=run.record.having(suite=run.suite.model_copy(update={"seed": 8})))
    bare = dataclasses.replace(run, record=None, table=run.table.with_columns(run_id=pl.lit("c")))
    clean = merge([run, other, bare]).compute(metrics.accuracy, pl.col("shift") == CLEAN)
    assert clean["n"].to_list() == [180] * 3


def test_no_run_is_an_error() -> None:
    with pytest.raises(SoritesError, match="at least one run"):
        merge([])


def test_a_question_is_put_once(run: RunView) -> None:
    asked = []

    def metric(table: pl.LazyFrame, by: tuple[str, ...] = ()) -> pl.DataFrame:
        asked.append(by)
        return pl.DataFrame()

    view = merge([run])
    view.compute(metric)
    view.compute(metric)
    view.compute(metric, by=("model",))
    view.compute(metric, pl.col("shift") == CLEAN)
    assert asked == [(), ("model",), ()]


def test_the_first_run_that_can_make_a_image_makes_it(run: RunView) -> None:
    def broken(sample_id: str, shift: str, severity: float) -> ImageU8:
        raise SoritesError("gone")

    fine = np.zeros((2, 2, 3), np.uint8)
    runs = [part(run, "a"), part(run, "b")]
    view = merge(
        [dataclasses.replace(runs[0], image=broken), dataclasses.replace(runs[1], image=lambda *_: fine)]
    )
    assert view.image(next(iter(view.owners)), "x", CLEAN, 0) is fine
    assert merge([dataclasses.replace(run, image=broken)]).image("r1", "x", CLEAN, 0) is None


def test_labels_in_words(run: RunView) -> None:
    view = merge([run])
    assert [view.class_name("r1", 0), view.class_name("r1", 9), view.class_name("r1", None)] == [
        "tabby",
        "class 9",
        "nothing",
    ]
    assert merge([dataclasses.replace(run, labels=None)]).class_name("r1", 0) == "class 0"


def test_units_come_from_the_dial(run: RunView) -> None:
    view = merge([run])
    assert view.unit("defocus_disk") == SHIFTS.get("defocus_disk").unit == "px"
    assert view.unit("a captured one") == ""
    dial = DialRecord(levels=(1.0,), unit="steps", family="own", version=1)
    own = merge([dataclasses.replace(run, record=run.record.having(dials={"defocus_disk": dial}))])
    assert own.unit("defocus_disk") == "steps"
    assert own.shift_named("defocus_disk") is None

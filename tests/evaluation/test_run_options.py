"""``sorites.run``: what the command can do, the function can do; notices; runs that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import Model, Outputs
from sorites.core.errors import Information, TooManyErrors
from sorites.core.messages import in_shell
from sorites.suites.suite import Suite

SUITE = Suite(name="s", shifts=[{"name": "jpeg", "levels": [1]}])  # type: ignore[list-item]


def always_broken(good: Model) -> Model:
    """Return a model that accepts the grey trial image and fails on every real one."""

    def forward(batch: object) -> Outputs:
        if np.asarray(batch).std() > 1:
            raise ValueError("no result")
        return good.forward(batch)  # type: ignore[arg-type]

    return Model("broken", forward, labels=good.labels)


def test_a_run_in_which_nothing_was_evaluated_is_an_error_and_keeps_its_rows(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    given = {
        "source": f"folder:{photos}",
        "models": [always_broken(tiny())],
        "limit": 2,
        "out": tmp_path / "r",
    }
    with pytest.raises(TooManyErrors) as raised:
        sorites.run(SUITE, **given)  # type: ignore[arg-type]
    fields = raised.value.fields
    assert (raised.value.code, fields["rows"], fields["errors"]) == ("too_many_errors", 4, 4)
    assert fields["folder"] == str(tmp_path / "r")
    assert "max_errors=SHARE" in str(raised.value)
    assert "--max-errors SHARE" in in_shell(raised.value.message)
    assert sorites.core.table.read(tmp_path / "r").collect()["error"].null_count() == 0
    accepted = sorites.run(SUITE, **given, max_errors=1)  # type: ignore[arg-type]
    assert accepted.collect().height == 4


def test_the_share_of_errors_decides(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    from sorites.evaluation.run import refuse_errors

    def table(errors: int) -> pl.LazyFrame:
        predicted = {"error": ["x"] * errors + [None] * (10 - errors), "output": ["label"] * 10}
        scored = {"error": ["not fitted"] * 30, "output": ["ood"] * 30}
        schema = {"error": pl.String, "output": pl.String}
        return pl.concat([pl.LazyFrame(predicted, schema), pl.LazyFrame(scored, schema)])

    refuse_errors(table(5), tmp_path, 0.5)
    refuse_errors(table(0), tmp_path, 0.0)
    for errors, most in ((6, 0.5), (1, 0.0), (10, 0.99)):
        with pytest.raises(TooManyErrors):
            refuse_errors(table(errors), tmp_path, most)
    with pytest.raises(TooManyErrors, match="no image was evaluated"):
        refuse_errors(table(0).filter(pl.lit(False)), tmp_path, 1.0)


def test_what_only_the_command_could_do_before(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sorites"):
        run = sorites.run(
            Suite(name="s", shifts=[{"name": "coma", "levels": [1]}]),  # type: ignore[list-item]
            source=f"mine=folder:{photos}",
            models=[tiny()],
            padding="reflect",
            batch="auto",
            device="auto",
            limit=2,
            out=tmp_path / "r",
            engine="auto",
            max_pixels=10**6,
        )
    assert run.plan.suite.source_name == "mine"
    assert run.plan.suite.shifts[0].options["padding"] == "reflect"
    assert run.collect()["error"].null_count() == run.collect().height
    told = [record.args[0] for record in caplog.records if record.args]  # type: ignore[index]
    codes = {notice.code for notice in told if isinstance(notice, Information)}
    assert {"input", "limit"} <= codes
    assert "engine: local" in caplog.text
    assert "limit=N" in caplog.text


def test_too_many_pixels_for_this_call_only(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    given = {"source": f"folder:{photos}", "models": [tiny()], "limit": 2}
    with pytest.raises(TooManyErrors):
        sorites.run(SUITE, **given, out=tmp_path / "few", max_pixels=100)  # type: ignore[arg-type]
    assert sorites.run(SUITE, **given, out=tmp_path / "all").collect().height == 4  # type: ignore[arg-type]

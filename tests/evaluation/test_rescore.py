"""Scorers added to a finished run: the rows are those the run would have written, and twice is once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import Generated, Sample, Source, table
from sorites.core.errors import Notice, SoritesError
from sorites.evaluation.integrity import check as checks
from sorites.evaluation.rescore import score
from sorites.evaluation.storage.record import read_record

_spec = importlib.util.spec_from_file_location("fitting_tests", Path(__file__).with_name("test_fit.py"))
assert _spec is not None
assert _spec.loader is not None
made = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(made)

ADDED = ["energy", "knn(k=3)", "mds", "react", "scale", "she", "gradnorm"]
Run = Callable[..., pl.DataFrame]


def broken() -> np.ndarray:
    raise SoritesError("truncated")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    asked = Source("asked", [*made.images("a", 20), Sample("bad", Generated(broken), 0)])

    def go(out: str, **more: Any) -> pl.DataFrame:
        given = {
            "fit": Source("id", made.images("f", 60)),
            "keep_features": True,
            "models": [made.linear()],
            **more,
        }
        return sorites.run(made.SUITE, source=asked, out=tmp_path / out, **given).collect()

    return go


def settled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop("run_id").sort("image_id", "model", "output", "scorer", "probe")


@pytest.mark.slow
def test_added_rows_are_those_of_a_run_with_the_scorers(run: Run, tmp_path: Path) -> None:
    both = [made.linear("one"), made.linear("two")]
    run("later", only_scorers=["msp"], models=both)
    assert score(tmp_path / "later", ADDED) == dict.fromkeys(ADDED, 2 * 21 * 6)
    held = table.read(tmp_path / "later").collect()
    assert table.check(held) == []
    assert settled(held).equals(settled(run("once", only_scorers=["msp", *ADDED], models=both)))
    assert "complete" in checks.check_run(tmp_path / "later")


def test_twice_is_once(run: Run, tmp_path: Path) -> None:
    run("run", only_scorers=["msp"])
    score(tmp_path / "run", ["energy"])
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.parquet")}
    assert score(tmp_path / "run", ["energy", "msp"]) == {"energy": 0, "msp": 0}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.parquet")} == files
    assert read_record(tmp_path / "run").scored == ("energy",)
    run("run", only_scorers=["msp"])
    assert read_record(tmp_path / "run").scored == ("energy",)


@pytest.mark.slow
def test_a_run_that_went_on_is_scored_on(run: Run, tmp_path: Path) -> None:
    run("run", only_scorers=["msp"])
    score(tmp_path / "run", ["energy"])
    lost = next((tmp_path / "run" / "predictions").glob("*--energy.*.parquet"))
    rows = pl.read_parquet(lost).height
    lost.unlink()
    assert score(tmp_path / "run", ["energy"]) == {"energy": rows}


def test_probes_keep_no_features_and_get_no_rows(run: Run, tmp_path: Path) -> None:
    run("run", only_scorers=["msp"], refine=0.2)
    score(tmp_path / "run", ["energy"])
    held = table.read(tmp_path / "run").collect()
    assert held.filter(pl.col("probe")).height > 0
    assert not held.filter(pl.col("scorer") == "energy")["probe"].any()


@pytest.mark.slow
def test_what_was_not_kept_is_said_and_nothing_written(run: Run, tmp_path: Path) -> None:
    run("bare", only_scorers=["msp"], keep_features=False)
    with pytest.raises(
        SoritesError,
        match="0 of 4 slices.*keep_features",
    ):
        score(tmp_path / "bare", ["energy"])
    run("unfit", only_scorers=["msp"], fit=None)
    with pytest.raises(SoritesError, match="knn must be fitted.*keep_features"):
        score(tmp_path / "unfit", ["knn"])
    run("headless", only_scorers=["msp"], models=[made.linear(head=False)])
    with pytest.raises(SoritesError, match="needs the model's last linear"):
        score(tmp_path / "headless", ["react"])
    for name in ("odin", "rankfeat", "gram"):
        with pytest.raises(SoritesError, match=f"{name} needs .* which stored features"):
            score(tmp_path / "headless", [name])
    with pytest.raises(SoritesError, match="scorer named 'enrgy'. Did you"):
        score(tmp_path / "headless", ["enrgy"])
    with pytest.raises(SoritesError, match="not a run folder"):
        score(tmp_path, ["energy"])
    assert not list(tmp_path.rglob("*--energy.*.parquet"))


def test_one_that_cannot_be_fitted_does_not_keep_the_others_from_being_added(
    run: Run, tmp_path: Path
) -> None:
    run("few", only_scorers=["msp"], fit=Source("id", made.images("f", 10)))
    with pytest.raises(SoritesError, match="12 principal directions, got 10"):
        score(tmp_path / "few", ["vim"])
    assert not [path for path in (tmp_path / "few" / "predictions").iterdir() if path.stem.count("--") > 1]
    assert not read_record(tmp_path / "few").scored
    with pytest.warns(Notice, match="12 principal directions, got 10"):
        added = score(tmp_path / "few", ["vim", "energy"])
    assert added["vim"] == 0 < added["energy"]
    assert read_record(tmp_path / "few").scored == ("energy",)


def test_the_verb(run: Run, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sorites.cli import app

    run("run", only_scorers=["msp"])
    told = CliRunner().invoke(
        app, ["score", str(tmp_path / "run"), "--scorer", "energy", "--scorer", "knn(k=3)"]
    )
    assert told.exit_code == 0, told.output
    assert "energy: added 126 rows" in told.output
    assert "knn(k=3): added 126 rows" in told.output
    again = CliRunner().invoke(app, ["score", str(tmp_path / "run"), "--scorer", "energy"])
    assert "energy: nothing to add" in again.output


def test_an_unfinished_run_is_not_scored_in_part(run: Run, tmp_path: Path) -> None:
    run("run", only_scorers=["msp"])
    next((tmp_path / "run" / "predictions").glob("contrast*.parquet")).unlink()
    with pytest.raises(SoritesError, match=r"is not finished: "):
        score(tmp_path / "run", ["energy"])


def test_check_says_how_rows_of_an_added_scorer_are_made(run: Run, tmp_path: Path) -> None:
    run("run", only_scorers=["msp"])
    score(tmp_path / "run", ["energy"])
    next((tmp_path / "run" / "predictions").glob("*--energy.*.parquet")).unlink()
    with pytest.raises(SoritesError, match=r"\d+ rows of energy missing: sorites\.score"):
        checks.check_run(tmp_path / "run")

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from sorites.cli import app
from sorites.core import Model
from sorites.evaluation.run import run
from sorites.evaluation.storage.folder import locked
from sorites.suites.suite import parse

runner = CliRunner()


@pytest.fixture
def folder(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Path:
    suite = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 32}, "limit": 2}
    run(
        parse({**suite, "shifts": [{"name": "contrast", "severities": [0.5]}]}, "far"),
        models=[tiny()],
        out=tmp_path / "run",
    )
    return tmp_path / "run"


def test_a_run_is_measured_by_one_process_at_a_time(folder: Path) -> None:
    words = ["similarity", str(folder), "--measure", "ssim"]
    with locked(folder):
        done = runner.invoke(app, words)
    assert done.exit_code != 0
    assert "another process is writing" in str(done.exception)
    assert not (folder / "facts").exists()
    done = runner.invoke(app, words)
    assert done.exit_code == 0
    assert pl.read_parquet(folder / "facts" / "similarity.parquet").height == 2


def test_what_is_no_run_folder_is_left_as_it_is(tmp_path: Path) -> None:
    done = runner.invoke(app, ["similarity", str(tmp_path / "none")])
    assert "is not a run folder" in str(done.exception)
    assert not (tmp_path / "none").exists()

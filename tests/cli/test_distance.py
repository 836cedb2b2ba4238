from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from sorites.cli import app
from sorites.core import Model
from sorites.files import locked
from sorites.pipeline.runner import run
from sorites.suite import parse

runner = CliRunner()


@pytest.fixture
def folder(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Path:
    asked = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 32}, "limit": 2}
    run(parse({**asked, "shifts": [{"name": "contrast", "severities": [0.5]}]}, "far"), models=[tiny()], out=tmp_path / "run")
    return tmp_path / "run"


def test_degrees_are_measured_by_one_process_at_a_time(folder: Path) -> None:
    words = ["degrees", str(folder), "--measure", "ssim"]
    with locked(folder):
        done = runner.invoke(app, words)
    assert done.exit_code != 0
    assert "another sorites is writing into" in str(done.exception)
    assert not (folder / "facts").exists()
    done = runner.invoke(app, words)
    assert done.exit_code == 0
    assert pl.read_parquet(folder / "facts" / "similarity.parquet").height == 2


def test_what_is_no_run_folder_is_left_as_it_is(tmp_path: Path) -> None:
    done = runner.invoke(app, ["degrees", str(tmp_path / "none")])
    assert "is not a run folder" in str(done.exception)
    assert not (tmp_path / "none").exists()


def test_the_default_referee_says_what_it_knows(photos: Path) -> None:
    done = runner.invoke(app, ["measure", f"folder:{photos}", "--against", f"folder:{photos}", "--referee", "cifar:12"])
    assert "knows ten kinds of things at 32 px (airplane, " in done.stderr
    assert "give --referee open_clip:NAME@WEIGHTS for others" in done.stderr


def test_labels_may_be_imagenet() -> None:
    for verb in (["measure"], ["decompose", "train"]):
        assert "FILE|imagenet" in runner.invoke(app, [*verb, "--help"], env={"COLUMNS": "160"}).stdout

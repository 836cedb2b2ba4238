"""A run has the same files whoever makes its images, whatever its batch, and wherever it was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.evaluation.pipeline.killed import files, run

from sorites.core.errors import IncompatibleRun
from sorites.evaluation.storage.record import read_record

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """A run on one thread, without a pipeline."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, run(f"folder:{photos}", out, engine="local", workers=1, producers=0)


@pytest.mark.slow
def test_fitting_and_refining_by_a_pipeline_gives_the_same_files(
    whole: tuple[Path, pl.DataFrame], photos: Path, tmp_path: Path
) -> None:
    out, table = whole
    assert table.filter(pl.col("probe")).height > 20
    assert table.filter(pl.col("scorer") == "knn(k=3)")["score"].null_count() == 0
    assert run(f"folder:{photos}", tmp_path / "run", producers=1, batch=13).equals(table)
    assert files(tmp_path / "run") == files(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed_after", "first", "then"),
    [
        (5, {"producers": 1}, {"producers": 2, "batch": 5}),
        (9, {"producers": 2, "batch": 64}, {"producers": 0, "engine": "local", "workers": 3}),
        (12, {"producers": 1, "batch": 3}, {"engine": "processes", "workers": 2}),
        (17, {"producers": 0, "engine": "local", "workers": 2}, {"producers": 1}),
    ],
)
def test_a_run_that_was_killed_continues_to_the_same_files(
    whole: tuple[Path, pl.DataFrame], photos: Path, tmp_path: Path, killed_after: int, first: Any, then: Any
) -> None:
    out, table = whole
    source = f"folder:{photos}"
    arguments = [source, str(tmp_path / "run"), str(killed_after), json.dumps(first)]
    command = [sys.executable, "-m", "tests.evaluation.pipeline.killed", *arguments]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == -9
    before = files(tmp_path / "run")
    assert before < files(out)
    assert run(source, tmp_path / "run", **then).equals(table)
    assert files(tmp_path / "run") == files(out)


@pytest.mark.long
@pytest.mark.slow
def test_torch_gives_the_same_files_at_one_batch_size(photos: Path, tmp_path: Path) -> None:
    """In bfloat16, which torch computes itself, rows depend on the batch size, which is fixed."""
    source, folder = f"folder:{photos}", tmp_path / "run"
    fixed = {"model": "network", "precision": "bfloat16", "batch": 5}
    table = run(source, tmp_path / "whole", engine="local", workers=1, producers=0, **fixed)
    assert table["error"].null_count() == table.height
    assert read_record(tmp_path / "whole").as_json()["computing"]["near"]["batch"] == 5
    arguments = [source, str(folder), "9", json.dumps({"producers": 1, **fixed})]
    command = [sys.executable, "-m", "tests.evaluation.pipeline.killed", *arguments]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == -9
    assert run(source, folder, engine="processes", workers=2, **fixed).equals(table)
    assert files(folder) == files(tmp_path / "whole")
    with pytest.raises(IncompatibleRun, match="computing"):
        run(source, folder, **{**fixed, "batch": 3})


SCRIPT = """
import numpy as np
import sorites
from sorites.core import Model, Outputs
from sorites.suites.suite import parse

print("the script runs")
model = Model("m", lambda images: Outputs(np.zeros((len(images), 4), np.float32)), version="1")
labels = ["n01440764", "n01443537", "n01484850", "n01491361"]
suite = parse({"name": "s", "labels": labels}, "test")
run = sorites.run(suite, source="folder:PHOTOS", models=[model], limit=4, producers=2, out="run")
print(run.collect().height, "rows")
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_run_once(photos: Path, tmp_path: Path) -> None:
    """A producer must not import the script that the user started, which would start the run again."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT).replace("PHOTOS", str(photos)))
    told = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=told, check=True
    )
    assert done.stdout.split("\n")[:2] == ["the script runs", "4 rows"]
    assert "threads of this process" not in done.stderr

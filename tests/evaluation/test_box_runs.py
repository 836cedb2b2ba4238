"""Rows of boxes do not depend on batch size, workers, engine, a kill or a resume; and PicoDet on
images with exact boxes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.models.conftest import users_cache

from sorites import metrics
from sorites.core.errors import SoritesError
from sorites.core.table import KEY, read
from sorites.evaluation.run import run

DETECTOR = """
import time
import numpy as np
from scipy import ndimage

def find(images):
    time.sleep(0.02)
    return [rows(image) for image in images]

find.sorites = {"labels": ["person", "dog"]}

def rows(image):
    found, _ = ndimage.label(image.mean(2) > 140)
    made = [
        (x.start, y.start, x.stop, y.stop, min(0.99, float((found[y, x] == i).mean())), i % 2)
        for i, (y, x) in enumerate(ndimage.find_objects(found), start=1)
    ]
    return np.array(made, float).reshape(-1, 6)
"""
ASKED = (
    "--source composites:20?size=128 --model python:finder:find --labels coco "
    "--shift defocus_disk --shift gaussian_noise --level 1 --level 3"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "finder.py").write_text(DETECTOR, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(home: Path, out: str, *more: str) -> subprocess.Popen[bytes]:
    code = "from sorites.cli import main; main()"
    order = [sys.executable, "-c", code, "run", "demo", *ASKED.split(), "--out", out, *more]
    return subprocess.Popen(order, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def rows(folder: Path) -> pl.DataFrame:
    return read(folder).collect().sort(KEY)


@pytest.mark.slow
def test_rows_of_boxes_are_the_same_for_every_batch_engine_and_resume(home: Path) -> None:
    ways = {"one": ("--batch", "1", "--workers", "2"), "eight": ("--batch", "8", "--engine", "processes")}
    for name, more in ways.items():
        assert typed(home, name, *more).wait(240) == 0
    first = rows(home / "one")
    assert first["boxes"].list.len().sum() > 150
    assert first["ground_truth"].list.len().sum() > 150
    killed = typed(home, "killed", "--workers", "1", "--batch", "3")
    shards = home / "killed" / "predictions"
    while killed.poll() is None and len(list(shards.glob("*.parquet"))) < 2:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert 0 < len(list(shards.glob("*.parquet"))) < len(list((home / "one/predictions").glob("*.parquet")))
    assert typed(home, "killed").wait(240) == 0
    for name in ("eight", "killed"):
        assert_frame_equal(first, rows(home / name))


@pytest.mark.long
@pytest.mark.slow
def test_picodet_on_150_composites_loses_half_under_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured once: 33.0 clean, and 29.6, 23.7 and 14.9 at levels 1, 3 and 5 (sd 1.3 by bootstrap
    over images).
    """
    users_cache(monkeypatch)
    try:
        table = run("boxes_demo", shifts=["defocus_disk"], levels=[3, 5], out=tmp_path / "run")
    except SoritesError as error:
        if "connection" in str(error).lower():
            pytest.skip(f"no network: {error}")
        raise
    found = (
        metrics.map(metrics.with_clean(table), by=("shift", "severity"), resamples=0)
        .filter(shift="defocus_disk")
        .sort("severity")
    )
    clean, *blurred = found["value"].to_list()
    assert found["n"].to_list() == [150] * 3
    assert 0.25 <= clean <= 0.37
    assert clean > blurred[0] > blurred[1]
    assert 0.35 <= blurred[1] / clean <= 0.6

"""Runs of a source whose samples have dials of their own: any batch and engine, killed, refined,
built, measured, read alone.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.evaluation import fading as world
from tests.evaluation.fading import CLASSES, LEVELS, fading, model, rows, suite

import sorites
from sorites import core
from sorites.core import Generated, Sample
from sorites.core.labels import labels
from sorites.core.table import read
from sorites.datasets.build import build
from sorites.evaluation.facts.similarity import similarity
from sorites.evaluation.images import shifted_shots
from sorites.evaluation.integrity.check import check
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.run import run

pytestmark = pytest.mark.usefixtures("fading_source")
FRAME = {"resize": 32, "crop": 32}
CLI = "from sorites.cli import main; main()"


def test_rows_do_not_depend_on_batch_workers_or_the_other_stops(tmp_path: Path) -> None:
    tables = []
    for name, more in {"one": {"batch": 1, "workers": 1}, "seven": {"batch": 7, "workers": 2}}.items():
        run(suite(frame=FRAME), models=[model()], out=tmp_path / name, **more)
        tables.append(rows(tmp_path / name))
    assert_frame_equal(*tables)
    assert set(tables[0]["family"]) == {"clean", "generated"}
    assert tables[0]["error"].null_count() == tables[0].height == 220
    run(
        suite(frame=FRAME, shifts=[{"name": "fade", "levels": [3]}]), models=[model()], out=tmp_path / "alone"
    )
    alone = rows(tmp_path / "alone").filter(pl.col("shift") == "fade").drop("run_id")
    assert_frame_equal(
        alone, tables[0].filter(pl.col("shift") == "fade", pl.col("level") == 3).drop("run_id")
    )
    before = [path.stat().st_mtime_ns for path in sorted((tmp_path / "one").rglob("*.parquet"))]
    run(suite(frame=FRAME), models=[model()], out=tmp_path / "one")
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "one").rglob("*.parquet"))] == before


def test_refining_finds_the_severity_that_follows_from_the_drawing(tmp_path: Path) -> None:
    run(suite(source="fading:80", refine=0.01), models=[model()], out=tmp_path / "run")
    table = read(tmp_path / "run")
    found = sorites.failure_severity(
        table.filter(pl.col("shift").is_in(["clean", "fade"])), by=("shift", "sample_id")
    )
    points = {int(sample[-2:]): value for sample, value in found.select("sample_id", "value").iter_rows()}
    asked = [number for number in range(80) if number % 4 != 3]  # nothing at all is taken for a cross
    assert len(asked) == 60
    wanted = np.array([world.last_seen(number) for number in asked])
    off = np.abs(np.array([points[number] for number in asked], float) - wanted)
    # the tolerance, and half an 8-bit step of a faint shape
    assert off.max() <= 0.01 * 2 + 2 * 0.5 / 255 / 0.45 * 2
    probes = table.filter(pl.col("probe")).collect()
    assert set(probes["shift"]) <= {"fade", "drift"}
    assert not set(probes["severity"]) <= {*LEVELS}


@pytest.mark.slow
def test_a_fine_grid_has_the_same_crossings(tmp_path: Path) -> None:
    grid = [round(0.05 * step, 2) for step in range(1, 41)]
    fine = suite(shifts=[{"name": "fade", "severities": grid}])
    run(fine, models=[model()], out=tmp_path / "fine")
    run(suite(shifts=["fade"], refine=0.02), models=[model()], out=tmp_path / "run")
    points = [
        dict(
            sorites.failure_severity(read(tmp_path / name), by=("shift", "sample_id"))
            .select("sample_id", "value")
            .iter_rows()
        )
        for name in ("fine", "run")
    ]
    failed = [name for name, value in points[0].items() if value is not None]
    assert len(failed) >= 30
    assert all(abs(points[0][name] - points[1][name]) <= 0.05 for name in failed)


@pytest.mark.slow
def test_a_built_dataset_evaluates_to_the_same_table(tmp_path: Path) -> None:
    written, errors = build(suite(frame=FRAME), tmp_path / "images")
    assert (written, errors) == (220, [])
    run(suite(frame=FRAME), models=[model()], out=tmp_path / "flying")
    run(suite(frame=FRAME, source=f"folder:{tmp_path / 'images'}"), models=[model()], out=tmp_path / "built")
    tables = [rows(tmp_path / name).drop("run_id", "source") for name in ("flying", "built")]
    assert_frame_equal(*tables)
    assert tables[1].filter(pl.col("shift") == "fade")["family"].unique().to_list() == ["generated"]


def test_similarity_measures_them_against_the_clean_image(tmp_path: Path) -> None:
    run(suite(frame=FRAME), models=[model()], out=tmp_path / "run")
    similarity(tmp_path / "run", ["psnr"])
    found = rows(tmp_path / "run").filter(pl.col("shift") == "fade")
    values = found.select("severity", value=pl.col("degrees").list.first().struct.field("value"))
    means = values.group_by("severity").agg(pl.col("value").mean()).sort("severity")["value"].to_list()
    assert means == sorted(means, reverse=True)


def test_a_run_folder_is_read_without_its_source(tmp_path: Path) -> None:
    run(suite(), models=[model()], out=tmp_path / "run")
    del core.SOURCES._objects["fading"]
    plan = plan_of(tmp_path / "run")
    assert {name: len(group) for name, group in plan.groups.items()} == {"clean": 40, "fade": 40, "drift": 20}
    (shot,) = shifted_shots(plan, plan.groups["fade"][0], "fade", [1.0])
    assert "not available" in str(shot.error)
    assert check(str(tmp_path / "run")).endswith("complete")


def test_images_of_a_sample_that_changed_are_not_made_for_an_old_run(tmp_path: Path) -> None:
    """The version of a function is the content of a sample that has no file."""
    folder = tmp_path / "run"
    run(suite(), models=[model()], out=folder)

    def other(argument: str | None, space: object) -> Iterator[Sample]:
        for sample in fading(argument, labels(CLASSES)):
            image = Generated(world.load, (int(sample.id[-2:]),), version="another world")
            yield dataclasses.replace(sample, image=image)

    core.SOURCES._objects["fading"] = other
    plan = plan_of(folder)
    shots = list(shifted_shots(plan, plan.groups["fade"][0], "fade", LEVELS))
    assert all("has changed since the run" in str(shot.error) for shot in shots)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder in which the source and the model are a package that Python takes for installed."""
    info = tmp_path / "fading-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fading\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sorites.plugins]\nfading = fading\n")
    added = "\nfrom sorites.core import add_source\nadd_source(fading)\n"
    (tmp_path / "fading.py").write_text(
        Path(world.__file__).read_text(encoding="utf-8") + added, encoding="utf-8"
    )
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    (tmp_path / "s.toml").write_text(
        'source = "fading:40"\nlabels = "classes.txt"\nmodels = ["python:fading:logits"]\n'
    )
    return tmp_path


def started(home: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home), str(Path(sorites.__file__).parents[1])])}
    return subprocess.Popen(
        [sys.executable, "-c", CLI, *words],
        cwd=home,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def typed(home: Path, *words: str) -> str:
    with started(home, *words) as begun:
        said = begun.communicate(timeout=240)[0]
    assert begun.returncode == 0, said
    return said


@pytest.mark.slow
def test_worker_processes_and_a_kill_change_nothing(home: Path) -> None:
    asked = ("run", "s.toml", "--refine", ".02", "--out")
    typed(home, *asked, "one", "--workers", "1")
    typed(home, *asked, "two", "--engine", "processes", "--workers", "2", "--batch", "3")
    with started(home, *asked, "killed", "--workers", "1") as killed:
        while killed.poll() is None and len(list((home / "killed" / "predictions").glob("*.parquet"))) < 2:
            time.sleep(0.01)
        os.kill(killed.pid, signal.SIGKILL)
    typed(home, *asked, "killed")
    first = rows(home / "one")
    assert first["probe"].sum() > 100
    assert_frame_equal(first, rows(home / "two"))
    assert_frame_equal(first, rows(home / "killed"))
    assert "shift fade: 0.5, 1, 1.5, 2 (light, a dial of its samples)" in typed(home, "check", "s.toml")
    assert "complete" in typed(home, "check", "one")

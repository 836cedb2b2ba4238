"""A run folder opened again: from elsewhere, moved with its images, with classes of its own, and
with somebody else's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import CLEAN, Model, Outputs, table
from sorites.core.errors import SoritesError
from sorites.core.table import parquet
from sorites.evaluation.reopen import class_names, plan_of
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import Place
from sorites.io.digests import read_sealed, write_sealed
from sorites.io.listed import write_listed
from sorites.suites.suite import parse

SUITE = parse({"name": "s", "shifts": ["contrast"], "frame": {"resize": 40}, "limit": 4}, "test")


def first_image(run: Path) -> Any:
    plan = plan_of(run)
    return plan.framed(plan.groups[CLEAN][0].id)


@pytest.fixture
def home(photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images and a run over them, by a path relative to it."""
    home = tmp_path / "home"
    shutil.copytree(photos, home / "photos")
    monkeypatch.chdir(home)
    sorites.run(SUITE, source="folder:photos", models=[tiny()], out="run")
    return home


def test_a_run_works_from_any_working_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, ids = first_image(Path("run")), images(Path("run"))
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(first_image(home / "run"), seen)
    assert images(home / "run") == ids == set(table.read(home / "run").collect()["image_id"])


def images(run: Path) -> set[str]:
    plan = plan_of(run)
    clean = {plan.image_id(s, CLEAN, s.setting) for s in plan.groups[CLEAN]}
    shift = plan.shifts["contrast"]
    return clean | {
        plan.image_id(s, "contrast", shift.setting(setting))
        for s in plan.groups[CLEAN]
        for setting in plan.settings["contrast"]
    }


@pytest.mark.slow
@pytest.mark.parametrize("spelled", ["relative", "absolute"])
def test_a_run_works_after_being_moved_with_its_images(
    home: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    source = "folder:photos" if spelled == "relative" else f"folder:{home / 'photos'}"
    sorites.run(SUITE, source=source, models=[tiny()], out=spelled)
    seen = first_image(Path(spelled))
    monkeypatch.chdir(tmp_path)
    home.rename(tmp_path / "elsewhere")
    assert np.array_equal(first_image(tmp_path / "elsewhere" / spelled), seen)


def test_a_run_that_was_moved_alone_finds_its_images_where_they_are(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = first_image(Path("run"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    shutil.move(home / "run", tmp_path / "other" / "run")
    (tmp_path / "other" / "photos").mkdir()
    shutil.copy(next((home / "photos").rglob("*.png")), tmp_path / "other" / "photos" / "stranger.png")
    assert np.array_equal(first_image(tmp_path / "other" / "run"), seen)


def test_images_that_are_gone_leave_the_plan(home: Path) -> None:
    ids = images(Path("run"))
    shutil.rmtree("photos")
    assert images(Path("run")) == ids
    with pytest.raises(SoritesError, match="not available: expected a folder"):
        first_image(Path("run"))


@pytest.mark.slow
def test_the_id_of_a_run_knows_nothing_of_places(
    home: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    record = read_record("run")
    assert record.places["photos"] == Place(beside="../photos", absolute=str((home / "photos").resolve()))
    sorites.run(SUITE, source="folder:photos", models=[tiny()], out=tmp_path / "far" / "run")
    assert read_record(tmp_path / "far" / "run").run_id == record.run_id


def classed(images_u8: Path, labels: str, out: Path) -> None:
    model = Model("m", lambda some: Outputs(np.zeros((len(some), 4), np.float32)), version="1")
    sorites.run(SUITE, source=f"folder:{images_u8}", labels=labels, models=[model], out=out)


def test_classes_of_a_file_are_kept_in_the_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = sorted(path.name for path in photos.iterdir())
    Path("classes.txt").write_text("\n".join(names))
    classed(photos, "classes.txt", Path("run"))
    Path("classes.txt").unlink()
    known = class_names(read_record("run"))
    assert known is not None
    assert list(known.ids) == names
    assert first_image(Path("run")).shape[2] == 3


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_a_file_that_another_run_points_at_does_not_reach_the_page(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    names = sorted(path.name for path in photos.iterdir())
    Path("classes.txt").write_text("\n".join(names))
    classed(photos, "classes.txt", Path("run"))
    Path("secret.txt").write_text("hunter2\npassword\nsalt\npepper\n")
    info = read_sealed(Path("run/run.json"), "")
    info["suite"]["labels"] = str(tmp_path / "secret.txt")
    if not kept:
        del info["classes"]
    write_sealed(info, Path("run/run.json"))
    known = class_names(read_record("run"))
    assert (list(known.ids) if known else None) == (names if kept else None)
    assert len(plan_of("run").groups[CLEAN])
    monkeypatch.setattr("warnings.warn", lambda *_, **__: None)
    assert "hunter2" not in sorites.report("run", "page.html").read_text(encoding="utf-8")


def test_a_manifest_with_params_that_are_no_json_is_named(home: Path) -> None:
    shutil.rmtree("photos")
    changed = pl.read_parquet("run/manifest.parquet").with_columns(params=pl.lit("{"))
    write_listed(Path("run") / "run.json", "manifest.parquet", parquet(changed))
    with pytest.raises(SoritesError, match=r"manifest\.parquet: the params"):
        plan_of("run")

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.conftest import CLASSES

import sorites
from sorites.core import Model
from sorites.core import table as tables
from sorites.core.errors import Notice
from sorites.evaluation.combine import combine, open_folder, open_folders
from sorites.shifts.aberration import SHAPE
from sorites.suites.suite import parse


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two folders whose files have the same names and hold other images."""
    root, rng = tmp_path_factory.mktemp("places"), np.random.default_rng(0)
    for name in ("here", "there"):
        for label in CLASSES[:2]:
            (root / name / label).mkdir(parents=True)
            for i in range(6):
                Image.fromarray(rng.integers(0, 255, (24, 24, 3), np.uint8)).save(
                    root / name / label / f"{i}.png"
                )
    return {name: root / name for name in ("here", "there")}


@pytest.fixture
def go(places: dict[str, Path], tiny: Callable[..., Model], tmp_path: Path) -> Callable[..., Path]:
    def run(
        model: str,
        *shifts: str,
        place: str = "here",
        limit: int | None = None,
        levels: tuple[int, int] = (1, 2),
        **more: object,
    ) -> Path:
        suite = parse({"name": "s", "shifts": list(shifts), "labels": list(CLASSES), **more}, "test")
        out = tmp_path / f"{model}-{len(list(tmp_path.iterdir()))}"
        sorites.run(
            suite,
            source=f"folder:{places[place]}",
            models=[tiny(model)],
            levels=levels,
            limit=limit,
            out=out,
            workers=1,
        )
        return out

    return run


def read(*runs: Path, partial: bool = False) -> tuple[pl.DataFrame, str]:
    found = combine([open_folder(run) for run in runs], partial)
    return found.table.collect(), " ".join(found.notes)


def test_runs_of_the_same_images_and_shifts_are_left_as_they_are(go: Callable[..., Path]) -> None:
    runs = go("one", "jpeg"), go("two", "jpeg")
    table, notes = read(*runs)
    assert notes == ""
    assert table.height == 2 * 12 * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sorites.read(*runs).collect().equals(table)


def test_models_are_compared_on_the_samples_that_all_runs_have(go: Callable[..., Path]) -> None:
    runs = go("one", "jpeg"), go("two", "jpeg", limit=5)
    table, notes = read(*runs)
    assert sorites.accuracy(table, by=["model", "severity"])["n"].to_list() == [5] * 6
    assert "compared on what they share: 5 samples." in notes
    assert "7 of its 12 samples" in notes
    table, notes = read(*runs, partial=True)
    assert sorted(set(sorites.accuracy(table, by=["model", "severity"])["n"])) == [5, 12]
    assert "Everything is used, so models may be evaluated on different images." in notes


def test_models_are_compared_at_the_settings_that_all_of_them_have(go: Callable[..., Path]) -> None:
    table, notes = read(go("one", "jpeg", "contrast"), go("two", "jpeg"))
    assert set(table["shift"]) == {"clean", "jpeg"}
    assert "at the settings of jpeg that all models have" in notes
    assert "settings of contrast" in notes
    table, notes = read(go("three", "contrast"), go("four", "jpeg"))
    assert set(table["shift"]) == {"clean"}
    assert "12 samples, clean only" in notes


def test_one_model_may_have_its_shifts_in_two_runs(go: Callable[..., Path]) -> None:
    table, notes = read(go("one", "jpeg"), go("one", "contrast"))
    assert notes == ""
    assert set(table["shift"]) == {"clean", "jpeg", "contrast"}
    assert sorites.accuracy(table.filter(pl.col("shift") == "clean"))["n"].to_list() == [12], (
        "a shared image counts once"
    )


@pytest.mark.slow
def test_two_folders_share_no_sample_though_their_files_have_the_same_names(
    go: Callable[..., Path], tmp_path: Path
) -> None:
    runs = go("one", "jpeg"), go("two", "jpeg", place="there")
    table, notes = read(*runs)
    assert "share no sample" in notes
    assert "cannot be ranked" in notes
    assert sorites.mean_accuracy(table, by=["shift"])["n"].to_list() == [24], (
        "they are not taken for the same samples"
    )
    page = sorites.report(list(runs), tmp_path / "page.html").read_text(encoding="utf-8")
    assert "share no sample" in page[: page.index("<nav")]
    assert "clearly ahead" not in page
    assert "is best under shift" not in page
    assert "Does the order of the models change?" not in page


@pytest.mark.slow
def test_one_folder_under_two_spellings_shares_its_samples(
    go: Callable[..., Path], tmp_path: Path, places: dict[str, Path]
) -> None:
    places["again"] = places["here"].parent / "." / ".." / places["here"].parent.name / places["here"].name
    places["copy"] = Path(shutil.copytree(places["here"], tmp_path / "copied" / "here"))
    one = go("one", "jpeg")
    for place in ("again", "copy"):
        table, notes = read(one, go("two", "jpeg", place=place))
        assert notes == ""
        assert table["source"].unique().to_list() == ["folder"]
        assert table["run_id"].n_unique() == 1
        assert sorites.paired_difference(table, other="one")["n"].max() == 12
    changed = next(places["copy"].rglob("*.png"))
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(changed)
    table, notes = read(one, go("three", "jpeg", place="copy"))
    assert "share no sample" in notes


def test_what_makes_the_images_differ_is_said(go: Callable[..., Path]) -> None:
    framed = {"resize": 20, "crop": 20}
    _, notes = read(go("one", "jpeg", frame=framed), go("two", "jpeg"))
    assert "The runs differ in frame (resize 20 crop 20" in notes
    assert "and none)" in notes
    _, notes = read(go("three", "jpeg", seed=1), go("four", "jpeg"))
    assert (
        "The runs differ in seed (1 and 0): the same sample at the same setting is a different image in each."
        in notes
    )


def coma(kernels: Path | None = None) -> dict[str, object]:
    named = {} if kernels is None else {"kernels": str(kernels)}
    return {"name": "coma", "options": {"padding": "reflect", **named}}


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack of kernels that move the image by two pixels, whatever the mode and level."""
    taps = np.zeros(SHAPE, np.float32)
    taps[..., 12, 14] = 1
    np.save(path := tmp_path_factory.mktemp("kernels") / "moved.npy", taps)
    return path


@pytest.mark.slow
def test_runs_with_other_kernels_are_two_conditions(
    go: Callable[..., Path], stack: Path, tmp_path: Path
) -> None:
    runs = go("one", coma(), "jpeg"), go("one", coma(stack), "jpeg")
    with pytest.warns(Notice, match="kept apart"):
        table = sorites.read(list(runs)).collect()
    names = {"coma (defaults)", "coma (kernels=moved.npy)"}
    assert set(table["shift"]) == {"clean", "jpeg", *names}
    own = pl.concat([tables.read(run).filter(pl.col("shift") == "coma").collect() for run in runs])
    assert table.filter(pl.col("shift").is_in(names)).height == own.height
    assert sorites.accuracy(table.filter(pl.col("shift") == "jpeg"))["n"].to_list() == [12, 12]
    page = sorites.report(list(runs), tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f"<h3>{name}</h3>" in page for name in names)


def test_models_under_other_kernels_are_not_compared(go: Callable[..., Path], stack: Path) -> None:
    runs = go("one", coma(), "jpeg"), go("two", coma(stack), "jpeg")
    shared, everything = (
        combine(open_folders(runs), partial).table.collect()["shift"].unique().to_list()
        for partial in (False, True)
    )
    assert set(shared) == {"clean", "jpeg"}
    assert set(everything) == {"clean", "jpeg", "coma (defaults)", "coma (kernels=moved.npy)"}


def test_severities_of_other_kernels_are_not_points_of_one_curve(
    go: Callable[..., Path], stack: Path
) -> None:
    runs = go("one", coma()), go("one", coma(stack), levels=(3, 4))
    table = combine(open_folders(runs)).table.filter(pl.col("shift") != "clean").collect()
    found = table.group_by("shift").agg(pl.col("severity").unique().sort()).sort("shift")
    assert found.rows() == [("coma (defaults)", [1, 2]), ("coma (kernels=moved.npy)", [3, 4])]


def test_an_unfinished_condition_is_left_out_under_its_new_name(go: Callable[..., Path], stack: Path) -> None:
    runs = go("one", coma(), "jpeg"), go("one", coma(stack), "jpeg")
    for shard in (runs[1] / "predictions").glob("*coma*"):
        shard.unlink()
    found = combine(open_folders(runs))
    assert set(found.table.collect()["shift"]) == {"clean", "jpeg", "coma (defaults)"}


def test_failure_severities_refined_in_one_run_only_are_taken_at_the_settings(
    go: Callable[..., Path],
) -> None:
    runs = go("one", "jpeg", refine=0.05), go("two", "jpeg")
    table, notes = read(*runs)
    assert (
        "Failure severities are refined in some of the runs only; only the settings of the suite are used."
        in notes
    )
    assert not table["probe"].any()
    table, notes = read(*runs, partial=True)
    assert table["probe"].any()
    assert "they are used as they are" in notes


@pytest.mark.slow
def test_images_that_one_run_sets_aside_are_left_out_of_all(go: Callable[..., Path]) -> None:
    runs = go("one", "jpeg"), go("two", "jpeg")
    assert "filter" not in read(*runs)[1]
    images = (
        tables.read(runs[0]).filter(pl.col("shift") == "jpeg").select("image_id").collect().sort("image_id")
    )
    tables.write_facts(runs[0], "out_of_class", images.with_columns(valid=pl.int_range(pl.len()) >= 7))
    alone, notes = read(runs[0])
    assert notes == f"Images rejected by a filter are not counted: 7 in {runs[0]}."
    assert alone.filter(~pl.col("valid")).height == 7
    table, notes = read(*runs)
    assert "The runs were filtered differently; images rejected in one run are left out of all." in notes
    counts = table.filter(pl.col("shift") == "jpeg", pl.col("valid").fill_null(True)).group_by("model").len()
    assert counts["len"].to_list() == [24 - 7, 24 - 7]
    assert "evaluated on different images" in read(*runs, partial=True)[1]
    tables.write_facts(runs[1], "out_of_class", images.with_columns(valid=pl.int_range(pl.len()) >= 7))
    assert "alike" not in read(*runs)[1]

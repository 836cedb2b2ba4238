from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.core import Generated, Model, Sample, Source
from sorites.core.errors import SoritesError
from sorites.reports import report as views
from sorites.suites.suite import Suite, parse

SUITE = parse(
    {"name": "s", "shifts": ["gaussian_noise", "contrast"], "frame": {"resize": 40, "crop": 36}, "seed": 5},
    "test",
)


def go(photos: Path, model: Model, out: Path, suite: Suite = SUITE) -> sorites.Run:
    return sorites.run(suite, source=f"folder:{photos}", models=[model], limit=3, out=out, workers=1, batch=1)


def watching(tiny: Callable[..., Model], images: list[np.ndarray]) -> Model:
    model = tiny()
    inner = model.forward

    def forward(batch: list[np.ndarray]) -> sorites.core.Outputs:
        images.extend(batch)
        return inner(batch)

    model.forward = forward
    return model


@pytest.mark.parametrize("later", [False, True], ids=["same process", "another process"])
def test_images_are_recomputed_as_the_model_saw_them(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, later: bool
) -> None:
    shown: list[np.ndarray] = []
    table = go(photos, watching(tiny, shown), tmp_path / "run")
    view = views.load_views(tmp_path / "run" if later else table)[0]
    assert view.image is not None
    shots = {p.tobytes() for p in shown}
    for sample, shift, severity in (
        table.collect().select("sample_id", "shift", "severity").unique().iter_rows()
    ):
        assert view.image(sample, shift, severity).tobytes() in shots


@pytest.mark.slow
def test_a_built_dataset_can_be_seen_again_too(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    sorites.build(SUITE.override(source=f"folder:{photos}", limit=3), tmp_path / "set")
    shown: list[np.ndarray] = []
    table = go(tmp_path / "set", watching(tiny, shown), tmp_path / "run").collect()
    view = views.load_views(str(tmp_path / "run"))[0]
    assert view.image is not None
    for sample, shift, severity in table.select("sample_id", "shift", "severity").unique().iter_rows():
        assert any(np.array_equal(view.image(sample, shift, severity), p) for p in shown)


def test_images_that_are_gone_are_clear_errors(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    go(photos, tiny(), tmp_path / "run")
    view = views.load_views(tmp_path / "run")[0]
    assert view.image is not None
    with (
        pytest.warns(UserWarning, match="cannot be shown.* nobody"),
        pytest.raises(SoritesError, match="nobody under contrast"),
    ):
        view.image("nobody", "contrast", 0.6)
    with pytest.raises(SoritesError, match="nobody under contrast"):
        view.image("nobody", "contrast", 0.6)


def test_a_table_brings_its_story_and_so_do_tables_made_from_it(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    table = go(photos, tiny(), tmp_path / "run")
    for some in (table, table.filter(pl.col("shift") != "contrast")):
        view = views.load_views(some)[0]
        assert (view.name, view.suite.seed if view.suite else None) == ("s", 5)
    bare = views.load_views(table.collect())[0]
    assert (bare.name, bare.record, bare.image) == ("table", None, None)


@pytest.mark.slow
def test_objects_passed_from_python_travel_with_the_table(tiny: Callable[..., Model], tmp_path: Path) -> None:
    image = np.full((50, 60, 3), 90, np.uint8)
    source = Source("mine", [Sample(f"p{i}", Generated(lambda: image), i) for i in range(3)])
    table = sorites.run(SUITE, source=source, models=[tiny()], out=tmp_path / "run", workers=1)
    made = views.load_views(table)[0].image
    assert made is not None
    assert made("p0", "contrast", 0.6).shape == (36, 36, 3)
    later = views.load_views(tmp_path / "run")[0].image
    assert later is not None
    missing = "not available: no source named 'mine'"
    with pytest.warns(UserWarning, match=missing), pytest.raises(SoritesError, match=missing):
        later("p0", "contrast", 0.6)
    assert sorites.report(tmp_path / "run", tmp_path / "page.html").stat().st_size > 1000


def test_two_runs_in_one_table_are_two_views(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    both = pl.concat([go(photos, tiny(name), tmp_path / name).table for name in ("one", "two")])
    found = views.load_views(both)
    assert len(found) == 2
    assert sorted(v.table.select("model").collect()["model"].unique().item() for v in found) == ["one", "two"]


@pytest.mark.slow
def test_a_report_of_folders_and_tables(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    table = go(photos, tiny(), tmp_path / "run")
    path = sorites.report([tmp_path / "run", table], tmp_path / "deep" / "page.html")
    assert path == tmp_path / "deep" / "page.html"
    page = path.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "tiny" in page
    assert sorites.report(table, tmp_path / "bare.html").stat().st_size > 1000


def test_what_is_no_run_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no predictions in"):
        sorites.report(tmp_path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_the_page_of_one_run_goes_into_its_folder_and_that_of_several_into_the_working_folder(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = go(photos, tiny(), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert sorites.report(run) == tmp_path / "run" / "report.html"
    assert sorites.report(["run"]) == Path("run") / "report.html"
    assert sorites.report(run.table) == Path("report.html")
    assert sorites.report(["run", run]) == Path("report.html")
    assert sorites.report(run, "other.html") == Path("other.html")
    assert sorites.check(tmp_path / "run")

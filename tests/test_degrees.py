"""Degrees of a run: facts joined into its table, and settings set aside by their mean LPIPS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from sorites import core, metrics
from sorites.core import Model
from sorites.degrees import degrees
from sorites.errors import SoritesError
from sorites.measures.similarity import exposure_error
from sorites.runner import run
from sorites.suite import Frame, parse
from sorites.table import read


@pytest.fixture(scope="module")
def folder(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    suite = parse(
        {
            "name": "small", "source": f"folder:{photos}", "labels": ["n01440764", "n01443537", "n01484850", "n01491361"],
            "frame": {"resize": 64}, "limit": 2,
            "shifts": [
                {"name": "camera", "options": {"grid": "test"}, "settings": [{"light": "on", "aperture": 9.0}]},
                {"name": "aperture", "severities": [8]},
            ],
        },
        "small",
    )  # fmt: skip
    run(suite, models=[tiny()], out=out)
    return out


def test_every_shifted_image_gets_its_degrees(folder: Path, photos: Path) -> None:
    degrees(folder, ("exposure_error", "clipped_share"))
    rows = read(folder).filter(pl.col("shift") != "clean").collect()
    assert rows["degrees"].list.len().unique().to_list() == [2]
    assert read(folder).filter(pl.col("shift") == "clean").select("degrees").collect()["degrees"].null_count() == 2
    told = rows.filter(pl.col("shift") == "aperture", pl.col("severity") == 8).row(0, named=True)
    sample = next(s for s in core.source(f"folder:{photos}") if s.id == told["sample_id"])
    clean = Frame(resize=64)(sample.load())
    assert abs(next(d["value"] for d in told["degrees"] if d["measure"] == "exposure_error")) < 0.2
    assert exposure_error(clean, clean) == 0


def test_settings_too_far_by_lpips_are_set_aside_and_still_there(folder: Path) -> None:
    before = metrics.accuracy(read(folder), by=("shift", "params"))
    degrees(folder, ("lpips",), lpips_below=0.6)
    rows = read(folder).filter(pl.col("shift") == "camera").collect()
    entries = rows.explode("degrees").unnest("degrees").filter(pl.col("measure") == "lpips")
    means = entries.group_by("params").agg(pl.col("value").mean(), pl.col("valid").all())
    assert means.height == 9
    assert ((means["value"] < 0.6) == means["valid"]).all()
    assert 0 < means["valid"].sum() < 9
    assert metrics.accuracy(read(folder), by=("shift", "params")).height < before.height


def test_an_unknown_measure_is_named(folder: Path) -> None:
    with pytest.raises(SoritesError, match="Did you mean lpips"):
        degrees(folder, ("lpip",))


def test_a_suite_may_ask_for_the_filter(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> None:
    asked = {"name": "far", "source": f"folder:{photos}", "frame": {"resize": 64}, "limit": 2, "lpips_below": 0.3}
    suite = parse({**asked, "shifts": [{"name": "gaussian_noise", "severities": [0.01, 1.5]}]}, "far")
    rows = run(suite, models=[tiny()], out=tmp_path / "run").filter(pl.col("shift") != "clean").collect()
    assert rows.group_by("severity").agg(pl.col("valid").all()).sort("severity")["valid"].to_list() == [True, False]
    when = (tmp_path / "run" / "facts" / "similarity.parquet").stat().st_mtime_ns
    run(suite, models=[tiny()], out=tmp_path / "run")
    assert (tmp_path / "run" / "facts" / "similarity.parquet").stat().st_mtime_ns == when

"""The section on the solution space shows the numbers of the metric (ImageNet-ES, Figure 13)."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.reports import worlds
from tests.reports.sections.test_exposure import rows

from sorites import metrics
from sorites.core import table
from sorites.reports.sections.solution_space import RIGHT, solution_space
from sorites.reports.view import RunView, merge


@pytest.fixture(scope="module")
def camera_run() -> RunView:
    record = worlds.record(
        {"name": "camera", "models": ["lite0", "<b>big</b>"], "shifts": [{"name": "camera"}]}
    )
    return RunView(table.rows(list(rows())).lazy(), "camera", record)


def test_histograms_by_light_with_the_shares_of_the_metric(camera_run: RunView) -> None:
    section = solution_space(merge([camera_run]))
    assert section is not None
    assert re.findall(r"<h3>(27 settings · lamp \w+)</h3>", section.body) == [
        "27 settings · lamp on",
        "27 settings · lamp off",
    ]
    found = metrics.solution_space(camera_run.table)
    for row in found.to_dicts():
        assert f"correct at {row['right']}: {100 * row['value']:.1f}" in section.body
    assert "<b>big</b> no setting" not in section.body
    assert "&lt;b&gt;big&lt;/b&gt;" in section.body


def test_a_map_has_a_pixel_per_image_and_setting(camera_run: RunView) -> None:
    section = solution_space(merge([camera_run]))
    assert section is not None
    maps = [
        Image.open(io.BytesIO(base64.b64decode(part)))
        for part in re.findall(r"data:image/png;base64,([^\"]+)", section.body)
    ]
    assert [drawn.size for drawn in maps] == [(27 + 1 + 27, 8)] * 2
    blue = [(np.asarray(drawn) == RIGHT).all(axis=2).sum() for drawn in maps]
    manual = camera_run.table.filter(pl.col("params").str.contains('"manual"')).collect()
    assert blue == [manual.filter(model=name)["correct"].sum() for name in ("lite0", "<b>big</b>")]


def test_pairs_of_models_are_tabled(camera_run: RunView) -> None:
    section = solution_space(merge([camera_run]))
    assert section is not None
    for row in metrics.solution_overlap(camera_run.table).to_dicts():
        assert f"{100 * row['value']:.1f}\u202f%<small>" in section.body
    alone = RunView(camera_run.table.filter(pl.col("model") == "lite0"), "camera")
    shown = solution_space(merge([alone]))
    assert shown is not None
    assert "first only" not in shown.body


def test_absent_without_a_camera(run: RunView) -> None:
    assert solution_space(merge([run])) is None

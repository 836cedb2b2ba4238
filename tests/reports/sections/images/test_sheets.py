"""Sheets of single images on the page (ImageNet-ES, Figure 10)."""

from __future__ import annotations

import dataclasses

import pytest
from tests.reports import worlds
from tests.reports.sections.test_exposure import image, rows

from sorites import metrics
from sorites.core import table
from sorites.reports.sections.images.sheets import ACROSS, SHEETS, sheets
from sorites.reports.view import RunView, merge


@pytest.fixture(scope="module")
def camera_run() -> RunView:
    record = worlds.record(
        {"name": "camera", "models": ["lite0", "<b>big</b>"], "shifts": [{"name": "camera"}]}
    )
    return RunView(table.rows(list(rows())).lazy(), "camera", record, None, image)


def test_the_images_on_which_models_differ_most_come_first(camera_run: RunView) -> None:
    section = sheets(merge([camera_run]))
    assert section is not None
    worst = metrics.disagreement(camera_run.table).sort("value", "sample_id", descending=[True, False])[
        "sample_id"
    ][:SHEETS]
    places = [section.body.index(f">{sample} · ") for sample in worst]
    assert places == sorted(places)
    assert section.body.count("data:image/webp") == SHEETS * ACROSS
    assert section.body.count("✓") + section.body.count("✗") == SHEETS * ACROSS * 2
    assert "<b>big</b>" not in section.body


def test_absent_without_images_or_camera(camera_run: RunView, run: RunView) -> None:
    assert sheets(merge([dataclasses.replace(camera_run, image=None)])) is None
    assert sheets(merge([run])) is None

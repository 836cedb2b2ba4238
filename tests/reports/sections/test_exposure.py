"""The sections on cameras: maps, tables, the contact sheet, and their absence."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from tests.reports import worlds

from sorites import metrics
from sorites.core import ImageU8, camera_grid, table
from sorites.core.errors import SoritesError
from sorites.reports.sections.camera import contact, exposure, requested
from sorites.reports.view import RunView, merge


def rows() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for model, skill in (("lite0", 0.0), ("<b>big</b>", 0.7)):
        for i, params in enumerate(camera_grid.grid("test")):
            told = {"iso": 3200, "shutter": 1 / 60, "aperture": 5.0} if params["mode"] == "auto" else {}
            settings = (
                -6.0
                if told
                else -abs(np.log2(params["iso"] * params["shutter"] / params["aperture"] ** 2 / 0.2))
            )
            for sample in range(8):
                right = bool(rng.logistic() < skill + 3 + settings)
                yield {
                    "run_id": "r",
                    "source": "s",
                    "sample_id": f"p{sample}",
                    "image_id": f"{i}/{sample}",
                    "shift": "camera",
                    "family": "camera",
                    "params": json.dumps({**params, **told}),
                    "probe": False,
                    "model": model,
                    "output": "label",
                    "correct": right,
                    "label": 0,
                    "pred": 0,
                    "known": True,
                }


def image(sample_id: str, shift: str, setting: Any) -> ImageU8:
    if not isinstance(setting, Mapping) or ("iso" in setting and setting["mode"] == "auto"):
        raise SoritesError("no such setting")
    return np.full((40, 40, 3), 90, np.uint8)


@pytest.fixture(scope="module")
def camera_run() -> RunView:
    record = worlds.record(
        {"name": "camera", "models": ["lite0", "<b>big</b>"], "shifts": [{"name": "camera"}]}
    )
    return RunView(table.rows(list(rows())).lazy(), "camera", record, None, image)


def test_best_worst_and_automatic_are_named_with_their_numbers(camera_run: RunView) -> None:
    section = exposure(merge([camera_run]))
    assert section is not None
    said = re.sub("<[^>]+>", "", section.body[: section.body.index("</ul>")])
    each = metrics.setting_accuracy(camera_run.table).filter(model="lite0", light="on")
    manual, auto = each.filter(exposure="manual"), each.filter(exposure="auto").row(0, named=True)
    best = manual.sort("value").row(-1, named=True)
    behind = (manual["value"] < auto["value"]).sum()
    assert f"{100 * best['value']:.1f}\u202f% (95 %" in said
    assert f"{100 * auto['value']:.1f}\u202f% (95 %" in said
    assert f"{behind} of the {manual.height} settings are worse" in said
    assert "&lt;b&gt;big&lt;/b&gt;, lamp off" in section.body


def test_maps_per_aperture_and_light_show_the_metric(camera_run: RunView) -> None:
    section = exposure(merge([camera_run]))
    assert section is not None
    maps = re.findall(r"<h3>(f/\S+ · lamp \w+)</h3>.*?(<table.*?</table>)", section.body)
    assert len(maps) == 2 * 2 * 3
    heading, first = maps[0]
    assert heading == "f/5 · lamp on"
    cells = metrics.setting_accuracy(camera_run.table).filter(
        model="lite0", light="on", exposure="manual", aperture=5.0
    )
    shown = re.findall(r"<td title=[^>]*>(\d+)</td>", first)
    assert shown == [f"{100 * value:.0f}" for value in cells.sort("iso", "shutter")["value"]]
    assert "<b>big</b>" not in section.body
    assert "&lt;b&gt;big&lt;/b&gt;" in section.body


def test_the_tables_name_the_best_setting_and_the_gain(camera_run: RunView) -> None:
    section = exposure(merge([camera_run]))
    assert section is not None
    best = (
        metrics.setting_table(camera_run.table)
        .filter(model="lite0", light="on", what="best")
        .row(0, named=True)
    )
    assert f"ISO {best['iso']:,.0f}".replace(",", "\u202f") in section.body
    gain = metrics.camera_control(camera_run.table).filter(model="lite0", policy="oracle")["gain"].item()
    assert f"{100 * gain:+.1f}" in section.body


def test_the_contact_sheet_shows_every_setting_and_what_automatic_lost(camera_run: RunView) -> None:
    section = contact(merge([camera_run]))
    assert section is not None
    assert section.body.count("data:image/webp") >= 2 * 27 + 2 * 3
    assert "image not available" not in section.body
    assert "automatic" in section.body


def test_automatic_choices_are_not_requested_settings() -> None:
    chosen = {"light": "on", "mode": "auto", "shot": 1, "iso": 400, "shutter": 0.1, "aperture": 5.0}
    assert requested(json.dumps(chosen)) == {"light": "on", "mode": "auto", "shot": 1}
    assert requested(json.dumps({"mode": "manual", "iso": 400})) == {"mode": "manual", "iso": 400}


def test_absent_without_a_grid_or_without_images(camera_run: RunView, run: RunView) -> None:
    assert exposure(merge([run])) is None
    assert contact(merge([run])) is None
    assert contact(merge([dataclasses.replace(camera_run, image=None)])) is None

"""The section on camera control: the numbers of its chart and tables are those of the metrics."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from tests.reports import worlds
from tests.reports.sections.test_exposure import rows

from sorites import metrics
from sorites.core import table
from sorites.reports.sections.control import NAMES, control
from sorites.reports.view import RunView, merge


@pytest.fixture(scope="module")
def controlled() -> RunView:
    """The world of the section on exposure, with confidences."""
    record = worlds.record(
        {"name": "camera", "models": ["lite0", "<b>big</b>"], "shifts": [{"name": "camera"}]}
    )
    rng = np.random.default_rng(0)
    sure = [{**row, "conf": float(rng.random())} for row in rows()]
    return RunView(table.rows(sure).lazy(), "camera", record, None, None)


def charts(body: str) -> list[dict[str, Any]]:
    return [json.loads(data) for data in re.findall(r'<script type="application/json">(.*?)</script>', body)]


def test_one_chart_per_model_with_the_oracle_as_ceiling(controlled: RunView) -> None:
    section = control(merge([controlled]))
    assert section is not None
    first, second = charts(section.body)
    drawn = {trace["name"]: trace for trace in first["data"] if trace.get("hoverinfo") != "skip"}
    assert set(drawn) == set(NAMES.values())
    known = metrics.control_policies(controlled.table).filter(model="lite0")
    for policy in ("confidence", "mvp", "oracle"):
        values = known.filter(policy=policy).sort("shots")
        start = known.filter(policy="fixed")
        assert drawn[NAMES[policy]]["x"] == [1, *values["shots"]]
        assert drawn[NAMES[policy]]["y"] == pytest.approx([*start["value"], *values["value"]])
    assert len(drawn[NAMES["auto"]]["x"]) == 1
    assert len(second["data"]) == len(first["data"])


def test_the_tables_have_costs_and_transfer(controlled: RunView) -> None:
    section = control(merge([controlled]))
    assert section is not None
    assert "<b>big</b>" not in section.body
    text = re.sub("<[^>]+>", " ", section.body)
    assert "by confidence" in text  # the run has no entropy, and the page says what stands for it
    policies = metrics.control_policies(controlled.table).filter(model="lite0", policy="oracle").sort("shots")
    line = next(row for row in re.findall("<tr>.*?</tr>", section.body) if f">{policies['shots'][1]}<" in row)
    assert f"{100 * policies['value'][1]:.1f}" in line
    assert [text.count(name) > 0 for name in NAMES.values()] == [True] * len(NAMES)
    moved = metrics.control_transfer(controlled.table).filter(
        model="lite0", chooser="<b>big</b>", policy="mvp"
    )
    assert f"{100 * moved['value'].item():.1f}" in text
    assert "chosen by" in text


def test_absent_without_a_grid(run: RunView) -> None:
    assert control(merge([run])) is None

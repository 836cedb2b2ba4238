"""The section on generated trajectories: failure severities, strips, the filter, and its absence."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.evaluation import fading as world

import sorites
from sorites.core.table import read, write_facts
from sorites.evaluation.run import run
from sorites.reports.report import load_views
from sorites.reports.section import sections
from sorites.reports.view import merge

pytestmark = pytest.mark.usefixtures("fading_source")


def drawn(folder: Path, name: str = "generated") -> str:
    found = sections(merge(load_views(folder)))
    return str(found[name].body) if name in found else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run(world.suite(shifts=["fade"], refine=0.02), models=[world.model()], out=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.slow
def test_every_trajectory_is_a_dot_at_its_failure_severity(folder: Path) -> None:
    (figure,) = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', drawn(folder))
    ]
    (trace,) = figure["data"]
    points = sorites.failure_severity(read(folder), by=("shift", "sample_id"))
    wanted = dict(points.select("sample_id", "value").iter_rows())
    found = {told[0]: x for told, x in zip(trace["customdata"], trace["x"], strict=True)}
    assert len(found) == 40
    assert all(
        found[name] == (2.4 if value is None else pytest.approx(value)) for name, value in wanted.items()
    )
    assert figure["layout"]["xaxis"]["ticktext"] == ["0", "0.5", "1", "1.5", "2", "never"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "light"


@pytest.mark.slow
def test_strips_show_the_images_that_the_dial_gives(folder: Path) -> None:
    body = drawn(folder)
    shown = re.findall(r'<img src="data:image/\w+;base64,([^"]+)" alt="([^"]+)"', body)
    assert len(shown) == 6 * 5
    for data, alt in shown:
        name, at = re.match(r"(shape_\d\d), fade (?:light )?(clean|[\d.]+);", html.unescape(alt)).groups()  # type: ignore[union-attr]
        image = np.asarray(Pillow.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), float) / 255
        wanted = world.drawn(int(name[-2:]), 0.0 if at == "clean" else float(at))
        assert abs(image.mean() - wanted.mean()) < 0.02
    assert "bright</b> fails on 30 of 40 trajectories" in body
    assert "survives" in body
    assert "filter" not in body


@pytest.mark.slow
def test_filtered_images_are_counted_and_marked(folder: Path) -> None:
    last = read(folder).filter(pl.col("severity") == 2).collect()
    write_facts(folder, "mine", last.select("image_id", valid=pl.lit(False)))
    body = drawn(folder)
    assert "The filter removed 40 of 40 at severity 2" in body
    assert body.count('class="wrong aside"') + body.count('class="aside"') == 6


@pytest.mark.slow
def test_other_runs_have_no_such_section(tmp_path: Path) -> None:
    run(world.suite(shifts=["jpeg"]), models=[world.model()], out=tmp_path / "run")
    assert drawn(tmp_path / "run") == ""


@pytest.mark.slow
def test_the_page_is_written_with_all_sections_that_apply(folder: Path, tmp_path: Path) -> None:
    text = sorites.report(folder, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Along the generated trajectories" in text
    assert "fade light 0.5" in text
    assert "image not available" not in text
    assert '<section id="strips"' in text

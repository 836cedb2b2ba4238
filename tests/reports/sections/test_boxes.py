"""The sections on detectors, from a run over coloured rectangles."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest
from tests.reports import rectangles

from sorites import metrics
from sorites.evaluation.run import run
from sorites.metrics.detection.tide import KINDS
from sorites.metrics.intervals import NOTED
from sorites.reports.components.markup import percent
from sorites.reports.page import _costs_of_map as hardest
from sorites.reports.page import boxes_in_short, render
from sorites.reports.report import load_views
from sorites.reports.sections.detection import _interval_note as note
from sorites.reports.sections.detection import box_classes, box_curves, detectors, map_from_clean, tide_errors
from sorites.reports.sections.images.lost_objects import lost_objects
from sorites.reports.view import View, merge


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    here = tmp_path_factory.mktemp("boxes")
    suite = here / "rectangles.toml"
    settings = 'shifts = [{name = "defocus_disk", levels = [1, 5]}, {name = "jpeg", levels = [5]}]'
    suite.write_text(
        f'source = "stamps"\nmodels = ["lite0"]\nlabels = {json.dumps(rectangles.CLASSES)}\n{settings}\n'
    )
    models = [rectangles.detector(), rectangles.detector("<b>wide</b>", 130.0)]
    table = run(suite, source=rectangles.source(12), models=models, out=here / "run")
    return merge(load_views(table))


def charts(body: str) -> list[dict[str, list[dict[str, list[float]]]]]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', body)]


@pytest.mark.slow
def test_a_card_per_detector_with_its_numbers(view: View) -> None:
    section = detectors(view)
    assert section is not None
    clean = (
        metrics.map(view.table.filter(pl.col("shift") == "clean"), by=("model",))
        .filter(model="colours")
        .row(0, named=True)
    )
    assert f"<b>{100 * clean['value']:.1f}\u202f%</b>" in section.body
    assert f"{clean['objects']} objects in 12 clean images" in section.body
    assert "<b>wide</b>" not in section.body


def test_the_coverage_of_intervals_of_few_images_is_noted(view: View) -> None:
    section = detectors(view)
    assert section is not None
    limit = int(NOTED["map"].below)
    assert section.body.count("The 95 % intervals of map contain the true value in") == 2
    many = pl.DataFrame({"model": ["m"], "value": [0.5], "n": [limit], "low": [0.4], "high": [0.6]})
    assert not note(many, "m")
    assert note(many.with_columns(n=limit - 1), "m")


@pytest.mark.slow
def test_map_and_tide_have_one_value_each_the_mean_over_settings(view: View) -> None:
    """The card and its table show the same shifted mAP, and TIDE is averaged in the same way."""
    section, errors = detectors(view), tide_errors(view)
    assert section is not None
    assert errors is not None
    for row in metrics.mean_map(view.table, by=("model",)).to_dicts():
        assert section.body.count(percent(row["value"])) >= 2
    costs = metrics.mean_tide(view.table, by=("model",)).filter(pl.col("error").is_in(KINDS))
    assert all(percent(value) in errors.body for value in costs["value"])


def test_shifts_that_cost_the_same_are_not_ordered(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = boxes_in_short(view)[1]
    assert re.fullmatch(
        r"\w+ costs the most mAP \(−?\d+ points?\), \w+ the least \(−?\d+ points?\), on average over"
        r" detectors\.",
        ordered,
    )
    drops = pl.DataFrame(
        {"model": ["a"] * 2, "shift": ["coma", "jpeg"], "value": [0.161, 0.158], "low": [0.1] * 2}
    )
    monkeypatch.setattr(View, "compute", lambda self, metric, *where, **options: drops)
    assert hardest(view) == ["All 2 shifts cost about the same mAP, 16 points."]


@pytest.mark.slow
def test_curves_start_from_the_clean_images(view: View) -> None:
    section = box_curves(view)
    assert section is not None
    lines = [trace for trace in charts(section.body)[0]["data"] if trace.get("mode") == "lines+markers"]
    wanted = map_from_clean(view.table).filter(model="colours", shift="defocus_disk").sort("severity")
    assert lines[0]["x"] == wanted["severity"].to_list()
    assert lines[0]["y"] == pytest.approx(wanted["value"].to_list())


def test_the_six_errors_of_tide_over_severity(view: View) -> None:
    section = tide_errors(view)
    assert section is not None
    assert [trace["name"] for trace in charts(section.body)[0]["data"]] == [
        "Cls",
        "Loc",
        "Both",
        "Dupe",
        "Bkg",
        "Miss",
    ]
    assert not re.search(r"[-−]0\.0\s*%| [-−]0\.0 to", section.body)


def test_classes_are_sorted_by_loss(view: View) -> None:
    section = box_classes(view)
    assert section is not None
    names = re.findall(r'<th scope="row" class="word">(?:<span class="few">)?(\w+)', section.body)[:3]
    clean = pl.col("shift") == "clean"
    both = [metrics.map(view.table.filter(where), by=("model", "class")) for where in (clean, ~clean)]
    mine = [dict(frame.filter(model="colours").select("class", "value").iter_rows()) for frame in both]
    order = sorted(mine[0], key=lambda label: mine[1][label] - mine[0][label])
    assert names == [rectangles.CLASSES[label] for label in order]


def test_lost_objects_are_drawn_with_truth_and_prediction(view: View) -> None:
    section = lost_objects(view)
    assert section is not None
    assert section.body.count("<rect") > 10
    assert all(f'class="{kind}"' in section.body for kind in ("ground_truth", "found", "strip"))
    assert "first lost:" in section.body


@pytest.mark.slow
def test_the_page_says_map_and_not_accuracy(view: View) -> None:
    html = render(view)
    assert "The 2 detectors have a mAP of" in html
    assert "No image was evaluated" not in html
    assert "12 samples" in html
    found = re.findall(r'<section id="(\w+)"', html)
    assert {"detectors", "box_curves", "tide_errors", "box_classes", "box_failure"} <= set(found)
    assert not {"headline", "curves", "failure", "calibration"} & set(found)

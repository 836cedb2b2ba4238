"""The answers of metrics as users see them: polars frames with a chart and a heading."""

from __future__ import annotations

import inspect
import pickle

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sorites
from sorites.core import METRICS
from sorites.core.errors import SoritesError
from sorites.reports.figures.metric_frame import MetricFrame

ROWS = [
    ("a", "clean", 0.0, 0.9, 100, 0.83, 0.95),
    ("a", "defocus_disk", 2.0, 0.8, 100, 0.7, 0.88),
    ("a", "defocus_disk", 4.0, 0.4, 100, 0.3, 0.5),
    ("b", "clean", 0.0, 0.7, 100, 0.6, 0.79),
    ("b", "defocus_disk", 2.0, 0.5, 100, 0.4, 0.6),
    ("b", "jpeg", 5.0, 0.6, 100, None, None),
]
FRAME = pl.DataFrame(ROWS, schema=["model", "shift", "severity", "value", "n", "low", "high"], orient="row")
ANSWER = MetricFrame.of(FRAME, "accuracy")


def table() -> pl.DataFrame:
    """Ten images of one model, of which seven are right."""
    from sorites.core.table import SCHEMA

    rows = [
        {"run_id": "r", "model": "m", "source": "s", "sample_id": str(i), "shift": "clean", "severity": 0.0}
        | {"output": "label", "label": 1, "pred": 1, "correct": i < 7, "image_id": str(i)}
        for i in range(10)
    ]
    return pl.DataFrame(rows, schema_overrides=SCHEMA, schema=SCHEMA)


def test_the_metrics_of_the_library_answer_with_polars_frames_that_work() -> None:
    answer = sorites.accuracy(table(), by=["model"])
    plain = METRICS.get("accuracy")(table(), by=["model"])
    assert isinstance(answer, MetricFrame)
    assert isinstance(answer, pl.DataFrame)
    assert type(plain) is pl.DataFrame
    assert answer["value"].to_list() == [0.7]
    assert_frame_equal(pl.DataFrame(answer), plain)
    assert answer.filter(pl.col("n") > 5).metric == "accuracy"
    assert answer.filter(pl.col("n") > 5).plot().data[0].x == (0.7,)
    facts = pl.DataFrame({"model": ["m"], "parameters": [5]})
    assert answer.join(facts, on="model")["parameters"].to_list() == [5]
    assert answer.sort("value").equals(answer)
    assert pickle.loads(pickle.dumps(answer)).equals(answer)


@pytest.mark.parametrize("name", METRICS.names())
def test_every_metric_keeps_its_signature_and_documentation(name: str) -> None:
    wrapped, plain = getattr(sorites, name), METRICS.get(name)
    assert inspect.signature(wrapped) == inspect.signature(plain)
    assert (wrapped.__name__, wrapped.__doc__) == (plain.__name__, plain.__doc__)


def test_curves_begin_at_the_clean_value_and_have_their_intervals() -> None:
    fig = ANSWER.plot()
    drawn = {(curve.name, curve.x, curve.y) for curve in fig.data if curve.x}
    assert drawn == {
        ("a", (0.0, 2.0, 4.0), (0.9, 0.8, 0.4)),
        ("b", (0.0, 2.0), (0.7, 0.5)),
        ("b", (0.0, 5.0), (0.7, 0.6)),
    }
    first = next(curve for curve in fig.data if curve.x == (0.0, 2.0, 4.0))
    assert first.error_y.array == pytest.approx([0.05, 0.08, 0.1])
    assert first.error_y.arrayminus == pytest.approx([0.07, 0.1, 0.1])
    assert [note.text for note in fig.layout.annotations] == ["defocus_disk", "jpeg"]
    assert fig.layout.xaxis.title.text == "severity (px)"
    assert fig.layout.yaxis.title.text == "accuracy"


def test_other_answers_are_points_named_by_their_groups() -> None:
    fig = MetricFrame.of(FRAME.filter(pl.col("shift") == "clean").drop("severity"), "accuracy").plot()
    assert [(one.name, one.x, one.y) for one in fig.data] == [
        ("a", (0.9,), ("clean",)),
        ("b", (0.7,), ("clean",)),
    ]
    assert fig.data[0].error_x.array == pytest.approx([0.05])
    assert fig.layout.xaxis.title.text == "accuracy"


def test_risk_is_a_curve_over_the_share_of_images_answered_with_a_band() -> None:
    rows = [("a", c / 100, c / 200, c, c / 400, c / 100) for c in range(1, 101)]
    columns = ["model", "coverage", "value", "n", "low", "high"]
    fig = MetricFrame.of(pl.DataFrame(rows, schema=columns, orient="row"), "risk_coverage").plot()
    band, line = fig.data
    assert (line.x, line.y) == (tuple(row[1] for row in rows), tuple(row[2] for row in rows))
    assert band.fill == "toself"
    assert dict(zip(band.x[:100], band.y[:100], strict=True)) == {row[1]: row[5] for row in rows}
    assert dict(zip(band.x[100:], band.y[100:], strict=True)) == {row[1]: row[4] for row in rows}
    assert fig.layout.xaxis.title.text == "share of images answered"


def test_failure_severities_have_a_chart_per_shift_in_its_unit_and_name_what_was_not_reached() -> None:
    rows = [("a", "defocus_disk", 4.0, 20, 3.0, 6.0), ("a", "jpeg", None, 20, 80.0, None)]
    columns = ["model", "shift", "value", "n", "low", "high"]
    fig = MetricFrame.of(pl.DataFrame(rows, schema=columns, orient="row"), "failure_severity").plot()
    assert [(one.x, one.y, one.xaxis) for one in fig.data] == [((4.0,), ("a",), "x")]
    assert fig.layout.xaxis.title.text == "severity (px)"
    assert fig.layout.xaxis2.title.text == "severity (100 - quality)"
    texts = [(note.text, note.yref) for note in fig.layout.annotations]
    assert texts == [("defocus_disk", "paper"), ("jpeg", "paper"), ("not reached", "y2")]


def test_accuracy_by_confidence_is_a_curve_over_the_mean_confidence_of_the_bins() -> None:
    rows = [("a", 14, 0.9, 20, 0.8, 1.0, 0.97), ("a", 3, 0.4, 5, 0.1, 0.7, 0.22)]
    columns = ["model", "bin", "value", "n", "low", "high", "conf"]
    fig = MetricFrame.of(pl.DataFrame(rows, schema=columns, orient="row"), "reliability").plot()
    assert (fig.data[0].x, fig.data[0].y) == ((0.22, 0.97), (0.4, 0.9))
    assert fig.layout.yaxis.title.text == "accuracy"


def test_what_cannot_be_drawn_is_reported() -> None:
    with pytest.raises(SoritesError, match="no values to draw"):
        ANSWER.filter(pl.lit(False)).plot()
    many = pl.concat([FRAME.head(1)] * 99).drop("severity")
    with pytest.raises(SoritesError, match="99 rows, and a chart shows up to 60"):
        MetricFrame.of(many, "accuracy").plot()
    with pytest.raises(SoritesError, match="no column value"):
        MetricFrame.of(FRAME.drop("value"), "accuracy").plot()


def test_a_notebook_says_what_the_numbers_are() -> None:
    shown = ANSWER._repr_html_()
    assert shown.startswith("<p>accuracy: 6 rows; low and high are the bounds of the 95 % interval")
    assert "defocus_disk" in shown

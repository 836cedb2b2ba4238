from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites.analysis.answers import answer_metric, explain_empty
from sorites.cli.printing import (
    attribute_headlines,
    format_frame,
    headline,
    named_error,
    print_run_summary,
)
from sorites.core import Attr, Box, Generated, Model, Outputs, Sample, Setting, Source
from sorites.core.errors import SoritesError
from sorites.reports.page import render
from sorites.reports.report import load_views
from sorites.reports.view import merge
from sorites.suites.suite import parse

FRAME = pl.DataFrame({"model": ["a,b", None], "value": [1 / 3, None], "n": [3, 0], "accept": [[1, 2], None]})


def test_csv_and_json_are_whole_and_exact() -> None:
    rows = list(csv.DictReader(io.StringIO(format_frame(FRAME, "csv"))))
    assert float(rows[0]["value"]) == 1 / 3
    assert rows[0]["model"] == "a,b"
    assert (rows[1]["model"], rows[1]["value"]) == ("", "")
    assert json.loads(rows[0]["accept"]) == [1, 2]
    parsed = json.loads(format_frame(FRAME, "json"))
    assert parsed == [
        {"model": "a,b", "value": 1 / 3, "n": 3, "accept": [1, 2]},
        {"model": None, "value": None, "n": 0, "accept": None},
    ]


def test_the_table_is_for_the_eye() -> None:
    text = format_frame(FRAME, "table")
    assert "0.3333" in text
    assert "–" in text
    assert all(line == line.rstrip() for line in text.splitlines())
    long = "python:a_module_with_a_long_name:and_a_function_with_a_longer_one_that_goes_on_and_on_and_on"
    assert long in format_frame(pl.DataFrame({"model": [long], "other": ["x" * 80]}), "table")
    assert "[red]" in format_frame(pl.DataFrame({"model": ["[red]"]}), "table")


def test_other_formats_are_refused() -> None:
    with pytest.raises(SoritesError, match="--format must be table, csv"):
        format_frame(FRAME, "yaml")


def test_the_headline_is_the_metrics(run: Path) -> None:
    table = sorites.read(run)
    first = headline(run).row(0, named=True)
    assert (first["model"], first["n"]) == ("one", 8)
    mean = sorites.mean_accuracy(table).filter(pl.col("model") == "one").row(0, named=True)
    assert first["shifted"].startswith(f"{100 * mean['value']:.1f}")
    assert first["clean"].startswith("100.0  [")


def test_a_run_without_clean_or_without_shifts_still_has_a_headline(
    tiny: Callable[..., Model], tmp_path: Path
) -> None:
    def image() -> np.ndarray:
        return np.full((30, 30, 3), 90, np.uint8)

    captured = Source("mine", [Sample("a", Generated(image), 0, shift="mist", setting=Setting(1.0, level=1))])
    clean = Source("mine", [Sample("a", Generated(image), 0)])
    suite = parse({"name": "s"}, "test")
    for name, source in (("captured", captured), ("clean", clean)):
        sorites.run(suite, source=source, models=[tiny()], out=tmp_path / name)
        assert headline(tmp_path / name)["model"].to_list() == ["tiny"]


def test_a_run_with_common_and_uncommon_attributes_shows_partitions_and_gaps(tmp_path: Path) -> None:
    # Four images in common weather, all right; four in uncommon weather, one right.
    samples = [
        Sample(
            f"s{i}",
            Generated(lambda i=i: np.full((9, 9, 3), 20 * i, np.uint8)),  # type: ignore[misc]
            label=int(i > 4),
            attrs=(Attr("class", "cat"), Attr("weather", "rain" if i > 3 else "sun", i < 4)),
        )
        for i in range(8)
    ]
    model = Model("m", lambda images: Outputs(np.array([[3.0, 0.0]] * len(images), np.float32)))
    suite = parse({"name": "s", "labels": ["a", "b"]}, "test")
    sorites.run(suite, source=Source("mine", samples), models=[model], out=tmp_path / "run")
    (_, partitions), (_, gaps) = attribute_headlines(tmp_path / "run")
    assert partitions.select("uncommon", "kinds", "n").rows() == [
        (0, "all", 4),
        (1, "all", 4),
        (1, "weather", 4),
    ]
    assert [text.split()[0] for text in partitions["accuracy"]] == ["100.0", "25.0", "25.0"]
    assert dict(gaps.select("kind", pl.col("gap in points").str.slice(0, 4)).iter_rows()) == {
        "any": "75.0",
        "weather": "75.0",
    }
    lines: list[str] = []
    print_run_summary(tmp_path / "run", lines.append)
    assert "gap in points" in "".join(lines)


def test_how_a_run_went(run: Path) -> None:
    lines: list[str] = []
    print_run_summary(run, lines.append)
    table = sorites.read(run).collect()
    assert (
        f"wrote {table.height} rows to {run / 'predictions'}, {table['probe'].sum()} of them probes" in lines
    )
    assert lines[-1].startswith(f"next: sorites report {run}")


def test_errors_are_counted_and_the_first_is_named(tiny: Callable[..., Model], tmp_path: Path) -> None:
    def broken() -> np.ndarray:
        raise SoritesError("x.png: truncated")

    samples = [
        Sample("bad", Generated(broken), 0),
        Sample("good", Generated(lambda: np.full((9, 9, 3), 5, np.uint8)), 0),
    ]
    sorites.run(
        parse({"name": "s"}, "test"), source=Source("mine", samples), models=[tiny()], out=tmp_path / "run"
    )
    lines: list[str] = []
    print_run_summary(tmp_path / "run", lines.append)
    assert any(line.startswith("1 row has errors") and "bad: x.png: truncated" in line for line in lines)


def test_the_summary_of_a_run_of_detectors_shows_map(tmp_path: Path) -> None:
    boxes = (Box((2, 2, 20, 20), 0, 0.9),)
    model = Model("det", lambda seen: Outputs(boxes=[boxes] * len(seen)), labels=("person",), output="boxes")
    source = Source(
        "mine",
        [
            Sample(
                "a",
                Generated(lambda: np.full((30, 30, 3), 90, np.uint8)),
                ground_truth=(Box((2, 2, 20, 20), 0),),
            )
        ],
    )
    suite = parse({"name": "s", "labels": "coco", "shifts": ["brightness"]}, "test")
    sorites.run(suite, source=source, models=[model], levels=[1], out=tmp_path / "run")
    said: list[str] = []
    print_run_summary(tmp_path / "run", said.append)
    assert "clean mAP" in said[0]
    assert "100.0  [–, –]" in said[0]  # one sample has no interval
    assert said[-1].endswith("map --by model,shift")
    assert "accuracy" not in "\n".join(said)
    with pytest.raises(
        SoritesError,
        match="models are detectors.*map",
    ):
        answer_metric(tmp_path / "run", "accuracy")
    assert answer_metric(tmp_path / "run", "map", options={"number": "map50"})[
        "value"
    ].to_list() == pytest.approx([1.0, 1.0])


@pytest.mark.slow
def test_a_run_without_ground_truth_boxes_says_so(tmp_path: Path) -> None:
    model = Model("det", lambda seen: Outputs(boxes=[()] * len(seen)), labels=("person",), output="boxes")
    source = Source(
        "mine", [Sample("a", Generated(lambda: np.full((30, 30, 3), 90, np.uint8)), ground_truth=())]
    )
    suite = parse({"name": "s", "labels": "coco", "shifts": ["brightness"]}, "test")
    table = sorites.run(suite, source=source, models=[model], levels=[1], out=tmp_path / "run")
    said: list[str] = []
    print_run_summary(tmp_path / "run", said.append)
    assert "no mAP: the source has no ground-truth boxes" in said
    for metric in ("box_failure_severity", "mean_map"):
        with pytest.raises(SoritesError, match="the source has no ground-truth"):
            answer_metric(tmp_path / "run", metric)
    with pytest.raises(SoritesError, match="models are detectors"):
        answer_metric(tmp_path / "run", "accuracy")
    answer = answer_metric(tmp_path / "run", "map")
    assert (
        explain_empty(answer, "map")
        == "every value is null: the source has no ground-truth boxes for these images"
    )
    assert "No image was evaluated, because the source has no ground-truth boxes." in render(
        merge(load_views(table))
    )


@pytest.mark.parametrize(
    ("sample", "error", "shown"),
    [
        ("dog/a.jpg", "pets/dog/a.jpg: the file is empty", "pets/dog/a.jpg: the file is empty"),
        ("dog/a.jpg", "dog/a.jpg: the file is empty", "dog/a.jpg: the file is empty"),
        ("dog/a.jpg", "hotdog/a.jpg: the file is empty", "dog/a.jpg: hotdog/a.jpg: the file is empty"),
        ("dog/a.jpg", "scorer gave nan", "dog/a.jpg: scorer gave nan"),
        ("a", "a", "a: a"),
    ],
)
def test_an_error_names_its_image_once(sample: str, error: str, shown: str) -> None:
    assert named_error(sample, error) == shown

from __future__ import annotations

import json
import re

import polars as pl
import pytest

from sorites import metrics
from sorites.core import table as tables
from sorites.reports.components.lenses import HIGH, LOW, MAP
from sorites.reports.components.lenses import field_map as made_map
from sorites.reports.view import RunView, View, merge

FIELDS = (0.0, 0.3, 0.5, 0.7, 0.9)
LENSES = {"a": 0.2, "b": 0.4}


def rows(measured: bool) -> list[dict[str, object]]:
    made = []
    for model, skill in (("lite0", 4), ("lite1<b>", 8)):
        for lens, sharp in LENSES.items():
            for field in FIELDS:
                for i in range(10):
                    params = {
                        "lens": lens,
                        "field": field,
                        "mtf50": sharp * (1 - field / 2),
                        "quality": sharp,
                    }
                    made.append(
                        {
                            "run_id": "r",
                            "source": "s",
                            "sample_id": f"p{i}",
                            "image_id": f"{i}/{lens}/{field}",
                            "shift": "lens",
                            "family": "optics",
                            "params": json.dumps(params),
                            "model": model,
                            "output": "label",
                            "correct": i + 4 * field < skill,
                            "probe": False,
                            "known": True,
                            "label": 1,
                            "degrees": [{"measure": "ssim", "value": 0.95 - field / 2 + i / 1000}]
                            if measured
                            else None,
                        }
                    )
    return made


def seen(measured: bool) -> View:
    return merge([RunView(tables.rows(rows(measured)).lazy(), "made")])


def field_map(view: View) -> str:
    return made_map(view, view.compute(metrics.lens_field))


def drawn(made: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", made)


def test_a_map_a_model_with_a_ring_a_field_and_a_sector_a_quantity() -> None:
    maps = drawn(field_map(seen(measured=True)))
    assert len(maps) == 2
    for one in maps:
        told = re.findall(r"<title>(\w+) at (\d+)\u202f% of the field: ([\d.]+)", one)
        assert [(name, int(field)) for name, field, _ in told] == [
            (name, round(100 * field)) for name in ("MTF50", "SSIM", "correct") for field in FIELDS
        ]
    values = {
        (name, int(field)): float(value)
        for name, field, value in re.findall(r"<title>(\w+) at (\d+)\u202f%.*?: ([\d.]+)", maps[0])
    }
    assert values["MTF50", 50] == pytest.approx(0.3 * 0.75, abs=0.006)
    assert values["SSIM", 90] == pytest.approx(0.5045, abs=0.006)
    assert values["correct", 0] == 40
    assert values["correct", 90] == 10


def test_the_best_ring_is_yellow_and_the_worst_blue() -> None:
    one = drawn(field_map(seen(measured=True)))[0]
    parts = re.findall(
        r'<path d="[^"]+" fill="rgb\((\d+), (\d+), (\d+)\)"[^>]*><title>(\w+) at (\d+)\u202f%', one
    )
    shades = {(name, int(field)): (int(r), int(g), int(b)) for r, g, b, name, field in parts}
    assert shades["MTF50", 0] == shades["SSIM", 0] == HIGH
    assert shades["MTF50", 90] == shades["SSIM", 90] == LOW
    assert shades["correct", 90] == LOW  # the least of both models
    assert shades["correct", 0] not in (LOW, HIGH)  # the other model is better


def test_the_numbers_are_a_table_with_n_and_interval() -> None:
    made = field_map(seen(measured=True))
    assert "lite1&lt;b&gt;" in made
    assert "lite1<b>" not in made
    lines = re.findall(r"<tr><th[^>]*>(\d+)\u202f%</th>(.*?)</tr>", made)
    assert [int(field) for field, _ in lines] == [0, 30, 50, 70, 90]
    sharp, alike, right, _ = re.findall(r"<td.*?>([\d.]+).*?<small>(.*?)</small>", lines[0][1])
    assert sharp[0] == "0.300"
    assert sharp[1].endswith("2 lenses")
    assert alike[1].endswith("10 samples")
    assert right[0] == "40.0"


def test_without_ssim_its_sector_is_left_out_and_it_says_how_to_get_it() -> None:
    made = field_map(seen(measured=False))
    assert "<title>SSIM" not in made
    assert "sorites similarity RUN --measure ssim" in made
    assert "sorites similarity RUN" not in field_map(seen(measured=True))
    assert len(drawn(made)) == 2


def test_no_lenses_no_map() -> None:
    assert field_map(merge([RunView(tables.rows([]).lazy(), "none")])) == ""
    assert (
        field_map(merge([RunView(tables.rows(rows(True)).filter(pl.col("shift") != "lens").lazy(), "none")]))
        == ""
    )


def test_detectors_have_a_sector_of_map() -> None:
    over = pl.DataFrame(
        {
            "model": ["lite0"] * 2,
            "lens_field": [0.0, 0.9],
            "value": [0.4, 0.1],
            "n": [10, 10],
            "low": [0.3, 0.0],
            "high": [0.5, 0.2],
        }
    )
    (one,) = drawn(made := made_map(seen(measured=True), over, MAP))
    told = re.findall(r"<title>mAP at (\d+)\u202f% of the field: ([\d.]+)", one)
    assert [(int(field), float(value)) for field, value in told] == [(0, 40.0), (90, 10.0)]
    assert "mAP, all detectors on one scale" in made
    assert "models show mAP" in made
    assert "10 images" in made

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import sorites
from sorites import metrics
from sorites.lenses import store as lenses
from sorites.reports.components.charts import fit
from sorites.reports.sections.lenses import lenses as section
from sorites.reports.view import RunView, View, merge
from sorites.suites.suite import parse


@pytest.fixture(scope="module")
def view(photos: Path, tiny: object, tmp_path_factory: pytest.TempPathFactory) -> View:
    """Return a run of six lenses at five field positions."""
    folder = tmp_path_factory.mktemp("lenses")
    for name in lenses.names(lenses.builtin())[:6]:
        lenses.save(lenses.load(lenses.builtin(), name), folder)
    suite = parse(
        {
            "name": "l",
            "shifts": [{"name": "lens", "options": {"lenses": str(folder)}}],
            "frame": {"resize": 40},
        },
        "test",
    )
    out = tmp_path_factory.mktemp("run") / "run"
    table = sorites.run(suite, source=f"folder:{photos}", models=[tiny()], out=out).table  # type: ignore[operator]
    return merge([RunView(table, "l")])


def test_the_scatter_shows_every_lens_and_the_trend(view: View) -> None:
    made = section(view)
    assert made is not None
    scatter, fields = (
        json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', made.body)
    )
    each = metrics.lens_accuracy(view.table).sort("quality")
    points, trend = scatter["data"]
    assert points["x"] == pytest.approx(each["quality"].to_list())
    assert points["y"] == pytest.approx(each["value"].to_list())
    assert trend["x"][0] == pytest.approx(each["quality"].min())
    assert trend["x"][-1] == pytest.approx(each["quality"].max())
    assert fields["data"][0]["x"] == pytest.approx([0, 30, 50, 70, 90])


def test_lenses_are_ranked_by_accuracy(view: View) -> None:
    made = section(view)
    assert made is not None
    table = made.body[made.body.index("Lens ranking") : made.body.index("lenses.csv")]
    names = re.findall(r'<th scope="row" class="word">(\w+)</th><td class="num">(\d+)</td>', table)
    each = metrics.lens_accuracy(view.table)
    right = dict(zip(each["lens"], each["value"], strict=True))
    assert [right[name] for name, _ in names] == sorted(right.values(), reverse=True)
    assert [int(place) for _, place in names] == [
        1 + sum(other > right[name] for other in right.values()) for name, _ in names
    ]


@pytest.mark.parametrize(("count", "drawn"), [(4, False), (6, True)])
def test_the_curve_is_spoken_of_where_it_is_drawn(view: View, count: int, drawn: bool) -> None:
    some = metrics.lens_accuracy(view.table)["lens"].unique().sort()[:count].implode()
    shown = pl.col("params").str.json_path_match("$.lens").is_in(some) | (pl.col("shift") == "clean")
    made = section(merge([RunView(view.table.filter(shown), "l")]))
    assert made is not None
    assert ("cubic fit" in made.lead) is drawn
    scatter = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', made.body)[0])
    assert len(scatter["data"]) == 1 + drawn


def test_the_field_map_has_a_line_a_distance(view: View) -> None:
    made = section(view)
    assert made is not None
    rings = made.body.split("Field map", 1)[1]
    assert re.findall(r'<th scope="row" class="word">(\d+)\u202f%</th>', rings) == [
        "0",
        "30",
        "50",
        "70",
        "90",
    ]


def test_the_trend_is_a_cubic() -> None:
    x = np.linspace(0.1, 0.5, 9)
    made = fit(x, 1 - 2 * x + 3 * x**3)
    assert made is not None
    np.testing.assert_allclose(made(x), 1 - 2 * x + 3 * x**3)
    assert fit(x[:4], x[:4]) is None


def test_without_lenses_it_does_not_appear(run: RunView) -> None:
    assert section(merge([run])) is None

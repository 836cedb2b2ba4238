"""Tables V, XII, XIII and XXI of the OpticsBench paper for a run's own detectors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites import metrics
from sorites.core.errors import SoritesError
from sorites.core.table import SCHEMA
from sorites.reports.paper_tables import paper_tables

pytestmark = pytest.mark.slow

OPTICS = ("astigmatism", "coma", "defocus_spherical", "trefoil", "defocus_disk")


def made() -> pl.DataFrame:
    """Two detectors whose boxes are displaced more by stronger blur, and lenses at two fields."""
    rng = np.random.default_rng(0)
    settings: list[tuple[str, float | None, dict[str, Any]]] = [("clean", 0.0, {})]
    settings += [(shift, float(severity), {}) for shift in OPTICS for severity in range(1, 6)]
    settings += [
        ("lens", None, {"lens": f"l{i}", "field": field, "quality": 0.1 * i})
        for i in (1, 2, 3)
        for field in (0.0, 0.9)
    ]
    rows = []
    for model, skill in (("a", 0.4), ("b", 1.0)):
        for shift, severity, params in settings:
            far = skill * (
                severity if severity is not None else 4 - 10 * params["quality"] + 3 * params["field"]
            )
            for sample in range(12):
                corner = rng.uniform(0, 60, (3, 2))
                ground_truth = [
                    _box(x, y, 20, i) | {"area": None, "crowd": False} for i, (x, y) in enumerate(corner)
                ]
                boxes = [
                    _box(*(place + rng.normal(0, far, 2)), 20, i) | {"conf": rng.random()}
                    for i, place in enumerate(corner)
                ]
                more = {
                    "ground_truth": ground_truth,
                    "boxes": boxes,
                    "model": model,
                    "output": "boxes",
                    "run_id": "r",
                    "probe": False,
                    "source": "s",
                }
                at = {
                    "shift": shift,
                    "severity": severity,
                    "params": json.dumps(params),
                    "sample_id": f"s{sample}",
                    "seed": 0,
                }
                rows.append({**more, **at, "image_id": f"{sample} {shift} {severity} {params}"})
    return pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in rows], schema=SCHEMA)


def _box(x: float, y: float, side: float, label: int) -> dict[str, Any]:
    return {"x0": x, "y0": y, "x1": x + side, "y1": y + side, "label": label, "conf": None}


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return made()


def test_table_v_averages_25_settings_with_the_disk(table: pl.DataFrame) -> None:
    found = paper_tables(table)["Table V: mAP, and Cls / Loc errors"]
    assert found.columns == ["DNN", "mAP clean", "mAP OB", "Cls / Loc clean", "Cls / Loc OB"]
    each = metrics.map(
        table.filter(pl.col("shift").is_in(OPTICS)), by=("model", "shift", "severity"), resamples=0
    )
    means = dict(each.group_by("model").agg(pl.col("value").mean()).iter_rows())
    assert each.height == 50
    assert found["mAP OB"].to_list() == [
        f"{100 * v:.1f}" for v in (means["a"], means["b"], (means["a"] + means["b"]) / 2)
    ]
    errors = metrics.tide(table.filter(shift="clean"), by=("model",), resamples=0)
    told = {(row["model"], row["error"]): row["value"] for row in errors.to_dicts()}
    assert found["Cls / Loc clean"][0] == f"{100 * told['a', 'Cls']:.1f} / {100 * told['a', 'Loc']:.1f}"


def test_tables_xii_and_xiii_are_of_lenses_and_fields(table: pl.DataFrame) -> None:
    found = paper_tables(table)
    assert found["Table XII: mAP"].columns == ["DNN", "clean", "LC", "OB"]
    fields = found["Table XIII: mAP by field"]
    assert fields.columns == ["DNN", "clean", "0", "0.9"]
    assert fields["DNN"].to_list() == ["a", "b", "Σ"]
    edge = table.filter(pl.col("params").str.contains('"field": 0.9'), model="b")
    each = metrics.map(edge, by=("params",), resamples=0)["value"]
    assert fields["0.9"][1] == f"{100 * each.mean():.1f}"


def test_table_xxi_has_six_errors_clean_and_blurred(table: pl.DataFrame) -> None:
    found = paper_tables(table)["Table XXI: TIDE errors, clean / OB"]
    assert found.columns == ["DNN", "Cls", "Loc", "Both", "Dupe", "Bkg", "Miss"]
    assert all(" / " in cell for name in found.columns[1:] for cell in found[name])


def test_without_detectors_or_their_shifts_it_says_so(table: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="only classifiers"):
        paper_tables(table.with_columns(output=pl.lit("label")))
    with pytest.raises(SoritesError, match="the run has none of the shifts"):
        paper_tables(table.filter(shift="clean"))

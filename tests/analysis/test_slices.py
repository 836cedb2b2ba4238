"""Weak slices: properties of images, tests with control of the false discovery rate, and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image, ImageStat
from scipy import ndimage, stats
from tests.reports.rectangles import CLASSES, detector, written
from typer.testing import CliRunner

import sorites
from sorites.analysis import slices
from sorites.analysis.slices import adjusted, weak_slices
from sorites.cli.app import app
from sorites.core.errors import InvalidOption
from sorites.core.table import SCHEMA
from sorites.evaluation.facts.properties import PROPERTIES
from sorites.suites import suite as suites


def test_properties_equal_independent_computations() -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (40, 60, 3), np.uint8)
    found = {name: compute(image) for name, compute in PROPERTIES.items()}
    grey = ImageStat.Stat(Image.fromarray(image).convert("L"))  # rounded to 8 bits
    assert found["brightness"] == pytest.approx(grey.mean[0] / 255, abs=3e-3)
    assert found["contrast"] == pytest.approx(grey.stddev[0] / 255, abs=3e-3)
    luma = np.asarray(Image.fromarray(image).convert("L"), np.float64) / 255
    laplacian = ndimage.laplace(luma)[1:-1, 1:-1]
    assert found["sharpness"] == pytest.approx(laplacian.std(), rel=5e-3)
    assert found["size"] == pytest.approx(np.sqrt(2400))
    rg, yb = image[..., 0] - 1.0 * image[..., 1], 0.5 * (image[..., 0] + 1.0 * image[..., 1]) - image[..., 2]
    expected = np.sqrt(rg.var() + yb.var()) + 0.3 * np.sqrt(rg.mean() ** 2 + yb.mean() ** 2)
    assert found["colourfulness"] == pytest.approx(expected)
    assert PROPERTIES["colourfulness"](np.full((9, 9, 3), 77, np.uint8)) == 0
    blurred = ndimage.gaussian_filter(image.astype(np.float64), (2, 2, 0)).astype(np.uint8)
    assert PROPERTIES["sharpness"](blurred) < found["sharpness"] / 5


def test_adjusted_p_values_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 2, 7, 50):
        p = np.round(rng.random(size) ** 2, 2)
        assert adjusted(p) == pytest.approx(stats.false_discovery_control(p))
    assert len(adjusted(np.zeros(0))) == 0


def table(rng: np.random.Generator, samples: int, effect: float) -> pl.DataFrame:
    """Return a classifier under two shifts that fails more often on the darkest quarter of images."""
    brightness, sharpness = rng.random((2, samples))
    dark = brightness < np.quantile(brightness, 0.25)
    rows = []
    for shift in ("clean", "fog"):
        correct = rng.random(samples) > 0.3 + effect * dark * (shift == "fog")
        for i in range(samples):
            degrees = [
                {"measure": "brightness", "value": brightness[i]},
                {"measure": "sharpness", "value": sharpness[i]},
            ]
            rows.append(
                dict.fromkeys(SCHEMA)
                | {
                    "run_id": "r",
                    "source": "s",
                    "sample_id": f"s{i}",
                    "image_id": f"{shift}{i}",
                    "shift": shift,
                    "severity": float(shift == "fog"),
                    "output": "label",
                    "model": "m",
                    "correct": bool(correct[i]),
                    "degrees": degrees if shift == "clean" else None,
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA)


def test_the_dark_quarter_is_the_weak_slice() -> None:
    found = weak_slices(table(np.random.default_rng(2), 240, 0.5))
    assert found.height == 2 * 2 * 4
    weak = found.filter("weak")
    assert weak.select("shift", "property", "slice").rows() == [("fog", "brightness", "lowest")]
    row = weak.row(0, named=True)
    assert row["n"] == 60
    assert row["failing"] > row["elsewhere"] + 0.3
    assert found["q"].to_numpy() == pytest.approx(stats.false_discovery_control(found["p"].to_numpy()))


@pytest.mark.slow
def test_without_an_effect_few_comparisons_find_a_slice() -> None:
    rng = np.random.default_rng(3)
    runs = 40
    alarms = sum(weak_slices(table(rng, 60, 0.0))["weak"].any() for _ in range(runs))
    assert alarms / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def boxed_table(rng: np.random.Generator, samples: int, effect: float) -> pl.DataFrame:
    """Return a detector under one shift, whose objects share the luck of their image; with an effect it loses
    more objects of the darkest quarter of images.
    """
    values = rng.random((3, samples))
    dark = values[0] < np.quantile(values[0], 0.25)
    ease = rng.normal(size=samples) - effect * dark
    rows = []
    for i in range(samples):
        places = np.arange(1 + i % 3)
        truth = [{**BOX, "x0": 50.0 * k, "x1": 50.0 * k + 40, "crowd": False} for k in places]
        names = ("brightness", "sharpness", "contrast")
        degrees = [{"measure": name, "value": column[i]} for name, column in zip(names, values, strict=True)]
        for shift in ("clean", "fog"):
            lucky = ease[i] + 0.5 * rng.normal(size=len(places)) > -0.5 * (shift == "clean")
            rows.append(
                dict.fromkeys(SCHEMA)
                | {
                    "run_id": "r",
                    "source": "s",
                    "sample_id": f"s{i}",
                    "image_id": f"{shift}{i}",
                    "shift": shift,
                    "severity": float(shift == "fog"),
                    "output": "boxes",
                    "model": "d",
                    "ground_truth": truth,
                    "boxes": [
                        {**BOX, "x0": box["x0"], "x1": box["x1"], "conf": 0.9}
                        for box, found in zip(truth, lucky, strict=True)
                        if found
                    ],
                    "degrees": degrees if shift == "clean" else None,
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA)


BOX = {"y0": 0.0, "y1": 40.0, "label": 0}


@pytest.mark.slow
def test_if_no_property_matters_false_discoveries_are_as_rare_as_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where all hypotheses are true, the rate is the share of runs with any weak slice."""
    monkeypatch.setattr(slices, "DRAWS", 1999)
    rng, runs = np.random.default_rng(5), 200
    found = [weak_slices(boxed_table(rng, 60, 0.0)) for _ in range(runs)]
    # Two shifts, three measured properties, and the size and number of objects where quarters are large enough.
    assert min(frame.height for frame in found) >= 2 * 3 * 4
    alarms = np.mean([frame["weak"].any() for frame in found])
    assert alarms <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.slow
def test_beside_a_weak_slice_few_others_are_called_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    """One property matters: of the slices called weak, at most the stated share are others, on average."""
    monkeypatch.setattr(slices, "DRAWS", 1999)
    rng, runs, shares, hits = np.random.default_rng(6), 100, [], 0
    for _ in range(runs):
        weak = weak_slices(boxed_table(rng, 80, 1.5)).filter("weak")
        true = weak.filter(property="brightness", slice="lowest").height
        hits += true > 0
        shares.append((weak.height - true) / max(weak.height, 1))
    assert hits > 0.9 * runs
    assert np.mean(shares) <= 0.05 + 2 * np.std(shares) / np.sqrt(runs)


@pytest.mark.slow
def test_a_run_of_a_detector_is_measured_once_and_shown(tmp_path: Path) -> None:
    suite = suites.parse({"name": "b", "labels": list(CLASSES), "shifts": ["gaussian_noise"]}, "test")
    given = {"source": written(tmp_path, 40), "models": [detector()], "levels": [5]}
    run = sorites.run(suite, **given, out=tmp_path / "run")
    found = sorites.slices(run)
    assert {"brightness", "sharpness", "objects", "object_size"} <= set(found["property"])
    facts = sorites.read(tmp_path / "run").lazy().filter(pl.col("shift") == "clean").collect()
    names = {entry["measure"] for entry in facts["degrees"][0]}
    assert names == set(PROPERTIES)
    assert found.equals(sorites.slices(tmp_path / "run")), "facts are reused"
    done = CliRunner().invoke(app, ["slices", str(tmp_path / "run"), "--format", "csv"])
    assert done.exit_code == 0, done.output
    assert f"of {found.height} slices are weak" in done.output
    sorites.report(tmp_path / "run", out=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Which images are hardest?" in page
    assert "Which classes turn into which?" in page
    with pytest.raises(InvalidOption, match="rate"):
        sorites.slices(tmp_path / "run", rate=2)

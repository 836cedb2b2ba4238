"""Figure 8 of ImageNet-ES from a run with a simulated camera, two OOD folders and fitted scorers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow

from sorites import core, metrics
from sorites.core import Sample, camera_grid, to_float, to_uint8
from sorites.core.labels import labels
from sorites.core.rng import rng_for
from sorites.evaluation.run import run
from sorites.reports.report import report
from sorites.suites.suite import load

SCORERS = ("msp", "react", "vim(dim=4)", "ash_b")
PARTS = {
    f"param_control/{folder}": camera_grid.manual("test", light)
    for light, folder in camera_grid.LIGHTS.items()
}
PARTS |= {f"auto_exposure/{folder}": camera_grid.auto(light) for light, folder in camera_grid.LIGHTS.items()}
PLACES = {
    f"{part}/param_{k}": params
    for part, settings in PARTS.items()
    for k, params in enumerate(settings, start=1)
}


def save(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.fromarray(image).save(path, quality=95)


def photograph(root: Path, sample: Sample, name: str) -> None:
    """Write the reference image and its photograph at each of the 54 manual settings and ten
    automatic shots.
    """
    image = sample.load()
    save(root / "sampled_tin_no_resize2" / name, image)
    shots = core.shift("camera").sweep(to_float(image), list(PLACES.values()), rng_for(0, name, "camera"))
    for place, shot in zip(PLACES, shots, strict=True):
        save(root / place / name, to_uint8(shot))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pl.DataFrame]:
    """Return the report and the table of a run over six captured samples and twelve OOD images."""
    here, ids = tmp_path_factory.mktemp("figure_8"), labels("imagenet").ids
    asked = set(load("imagenet_es").labels)
    stamps = sorted(core.source("stamps"), key=lambda sample: sample.id)
    in_distribution = [sample for sample in stamps if ids[sample.label or 0] in asked][:18]
    ood = [sample for sample in stamps if ids[sample.label or 0] not in asked][:12]
    for i, sample in enumerate(in_distribution):
        name = f"{ids[sample.label or 0]}/ILSVRC2012_val_{i:08d}.JPEG"
        if i < 6:
            photograph(here / "es-test", sample, name)
        else:
            save(here / "es-train/tin_no_resize_sample_removed" / name, sample.load())
    for i, sample in enumerate(ood):
        save(here / ("ninco" if i % 2 else "textures") / f"{i}.png", sample.load())
    others = {"near:ninco": f"folder:{here}/ninco", "far:textures": f"folder:{here}/textures"}
    read = {"source": f"imagenet_es:{here}/es-test", "ood": others, "fit": f"imagenet_es:{here}/es-train"}
    table = run("imagenet_es", **read, models=["lite0"], only_scorers=SCORERS, out=here / "run")
    report([here / "run"], here / "page.html")
    return (here / "page.html").read_text(encoding="utf-8"), table.collect()


def section(html: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', html, re.S)
    assert found is not None
    return found.group()


def f1(rows: pl.DataFrame) -> float | None:
    """F1 as in the released code: correct is positive, and the threshold accepts 95 % of correct images."""
    right = np.sort(rows.filter("correct")["score"].to_numpy())
    if not right.size:
        return None
    passed = rows["score"].to_numpy() <= right[int(np.ceil(0.95 * right.size)) - 1]
    good = rows["correct"].to_numpy()
    hits, false, missed = np.sum(passed & good), np.sum(passed & ~good), np.sum(~passed & good)
    return float(2 * hits / (2 * hits + false + missed))


@pytest.mark.slow
def test_figure_8_f1_per_setting_of_every_scorer(page: tuple[str, pl.DataFrame]) -> None:
    html, table = page
    camera = table.filter(pl.col("shift") == "camera", pl.col("output") == "ood")
    charts = re.findall(r'<script type="application/json">(.*?)</script>', section(html, "setting_f1"))
    traces = {trace["name"]: trace for chart in charts for trace in json.loads(chart)["data"]}
    assert set(traces) == set(SCORERS)
    for scorer, trace in traces.items():
        manual = camera.filter(pl.col("scorer") == scorer, pl.col("params").str.contains('"manual"'))
        settings = [f1(rows) for _, rows in manual.group_by("params")]
        assert len(settings) == 54
        np.testing.assert_allclose(
            sorted(trace["y"]), sorted(value for value in settings if value is not None), atol=1e-9
        )


@pytest.mark.slow
def test_figure_8_fpr_per_ood_set_of_every_scorer(page: tuple[str, pl.DataFrame]) -> None:
    html, table = page
    clean = table.filter(pl.col("shift") == "clean", pl.col("output") == "ood")
    cards = dict(re.findall(r"<h3>(.*?)</h3>(.*?)</article>", section(html, "ood"), re.S))
    card = cards["lite0 · FPR95, in-distribution positive"]
    assert re.findall(r'<th scope="col">(.*?)(?:<|</th>)', card) == ["scorer", "ninco", "textures"]
    # The documented command: metrics RUN fpr95_id_pos --framework combined --by model,scorer,set
    # --where "shift = clean"
    by = ("model", "scorer", "set")
    rates = metrics.fpr95_id_pos(table.filter(pl.col("shift") == "clean"), by, framework="combined")
    for scorer in SCORERS:
        mine = clean.filter(pl.col("scorer") == scorer)
        right = np.sort(mine.filter("correct")["score"].to_numpy())
        passed = right[int(np.ceil(0.95 * right.size)) - 1]
        line = re.search(rf'<th scope="row">{re.escape(scorer)}</th>(.*?)</tr>', card, re.S)
        assert line is not None
        # The number is followed by its interval, where there is one.
        shown = [int(number) for number in re.findall(r"<td[^>]*>(?:<[^>]*>)*(\d+)<", line.group())]
        found = rates.filter(pl.col("scorer") == scorer, pl.col("value").is_not_null())
        assert found["set"].to_list() == ["ninco", "textures"]
        assert [round(100 * value) for value in found["value"]] == shown
        assert shown == [
            round(100 * float(np.mean(mine.filter(source=name)["score"].to_numpy() <= passed)))
            for name in ("ninco", "textures")
        ]

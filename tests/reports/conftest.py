"""Synthetic runs with known failure severities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.reports import worlds

from sorites.core import CLEAN, SHIFTS, ImageU8, table, to_float, to_uint8
from sorites.core.labels import Labels, labels
from sorites.core.rng import rng_for
from sorites.reports.view import RunView

SKILL = {"lite0": 0.55, "lite1": 0.75, "lite2": 0.8}
DIALS = {
    "defocus_disk": (3, 4, 6, 8, 10),
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "jpeg": (75, 82, 85, 90, 93),
}
SAMPLES = 60


@pytest.fixture(scope="session")
def names() -> Labels:
    return labels(["tabby", "tulip", "teapot", "trombone", "<b>tank & tower</b>"])


def breaking(model: str, shift: str, sample: int) -> float:
    """Return the fraction of the dial at which an image fails: a logistic draw around the model's skill."""
    own = rng_for(1, f"{sample}", shift).logistic(0, 0.16)
    return (
        SKILL[model]
        + own
        + rng_for(2, f"{sample}", model).normal(0, 0.06)
        - (0.25 if shift == "gaussian_noise" else 0)
    )


def record(model: str, shift: str, severity: float, sample: int, probe: bool = False) -> dict[str, Any]:
    limit = breaking(model, shift if shift != CLEAN else "jpeg", sample)
    right = limit > severity / max(DIALS.get(shift, (1,)))
    margin = abs(limit - severity / max(DIALS.get(shift, (1,))))
    label = sample % 5
    return {
        "run_id": "r1",
        "source": "made",
        "sample_id": f"object-{sample:02d}.png",
        "image_id": f"{sample}/{shift}/{severity:.6g}",
        "probe": probe,
        "label": label,
        "known": True,
        "family": "none" if shift == CLEAN else "made",
        "shift": shift,
        "severity": severity,
        "seed": 7,
        "model": model,
        "output": "label",
        "pred": label if right else (label + 1) % 5,
        "conf": float(1 / (1 + np.exp(-1 - 3 * margin))),
        "correct": right,
    }


def probes(model: str, shift: str, sample: int) -> Iterator[dict[str, Any]]:
    """Bisect the first failing bracket four times, as a refined run does."""
    top = max(DIALS[shift])
    limit = breaking(model, shift, sample) * top
    settings = [0.0, *DIALS[shift]]
    high = next((setting for setting in settings if setting >= limit), None)
    if not high:
        return
    low = settings[settings.index(high) - 1]
    for _ in range(4):
        middle = (low + high) / 2
        yield record(model, shift, middle, sample, probe=True)
        low, high = (low, middle) if middle >= limit else (middle, high)


def made_rows() -> list[dict[str, Any]]:
    found = []
    for model in SKILL:
        for sample in range(SAMPLES):
            found.append(record(model, CLEAN, 0.0, sample))
            for shift, settings in DIALS.items():
                found += [record(model, shift, float(setting), sample) for setting in settings]
                found += probes(model, shift, sample)
    return found


@pytest.fixture(scope="session")
def rows() -> pl.DataFrame:
    """Three models, three shifts, five severities, sixty samples, probes, and two unreadable images."""
    found = made_rows()
    for row in found:
        if row["sample_id"] in ("object-03.png", "object-04.png") and row["shift"] == "jpeg":
            row |= {
                "pred": None,
                "conf": None,
                "correct": None,
                "error": "cannot decode: 0 bytes <script>alert(1)</script>",
            }
    return table.rows(found)


def image(sample_id: str, shift: str, severity: float) -> ImageU8:
    """Return a disc on a striped gradient, shifted by the registered shift."""
    rng = rng_for(3, sample_id, "image")
    y, x = np.mgrid[0:200, 0:200] / 200
    colour, other = rng.uniform(0.2, 1, (2, 3))
    inside = (x - rng.uniform(0.35, 0.65)) ** 2 + (y - rng.uniform(0.35, 0.65)) ** 2 < rng.uniform(0.05, 0.12)
    ground = 0.35 + 0.3 * x[..., None] + 0.25 * np.sin(40 * y + 8 * x)[..., None] * other
    image = np.where(inside[..., None], colour, ground).clip(0, 1).astype(np.float32)
    clean = to_uint8(image)
    if shift == CLEAN:
        return clean
    return to_uint8(SHIFTS.get(shift)(to_float(clean), severity, rng_for(7, sample_id, shift)))


@pytest.fixture(scope="session")
def run(rows: pl.DataFrame, names: Labels) -> RunView:
    suite = {
        "name": "made_up",
        "seed": 7,
        "about": "Sixty made-up images under three dials.",
        "source": "made",
        "frame": {"resize": 200, "crop": None, "filter": "bicubic"},
        "models": list(SKILL),
        "shifts": [{"name": name, "levels": [], "severities": []} for name in DIALS],
        "reference": "lite0",
        "refine": 0.05,
    }
    record = worlds.record(suite, run_id="5d41402abc4b2a76", versions={"numpy": "2.4.0", "polars": "2.1.0"})
    return RunView(rows.lazy(), "made_up", record, names, image)


def ood_rows() -> Iterator[dict[str, Any]]:
    """Known images clean and blurred, unknown ones near and far over a sparse 8 x 8 map, three scorers."""
    rng = np.random.default_rng(12)
    cells = [
        (sem, cov) for sem in range(8) for cov in range(8) for _ in range(max(0, 16 - 3 * abs(sem - cov)))
    ]
    for model, skill in (("lite0", 0.8), ("lite1", 1.4)):
        shared = {"run_id": "r2", "source": "made", "model": model, "probe": False, "seed": 0, "params": "{}"}
        for i, severity in np.ndindex(90, 4):
            right = bool(rng.random() < 1 / (1 + np.exp(severity - 2 * skill)))
            shift = {"shift": "defocus_disk" if severity else CLEAN, "severity": float(severity)}
            known = {
                "known": True,
                "label": i % 5,
                "correct": right,
                "split": "test",
                "conf": 0.5 + 0.4 * right,
            }
            base = {
                **shared,
                **shift,
                **known,
                "sample_id": f"id{i}",
                "image_id": f"id{i}/{severity}",
                "pred": i % 5,
            }
            yield {**base, "output": "label"}
            for scorer, knows in (("msp", 1.5), ("energy", 1.0), ("<b>knn</b>", 0.4)):
                yield {
                    **base,
                    "output": "ood",
                    "scorer": scorer,
                    "score": rng.normal(knows * (not right) * skill),
                }
        for i, (sem, cov) in enumerate(cells):
            group = [{"key": "group", "value": "near" if sem < 4 else "far", "common": None}]
            levels = {"sem_level": sem, "cov_level": cov, "attrs": group, "known": False, "split": "unknown"}
            base = {
                **shared,
                **levels,
                "shift": CLEAN,
                "severity": 0.0,
                "sample_id": f"u{i}",
                "image_id": f"u{i}",
                "output": "ood",
            }
            for scorer, knows in (("msp", 0.2), ("energy", 0.35), ("<b>knn</b>", 0.5)):
                lost = (
                    {"score": None, "error": "scorer gave nan"}
                    if i % 97 == 0
                    else {"score": rng.normal(knows * sem - 0.1 * cov)}
                )
                yield {**base, "scorer": scorer, **lost}


@pytest.fixture(scope="session")
def ood_run() -> RunView:
    suite = {
        "name": "odd",
        "models": ["lite0", "lite1"],
        "shifts": ["defocus_disk"],
        "scorers": ["msp", "energy"],
    }
    return RunView(table.rows(list(ood_rows())).lazy(), "odd", worlds.record(suite))


@pytest.fixture(scope="session")
def crowded_run(ood_run: RunView) -> RunView:
    """The OOD run with nine scorers: the three again, with increasing noise."""
    rows = ood_run.table.collect()
    judged = rows.filter(pl.col("output") == "ood")
    noise = np.random.default_rng(5).normal(size=judged.height).astype(np.float32)
    more = [
        judged.with_columns(scorer=pl.col("scorer") + f"_{i}", score=pl.col("score") + pl.Series(i * noise))
        for i in (1, 2)
    ]
    return RunView(pl.concat([rows, *more]).lazy(), "crowded", ood_run.record)


@pytest.fixture(scope="session")
def es_run() -> RunView:
    """ImageNet-ES beside four OOD sets, near and far."""
    suite = {
        "name": "es",
        "models": ["lite0", "<b>big</b>"],
        "shifts": [{"name": "camera"}],
        "scorers": list(worlds.SCORERS),
    }
    return RunView(table.rows(list(worlds.imagenet_es())).lazy(), "es", worlds.record(suite))


@pytest.fixture(scope="session")
def graded_run() -> RunView:
    """IS-OOD as published: in-distribution images without labels, and two graded sets of one source."""
    return RunView(
        table.rows(list(worlds.is_ood())).lazy(),
        "graded",
        worlds.record({"name": "graded", "scorers": ["msp", "knn"]}),
    )

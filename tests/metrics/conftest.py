"""Small tables with every kind of row that a metric must skip or count."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites.core import table as tables

Row = dict[str, Any]


def row(sample: str, shift: str, severity: float | None, correct: bool | None, **more: Any) -> Row:
    """A label row of one judged image; ``more`` overrides anything."""
    made = {
        "run_id": "r",
        "source": "s",
        "sample_id": sample,
        "shift": shift,
        "family": shift,
        "severity": severity,
        "seed": 0,
        "probe": False,
        "model": "m",
        "output": "label",
        "correct": correct,
        "conf": 0.5,
        "label": 1,
        "known": True,
    }
    made |= more
    made.setdefault("image_id", "/".join(map(str, (made["run_id"], sample, shift, severity, made["seed"]))))
    return made


def frame(rows: Iterable[Row]) -> pl.DataFrame:
    return tables.rows(list(rows))


def _verdict(rng: np.random.Generator, ability: float, at: float) -> bool:
    return bool(rng.random() < 1 / (1 + np.exp(2.5 * at - ability)))


@pytest.fixture(scope="session")
def world() -> pl.DataFrame:
    """Three models, two dials and a camera grid, 40 samples, with probes, errors, filtered and
    unknown rows.
    """
    rng = np.random.default_rng(7)
    rows: list[Row] = []
    for model, ability in (("weak", 0.8), ("mid", 1.6), ("strong", 2.6)):
        for i in range(40):
            who: Row = {"model": model, "label": i % 4, "attrs": settings(i)}
            rows.append(
                row(f"p{i}", "clean", 0.0, _verdict(rng, ability, 0), conf=rng.uniform(0.3, 1), **who)
            )
            for shift, severity in itertools.product(("blur", "noise"), (1.0, 2.0, 3.0, 4.0)):
                rows.append(
                    row(
                        f"p{i}",
                        shift,
                        severity,
                        _verdict(rng, ability, severity / 4),
                        conf=rng.uniform(0, 1),
                        **who,
                    )
                )
            rows.append(row(f"p{i}", "blur", 2.5, _verdict(rng, ability, 0.6), probe=True, **who))
            rows.append(
                row(f"p{i}", "camera", None, _verdict(rng, ability, 0.5), params='{"iso": 100}', **who)
            )
            for glass, quality in (("a", 0.1), ("b", 0.2), ("c", 0.35)):
                told = f'{{"lens": "{glass}", "field": 0.5, "mtf50": {quality}, "quality": {quality}}}'
                seen: Row = {
                    "image_id": f"p{i}/{glass}",
                    "degrees": [{"measure": "ssim", "value": quality + i / 100}],
                }
                rows.append(
                    row(
                        f"p{i}",
                        "lens",
                        None,
                        _verdict(rng, ability, 0.4 - quality),
                        params=told,
                        **seen,
                        **who,
                    )
                )
    made = frame(
        rows + _passed_over() + _scored(np.random.default_rng(8)) + _detected(np.random.default_rng(9))
    )
    judged = (pl.col("output") == "label") & pl.col("correct").is_not_null()
    guess = pl.when("correct").then("label").otherwise((pl.col("label") + 1) % 4)
    return made.with_columns(pred=pl.when(judged).then(guess).cast(pl.Int32))


@pytest.fixture(scope="session")
def gridded() -> pl.DataFrame:
    """Rows of the samples of the world, of detectors too, under two shifts at once, at three by three points
    without the clean one.
    """
    rng = np.random.default_rng(10)
    rows: list[Row] = []
    for model, ability in (("weak", 0.8), ("mid", 1.6), ("strong", 2.6)):
        for i, a, b in itertools.product(range(40), (0.0, 1.0, 2.0), (0.0, 2.0, 4.0)):
            if a or b:
                more: Row = {"model": model, "label": i % 4, "image_id": f"p{i}/{a}/{b}"}
                told = f'{{"blur": {a}, "noise": {b}}}'
                right = _verdict(rng, ability, a / 2 + b / 4)
                rows.append(row(f"p{i}", "blur x noise", None, right, params=told, **more))
                if i < 24:
                    seen = [_box(rng, obj) for obj in objects(i) if _verdict(rng, ability, a / 2 + b / 4)]
                    boxes: Row = {"ground_truth": objects(i), "boxes": seen, "conf": None, "label": None}
                    boxes |= {"output": "boxes", "model": model, "image_id": f"d{i}/{a}/{b}"}
                    rows.append(row(f"d{i}", "blur x noise", None, None, params=told, **boxes))
    return frame(rows)


def settings(i: int) -> list[Row]:
    """A class, a time and one or two places, some of them uncommon."""
    places = (("location", "grass", True), ("location", "snow", i % 4 == 2))
    told = [
        ("class", "ABCD"[i % 4], None),
        ("time", "night" if i % 5 == 0 else "day", i % 5 != 0),
        *places[: 1 + i % 2 + i % 3],
    ]
    return [dict(zip(("key", "value", "common"), one, strict=True)) for one in told]


def _scored(rng: np.random.Generator) -> list[Row]:
    """Scores of known samples, some of them for validation, and of unknown ones over four semantic
    and two covariate levels.
    """
    rows: list[Row] = []
    for model in ("weak", "mid", "strong"):
        who: Row = {"model": model, "output": "ood", "scorer": "msp"}
        for i, (shift, severity) in itertools.product(
            range(40), (("clean", 0.0), ("blur", 2.0), ("blur", 3.0), ("noise", 2.0))
        ):
            right = _verdict(rng, 1.5, severity / 4)
            score = rng.normal(0 if right else 1)
            more: Row = {"score": score, "split": "val" if i % 4 else "test", "attrs": settings(i)}
            rows.append(row(f"p{i}", shift, severity, right, **more, **who))
        for i in range(96):
            known: Row = {"known": False, "label": None, "split": "val" if i % 3 else "test"}
            level: Row = {"sem_level": i % 4, "cov_level": i // 4 % 2, "score": rng.normal(0.5 * (i % 4))}
            rows.append(row(f"u{i}", "clean", 0.0, None, **known, **level, **who))
    return rows


def _detected(rng: np.random.Generator) -> list[Row]:
    """Boxes of three detectors on images with one to three objects of three classes, lost as
    severity rises.
    """
    rows: list[Row] = []
    for model, ability in (("weak", 0.8), ("mid", 1.6), ("strong", 2.6)):
        for i in range(24):
            who: Row = {
                "model": model,
                "output": "boxes",
                "label": None,
                "conf": None,
                "ground_truth": objects(i),
            }
            for shift, severity in (
                ("clean", 0.0),
                *itertools.product(("blur", "noise"), (1.0, 2.0, 3.0, 4.0)),
                ("blur", 2.5),
            ):
                seen = [_box(rng, obj) for obj in who["ground_truth"] if _verdict(rng, ability, severity / 4)]
                wrong = [{**_box(rng, objects(i + 1)[0]), "conf": rng.uniform(0, 0.6)}]
                rows.append(
                    row(f"d{i}", shift, severity, None, boxes=seen + wrong, probe=severity == 2.5, **who)
                )
    missing: Row = {"output": "boxes", "label": None, "conf": None}
    rows.append(
        row(
            "unreadable",
            "blur",
            1.0,
            None,
            model="weak",
            error="truncated",
            ground_truth=objects(0),
            **missing,
        )
    )
    rows.append(row("nobody knows", "blur", 1.0, None, model="weak", boxes=[], **missing))
    return rows


def objects(i: int) -> list[Row]:
    """One to three ground-truth boxes of different sizes."""
    corners = [
        (10.0 + 100 * k, 5.0 * i, 10.0 + 100 * k + (20, 60, 140)[k], 5.0 * i + (20, 60, 140)[k])
        for k in range(1 + i % 3)
    ]
    return [
        {
            **dict(zip(("x0", "y0", "x1", "y1"), xyxy, strict=True)),
            "label": (i + k) % 3,
            "area": None,
            "crowd": False,
        }
        for k, xyxy in enumerate(corners)
    ]


def _box(rng: np.random.Generator, obj: Row) -> Row:
    moved = {side: obj[side] + rng.normal(0, 1.5) for side in ("x0", "y0", "x1", "y1")}
    return {**moved, "label": obj["label"], "conf": rng.uniform(0.2, 1)}


def _passed_over() -> list[Row]:
    return [
        row("bad", "blur", 1.0, None, error="truncated", model="weak"),
        row("p0", "blur", 5.0, False, valid=False, model="weak"),
        row("far", "blur", 1.0, None, known=False, model="weak"),
        row("p0", "blur", 1.0, True, output="ood", scorer="msp", model="weak"),
    ]


@pytest.fixture(scope="session")
def shuffled(world: pl.DataFrame) -> pl.DataFrame:
    return world.sample(fraction=1.0, shuffle=True, seed=3)


@pytest.fixture(scope="session", name="row")
def _row() -> Callable[..., Row]:
    return row


@pytest.fixture(scope="session", name="frame")
def _frame() -> Callable[[Iterable[Row]], pl.DataFrame]:
    return frame

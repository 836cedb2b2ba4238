"""Every metric on a table: those of the runs, and one made up so that each metric has something to say."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import sorites
from sorites.core import METRICS, Metric
from tools.net import images
from tools.net.hashes import Entry, of_answer, of_report
from tools.net.home import Task

Row = dict[str, Any]
FRAMEWORKS = tuple({"framework": name} for name in ("model-specific", "combined", "graded"))
VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(
        ("failure_severity", "survival", "failure_histogram"), ({"relative": True, "by": ("model",)},)
    ),
    **dict.fromkeys(("ood", "auroc", "f1"), (*FRAMEWORKS, {"against": "clean"})),
    **dict.fromkeys(
        ("level_map", "level_curve", "correlation", "sensitivity"), ({"metric": "fpr95_id_pos", "min_n": 5},)
    ),
    **dict.fromkeys(("calibration_error", "reliability"), ({"bins": 4},)),
    **dict.fromkeys(("partition_accuracy", "attribute_accuracy"), ({"top": 5},)),
    **dict.fromkeys(("on_the_line", "line_gain", "partial_correlation"), ({"baseline": "elsewhere"},)),
    "attribute_gap": ({"pool": "cells"}, {"top": 5}),
    "accuracy": ({"by": ()}, {"by": ("model", "label")}),
    "mean_accuracy": ({"by": ("model", "shift")},),
    "rank_agreement": ({"exclude": ("mid",)},),
    "risk_coverage": ({"points": 7},),
    "score_histogram": ({"framework": "combined", "bins": 9},),
    "ood_share": ({"kind": "time"},),
}
"""Options other than the defaults, asked of the made-up table."""


def tasks() -> list[Task]:
    return [Task(("metrics/made up", "reports/made up", "words/runs/made up"), made_up)]


def answers(table: pl.DataFrame, called: str, variants: bool = False) -> Iterator[Entry]:
    """Each metric of the registry; what it refuses is told without the words it refuses it in."""
    models = sorted(table["model"].unique().to_list())
    split = next((name for name in sorted(table["split"].drop_nulls().unique()) if name), "")
    facts = {
        name: {"parameters": 3.0 * i + i * i, "elsewhere": 0.5 + 0.1 * i}
        for i, name in enumerate(models, start=1)
    }
    for name in METRICS.names():
        metric: Metric = getattr(sorites, name)
        needed = {"reference": models[0], "split": split, "facts": facts}
        known = {key: value for key, value in needed.items() if key in inspect.signature(metric).parameters}
        yield from answer(metric, table, known, f"{called}/{name}")
        for options in VARIANTS.get(name, ()) if variants else ():
            told = ", ".join(f"{key}={value}" for key, value in options.items())
            yield from answer(metric, table, {**known, **options}, f"{called}/{name}/{told}")


def answer(metric: Metric, table: pl.DataFrame, options: Mapping[str, Any], called: str) -> Iterator[Entry]:
    try:
        found = metric(table, **options)
    except sorites.SoritesError as error:
        yield called, f"refused: {type(error).__name__}"
    else:
        yield from of_answer(found, called)


def made_up() -> Iterator[Entry]:
    """Answers, with options and with what a user brings beside the table, and the page of a bare table."""
    rows, kinds = world(), schema()
    table = pl.DataFrame({name: [row.get(name) for row in rows] for name in kinds}, schema=kinds)
    yield from answers(table, "metrics/made up", variants=True)
    by_hand = (
        table.select(pl.col("image_id").unique().sort())
        .with_row_index()
        .select("image_id", seen=pl.col("index") % 3 > 0)
    )
    judged = {"verdicts": by_hand}
    yield from answer(
        METRICS.get("filtered_accuracy"), table, judged, "metrics/made up/filtered_accuracy/by hand"
    )
    Path("facts.csv").write_text(
        "model,parameters\nweak,5\nlow,9\nmid,2\nhigh,11\nstrong,20\n", encoding="utf-8"
    )
    told = {"facts": "facts.csv", "by": "shift"}
    yield from answer(
        METRICS.get("partial_correlation"), table, told, "metrics/made up/partial_correlation/of a file"
    )
    yield from of_report(sorites.report(table, "report.html"), "made up")


def schema() -> pl.Schema:
    """Columns and types of the table, asked of a run of one image."""
    images.photos("one", 1)

    def flat(seen: list[np.ndarray]) -> np.ndarray:
        return np.stack([np.resize(image[::9, ::9], 1000) for image in seen]).astype(np.float32)

    return sorites.run(
        "demo", source="folder:one", models=[flat], shifts=["contrast"], levels=[1], out="small"
    ).table.collect_schema()


def _row(sample: str, shift: str, severity: float | None, correct: bool | None, **more: Any) -> Row:
    row = {
        "run_id": "r", "source": "s", "sample_id": sample, "shift": shift, "family": shift, "severity": severity, "seed": 0,
        "probe": False, "params": "{}", "output": "label", "correct": correct, "label": 1, "known": True, **more,
    }  # fmt: skip
    return {"image_id": f"{sample}/{shift}/{severity}/{row.get('params')}", **row}


def world() -> list[Row]:
    """Five models of rising ability, 40 samples, two dials, a camera's grid and lenses, probes,
    errors, scores and levels.
    """
    rng = np.random.default_rng(7)
    rows: list[Row] = []
    for model, ability in (("weak", 0.4), ("low", 1.0), ("mid", 1.6), ("high", 2.2), ("strong", 2.6)):
        for i in range(40):
            rows += _sample(
                rng, f"p{i}", ability, {"model": model, "label": i % 4, "accept": [i % 4], "attrs": _attrs(i)}
            )
        rows += _scores(rng, model)
    rows.append(_row("bad", "blur", 1.0, None, error="truncated", model="weak"))
    rows.append(_row("p0", "blur", 5.0, False, valid=False, model="weak"))
    rows.append(_row("far", "blur", 1.0, None, known=False, model="weak"))
    return rows


def _right(rng: np.random.Generator, ability: float, at: float) -> bool:
    return bool(rng.random() < 1 / (1 + np.exp(2.5 * at - ability)))


def _attrs(i: int) -> list[Row]:
    places = (("location", "grass", True), ("location", "snow", i % 4 == 2))
    told = [
        ("class", "ABCD"[i % 4], None),
        ("time", "night" if i % 5 == 0 else "day", i % 5 != 0),
        *places[: 1 + i % 2 + i % 3],
    ]
    return [dict(zip(("key", "value", "common"), one, strict=True)) for one in told]


def _sample(rng: np.random.Generator, sample: str, ability: float, who: Row) -> Iterator[Row]:
    """One sample's images: clean, along two dials, a probe between stops, at camera settings and
    through lenses.
    """

    def seen(shift: str, severity: float | None, at: float, **more: Any) -> Row:
        right, guess = _right(rng, ability, at), rng.permutation(6)[:5].tolist()
        return _row(
            sample, shift, severity, right, conf=float(rng.uniform(0.2, 1)), top5=guess, **more, **who
        )

    yield seen("clean", 0.0, 0)
    for shift, severity in itertools.product(("blur", "noise"), (1.0, 2.0, 3.0, 4.0)):
        yield seen(
            shift,
            severity,
            severity / 4,
            level=int(severity),
            valid=None if severity < 4 else bool(rng.random() < 0.8),
        )
    yield seen("blur", 2.5, 0.6, probe=True)
    for light, iso, shutter in itertools.product(("on", "off"), (100, 800), (0.25, 0.01)):
        told = (
            f'{{"aperture": 5.0, "iso": {iso}, "light": "{light}", "mode": "manual", "shutter": {shutter}}}'
        )
        yield seen("camera", None, 0.5 + (light == "off") * 0.2, params=told)
    for light, shot in itertools.product(("on", "off"), (1, 2)):
        yield seen("camera", None, 0.4, params=f'{{"light": "{light}", "mode": "auto", "shot": {shot}}}')
    for (glass, quality), field in itertools.product(
        (("a", 0.1), ("b", 0.2), ("c", 0.35), ("d", 0.5)), (0.0, 0.5)
    ):
        told = f'{{"field": {field}, "lens": "{glass}", "mtf50": {quality}, "quality": {quality}}}'
        moved = [
            {"measure": "ssim", "value": quality + rng.uniform(0, 0.3)},
            {"measure": "psnr", "value": rng.uniform(20, 40)},
        ]
        yield seen("lens", None, 0.6 - quality + field / 4, params=told, degrees=moved)


def _scores(rng: np.random.Generator, model: str) -> Iterator[Row]:
    """Scores of known samples, and of unknown ones over four semantic and two covariate levels."""
    for scorer, sharp in (("msp", 0.5), ("energy", 1.0)):
        who: Row = {"model": model, "output": "ood", "scorer": scorer}
        for i, (shift, severity) in itertools.product(
            range(40), (("clean", 0.0), ("blur", 2.0), ("blur", 3.0), ("noise", 2.0))
        ):
            right = _right(rng, 1.5, severity / 4)
            more: Row = {
                "score": rng.normal(0 if right else sharp),
                "split": "val" if i % 4 else "test",
                "attrs": _attrs(i),
            }
            yield _row(f"p{i}", shift, severity, right, **more, **who)
        for i in range(96):
            level: Row = {"sem_level": i % 4, "cov_level": i // 4 % 3, "score": rng.normal(sharp * (i % 4))}
            ood: Row = {"known": False, "label": None, "split": "val" if i % 3 else "test"}
            yield _row(f"u{i}", "clean", 0.0, None, **level, **ood, **who)

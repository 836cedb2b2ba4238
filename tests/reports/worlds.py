"""Synthetic tables with several sources: ImageNet-ES with OOD sets, and IS-OOD with two graded sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from sorites.core import camera_grid
from sorites.evaluation.storage.schema import RunRecord
from sorites.suites.suite import parse

SCORERS = {"msp": 1.6, "odin": 1.3, "vim": 0.5}
OOD = {
    "ssb_hard": ("near", 0.8),
    "ninco": ("near", 1.1),
    "inaturalist": ("far", 2.2),
    "textures": ("far", 1.8),
}


def imagenet_es(
    models: tuple[str, ...] = ("lite0", "<b>big</b>"), samples: int = 40
) -> Iterator[dict[str, Any]]:
    """Yield rows of a screen at 27 settings and automatic, light on and off, and of four OOD sets."""
    rng = np.random.default_rng(0)
    for skill, model in enumerate(models):
        shared = {"run_id": "r", "model": model, "probe": False, "seed": 0, "family": "camera"}
        for sample in range(samples):
            for shift, params in [
                ("clean", {}),
                *(("camera", params) for params in camera_grid.grid("test")),
            ]:
                chosen = (
                    {"iso": 3200, "shutter": 1 / 60, "aperture": 5.0} if params.get("mode") == "auto" else {}
                )
                at = {**params, **chosen}
                settings = abs(np.log2(at["iso"] * at["shutter"] / at["aperture"] ** 2 / 4)) if at else 0.0
                right = bool(rng.logistic() < 2.5 + 0.7 * skill - 0.6 * settings)
                row = {
                    **shared,
                    "source": "imagenet_es",
                    "split": "test",
                    "sample_id": f"n01/{sample}",
                    "shift": shift,
                    "image_id": f"{sample}/{json.dumps(at)}",
                    "params": json.dumps(at),
                    "label": sample % 5,
                    "known": True,
                    "severity": 0.0 if shift == "clean" else None,
                    "pred": sample % 5,
                    "correct": right,
                    "conf": 0.5,
                }
                yield {**row, "output": "label"}
                for scorer, knows in SCORERS.items():
                    yield {**row, "output": "ood", "scorer": scorer, "score": rng.normal(knows * (not right))}
        for name, (group, far) in OOD.items():
            for sample in range(samples):
                row = {
                    **shared,
                    "source": name,
                    "split": "",
                    "sample_id": f"{name}/{sample}",
                    "image_id": f"{name}/{sample}",
                    "shift": "clean",
                    "severity": 0.0,
                    "params": "{}",
                    "known": False,
                    "output": "ood",
                    "attrs": [{"key": "group", "value": group, "common": None}],
                }
                for scorer, knows in SCORERS.items():
                    yield {**row, "scorer": scorer, "score": rng.normal(far * (2 - knows))}


def is_ood(labelled: bool = False) -> Iterator[dict[str, Any]]:
    """Yield in-distribution rows, and two graded sets with opposite trends along the covariate level."""
    rng = np.random.default_rng(1)
    shared = {
        "run_id": "r",
        "source": "is_ood:data",
        "model": "lite0",
        "probe": False,
        "seed": 0,
        "output": "ood",
    }
    for i in range(300):
        told = (
            {"label": i % 5, "known": True, "correct": True} if labelled else {"label": None, "known": None}
        )
        base = {
            **shared,
            **told,
            "sample_id": f"v{i}",
            "image_id": f"v{i}",
            "shift": "clean",
            "severity": 0.0,
            "split": "test",
        }
        for scorer in ("msp", "knn"):
            yield {**base, "params": "{}", "scorer": scorer, "score": rng.normal()}
    for name, slope in (("imagenet21k", -0.2), ("syn_is", 0.25)):
        for sem, cov in np.ndindex(8, 8):
            for i in range(max(0, 24 - 4 * abs(sem - cov))):
                levels = {"sem_level": int(sem) + 1, "cov_level": int(cov) + 1}
                id_ = f"{name}/{sem}{cov}/{i}"
                base = {
                    **shared,
                    **levels,
                    "sample_id": id_,
                    "image_id": id_,
                    "shift": name,
                    "split": "unknown",
                    "severity": None,
                    "params": json.dumps(
                        {"cov_level": levels["cov_level"], "sem_level": levels["sem_level"]}
                    ),
                    "family": name,
                }
                for scorer, knows in (("msp", 0.25), ("knn", 0.35)):
                    yield {**base, "scorer": scorer, "score": rng.normal(0.6 + knows * sem + slope * cov)}


def record(suite: dict[str, Any], run_id: str = "r", **fields: Any) -> RunRecord:
    """Return the record of a run of a suite."""
    parsed = parse({"name": "made", **suite}, "test")
    return RunRecord(run_id=run_id, suite=parsed, **{"settings": {}, "models": {}, **fields})

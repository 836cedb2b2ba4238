"""MLflow: a run of the experiment ``sorites``."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sorites.evaluation.trackers.base import Point

EXPERIMENT = "sorites"
# Numbers in one request.
CHUNK = 500


class MlflowRun:
    """A run of MLflow; severities are also logged as the metric ``severity`` of each curve.

    Args:
        client: The client of MLflow.
        run_id: The id of its run.
    """

    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        self.where = f"{client.tracking_uri}, run {run_id}"

    def points(self, points: Sequence[Point]) -> None:
        metric = importlib.import_module("mlflow.entities").Metric
        now = int(time.time() * 1000)
        numbers = {(point.key, point.step): point.value for point in points}
        numbers |= {(f"{p.group}/severity", p.step): p.severity for p in points if p.severity is not None}
        made = [metric(key, value, now, step) for (key, step), value in numbers.items()]
        for start in range(0, len(made), CHUNK):
            self.client.log_batch(self.run_id, metrics=made[start : start + CHUNK])

    def file(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def close(self, failed: bool = False) -> None:
        self.client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


def start(name: str, facts: Mapping[str, str], place: str | None) -> MlflowRun:
    """Start a run at a tracking URI; default: MLflow's own settings."""
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=place)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    number = client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
    run = client.create_run(number, run_name=name)
    for key, value in facts.items():
        client.set_tag(run.info.run_id, f"sorites.{key}", value)
    return MlflowRun(client, run.info.run_id)

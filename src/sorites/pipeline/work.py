"""The units of work of a run, each a top-level function of the run folder and a task: threads, processes and a cluster run
the same ones. What a unit needs it finds in its process (``running``) or loads from the folder, once per process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl

from sorites.files import write_bytes
from sorites.pipeline import shards
from sorites.pipeline.fitted import ready
from sorites.pipeline.pictures import shots
from sorites.pipeline.predict import Predictions, predict
from sorites.pipeline.refine import refine
from sorites.pipeline.running import Task, running_in
from sorites.table import SCHEMA, write


def evaluate(folder: Path, task: Task, *, batch: int, keep_features: bool = False) -> None:
    """Make the pictures of a grid unit, show them to the task's models, and write one shard per model."""
    running = running_in(folder)
    plan = ready(folder, running)
    found = predict(plan, shots(plan, task.unit), batch, running.tick, task.models)
    for name, predictions in found.items():
        if keep_features:
            write_bytes(_packed(predictions), shards.features(folder, task.unit, name))
        _keep(predictions.rows, running.run_id, shards.shard(folder, task.unit, name))


def probe(folder: Path, task: Task, *, batch: int, tolerance: float) -> None:
    """Bisect the failure points of a slice along one dial, and write the probes' rows, one shard per model."""
    running = running_in(folder)
    plan = ready(folder, running)
    starts = [*plan.clean_units(task.unit), replace(task.unit, probe=False)]
    paths = [shards.shard(folder, start, name) for start in starts for name in task.models]
    grid = pl.concat([shards.read_shard(path) for path in paths], how="diagonal")
    for name, rows in refine(plan, task.unit, grid, tolerance, batch, task.models).items():
        found = pl.concat(rows) if rows else pl.DataFrame(schema=SCHEMA)
        _keep(found, running.run_id, shards.shard(folder, task.unit, name))


def _keep(rows: pl.DataFrame, run_id: str, path: Path) -> None:
    write(rows.with_columns(run_id=pl.lit(run_id)).select(SCHEMA.names()), path)


def _packed(found: Predictions) -> bytes:
    """Pack logits and features as safetensors, one row per image, with the image ids in its metadata."""
    from safetensors.numpy import save

    given = {"features": found.outputs.features, "logits": found.outputs.logits}
    tensors = {part: array for part, array in given.items() if array is not None}
    return save(tensors, metadata={"image_id": json.dumps(found.image_ids)})

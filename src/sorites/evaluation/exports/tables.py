"""Write the table of a run as one file: CSV, parquet, or a dataset of Hugging Face."""

from __future__ import annotations

import json

import polars as pl

from sorites.core.table import read
from sorites.evaluation.exports.coco import Exporting
from sorites.io.files import write_bytes

PARQUET = "predictions.parquet"
SHARD = "data/train-00000-of-00001.parquet"


def _table(task: Exporting) -> pl.DataFrame:
    rows = read(task.folder)
    kept = rows.filter(pl.col("model").is_in(list(task.models))) if task.models else rows
    return kept.collect(engine="streaming")


def write_csv(task: Exporting) -> None:
    """Write ``predictions.csv``; lists are JSON, as ``sorites import`` reads them from CSV."""
    table = _table(task)
    nested = [name for name, kind in table.schema.items() if kind.is_nested()]
    texts = [
        pl.Series(
            name,
            [None if cell is None else json.dumps(cell) for cell in table[name].to_list()],
            dtype=pl.String,
        )
        for name in nested
    ]
    write_bytes(table.with_columns(texts).write_csv().encode(), task.out / "predictions.csv")


def write_parquet(task: Exporting) -> None:
    """Write ``predictions.parquet`` with the columns of the table."""
    _table(task).write_parquet(task.out / PARQUET, compression="zstd")


CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: {shard}
tags:
- robustness
- sorites
pretty_name: {name}
---

# Predictions under shift: {suite}

One row per image, model and output, written by Sorites from the run `{run_id}` of the suite `{suite}` on
`{source}`. `split` of the Hub is always train; the column `split` is that of the source. Null is missing,
never 0. The images are not included.

Models: {models}.
"""


def write_huggingface(task: Exporting) -> None:
    """Write a folder that ``datasets.load_dataset`` reads: the table as parquet, and a dataset card."""
    (task.out / SHARD).parent.mkdir(parents=True)
    _table(task).write_parquet(task.out / SHARD, compression="zstd")
    record = task.record
    models = ", ".join(f"`{name}`" for name in task.models or record.models)
    suite, source = record.suite.name, record.suite.source
    text = CARD.format(
        shard=SHARD,
        name=json.dumps(f"Predictions of {suite}"),
        suite=suite,
        run_id=record.run_id,
        source=source,
        models=models,
    )
    write_bytes(text.encode(), task.out / "README.md")

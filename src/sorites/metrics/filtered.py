"""The effect of a filter: accuracy with all pictures, with those it keeps, and with those that other filters keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics._rows import answer_frame, with_clean
from sorites.metrics.accuracy import accuracy
from sorites.reading.frames import sheet
from sorites.reading.places import path_of
from sorites.table import Table

Verdicts = str | Path | pl.DataFrame
"""A CSV or parquet file, or a frame: ``image_id`` and one column per filter, true where the image stays."""


@add_metric
def filtered_accuracy(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), verdicts: Verdicts | None = None
) -> pl.DataFrame:
    """Accuracy by ``version``: ``all`` pictures, ``filtered`` (valid in the table), and one per column of ``verdicts``.

    This is figure 3 of CNS-Bench, where the curve of a good filter lies on that of pictures labelled by hand. The interval is
    Wilson's, and every shift starts from the clean pictures at severity 0.
    """
    rows = with_clean(table)
    everything = rows.with_columns(valid=pl.lit(True))
    versions = {"all": everything, "filtered": rows.filter(pl.col("valid").fill_null(True))}
    if verdicts is not None:
        frame = _read(verdicts)
        for name in (column for column in frame.columns if column != "image_id"):
            kept = frame.filter(pl.col(name)).select("image_id").lazy()
            versions[name] = everything.join(kept, on="image_id", how="semi")
    keys = [by] if isinstance(by, str) else list(by)
    found = [accuracy(rows, keys).with_columns(version=pl.lit(name)) for name, rows in versions.items()]
    return answer_frame(pl.concat(found).filter(pl.col("n") > 0), keys, "value", "n", "low", "high", then=("version",))


def _read(verdicts: Verdicts) -> pl.DataFrame:
    if isinstance(verdicts, pl.DataFrame):
        frame = verdicts
    else:
        frame = sheet(path_of(verdicts), "verdicts as a CSV or parquet file", infer_schema=True)
    wrong = [name for name, kind in frame.schema.items() if name != "image_id" and kind != pl.Boolean]
    if "image_id" not in frame.columns or frame.schema["image_id"] != pl.String or wrong:
        raise SoritesError(f"verdicts: wanted image_id and columns of true and false, got {', '.join(frame.columns)}")
    return frame

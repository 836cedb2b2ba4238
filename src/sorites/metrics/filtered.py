"""What a filter does to the curves: accuracy with all pictures, with those it keeps, and with those that other verdicts keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics._rows import answer, with_clean
from sorites.metrics.accuracy import accuracy
from sorites.table import Table

Verdicts = str | Path | pl.DataFrame
"""A CSV or parquet file, or a frame: ``image_id`` and a column of true (stays) and false for each filter."""


@add_metric
def filtered_accuracy(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), verdicts: Verdicts | None = None
) -> pl.DataFrame:
    """Accuracy by ``version``: ``all`` pictures, ``filtered`` (valid in the table), and one for each column of ``verdicts``.

    CNS-Bench, figure 3: a good filter's curve lies on that of pictures labelled by hand. Wilson interval; dials start from clean.
    """
    rows = with_clean(table)
    everything = rows.with_columns(valid=pl.lit(True))
    versions = {"all": everything, "filtered": rows.filter(pl.col("valid").fill_null(True))}
    if verdicts is not None:
        told = _read(verdicts)
        for name in (column for column in told.columns if column != "image_id"):
            kept = told.filter(pl.col(name)).select("image_id").lazy()
            versions[name] = everything.join(kept, on="image_id", how="semi")
    keys = [by] if isinstance(by, str) else list(by)
    found = [accuracy(some, keys).with_columns(version=pl.lit(name)) for name, some in versions.items()]
    return answer(pl.concat(found).filter(pl.col("n") > 0), keys, "value", "n", "low", "high", then=("version",))


def _read(verdicts: Verdicts) -> pl.DataFrame:
    try:
        if isinstance(verdicts, pl.DataFrame):
            frame = verdicts
        else:
            frame = pl.read_parquet(verdicts) if str(verdicts).endswith(".parquet") else pl.read_csv(verdicts)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SoritesError(f"verdicts: cannot read {verdicts}: {error}") from error
    wrong = [name for name, kind in frame.schema.items() if name != "image_id" and kind != pl.Boolean]
    if "image_id" not in frame.columns or wrong:
        raise SoritesError(f"verdicts: wanted image_id and columns of true and false, got {', '.join(frame.columns)}")
    return frame

"""Averages over a whole dial, its start included, as CNS-Bench prints them (table 5)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics._rows import with_clean
from sorites.metrics.accuracy import accuracy_drop, mean_accuracy
from sorites.table import Table


@add_metric
def dial_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over all stops of a dial, severity 0 among them; then over shifts and samples as ``mean_accuracy``."""
    return mean_accuracy(with_clean(table), by)


@add_metric
def dial_drop(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy drop over all stops of a dial, severity 0 (where it is 0) among them; paired as ``accuracy_drop``."""
    return accuracy_drop(with_clean(table), by)

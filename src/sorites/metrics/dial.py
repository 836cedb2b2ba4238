"""Averages over all severities of a shift, severity 0 included, as CNS-Bench prints them (table 5)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.metrics._rows import REAL_SAMPLES, with_clean
from sorites.metrics.accuracy import accuracy_drop, mean_accuracy
from sorites.table import Table


@add_metric
def dial_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over all severities of a shift, 0 included, then over shifts and samples like ``mean_accuracy``."""
    return mean_accuracy(with_clean(table).filter(REAL_SAMPLES), by)


@add_metric
def dial_drop(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy drop over all severities of a shift, 0 (where the drop is 0) included; paired like ``accuracy_drop``."""
    return accuracy_drop(with_clean(table), by)

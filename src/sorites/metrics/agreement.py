"""Agreement of rankings: do two shifts put the models in the same order?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.errors import UnknownName
from sorites.metrics._intervals import Z
from sorites.metrics._rows import answer_frame
from sorites.metrics.accuracy import mean_accuracy
from sorites.table import Table


@add_metric
def rank_agreement(table: Table, by: Sequence[str] = ("shift",), exclude: Sequence[str] = ()) -> pl.DataFrame:
    """Kendall's tau-b between the orders of the models under ``shift`` and under ``other``; ``p`` against no relation.

    A model's accuracy under a shift is its mean over settings; ``clean`` counts as a shift and gives the baseline order.
    ``n`` counts the models that were judged under both shifts, without those named in ``exclude``. The interval is Bonett &
    Wright's (2000) on Fisher's scale, null below five models; tau and p are null below two models or where all models tie in one
    order. Further columns in ``by`` make separate groups.
    """
    means = _means(table, [key for key in ([by] if isinstance(by, str) else by) if key != "shift"], exclude)
    group_columns = [name for name in means.columns if name not in ("model", "shift", "value")]
    rows = []
    for group in means.partition_by(group_columns, maintain_order=True) if group_columns else [means]:
        group_key = group.select(group_columns).row(0, named=True) if group_columns else {}
        rows += [{**group_key, **pair} for pair in _pairs(group)]
    schema = pl.Schema({**{name: means.schema[name] for name in group_columns}, **_PAIR})
    return answer_frame(pl.DataFrame(rows, schema=schema), [*group_columns, "shift", "other"], "value", "n", "low", "high", "p")


_PAIR: dict[str, pl.DataType | type[pl.DataType]] = {
    "shift": pl.String,
    "other": pl.String,
    "value": pl.Float64,
    "n": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p": pl.Float64,
}


def _means(table: Table, group_columns: list[str], exclude: Sequence[str]) -> pl.DataFrame:
    left_out = [exclude] if isinstance(exclude, str) else list(exclude)
    models = table.lazy().select(pl.col("model").unique()).collect(engine="streaming")["model"].to_list()
    for name in left_out:
        if models and name not in models:
            raise UnknownName("model", name, [m for m in models if m])
    kept = table.lazy().filter(pl.col("model").is_in(left_out).not_())
    as_shift = kept.filter(pl.col("shift") == CLEAN).with_columns(shift=pl.lit("clean pictures"))
    both = pl.concat([kept.filter(pl.col("shift") != CLEAN), as_shift])
    means = mean_accuracy(both, by=["model", "shift", *group_columns]).select("model", "shift", *group_columns, "value")
    return means.with_columns(pl.col("shift").replace("clean pictures", CLEAN))


def _pairs(group: pl.DataFrame) -> list[dict[str, object]]:
    """Return tau for every shift with itself and with every other one, in both directions."""
    if not group.height:
        return []
    wide = group.pivot(on="shift", index="model", values="value")
    found = []
    for one, two in combinations_with_replacement(sorted(name for name in wide.columns if name in set(group["shift"])), 2):
        pair = _tau(wide[one].to_numpy(), wide[two].to_numpy())
        found += [{"shift": a, "other": b, **pair} for a, b in {(one, two), (two, one)}]
    return found


def _tau(a: NDArray[np.float64], b: NDArray[np.float64]) -> dict[str, object]:
    from scipy.stats import kendalltau

    both = np.isfinite(a.astype(float)) & np.isfinite(b.astype(float))
    n, nothing = int(both.sum()), {"value": None, "low": None, "high": None, "p": None}
    if n < 2 or len(set(a[both])) == 1 or len(set(b[both])) == 1:
        return {"n": n, **nothing}
    tau, p = (float(x) for x in kendalltau(a[both], b[both]))
    if n < 5:
        return {"n": n, "value": tau, "low": None, "high": None, "p": p}
    with np.errstate(divide="ignore"):
        middle, reach = np.arctanh(tau), Z * np.sqrt(0.437 / (n - 4))
    return {"n": n, "value": tau, "low": float(np.tanh(middle - reach)), "high": float(np.tanh(middle + reach)), "p": p}

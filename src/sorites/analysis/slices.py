"""Weak slices: groups of images by a property (dark, blurred, crowded) on which a model fails more often.

Images are divided by the quartiles of each property of their clean image. A slice is weak if its samples fail
more often than all others (one-sided permutation test over samples); the false discovery rate over all
slices, shifts and models is controlled by the procedure of Benjamini & Hochberg (1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.errors import InvalidOption
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import RunLike, Table, read, run_folder
from sorites.evaluation.facts.properties import PROPERTIES, measure_properties
from sorites.metrics import judged_rows, objects, select_rows
from sorites.metrics.detection.failure import OBJECT_SEPARATOR
from sorites.metrics.detection.operating import checked_conf

Array = NDArray[np.float64]
# Properties of the ground-truth boxes: the mean size of objects in px, and their number.
OF_OBJECTS = ("object_size", "objects")
QUARTERS = ("lowest", "second", "third", "highest")
# Slices with fewer samples are not tested.
LEAST_SAMPLES = 10
# Permutations of a test; the least p is one divided by one more than their number.
DRAWS = 9_999
CELLS_PER_BATCH = 1 << 22
TIE = 1e-9
SEED = 0
CONFIDENCE = 0.25
SCHEMA = {
    "model": pl.String,
    "shift": pl.String,
    "property": pl.String,
    "slice": pl.String,
    "from": pl.Float64,
    "to": pl.Float64,
    "n": pl.Int64,
    "failing": pl.Float64,
    "elsewhere": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "weak": pl.Boolean,
}
KEY = ("source", "sample_id")


def slices(
    run: str | Path | RunLike, *, rate: float = 0.05, conf: float = CONFIDENCE, bar: Bar | None = None
) -> pl.DataFrame:
    """Measure the properties of a run's clean images, and find the slices on which its models fail more
    often.

    Args:
        run: A run folder, made by "sorites run". Also a ``Run``.
        rate: False discovery rate: the share of slices called weak that are expected not to be.
        conf: Of detectors: the confidence from which a box finds an object.
        bar: A progress bar.

    Returns:
        The slices; see ``weak_slices``.
    """
    measure_properties(run, bar)
    return weak_slices(read(run_folder(run)), rate, conf)


def weak_slices(table: Table, rate: float = 0.05, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Test the slices of a table whose clean images have properties.

    Args:
        table: A table; images without properties are left out.
        rate: The false discovery rate.
        conf: Of detectors: the confidence from which a box finds an object.

    Returns:
        One row per model, shift, property and quarter of it, weakest first: the range of the property
        (``from``, ``to``), the number of samples ``n``, the share of images (or objects) that fail in the
        slice and elsewhere, ``p``, the adjusted ``q``, and whether the slice is weak (q up to the rate).
    """
    if not 0 < rate < 1:
        raise InvalidOption(
            "rate", f"{option('rate', None)}: expected a number between 0 and 1, got {rate:g}"
        )
    checked_conf(conf)
    values = properties_of(table)
    failures = failures_of(table, conf)
    shuffles = Shuffles()
    rows = [
        row for part in failures.partition_by("model", "shift") for row in _tested(part, values, shuffles)
    ]
    frame = pl.DataFrame(
        rows, schema={name: kind for name, kind in SCHEMA.items() if name not in ("q", "weak")}
    )
    q = adjusted(frame["p"].to_numpy())
    found = frame.with_columns(q=pl.Series(q, dtype=pl.Float64)).with_columns(weak=pl.col("q") <= rate)
    order = found.with_columns(excess=pl.col("failing") - pl.col("elsewhere"))
    ranked = order.sort(
        "weak", "excess", "model", "shift", "property", descending=[True, True, False, False, False]
    )
    return ranked.select([*SCHEMA])


def properties_of(table: Table) -> pl.DataFrame:
    """Return one row per sample and property: those of its clean image, and of its ground-truth boxes."""
    clean = table.lazy().filter(pl.col("shift") == "clean")
    images = clean.select(*KEY, "degrees", "ground_truth").unique(KEY, maintain_order=True).collect()
    measured = (
        images.select(*KEY, "degrees")
        .explode("degrees")
        .unnest("degrees")
        .filter(pl.col("measure").is_in([*PROPERTIES]))
        .select(*KEY, property="measure", value="value")
    )
    boxes = images.select(*KEY, "ground_truth").drop_nulls().explode("ground_truth").unnest("ground_truth")
    side = ((pl.col("x1") - pl.col("x0")) * (pl.col("y1") - pl.col("y0"))).cast(pl.Float64).sqrt()
    of_objects = (
        boxes.drop_nulls("label")
        .filter(~pl.col("crowd").fill_null(False))
        .group_by(KEY)
        .agg(object_size=side.mean(), objects=pl.len().cast(pl.Float64))
        .unpivot(OF_OBJECTS, index=KEY, variable_name="property", value_name="value")
    )
    return pl.concat([measured, of_objects]).drop_nulls("value").sort(*KEY, "property")


def failures_of(table: Table, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Return the share of images (of detectors: of objects) that fail, by model, shift and sample."""
    rows, _ = select_rows(table, ["model", "shift"])
    keys = ["model", "shift", *KEY]
    parts = [judged_rows(rows).select(*keys, "correct").collect(engine="streaming")]
    found = objects(table, conf).filter(~pl.col("probe").fill_null(False))
    sample = pl.col("sample_id").str.replace(OBJECT_SEPARATOR + r"\d+$", "")
    parts.append(found.with_columns(sample_id=sample).select(*keys, "correct"))
    return pl.concat(parts).group_by(keys).agg(failing=1 - pl.col("correct").mean()).sort(keys)


def _tested(failures: pl.DataFrame, values: pl.DataFrame, shuffles: Shuffles) -> Iterator[dict[str, object]]:
    """Yield the slices of one model under one shift."""
    model, shift = failures.select("model", "shift").row(0)
    for (name,), part in values.group_by("property", maintain_order=True):
        joined = failures.join(part, on=KEY, nulls_equal=True).sort(KEY)
        for row in _quarters(joined["value"].to_numpy(), joined["failing"].to_numpy(), shuffles):
            yield {"model": model, "shift": shift, "property": name, **row}


def _quarters(values: Array, failing: Array, shuffles: Shuffles) -> Iterator[dict[str, object]]:
    if len(values) < 2 * LEAST_SAMPLES:
        return
    edges = np.quantile(values, [0.25, 0.5, 0.75])
    place = np.searchsorted(edges, values, side="left")
    p = shuffles.p_values(failing, place)
    for quarter, name in enumerate(QUARTERS):
        inside = place == quarter
        if min(inside.sum(), (~inside).sum()) < LEAST_SAMPLES:
            continue
        yield {
            "slice": name,
            "from": float(values[inside].min()),
            "to": float(values[inside].max()),
            "n": int(inside.sum()),
            "failing": float(failing[inside].mean()),
            "elsewhere": float(failing[~inside].mean()),
            "p": float(p[quarter]),
        }


class Shuffles:
    """Permutation tests of slices; the permutations of equally many samples are drawn once and kept."""

    def __init__(self) -> None:
        self._kept: dict[int, NDArray[np.int64]] = {}

    def p_values(self, failing: Array, place: NDArray[np.int64]) -> Array:
        """Return the one-sided p of each quarter: do its samples fail more often than if drawn at random?

        With outcomes of two values the test is Fisher's exact test, which needs no draws.
        """
        sizes = np.bincount(place, minlength=len(QUARTERS))
        sums = np.bincount(place, failing, minlength=len(QUARTERS))
        levels = np.unique(failing)
        if len(levels) == 1:
            return np.ones(len(QUARTERS))
        if len(levels) == 2:
            from scipy.stats import hypergeom

            worse = failing == levels[1]
            hits = np.bincount(place, worse, minlength=len(QUARTERS))
            return np.asarray(hypergeom.sf(hits - 1, len(failing), int(worse.sum()), sizes))
        beyond = np.zeros(len(QUARTERS))
        inside = np.eye(len(QUARTERS))[place]
        for order in self._orders(len(failing)):
            beyond += (failing[order] @ inside >= sums - TIE).sum(axis=0)
        return np.asarray((1 + beyond) / (1 + DRAWS))

    def _orders(self, samples: int) -> Iterator[NDArray[np.int64]]:
        """Yield permutations of this many samples in batches; draws depend on their number only."""
        rng = np.random.default_rng(SEED)
        batch = max(1, CELLS_PER_BATCH // samples)
        if batch >= DRAWS:
            if samples not in self._kept:
                self._kept = {samples: rng.permuted(np.tile(np.arange(samples), (DRAWS, 1)), axis=1)}
            yield self._kept[samples]
            return
        for start in range(0, DRAWS, batch):
            rows = min(batch, DRAWS - start)
            yield rng.permuted(np.tile(np.arange(samples), (rows, 1)), axis=1)


def adjusted(p: Array) -> Array:
    """Return the p values adjusted for the false discovery rate (Benjamini & Hochberg 1995)."""
    if not len(p):
        return p
    order = np.argsort(p, kind="stable")[::-1]
    ranks = np.arange(len(p), 0, -1)
    q = np.empty(len(p))
    q[order] = np.minimum.accumulate(np.minimum(p[order] * len(p) / ranks, 1.0))
    return q

"""Kept logits of a run together with its rows: the images that a model judged, in passes of one file each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.rng import digest, rng_for
from sorites.core.table import RunLike, Table, run_folder
from sorites.evaluation.combine import read
from sorites.evaluation.reopen import class_names
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.tensors import read_tensors
from sorites.io.stores import to_path
from sorites.metrics.rows import judged_rows, select_rows

Array = NDArray[np.float64]
# Takes the name of a model; yields image ids and their logits, file by file.
Logits = Callable[[str], Iterator[tuple[list[str], NDArray[np.float32]]]]

# The columns of a setting.
SETTING = ("shift", "severity", "params")


def logits_reader(run: str | Path) -> Logits | None:
    """Return a reader of the kept logits of a run folder, or None if it has none."""
    folder = to_path(run)
    if not shards.tensor_files(folder, shards.FEATURES):
        return None

    def logits(model: str) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        for path in shards.all_features(folder, model):
            header, arrays = read_tensors(path, ("image_id",), ("logits",))
            if "logits" in arrays:
                yield header["image_id"], arrays["logits"]

    return logits


@dataclass(frozen=True, eq=False)
class KeptRun:
    """A run with its kept logits: its table, their reader, its classes, and the chosen models."""

    table: Table
    reader: Logits | None
    labels: Labels | None
    models: Sequence[str]


def open_kept(run: str | Path | RunLike, models: Sequence[str] = ()) -> KeptRun:
    """Open a run folder.

    Args:
        run: The folder, or a ``Run``.
        models: Only these models; default: all.

    Raises:
        UnknownName: The run has no such model.
    """
    folder = run_folder(run)
    record = read_record(folder)
    for name in models:
        if name not in record.models:
            raise UnknownName("model", name, record.models)
    return KeptRun(
        read(folder),
        logits_reader(folder),
        class_names(record),
        tuple(models) or tuple(sorted(record.models)),
    )


@dataclass(frozen=True, eq=False)
class Judged:
    """The images of one model that are judged and whose logits are kept.

    Attributes:
        rows: One row per image: shift, severity, params (null where there is a severity), sample (a number
            from 0), and what the caller added.
        right: The positions of the correct classes of each image among the logits.
        half: The half of its sample, 0 or 1: each half is evaluated with what is fitted on the other one.
        rank: The place of its sample in the order of a hash.
        clean: Whether the image is clean.
        draw: A number in 0..1 that is drawn once per sample.
    """

    rows: pl.DataFrame
    right: Sequence[NDArray[np.int64]]
    half: NDArray[np.int64]
    rank: NDArray[np.int64]
    clean: NDArray[np.bool_]
    draw: Array

    def __len__(self) -> int:
        return self.rows.height


class KeptLogits:
    """The judged images of a model with kept logits.

    Args:
        table: The table of the run.
        model: The model.
        read: Reads the kept logits.
        labels: The classes of the suite.

    Raises:
        SoritesError: No logits are kept, or they are not those of the suite's classes.
    """

    def __init__(self, table: Table, model: str, read: Logits | None, labels: Labels | None) -> None:
        if read is None:
            raise SoritesError(
                f"no logits of {model} are kept; repeat the run with {option('keep_features')}"
            )
        self._model, self._read, self._labels = model, read, labels
        rows, _ = select_rows(table, ["model"])
        own = judged_rows(rows).filter(pl.col("model") == model)
        severity_only = pl.when(pl.col("severity").is_null()).then("params").alias("params")
        judged = own.select(
            "image_id", "source", "sample_id", "shift", "severity", severity_only, "accept", "pred", "degrees"
        ).collect(engine="streaming")
        kept = [image for images, _ in read(model) for image in images]
        if not kept:
            raise SoritesError(
                f"no logits of {model} are kept; repeat the run with {option('keep_features')}"
            )
        found = judged.join(pl.DataFrame({"image_id": kept}), on="image_id", how="semi")
        self.images = _judged(found.sort("source", "sample_id", "shift", "severity", "params"))
        self._place = {image: i for i, image in enumerate(self.images.rows["image_id"])}

    def batches(self) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """Yield positions of judged images, and their logits in the order of the suite's classes."""
        seen = np.zeros(len(self.images), bool)
        pred = self.images.rows["pred"].to_numpy()
        for ids, logits in self._read(self._model):
            rows = [(row, self._place[image]) for row, image in enumerate(ids) if image in self._place]
            rows = [(row, place) for row, place in rows if not seen[place]]
            if not rows:
                continue
            own, places = (np.array(part, np.int64) for part in zip(*rows, strict=True))
            seen[places] = True
            chosen = logits[own].astype(np.float64)
            self._check(chosen, pred[places])
            yield places, chosen

    def _check(self, logits: Array, pred: NDArray[np.integer]) -> None:
        classes = None if self._labels is None else len(self._labels)
        if classes not in (None, logits.shape[1]) or (logits.argmax(axis=1) != pred).any():
            raise SoritesError(
                f"the kept logits of {self._model} are not those of the suite's classes in their order; run"
                f" it with its own classes: {option('labels', 'FILE')}"
            )


def _judged(rows: pl.DataFrame) -> Judged:
    names = [f"{source}/{sample}" for source, sample in rows.select("source", "sample_id").iter_rows()]
    samples = {name: i for i, name in enumerate(dict.fromkeys(names))}
    ranks = _ranks(list(samples))
    draws = np.array([rng_for(0, name, "prediction sets").random() for name in samples])
    numbers = np.array([samples[name] for name in names], np.int64)
    return Judged(
        rows.with_columns(sample=pl.Series(numbers, dtype=pl.Int64)),
        [np.array(right, np.int64) for right in rows["accept"].to_list()],
        (ranks[numbers] >= len(samples) // 2).astype(np.int64),
        ranks[numbers],
        (rows["shift"] == CLEAN).to_numpy(),
        draws[numbers],
    )


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each sample in the order of a hash."""
    ranks = np.zeros(len(names), np.int64)
    ranks[sorted(range(len(names)), key=lambda i: digest(names[i], "half"))] = np.arange(len(names))
    return ranks


def softmax(logits: Array) -> Array:
    """Return probabilities by row."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def groups(rows: pl.DataFrame) -> Iterator[tuple[dict[str, object], NDArray[np.int64]]]:
    """Yield each setting with the positions of its images, in order."""
    numbered = rows.select(*SETTING).with_row_index("(place)")
    parts = numbered.group_by(SETTING, maintain_order=True).agg("(place)").sort(SETTING)
    for *setting, places in parts.iter_rows():
        yield dict(zip(SETTING, setting, strict=True)), np.array(places, np.int64)

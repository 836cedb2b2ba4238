"""Check generated pictures against their words: text alignment step by step, the filter's cut, and the nearest real pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.generation.concepts import shift_words
from sorites.generation.pictures import BY_TEXT, MANIFEST
from sorites.measures._neighbours import directions
from sorites.pipeline.out_of_class import similarities_of_features as similarities
from sorites.pipeline.out_of_class import stays
from sorites.reading.frames import sheet
from sorites.sources._decode import decode
from sorites.types import Picture

Texts = Callable[[Sequence[str]], NDArray[np.floating]]
Images = Callable[[Sequence[Picture]], NDArray[np.floating]]
BATCH = 32


def manifest(folder: Path) -> pl.DataFrame:
    """Return the manifest of a folder of generated pictures."""
    if not (folder / MANIFEST).is_file():
        raise SoritesError(
            f'{folder} has no {MANIFEST}: wanted the folder of "sorites generate pictures --out DIR", finished; type that again'
        )
    frame = sheet(folder / MANIFEST)
    missing = {"path", "shift", "class_name", "seed", "severity"} - set(frame.columns)
    if missing:
        raise SoritesError(f"{folder / MANIFEST}: wanted a column {', '.join(sorted(missing))}; is it a manifest of pictures?")
    return frame.filter(~pl.col("shift").str.ends_with(BY_TEXT))


def features(folder: Path, paths: Sequence[str], encode: Images) -> NDArray[np.floating]:
    """Return an encoder's features of pictures, N x D, of length 1."""
    batches = (paths[start : start + BATCH] for start in range(0, len(paths), BATCH))
    parts = [np.asarray(encode([decode(folder / path) for path in batch])) for batch in batches]
    return directions(np.concatenate(parts), "pictures")


def aligned(rows: pl.DataFrame, seen: NDArray[np.floating], texts: Texts) -> pl.DataFrame:
    """Return the rows with 100 x the cosine to "a photo in SHIFT" beside each."""
    shifts = rows["shift"].unique(maintain_order=True).to_list()
    named = directions(np.asarray(texts([f"a photo in {shift_words(shift)}" for shift in shifts])), "texts")
    place = {shift: i for i, shift in enumerate(shifts)}
    cosine = 100 * (seen * named[[place[shift] for shift in rows["shift"]]]).sum(1)
    return rows.with_columns(alignment=pl.Series(cosine, dtype=pl.Float64))


def rises(rows: pl.DataFrame) -> pl.DataFrame:
    """Return per shift how often a step of the severity raises the alignment, among steps from a severity above 0 and among all.

    The paper counts the former: 73 % over all shifts. ``n`` is the number of those steps.
    """
    by = ("shift", "class_name", "seed")
    steps = rows.sort("severity").with_columns(
        before=pl.col("alignment").shift().over(by), at=pl.col("severity").shift().over(by)
    )
    steps = steps.filter(pl.col("before").is_not_null()).with_columns(up=pl.col("alignment") > pl.col("before"))
    both = [steps, steps.with_columns(shift=pl.lit("all"))] if steps["shift"].n_unique() > 1 else [steps]
    return (
        pl.concat(both)
        .group_by("shift", maintain_order=True)
        .agg(
            rises=pl.col("up").filter(pl.col("at") > 0).mean(),
            n=(pl.col("at") > 0).sum(),
            rises_from_0_too=pl.col("up").mean(),
            steps=pl.len(),
        )
    )


def cut(
    rows: pl.DataFrame, seen: NDArray[np.floating], alone: NDArray[np.floating], texts: Texts,
    thresholds: Mapping[str, float], rule: str = "paper",
) -> pl.DataFrame:  # fmt: skip
    """Return how many pictures the out-of-class filter keeps, per shift and severity, held against severity 0."""
    zero = {key: i for i, key in enumerate(_keys(rows)) if rows["severity"][i] == 0}
    places = [i for i, key in enumerate(_keys(rows)) if rows["severity"][i] != 0 and key in zero]
    if not places:
        raise SoritesError("the filter compares pictures with those at severity 0, and there are none")
    starts = [zero[key] for i, key in enumerate(_keys(rows)) if i in set(places)]
    some = rows[places]
    plain = [f"a photo of a {name}" for name in some["class_name"]]
    told = [f"{text} in {shift_words(shift)}" for text, shift in zip(plain, some["shift"], strict=True)]
    named = (np.asarray(texts(plain)), np.asarray(texts(told)))
    scores = similarities((seen[places], seen[starts]), named, (alone[places], alone[starts]))
    kept = some.with_columns(kept=stays(scores, thresholds, rule))
    return kept.group_by("shift", "severity").agg(before=pl.len(), after=pl.col("kept").sum()).sort("shift", "severity")


def _keys(rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    return list(rows.select("shift", "class_name", "seed").iter_rows())


def nearest(
    rows: pl.DataFrame, seen: NDArray[np.floating], real: Sequence[str], known: NDArray[np.floating], count: int = 3
) -> pl.DataFrame:
    """Return for each generated picture the real ones nearest to it in an encoder's features (Figure 4), the nearest first."""
    if not real:
        raise SoritesError("wanted a folder with real pictures, found none")
    similar = seen @ known.T
    order = np.argsort(-similar, axis=1, kind="stable")[:, :count]
    found = {
        "path": rows["path"].to_list(),
        "nearest": [[real[j] for j in row] for row in order],
        "similarity": [[float(similar[i, j]) for j in row] for i, row in enumerate(order)],
    }
    return pl.DataFrame(found)

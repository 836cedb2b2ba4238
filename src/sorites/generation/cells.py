"""Cells of Syn-IS: prompts by the distances of their texts from familiar pictures, in meaning and in appearance."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl

from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.frame import Distance
from sorites.generation.prompts import Prompts
from sorites.measures._levels import level_of, uniform
from sorites.pipeline.levels import COLUMNS
from sorites.pipeline.rulers import HALVES, Ruler, ruler
from sorites.progress import Bar
from sorites.reading.frames import parquet
from sorites.rng import digest

BLOCK = 8192
"""Texts that are measured at a time; what is measured is kept."""
FILE, PARTS = "prompts.parquet", "prompts"


def measured(prompts: Prompts, how: Distance, out: Path, bar: Bar | None = None) -> pl.DataFrame:
    """Return every prompt with its distances and levels, and write them to ``prompts.parquet``; measured blocks are kept."""
    key = _key(prompts, how)
    if (out / FILE).is_file():
        frame = parquet(out / FILE, 'the prompts of "sorites generate styles"')
        if frame.height == len(prompts):
            return frame
    against: list[Ruler] = []
    tick = bar("prompts", len(prompts)) if bar else (lambda _: None)
    parts = []
    for start in range(0, len(prompts), BLOCK):
        file = out / PARTS / f"{key}_{start:08d}.parquet"
        if not file.is_file():
            against = against or [ruler(how, None, bar)]
            _write(_block(prompts, start, against[0]), file)
        parts.append(parquet(file))
        tick(parts[-1].height)
    frame = _levelled(pl.concat(parts), how)
    _write(frame, out / FILE)
    return frame


def _key(prompts: Prompts, how: Distance) -> str:
    told = [(style.name, style.prompt) for style in prompts.styles]
    pairs = prompts.pairs.tobytes().hex() if len(prompts) < BLOCK else digest(prompts.pairs.tobytes().hex()).hex()
    return digest(prompts.labels, told, pairs, how.model_dump_json(), size=8).hex()


def _block(prompts: Prompts, start: int, against: Ruler) -> pl.DataFrame:
    places = range(start, min(start + BLOCK, len(prompts)))
    texts = [prompts.text(place) for place in places]
    found = against.distances(np.asarray(against.referee.texts(texts)))
    label, style = prompts.pairs[start : start + BLOCK].T
    return pl.DataFrame(
        {"label": label, "style": style, "text": texts, **{half: found[half].astype(np.float64) for half in HALVES}}
    )


def _levelled(frame: pl.DataFrame, how: Distance) -> pl.DataFrame:
    given = {"semantic": how.sem_edges, "covariate": how.cov_edges}
    for half in HALVES:
        values = frame[half].to_numpy()
        frame = frame.with_columns(level_of(values, given[half] or uniform(values, how.levels)).alias(COLUMNS[half]))
    return frame


def _write(frame: pl.DataFrame, file: Path) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_bytes(buffer.getvalue(), file)


def by_cell(frame: pl.DataFrame, levels: int) -> dict[tuple[int, int], pl.DataFrame]:
    """Return the prompts of each (covariate, semantic) cell, counted from 0; those of no cell are left out."""
    if not frame.height:
        raise SoritesError("there are no prompts")
    parts = frame.drop_nulls(["sem_level", "cov_level"]).partition_by(["cov_level", "sem_level"], as_dict=True)
    return {
        (cov - 1, sem - 1): parts[cov, sem] for cov in range(1, levels + 1) for sem in range(1, levels + 1) if (cov, sem) in parts
    }

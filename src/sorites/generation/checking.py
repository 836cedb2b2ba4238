"""The check of a folder of generated pictures, with encoders by name."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.generation.check import Images, aligned, cut, features, manifest, nearest, rises
from sorites.generation.realism import accuracies, distances
from sorites.pipeline.encoders import pictures_encoder
from sorites.pipeline.thresholds import read_thresholds
from sorites.sources._decode import SUFFIXES
from sorites.types import Picture


@dataclass(frozen=True)
class Checked:
    """Results: how often the likeness rises, what the filter cuts, and the page of nearest real pictures, if some were given."""

    rises: pl.DataFrame
    cut: pl.DataFrame
    nearest: Path | None = None


def check_realism(
    folder: Path, plain: Path | None = None, real: Path | None = None, features: str | None = None, model: str | None = None
) -> pl.DataFrame | None:
    """Return how near pictures are to real ones and how often a model is right on them, beside those of plain prompts."""
    sets = {str(folder): folder, **({} if plain is None else {str(plain): plain})}
    if features is not None and real is None:
        raise SoritesError("--features wants real pictures to measure against: add --real DIR")
    parts = [distances(sets, real, features)] if real is not None and features is not None else []
    parts += [accuracies(sets, model)] if model is not None else []
    return pl.concat(parts, how="vertical_relaxed") if parts else None


def check_pictures(
    folder: Path, referee: str, second: str | None = None, thresholds: str = "published", rule: str = "paper",
    real: Path | None = None, out: Path | None = None,
) -> Checked:  # fmt: skip
    """Check the pictures of a folder with a referee and, for the filter, a second encoder; the referee is both by default."""
    rows = manifest(folder)
    judge = core.referee(referee)
    encode, _ = pictures_encoder(second or referee)

    def joint(pictures: Sequence[Picture]) -> NDArray[np.floating]:
        return judge.images(pictures, False)

    def alone(pictures: Sequence[Picture]) -> NDArray[np.floating]:
        return encode(pictures, False)

    paths = rows["path"].to_list()
    seen, own = features(folder, paths, joint), features(folder, paths, alone)
    found = aligned(rows, seen, judge.texts)
    limits = read_thresholds(thresholds).values
    if limits is None:
        raise SoritesError("--thresholds: wanted published or a file; calibrating needs labels by hand: sorites filter RUN")
    kept = cut(rows, seen, own, judge.texts, limits, rule)
    return Checked(
        rises(found), kept, None if real is None else _nearest(rows, own, real, alone, out or folder / "nearest.parquet")
    )


def _nearest(rows: pl.DataFrame, own: NDArray[np.floating], real: Path, alone: Images, out: Path) -> Path:
    names = sorted(path.relative_to(real).as_posix() for path in real.rglob("*") if path.name.lower().endswith(SUFFIXES))
    if not real.is_dir() or not names:
        raise SoritesError(f"--real: wanted a folder with pictures, found none in {real}")
    found = nearest(rows, own, names, features(real, names, alone))
    buffer = io.BytesIO()
    found.write_parquet(buffer)
    write_bytes(buffer.getvalue(), out)
    return out

"""The thresholds of the out-of-class filter: the published ones, those of a file, or calibrated on pictures labelled by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.errors import SoritesError
from sorites.pipeline.out_of_class import PUBLISHED, VOTES, calibrate
from sorites.reading.places import is_file
from sorites.reading.texts import json_file, toml_file

WORDS = ("published", "calibrated")


@dataclass(frozen=True)
class Thresholds:
    """One number per vote, or none yet where they are to be calibrated."""

    name: str
    values: Mapping[str, float] | None

    @property
    def calibrated(self) -> bool:
        return self.values is None

    def chosen(self, scores: pl.DataFrame) -> Mapping[str, float]:
        """Return the numbers; those to be calibrated follow from the rows of ``scores`` that are labelled ``outside``."""
        return calibrate(scores, name="the annotated images") if self.values is None else self.values


def read_thresholds(spec: str | Path) -> Thresholds:
    """Return thresholds by word or from a TOML or JSON file with one number per vote.

    The record that a filter leaves beside a run (``facts/out_of_class.json``) is such a file, so that thresholds calibrated on an
    annotated run serve another.
    """
    if spec == "calibrated":
        return Thresholds("calibrated", None)
    if spec == "published":
        return Thresholds("published", PUBLISHED)
    path = Path(spec)
    if not is_file(path):
        raise SoritesError(f"--thresholds: wanted {' or '.join(WORDS)}, or a file with one number per vote; got {str(spec)!r}")
    wanted = "--thresholds as a file with one number per vote"
    data: Any = json_file(path, wanted) if path.suffix == ".json" else toml_file(path, wanted)
    held = data.get("thresholds", data) if isinstance(data, dict) else {}
    held = held if isinstance(held, dict) else {}
    wrong = [vote for vote in VOTES if not _is_number(held.get(vote))]
    if wrong:
        raise SoritesError(f"--thresholds: wanted a number for each of {', '.join(VOTES)} in {path}; {wrong[0]} has none")
    return Thresholds(str(path), {vote: float(held[vote]) for vote in VOTES})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)

"""The grid of a capture: a published one by name, a small one for trying out, or a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

from sorites import es_grid
from sorites.errors import SoritesError
from sorites.es_grid import Grid
from sorites.reading.places import is_file, path_of
from sorites.reading.texts import lines
from sorites.studio.values import checked

SMALL_APERTURE = 9.0
WANTED = "a CSV file with the columns idx,iso,ss,aperture, as the released grid files have them"
MOST = 1000
"""The most settings of a grid."""


def grid(name: str, shots: int | None = None, lights: tuple[str, ...] = tuple(es_grid.LIGHTS)) -> Grid:
    """Return a grid by name (test, val, small) or from a CSV file, with so many automatic shots and these lights."""
    if name in ("test", "val"):
        return Grid(es_grid.published(name).manual, es_grid.SHOTS if shots is None else shots, lights)
    if name == "small":
        kept = tuple(params for params in es_grid.published("test").manual if params["aperture"] == SMALL_APERTURE)
        return Grid(kept, 1 if shots is None else shots, lights)
    return Grid(_from_csv(path_of(name)), es_grid.SHOTS if shots is None else shots, lights)


def part_of(name: str) -> str:
    """Return the split whose place in the layout a capture takes."""
    return "val" if name == "val" else "test"


def _from_csv(path: Path) -> tuple[es_grid.Params, ...]:
    if not is_file(path):
        raise SoritesError(f"no grid named {str(path)!r}: wanted test, val, small, or {WANTED}")
    rows = list(csv.DictReader(lines(path, WANTED)))
    if not 0 < len(rows) <= MOST or not {"iso", "ss", "aperture"} <= set(rows[0]):
        raise SoritesError(
            f"{path}: wanted {WANTED}, with 1 to {MOST} rows; got {len(rows)} rows of {list(rows[0]) if rows else 'nothing'}"
        )
    return tuple(_setting(row, f"{path}, row {number}") for number, row in enumerate(rows, 1))


def _setting(row: dict[str, str], where: str) -> es_grid.Params:
    return {
        "iso": round(checked("iso", row["iso"] or "", where)),
        "shutter": checked("shutter", row["ss"] or "", where),
        "aperture": checked("aperture", row["aperture"] or "", where),
    }

"""Tables V, XII, XIII and XXI of the OpticsBench paper, in their layout, for the detectors of a run.

Clean means unshifted images, OB the mean over all settings of the optical blurs with the disk (25 as
published), LC the mean over all lenses and field positions. All values are percentages; the last row is the
mean over detectors. Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image
Classification and Object Detection Models".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.table import Table

OPTICS = ("astigmatism", "coma", "defocus_spherical", "trefoil", "defocus_disk")
LENSES = ("lens", "lens_whole")
KINDS = ("Cls", "Loc", "Both", "Dupe", "Bkg", "Miss")
MEAN = "Σ"

# One number per detector.
Cells = Mapping[str, float]


def paper_tables(table: Table) -> dict[str, pl.DataFrame]:
    """Return the tables that the run has images for, by title.

    Raises:
        SoritesError: The run has no detectors, or none of the shifts.
    """
    rows = table.lazy().filter((pl.col("output") == "boxes") & ~pl.col("probe").fill_null(False))
    if rows.limit(1).collect().is_empty():
        raise SoritesError(
            f"{option('tables', 'paper')}: the tables are about detectors, but the run has only classifiers."
        )
    optics, lenses = (rows.filter(pl.col("shift").is_in(list(names))) for names in (OPTICS, LENSES))
    clean = _values(metrics.map(rows.filter(pl.col("shift") == CLEAN), by=("model",), resamples=0))
    blurred, lensed = (
        _values(metrics.mean_map(shifted, by=("model",), resamples=0)) for shifted in (optics, lenses)
    )
    errors = {
        "clean": _errors(metrics.tide(rows.filter(pl.col("shift") == CLEAN), by=("model",), resamples=0)),
        "OB": _errors(metrics.mean_tide(optics, by=("model",), resamples=0)),
    }
    tables = {}
    if blurred:
        pairs = {name: _both(cells["Cls"], cells["Loc"]) for name, cells in errors.items()}
        tables["Table V: mAP, and Cls / Loc errors"] = _table(
            {"mAP clean": clean, "mAP OB": blurred},
            {f"Cls / Loc {name}": cells for name, cells in pairs.items()},
        )
    if lensed:
        tables["Table XII: mAP"] = _table(
            {"clean": clean, "LC": lensed, **({"OB": blurred} if blurred else {})}, {}
        )
        tables |= _by_field(lenses, clean)
    if blurred:
        both = {kind: _both(errors["clean"][kind], errors["OB"][kind]) for kind in KINDS}
        tables["Table XXI: TIDE errors, clean / OB"] = _table({}, both)
    if not tables:
        raise SoritesError(
            f"{option('tables', 'paper')}: the run has none of the shifts {', '.join((*OPTICS, *LENSES))}."
        )
    return tables


def _by_field(lenses: pl.LazyFrame, clean: Cells) -> dict[str, pl.DataFrame]:
    rows = metrics.with_lenses(lenses).filter(pl.col("lens_field").is_not_null())
    each = metrics.mean_map(rows, by=("model", "lens_field"), resamples=0).sort("lens_field")
    fields = each["lens_field"].unique(maintain_order=True).to_list()
    columns = {f"{field:g}": _values(each.filter(pl.col("lens_field") == field)) for field in fields}
    return {"Table XIII: mAP by field": _table({"clean": clean, **columns}, {})} if columns else {}


def _errors(costs: pl.DataFrame) -> dict[str, Cells]:
    """Return the cost of each kind of error by detector."""
    return {kind: _values(costs.filter(pl.col("error") == kind)) for kind in KINDS}


def _values(frame: pl.DataFrame) -> dict[str, float]:
    return {
        row["model"]: row["value"]
        for row in frame.select("model", "value").to_dicts()
        if row["value"] is not None
    }


def _both(one: Cells, other: Cells) -> dict[str, tuple[float, float]]:
    return {model: (one[model], other[model]) for model in one if model in other}


def _table(
    single: Mapping[str, Cells], double: Mapping[str, Mapping[str, tuple[float, float]]]
) -> pl.DataFrame:
    """Format numbers and pairs as columns of text, with one row per detector and one for the mean."""
    models = sorted({model for cells in (*single.values(), *double.values()) for model in cells})
    columns: dict[str, list[str]] = {"DNN": [*models, MEAN]}
    for name, cells in single.items():
        columns[name] = [_text([cells.get(model)]) for model in models] + [
            _text([_mean([cells.get(m) for m in models])])
        ]
    for name, pairs in double.items():
        sides = [[pairs[model][i] if model in pairs else None for model in models] for i in (0, 1)]
        columns[name] = [_text(pair) for pair in zip(*sides, strict=True)] + [
            _text([_mean(side) for side in sides])
        ]
    return pl.DataFrame(columns)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean over detectors, or None if a detector lacks the number."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def _text(values: Sequence[float | None]) -> str:
    return " / ".join("–" if value is None else f"{100 * value:.1f}" for value in values)

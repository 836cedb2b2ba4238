"""The detectors of a page."""

from __future__ import annotations

import polars as pl

from sorites.reports.view import View


def box_models(view: View) -> list[str]:
    """List the models of the view that find boxes, in its order."""
    boxes = view.table.filter(pl.col("output") == "boxes").select(pl.col("model").unique()).collect(engine="streaming")["model"]
    return [model for model in view.models if model in set(boxes)]

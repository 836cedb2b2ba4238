"""Draw the models under one shift side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sorites.reports.parts.charts import pen
from sorites.reports.parts.markup import Html, tag
from sorites.reports.view import View


def columns_of_models(view: View, shift: str, drawn: Mapping[tuple[str, str], Sequence[Html]]) -> Html:
    """Return one card per model with what is drawn of it under a shift; a picker shows one shift at a time."""
    columns = [
        tag("article", tag("h3", model), *drawn[shift, model], cls="card model", style=f"--pen:{pen(view, model).colour}")
        for model in view.models
        if (shift, model) in drawn
    ]
    return tag("div", tag("h3", shift, cls="away"), tag("div", *columns, cls="cards"), cls="picks", data_pick=shift)

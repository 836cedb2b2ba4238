"""The section with contact sheets: settings across, models down, each cell marked correct or not.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figure 10, for camera runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites import metrics
from sorites.analysis.sheet import Column, Sheet, Verdict, most_disputed, sheet
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.messages import command
from sorites.metrics.camera import with_settings
from sorites.reports.components.camera import requested, shutter_text
from sorites.reports.components.images import data_uri
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    count,
    css_variable,
    join,
    number,
    percent,
    tag,
)
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

# Number of sheets on a page, and maximum number of settings of each.
SHEETS, ACROSS = 3, 10
# Maximum size of the images in the file, in bytes.
IMAGE_BYTES = 400_000


@add_section(order=37)
def sheets(view: View) -> Section | None:
    """The images on which models disagree most; absent without a camera grid or available images."""
    if not any(run.image for run in view.runs) or not view.compute(metrics.setting_share).height:
        return None
    left, cards = IMAGE_BYTES, []
    rows = with_settings(view.table).select(pl.exclude("light", "exposure", "iso", "shutter", "aperture"))
    both = pl.concat(
        [rows, view.table.filter(pl.col("shift") == CLEAN).select(rows.collect_schema().names())]
    )
    for shift, sample in most_disputed(rows, most=SHEETS):
        if left <= 0:
            break
        try:
            content = sheet(both, sample, shift, most=ACROSS)
        except SoritesError:
            continue
        uris = [_uri(view, content, column) for column in content.columns]
        if any(uris):
            left -= sum(len(uri or "") for uri in uris)
            cards.append(_card(view, content, uris))
    if not cards:
        return None
    lead = (
        "The images on which the models disagree most, at some of the settings from dark to bright; a green"
        " cell with a tick is correct, a red one with a cross misclassified. To draw any image of the run,"
        " use"
        f" {command('sheet', 'RUN', sample='ID')}."
    )
    return Section("One image, all models", tag("div", *cards, cls="stack"), "Sheets", lead)


def _uri(view: View, content: Sheet, column: Column) -> str | None:
    setting: Any = requested(json.dumps(dict(column.params))) if column.severity is None else column.severity
    image = view.image(content.run_id, content.sample_id, column.shift, setting)
    return None if image is None else data_uri(image)


def _card(view: View, content: Sheet, uris: list[str | None]) -> Html:
    ground_truth = view.class_name(content.run_id, content.label)
    heads = [tag("th", _head(column), scope="col") for column in content.columns]
    images = [
        tag(
            "td",
            tag("img", src=uri, alt=f"{ground_truth}, {_words(column.params)}", style=IMAGE) if uri else DASH,
        )
        for column, uri in zip(content.columns, uris, strict=True)
    ]
    top = [
        tag("tr", tag("th", "", scope="col"), *heads),
        tag("tr", tag("th", "image", scope="row"), *images),
    ]
    models = [model for model in view.models if model in content.models]
    body = [
        tag(
            "tr",
            tag("th", model, scope="row", style="min-width:8.5rem"),
            *(_cell(view, content, column.verdicts.get(model)) for column in content.columns),
        )
        for model in models
    ]
    table = tag("table", tag("thead", *top), tag("tbody", *body), cls="heat")
    of = sum(column.shift != CLEAN for column in content.columns)
    lamp = next(
        (f" · lamp {column.params['light']}" for column in content.columns if "light" in column.params), ""
    )
    note = f"{content.sample_id} · {of} of {count(content.of)} settings{lamp}"
    words = tag("h3", ground_truth, " ", tag("small", note, style="font-weight:400"))
    return tag("article", words, tag("div", table, cls="scroll", tabindex="0"), cls="card")


IMAGE = (
    "display:block;width:100%;min-width:5.5rem;aspect-ratio:1;object-fit:cover;border-radius:5px;border:1px"
    f" solid {css_variable('line')}"
)


def _head(column: Column) -> Html:
    params = column.params
    if column.shift == CLEAN:
        return tag("span", "clean")
    if params.get("mode") == "auto":
        return tag("span", "automatic")
    if not {"iso", "shutter", "aperture"} <= params.keys():
        return tag("span", _words(params))
    lines = (
        f"ISO {count(int(params['iso']))}",
        shutter_text(params["shutter"]),
        f"f/{number(params['aperture'])}",
    )
    return join([tag("span", line, style="display:block") for line in lines])


def _words(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in params.items()) or "clean"


def _cell(view: View, content: Sheet, verdict: Verdict | None) -> Html:
    if verdict is None:
        return tag("td", DASH, cls="none")
    colour, sign = ("#1b8a4e", "✓") if verdict.right else ("#c8261e", "✗")
    style = (
        f"border:2px {'solid' if verdict.right else 'dashed'} {colour};background:color-mix(in srgb,{colour}"
        f" 14%,{css_variable('card')})"
    )
    confidence = EMPTY if verdict.conf is None else percent(verdict.conf, 0)
    prediction = view.class_name(content.run_id, verdict.pred)
    return tag("td", tag("b", sign), " ", prediction, tag("small", confidence), style=style)

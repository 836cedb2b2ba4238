"""The section that explains flipped images with Grad-CAM maps."""

from __future__ import annotations

import json
from typing import Any

from sorites.core import CLEAN
from sorites.core.labels import class_name
from sorites.evaluation.explanations import Change, Explanations, Kind, Side
from sorites.reports.components.charts import pen_style, severity_text
from sorites.reports.components.images import data_uri
from sorites.reports.components.markup import EMPTY, Html, percent, picked, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

# Maximum size of the section's images in the file, in bytes.
IMAGE_BYTES = 1_600_000


@add_section(order=52)
def explanations(view: View) -> Section | None:
    """One group of flips at a time; absent without explanations."""
    groups: dict[str, list[Html]] = {}
    left, cut = IMAGE_BYTES, 0
    for run in view.runs:
        for change in run.explanations.changes if run.explanations else ():
            card = _card(view, run, change) if left > 0 else EMPTY
            left, cut = left - len(card), cut + (not card)
            if card:
                groups.setdefault(_group(change), []).append(card)
    if not groups:
        return None
    lead = (
        "Flipped images in random order, not selected by hand. Grad-CAM shows where the evidence for a class"
        " is, from blue (none) to red (most); guided Grad-CAM shows its edges and colours. Each map is scaled"
        " to its own maximum, so compare positions, not strengths. An explanation is a hint at what a model"
        " looked at, not a proof."
    )
    more = f" {cut} more are in the run folder." if cut else ""
    panels = {name: tag("div", *cards, cls="cards why") for name, cards in groups.items()}
    return Section(
        "Why did it change?", picked("why", "Change", panels), "Why", f"{lead} {_layers(view)}{more}"
    )


def _layers(view: View) -> str:
    """Name the layers of the maps."""
    sides = (
        s
        for run in view.runs
        if run.explanations
        for change in run.explanations.changes
        for s in change.sides
    )
    layers = dict.fromkeys(f"{side.layer} of {side.model}" for side in sides)
    return f"The maps are of {', '.join(layers)}."


def _group(change: Change) -> str:
    """Describe a flip: which model is correct, or what the shift did to one model."""
    before, after = change.sides
    if change.between == "models":
        better, worse = (after, before) if after.correct else (before, after)
        return f"{better.model} correct, {worse.model} wrong"
    return (
        f"{before.model}: {'correct' if before.correct else 'wrong'} clean,"
        f" {'correct' if after.correct else 'wrong'} shifted"
    )


def _card(view: View, run: RunView, change: Change) -> Html:
    """Return a flip as two rows of images, or nothing if an image is missing."""
    stored, before = run.explanations, change.sides[0]
    rows = [_row(view, run, stored, change, side) for side in change.sides] if stored else []
    if not rows or not all(rows):
        return EMPTY
    title = tag("p", tag("b", _class_name(run, change.label)), tag("span", change.sample_id), cls="what")
    where = tag("p", _setting(view, before), cls="setting") if change.between == "models" else EMPTY
    return tag("article", tag("div", title, where, *rows, cls="strip"), cls="card")


def _row(view: View, run: RunView, stored: Explanations, change: Change, side: Side) -> Html:
    """Return the input, its Grad-CAM and its guided Grad-CAM, or nothing if one is missing."""
    who = side.model if change.between == "models" else f"{side.model}, {_setting(view, side)}"
    about = f"{_class_name(run, change.label)}, {who}"
    confidence = f" {percent(side.conf, 0)}" if side.conf is not None else ""
    accepted = " (counts as correct)" if side.correct and side.pred != change.label else ""
    target = _class_name(run, side.target)
    target_note = "" if side.target == side.pred else f" for {target}"
    captions: tuple[tuple[Kind, object, str], ...] = (
        (
            "seen",
            tag("b", f"{_class_name(run, side.pred)}{confidence}{accepted}"),
            f"{about}: prediction {_class_name(run, side.pred)}",
        ),
        (
            "cam",
            f"no evidence for {target}" if side.empty else f"Grad-CAM{target_note}",
            f"{about}: Grad-CAM for {target}",
        ),
        ("guided", f"guided Grad-CAM{target_note}", f"{about}: guided Grad-CAM for {target}"),
    )
    figures = [_figure(stored, side, *caption) for caption in captions]
    if not all(figures):
        return EMPTY
    colour = pen_style(view, side.model) if side.model in view.models else None
    return tag("div", tag("p", who, cls="side", style=colour), tag("div", *figures, cls="frames"))


def _figure(stored: Explanations, side: Side, kind: Kind, caption: object, alt: str) -> Html:
    image_u8 = stored.image(side, kind)
    if image_u8 is None:
        return EMPTY
    wrong = kind == "seen" and not side.correct
    image = tag("img", src=data_uri(image_u8), alt=alt, decoding="async")
    return tag("figure", image, tag("figcaption", caption), cls="wrong" if wrong else None)


def _setting(view: View, side: Side) -> str:
    """Describe the setting of a side."""
    if side.shift == CLEAN:
        return "clean"
    if side.severity is not None:
        return f"{side.shift} {severity_text(view, side.shift, side.severity)}"
    return f"{side.shift} {_params(json.loads(side.params or '{}'))}"


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in params.items())


def _class_name(run: RunView, label: int | None) -> str:
    return class_name(run.labels, label)

"""The section with images that flipped, each with where the models looked."""

from __future__ import annotations

import json
from typing import Any

from sorites.core import CLEAN
from sorites.core.labels import class_name
from sorites.evaluation.explanations import Change, Explanations, Kind, Side
from sorites.reports.components.charts import pen, severity_text
from sorites.reports.components.images import data_uri
from sorites.reports.components.markup import EMPTY, Html, percent, picked, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import RunView, View

# The images of this section may take this many bytes, as encoded in the file.
WEIGHT = 1_600_000


@add_section(order=52)
def explanations(view: View) -> Section | None:
    """One group of changes at a time; absent where nothing was explained."""
    groups: dict[str, list[Html]] = {}
    left, cut = WEIGHT, 0
    for run in view.runs:
        for change in run.explanations.changes if run.explanations else ():
            card = _card(view, run, change) if left > 0 else EMPTY
            left, cut = left - len(card), cut + (not card)
            if card:
                groups.setdefault(_group(change), []).append(card)
    if not groups:
        return None
    lead = (
        "Images that flipped, in a fair order, not chosen by hand. Grad-CAM shows where the evidence"
        " for a class lies, from blue (none) to red (most); guided Grad-CAM shows which edges and colours it"
        " is. Each is scaled to its own maximum: compare places, not strengths. An explanation is a hint at"
        " what a model looked at and proves nothing."
    )
    more = f" {cut} more lie in the run folder." if cut else ""
    shown = {name: tag("div", *cards, cls="cards why") for name, cards in groups.items()}
    return Section(
        "Why did it change?", picked("why", "Change", shown), "Why", f"{lead} {_layers(view)}{more}"
    )


def _layers(view: View) -> str:
    """Say which layers the maps are of."""
    sides = (
        s
        for run in view.runs
        if run.explanations
        for change in run.explanations.changes
        for s in change.sides
    )
    named = dict.fromkeys(f"{side.layer} of {side.model}" for side in sides)
    return f"The maps are those of {', '.join(named)}."


def _group(change: Change) -> str:
    """Say what changed: which model is right and which is wrong, or what the shift did to one model."""
    before, after = change.sides
    if change.between == "models":
        right, wrong = (after, before) if after.correct else (before, after)
        return f"{right.model} right, {wrong.model} wrong"
    return (
        f"{before.model}: {'right' if before.correct else 'wrong'} clean,"
        f" {'right' if after.correct else 'wrong'} shifted"
    )


def _card(view: View, run: RunView, change: Change) -> Html:
    """Return a change as two rows of images; nothing where its images are gone."""
    held, before = run.explanations, change.sides[0]
    rows = [_row(view, run, held, change, side) for side in change.sides] if held else []
    if not rows or not all(rows):
        return EMPTY
    title = tag("p", tag("b", _named(run, change.label)), tag("span", change.sample_id), cls="what")
    where = tag("p", _setting(view, before), cls="setting") if change.between == "models" else EMPTY
    return tag("article", tag("div", title, where, *rows, cls="strip"), cls="card")


def _row(view: View, run: RunView, held: Explanations, change: Change, side: Side) -> Html:
    """Return what a model saw, where it looked and what it looked at, under its name or setting;
    nothing where one is gone.
    """
    who = side.model if change.between == "models" else f"{side.model}, {_setting(view, side)}"
    about = f"{_named(run, change.label)}, {who}"
    sure = f" {percent(side.conf, 0)}" if side.conf is not None else ""
    also = " (counts as right)" if side.correct and side.pred != change.label else ""
    of = _named(run, side.target)
    whose = "" if side.target == side.pred else f" for {of}"
    captions: tuple[tuple[Kind, object, str], ...] = (
        (
            "seen",
            tag("b", f"{_named(run, side.pred)}{sure}{also}"),
            f"{about}: the model says {_named(run, side.pred)}",
        ),
        (
            "cam",
            f"nothing speaks for {of}" if side.empty else f"Grad-CAM{whose}",
            f"{about}: Grad-CAM for {of}",
        ),
        ("guided", f"guided Grad-CAM{whose}", f"{about}: guided Grad-CAM for {of}"),
    )
    figures = [_figure(held, side, *caption) for caption in captions]
    if not all(figures):
        return EMPTY
    colour = f"--pen:{pen(view, side.model).colour}" if side.model in view.models else None
    return tag("div", tag("p", who, cls="side", style=colour), tag("div", *figures, cls="frames"))


def _figure(held: Explanations, side: Side, kind: Kind, caption: object, alt: str) -> Html:
    image_u8 = held.image(side, kind)
    if image_u8 is None:
        return EMPTY
    wrong = kind == "seen" and not side.correct
    image = tag("img", src=data_uri(image_u8), alt=alt, decoding="async")
    return tag("figure", image, tag("figcaption", caption), cls="wrong" if wrong else None)


def _setting(view: View, side: Side) -> str:
    """Say where the dials stood."""
    if side.shift == CLEAN:
        return "clean"
    if side.severity is not None:
        return f"{side.shift} {severity_text(view, side.shift, side.severity)}"
    return f"{side.shift} {_params(json.loads(side.params or '{}'))}"


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in params.items())


def _named(run: RunView, label: int | None) -> str:
    return class_name(run.labels, label)

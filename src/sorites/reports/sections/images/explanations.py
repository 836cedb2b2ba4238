"""The section that explains flipped images and objects with saliency maps."""

from __future__ import annotations

import json
from typing import Any

from sorites.core import CLEAN
from sorites.core.labels import class_name
from sorites.evaluation.storage.explanations import Change, Explanations, Kind, Side
from sorites.reports.components.charts import pen_style
from sorites.reports.components.images import DrawnBox, boxed, data_uri
from sorites.reports.components.markup import EMPTY, Html, percent, picked, tag
from sorites.reports.components.severities import severity_text
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
        f"Flipped images in random order, not selected by hand. {' '.join(_methods(view))} Each map is scaled"
        " to its own range, so compare positions, not strengths. An explanation is a hint at what a model"
        " looked at, not a proof."
    )
    more = f" {cut} more are in the run folder." if cut else ""
    panels = {name: tag("div", *cards, cls="cards why") for name, cards in groups.items()}
    return Section(
        "Why did it change?", picked("why", "Change", panels), "Why", f"{lead} {_layers(view)}{more}"
    )


# What the maps of each method show.
METHODS = {
    "gradcam": (
        "Grad-CAM shows where the evidence for a class is, from blue (none) to red (most); guided Grad-CAM"
        " shows its edges and colours."
    ),
    "rise": (
        "RISE hides random parts of the image and marks the parts whose presence raises the score, from blue"
        " (least) to red (most); for an object the score is IoU times confidence of the best box of its"
        " class."
    ),
    "occlusion": (
        "Occlusion hides one square after the other and marks those without which the score falls, from blue"
        " (least) to red (most)."
    ),
}


def _sides(view: View) -> list[Side]:
    explained = [run.explanations for run in view.runs if run.explanations]
    return [side for stored in explained for change in stored.changes for side in change.sides]


def _methods(view: View) -> list[str]:
    """Describe the methods of the maps."""
    return [METHODS[name] for name in dict.fromkeys(side.method for side in _sides(view))]


def _layers(view: View) -> str:
    """Name the layers of Grad-CAM, or the number of images that other maps took."""
    names = dict.fromkeys(
        f"{side.layer} of {side.model}"
        if side.method == "gradcam"
        else f"{side.model} on {side.masks} masked images"
        for side in _sides(view)
    )
    return f"The maps are of {', '.join(names)}."


def _group(change: Change) -> str:
    """Describe a flip: which model is correct, or what the shift did to one model."""
    before, after = change.sides
    good, bad = ("correct", "wrong") if before.box is None else ("found", "missed")
    if change.between == "models":
        better, worse = (after, before) if after.correct else (before, after)
        return f"{better.model} {'' if before.box is None else 'has '}{good}, {worse.model} {bad}"
    return (
        f"{before.model}: {good if before.correct else bad} clean, {good if after.correct else bad} shifted"
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
    """Return the image with its maps, or nothing if one is missing."""
    who = side.model if change.between == "models" else f"{side.model}, {_setting(view, side)}"
    about = f"{_class_name(run, change.label)}, {who}"
    confidence = f" {percent(side.conf, 0)}" if side.conf is not None else ""
    accepted = " (counts as correct)" if side.correct and side.pred != change.label else ""
    target = _class_name(run, side.target)
    target_note = "" if side.target == side.pred else f" for {target}"
    answer = f"{_class_name(run, side.pred)}{confidence}{accepted}"
    if side.box is not None:
        answer = f"{target} {'found' if side.correct else 'missed'}"
    captions: list[tuple[Kind, object, str]] = [("seen", tag("b", answer), f"{about}: {answer}")]
    if side.method == "gradcam":
        first = f"no evidence for {target}" if side.empty else f"Grad-CAM{target_note}"
        captions += [
            ("cam", first, f"{about}: Grad-CAM for {target}"),
            ("guided", f"guided Grad-CAM{target_note}", f"{about}: guided Grad-CAM for {target}"),
        ]
    else:
        captions.append(("cam", _masked_caption(side, target_note), f"{about}: {side.method} for {target}"))
    figures = [_figure(stored, side, *caption) for caption in captions]
    if not all(figures):
        return EMPTY
    colour = pen_style(view, side.model) if side.model in view.models else None
    return tag("div", tag("p", who, cls="side", style=colour), tag("div", *figures, cls="frames"))


def _masked_caption(side: Side, target_note: str) -> str:
    """Describe a map by what hiding its strongest tenth does to the score."""
    if side.score is None or side.deleted is None:
        return side.method
    effect = f"score {percent(side.score, 0)}, without its strongest tenth {percent(side.deleted, 0)}"
    name = "RISE" if side.method == "rise" else side.method
    clear = "no region stands out of the noise" if side.empty else f"{name}{target_note}"
    return f"{clear}: {effect}"


def _figure(stored: Explanations, side: Side, kind: Kind, caption: object, alt: str) -> Html:
    image_u8 = stored.image(side, kind)
    if image_u8 is None:
        return EMPTY
    wrong = kind == "seen" and not side.correct
    if side.box is not None and side.size is not None:
        scale = image_u8.shape[1] / side.size[0]
        x0, y0, x1, y1 = (scale * corner for corner in side.box)
        image = boxed(image_u8, [DrawnBox((x0, y0, x1, y1), "", "ground_truth")], alt)
    else:
        image = tag("img", src=data_uri(image_u8), alt=alt, decoding="async")
    return tag("figure", image, tag("figcaption", caption), cls="wrong" if wrong else None)


def _setting(view: View, side: Side) -> str:
    """Describe the setting of a side."""
    if side.shift == CLEAN:
        return "clean"
    if side.severity is not None:
        return f"{side.shift}: {severity_text(view, side.shift, side.severity)}"
    return f"{side.shift} {_params(json.loads(side.params or '{}'))}"


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in params.items())


def _class_name(run: RunView, label: int | None) -> str:
    return class_name(run.labels, label)

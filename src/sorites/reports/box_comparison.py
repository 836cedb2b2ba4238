"""Sections of the page of a comparison of detectors: failure severities, and objects lost and gained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites.analysis.comparison.detectors import MAP, BoxComparison
from sorites.analysis.comparison.pairs import ALL
from sorites.core import CLEAN
from sorites.core.labels import class_name
from sorites.reports.components.crops import crop
from sorites.reports.components.gallery import Item, gallery
from sorites.reports.components.markup import Html, count, grid, several, tag
from sorites.reports.components.severities import in_words, reading
from sorites.reports.section import Section
from sorites.reports.view import View

Row = Mapping[str, Any]
LEGEND = (
    "mAP in percent on the same images; n counts samples. A drop is the base minus the new detector,"
    " with the 95 % interval of each dial alone (halves of the samples). Lost objects are found by the base"
    " alone, at IoU 0.5 and confidence {conf:g}. The lower bounds (at least) hold jointly for all dials,"
    " and p is that of the gate's one-sided test, which swaps the detectors sample by sample, corrected"
    " over dials (the row all is tested alone): a drop is bold where its bound is above 0, which is"
    " where p is at most {rate:g}. The detectable drop is detected with 80 % power; – if none can be"
    " stated. Dials with too few samples are not judged."
)
RULES = (
    "mAP is COCO's mean over IoU 0.50 to 0.95 and over classes with objects, averaged over the settings of a"
    " dial.",
    "The p of a dial is the share of swaps with at least the observed drop: for random halves of the samples,"
    " the boxes of the two detectors change places. Two equally good detectors break a rule of the gate in at"
    " most the stated share of comparisons.",
    "Intervals of drops are from random halves of the samples; bounds of drops invert the test by swaps;"
    " failure severities are bootstrapped over samples.",
)


def severities(comparison: BoxComparison) -> Section | None:
    """Return the severities at which half of the objects are lost, of both detectors."""
    lines = []
    for dial in comparison.curves(comparison.conf):
        found = comparison.points(comparison.conf, dial)
        if found is not None:
            both = [severity_or_more(dial, value, found.top) for value in (found.base, found.new)]
            lines.append([dial, reading(dial).axis, *both, count(found.n)])
    if not lines:
        return None
    head = ["dial", "in", *comparison.names, "n"]
    lead = (
        "The severity at which half of the objects are lost (IoU 0.5, confidence"
        f" {comparison.conf:g}); objects that are not found in the clean image count as lost at 0, and"
        " beyond means outside the tested range."
    )
    table = tag("article", grid(head, lines, text=2), cls="card")
    return Section("How far can each dial be turned?", table, "Failure", lead)


def severity_or_more(shift: str, value: float, top: float) -> str:
    """Return a severity as text; those at the end of the tested range are marked."""
    words = reading(shift).value
    return f"beyond {words(top)}" if value >= top else words(value)


def class_changes(comparison: BoxComparison) -> Section:
    """Return a table of the mAP of each class, averaged over all shifts."""
    cells = comparison.cells(MAP)[""]
    last = ALL if ALL in comparison.places else comparison.places[-1]
    lines = []
    for label in comparison.classes():
        cell = cells.get((last, label))
        if cell is None:
            continue
        name = class_name(comparison.labels, label)
        values = [f"{100 * value:.1f}" for value in (cell.draws.base, cell.draws.new)]
        drop = f"{round(-100 * cell.draws.drop, 1) + 0.0:+.1f}".replace("-", "−")
        lines.append((cell.draws.drop, [name, *values, drop, count(len(cell.samples)), count(cell.objects)]))
    ordered = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    head = ["class", *comparison.names, "change", "n", "objects"]
    lead = (
        f"mAP of each class in percent ({'mean over shifts' if last == ALL else last}), the greatest drop"
        " first. These differences are not tested; a rule such as map_drop [class=*] > 5 tests each."
    )
    table = tag("article", grid(head, ordered), cls="card")
    return Section("What changed for each class?", table, "Classes", lead)


def object_card(comparison: BoxComparison, row: Row, view: View) -> Html:
    """Return the card of an object that one of the detectors finds: its crop with the boxes of each."""
    run_id = view.runs[0].record.run_id if view.runs[0].record else ""
    setting = 0.0 if row["shift"] == CLEAN else row["severity"]
    image = view.image(run_id, row["sample_id"], row["shift"], setting)
    where = CLEAN if row["shift"] == CLEAN else f"{row['shift']}: {in_words(row['shift'], setting)}"
    name = view.class_name(run_id, row["class"])
    boxes = _boxes(comparison, row)
    figures = []
    for model in comparison.names:
        ground_truth, found = boxes[model]
        hit = row["correct"] if model == comparison.names[0] else row["correct_new"]
        seen = (
            tag("div", "image not available", cls="gone")
            if image is None
            else crop(
                image,
                ground_truth[row["object"]],
                [box for box in found if box["conf"] >= comparison.conf],
                lambda label: view.class_name(run_id, label),
                f"{name}, {where}, boxes of {model}",
                comparison.conf,
            )
        )
        caption = tag("figcaption", tag("b", "found" if hit else "not found"), model)
        figures.append(tag("figure", seen, caption, cls="right" if hit else "wrong"))
    what = tag("p", tag("b", name), tag("span", f"{row['sample_id']}, {where}"), cls="what")
    state = tag("p", tag("b", "lost" if row["lost"] else "gained"), cls="setting")
    return tag("article", what, state, tag("div", *figures, cls="frames"), cls="card strip why")


def _boxes(comparison: BoxComparison, row: Row) -> dict[str, tuple[list[Row], list[Row]]]:
    """Return the ground truth and the boxes of both detectors on the image of an object."""
    here = [pl.col(name).eq_missing(pl.lit(row[name])) for name in ("run_id", "source", "image_id")]
    rows = comparison.table.filter(pl.col("output") == "boxes", *here)
    found = rows.select("model", "ground_truth", "boxes").collect(engine="streaming")
    return {model: (ground_truth, boxes) for model, ground_truth, boxes in found.iter_rows()}


def flips_lead(comparison: BoxComparison) -> str:
    """Return the introduction of the objects lost and gained."""
    lost, gained = (
        comparison.pairs.filter(way).height
        for way in (pl.col("correct") & ~pl.col("correct_new"), ~pl.col("correct") & pl.col("correct_new"))
    )
    return (
        f"{several(lost, 'object')} in all images are found by {comparison.names[0]} alone (lost),"
        f" {count(gained)} by {comparison.names[1]} alone (gained), at IoU 0.5 and confidence"
        f" {comparison.conf:g}. Examples of both are shown in turn, those at the lowest severity"
        " first, one per sample. The object is dashed; a box of its class on it is green, other boxes are"
        " red."
    )


def facts_of(row: Row, view: View, label: int | None) -> dict[str, str]:
    """Return the facts that a flipped image or object is filtered by."""
    run_id = view.runs[0].record.run_id if view.runs[0].record else ""
    flip = "lost" if row["lost"] else "gained"
    return {"flip": flip, "shift": row["shift"], "class": view.class_name(run_id, label)}


def lost_and_gained(comparison: BoxComparison, rows: list[Row], views: Mapping[str, View]) -> Section | None:
    """Return objects lost and gained, with the boxes of both detectors."""
    if not rows:
        return None
    items = [
        Item(
            object_card(comparison, row, views[row["run_id"]]),
            facts_of(row, views[row["run_id"]], row["class"]),
        )
        for row in rows
    ]
    body = gallery(items, "flips", size="large")
    return Section("Which objects are lost or gained?", body, "Images", flips_lead(comparison))

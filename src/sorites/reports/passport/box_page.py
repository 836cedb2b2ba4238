"""The page of a detector's passport: the main numbers on the first screen, then folded details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from sorites.analysis.passport.document import BoxDial, BoxPassport, BoxSeparation
from sorites.core import CLEAN
from sorites.evaluation.estimate import input_words
from sorites.io.files import write_bytes
from sorites.metrics.detection.failure import found_objects
from sorites.reports.components.images import DrawnBox, boxed
from sorites.reports.components.markup import DASH, EMPTY, Html, count, grid, number, percent, tag
from sorites.reports.components.severities import in_words, title
from sorites.reports.page import document
from sorites.reports.passport.card import shift_count
from sorites.reports.passport.numbers import between_words
from sorites.reports.passport.page import (
    area_figure,
    bottom,
    cell,
    fold,
    headline,
    inputs_of,
    left_out_table,
    marks,
    runs_table,
    top,
    view_of,
)
from sorites.reports.section import Section
from sorites.reports.view import View

Row = dict[str, Any]
CORNERS = ("x0", "y0", "x1", "y1")
# Images of each weakest shift, and their longer side in px.
IMAGES_PER_DIAL, SIDE = 2, 260
KIND_NAMES = {
    "Cls": "wrong class",
    "Loc": "badly placed",
    "Both": "wrong class and badly placed",
    "Dupe": "duplicate",
    "Bkg": "on background",
    "Miss": "object missed",
}
DEFINITIONS = (
    (
        "mAP is COCO's, over IoU .50 to .95 and all classes with objects, with boxes of every confidence."
        " Under shift it is the mean over the listed shifts of the mean over severities; clean images are"
        " not in it."
    ),
    (
        "An object is found if a box of its class from a confidence of 0.25 on covers it with IoU .5 or"
        " more (COCO's matching)."
    ),
    (
        "Half of the objects lost: of the objects that are found in clean images, the share that is still"
        " found is interpolated linearly over severity; the severity is where it first reaches one half."
        " Chance plays no part. An object that a shift moves out of the image is left out at that"
        " severity."
    ),
    (
        "The weakest dials are those with the greatest mean share of lost objects between clean and the"
        " greatest severity."
    ),
    (
        "Errors by kind (TIDE): the average precision at IoU .5 that mending all errors of one kind would"
        " add; costs do not add up."
    ),
    (
        "AUROC: how well the OOD score of a box separates wrong boxes (on background, of a wrong class,"
        " badly placed, duplicates) from right ones; 1 is perfect, 0.5 is chance."
    ),
)


def write_box_page(passport: BoxPassport, folders: Mapping[str, Path], out: Path) -> Path:
    """Write the page atomically; its images are recomputed from the run folders."""
    style = files("sorites.reports.passport").joinpath("passport.css").read_text(encoding="utf-8")
    first = tag(
        "div",
        top(passport, inputs_of(folders)[0]),
        _answer(passport),
        _ladder(passport),
        _cards(passport, folders),
        cls="pass",
        role="region",
        aria_label="The passport",
    )
    page = document(
        f"Passport of {passport.model.name}",
        first,
        _details(passport),
        bottom(passport, DEFINITIONS, input_words(*inputs_of(folders))),
        style,
    )
    write_bytes(page.encode("utf-8", errors="replace"), out)
    return out


def _answer(passport: BoxPassport) -> Html:
    figures = [
        headline("mAP on clean images", passport.clean),
        headline(f"mAP under shift, mean over {shift_count(passport)}", passport.shifted),
        headline("objects found in clean images", passport.recall, "object"),
        headline("boxes that are right in clean images", passport.precision, "box", "boxes"),
    ]
    return tag("dl", *figures, cls="answer")


def _ladder(passport: BoxPassport) -> Html:
    rows: list[Html] = []
    for part, dials in groupby(passport.dials, key=lambda dial: dial.part):
        rows += [
            tag("li", part.replace("_", " "), cls="part"),
            *(_rung(dial, dial.shift in passport.weakest) for dial in dials),
        ]
    lead = (
        "Where half of the objects that are found in clean images are lost, with 95 % intervals; a bar is the"
        " dial, from clean to the greatest tested severity."
    )
    head = tag("h2", "How far can conditions shift before half of the objects are lost?")
    return tag("div", head, tag("p", lead, cls="lead"), tag("ul", *rows, cls="ladder"))


def _rung(dial: BoxDial, weak: bool) -> Html:
    ends = between_words(dial.shift, dial.half.low, dial.half.high)
    label = f"{title(dial.shift)}: {dial.words}; {ends}"
    bar = tag("div", *marks(dial.half, dial.top), cls="track", role="img", aria_label=label)
    line = tag("p", tag("b", title(dial.shift)), tag("span", dial.words))
    return tag("li", line, bar, tag("small", ends), cls="weak" if weak else None)


# --- The weakest shifts


def _cards(passport: BoxPassport, folders: Mapping[str, Path]) -> Html:
    weak = [_weak(passport.dial(shift), folders, passport.conf) for shift in passport.weakest]
    key = tag(
        "p",
        "Green: objects that are found. Red and dashed: objects that are found in the clean image and lost"
        " here. White and dashed: objects that are not found in the clean image either.",
        cls="lead",
    )
    head = tag("h2", "Weakest dials and self-knowledge" if weak else "Does it know when it fails?")
    return tag("div", head, key if weak else EMPTY, tag("div", *weak, _knows(passport), cls="three"))


def _weak(dial: BoxDial, folders: Mapping[str, Path], conf: float) -> Html:
    lost = f"{100 * (dial.lost.value or 0):.0f} % of the objects lost on average over the dial"
    half = "half of them " if dial.half.value is None else "half of them at "
    view = view_of(folders[dial.part], dial.shift)
    return tag(
        "article",
        tag("h3", title(dial.shift)),
        tag("p", f"{lost}, {half}{dial.words}.", cls="about"),
        *_scenes(view, dial, conf),
        cls="card",
    )


def _scenes(view: View, dial: BoxDial, conf: float) -> list[Html]:
    """Return images clean and at the severity nearest to the half, those with most lost objects first."""
    severities = [setting.severity for setting in dial.kept if setting.severity > 0]
    at = min(
        severities, key=lambda value: abs(value - (dial.top if dial.half.value is None else dial.half.value))
    )
    here = (pl.col("output") == "boxes") & pl.col("error").is_null() & ~pl.col("probe").fill_null(False)
    chosen = (pl.col("shift") == CLEAN) | ((pl.col("shift") == dial.shift) & (pl.col("severity") == at))
    rows = view.table.filter(here, chosen).sort("sample_id", "image_id").collect(engine="streaming")
    if rows.is_empty():
        return []
    verdicts = found_objects(rows, conf).join(
        rows.select("sample_id", "shift").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64)),
        on="row",
    )
    found = {(row["sample_id"], row["shift"], row["object"]): row["correct"] for row in verdicts.to_dicts()}
    by_sample = {(row["sample_id"], row["shift"]): row for row in rows.to_dicts()}

    def lost(sample: str) -> int:
        return sum(
            hit and found.get((sample, dial.shift, obj)) is False
            for (name, shift, obj), hit in found.items()
            if name == sample and shift == CLEAN
        )

    samples = sorted(
        {name for name, shift in by_sample if shift == dial.shift}, key=lambda name: (-lost(name), name)
    )
    strips = []
    for sample in [name for name in samples if (name, CLEAN) in by_sample][:IMAGES_PER_DIAL]:
        figures = [
            _figure(view, by_sample[sample, shift], severity, found, dial)
            for shift, severity in ((CLEAN, 0.0), (dial.shift, at))
        ]
        shown = [figure for figure in figures if figure is not None]
        if len(shown) == 2:
            strips.append(tag("div", tag("div", *shown, cls="frames two"), cls="strip"))
    return strips


def _figure(
    view: View, row: Row, severity: float, found: Mapping[tuple[str, str, int], bool], dial: BoxDial
) -> Html | None:
    """Return an image with its objects: found, lost, or not found in the clean image either."""
    sample = row["sample_id"]
    image = view.image(row["run_id"], sample, row["shift"], severity)
    if image is None:
        return None
    drawn = []
    for place, obj in enumerate(row["ground_truth"] or ()):
        hit = found.get((sample, row["shift"], place))
        if hit is None:
            continue
        name = view.class_name(row["run_id"], obj["label"])
        was = found.get((sample, CLEAN, place), False)
        kind = "found" if hit else "lost" if was else "ground_truth"
        x0, y0, x1, y1 = (obj[corner] for corner in CORNERS)
        text = {"found": name, "lost": f"{name} lost"}.get(kind, "")
        drawn.append(DrawnBox((x0, y0, x1, y1), text, kind))
    where = in_words(dial.shift, severity) if severity else "clean"
    count_lost = sum(box.kind == "lost" for box in drawn)
    caption = f"{where}: {count_lost} lost" if severity else where
    alt = f"{sample}, {title(dial.shift)} {where}, {sum(box.kind == 'found' for box in drawn)} objects found"
    return tag(
        "figure",
        boxed(image, drawn, alt, SIDE),
        tag("figcaption", caption),
        cls="wrong" if severity else "clean",
    )


# --- Does it know?


def _knows(passport: BoxPassport) -> Html:
    if passport.knows is None:
        return EMPTY
    entries = {entry.images: entry for entry in passport.knows.auroc}
    names = {"clean": "on clean images", "shifted": "under shift"}
    areas = [area_figure(names[key], entries[key], "box", "boxes") for key in names if key in entries]
    why = (
        f"AUROC of {passport.knows.scorer}, wrong boxes against right ones (from a confidence of"
        f" {passport.knows.conf:g}): 1 separates all, 0.5 is chance."
    )
    worst = sorted(
        (entry for entry in passport.knows.auroc if entry.images not in names),
        key=lambda entry: entry.value if entry.value is not None else 1.0,
    )[:3]
    lines = [tag("li", f"{title(entry.images)}: {_area_words(entry)}") for entry in worst]
    lowest = tag("p", "Lowest under:", cls="about") if lines else EMPTY
    parts = [tag("p", why, cls="about"), tag("dl", *areas, cls="figures"), lowest]
    return tag(
        "article",
        tag("h3", "Does it know when a box is wrong?"),
        *parts,
        tag("ul", *lines, cls="told"),
        cls="card",
    )


def _area_words(entry: BoxSeparation) -> str:
    ends = "" if entry.low is None or entry.high is None else f" ({entry.low:.2f} to {entry.high:.2f})"
    return DASH if entry.value is None else f"{entry.value:.2f}{ends}"


# --- Details


def _details(passport: BoxPassport) -> dict[str, Section]:
    folds = [
        _kept(passport),
        _maps(passport),
        _halves(passport),
        _tide(passport),
        *_areas(passport),
        runs_table(passport),
        *left_out_table(passport),
    ]
    return {"details": Section("Details", tag("div", *folds), "Details")}


def _curve(passport: BoxPassport, name: str, head: str, curves: Sequence[Sequence[Any]], unit: str) -> Html:
    lines = [
        [
            title(dial.shift),
            in_words(dial.shift, setting.severity) if setting.severity else "clean",
            number(setting.severity),
            cell(setting),
            count(setting.n),
        ]
        for dial, curve in zip(passport.dials, curves, strict=True)
        for setting in curve
    ]
    return fold(name, grid(["dial", "meaning", "severity", head, unit], lines, text=2), len(lines))


def _kept(passport: BoxPassport) -> Html:
    name = "Share of the objects found in clean images that are still found"
    return _curve(passport, name, "still found", [dial.kept for dial in passport.dials], "objects")


def _maps(passport: BoxPassport) -> Html:
    return _curve(passport, "mAP at every severity", "mAP", [dial.map for dial in passport.dials], "images")


def _halves(passport: BoxPassport) -> Html:
    lines = [
        [
            title(dial.shift),
            dial.unit or DASH,
            f"> {number(dial.top)}" if dial.half.value is None else number(dial.half.value),
            between_words(dial.shift, dial.half.low, dial.half.high),
            cell(dial.lost),
            number(dial.top),
            count(dial.half.objects),
            count(dial.half.n),
        ]
        for dial in passport.dials
    ]
    head = [
        "dial",
        "unit",
        "half lost at",
        "interval",
        "mean share lost",
        "last severity",
        "objects",
        "images",
    ]
    return fold("When half of the objects are lost", grid(head, lines, text=2), len(lines))


def _tide(passport: BoxPassport) -> Html:
    costs = {(entry.error, entry.images): entry for entry in passport.tide}
    lines = [
        [
            kind,
            words,
            *(
                cell(costs[kind, images]) if (kind, images) in costs else percent(None)
                for images in ("clean", "shifted")
            ),
        ]
        for kind, words in KIND_NAMES.items()
    ]
    head = ["kind", "meaning", "clean", "mean over settings"]
    return fold("Cost of each kind of error in AP at IoU .5 (TIDE)", grid(head, lines, text=2), len(lines))


def _areas(passport: BoxPassport) -> list[Html]:
    if passport.knows is None:
        return []
    lines = [
        [title(entry.images), _area_words(entry), count(entry.right), count(entry.wrong)]
        for entry in passport.knows.auroc
    ]
    head = ["images", f"AUROC of {passport.knows.scorer}", "right boxes", "wrong boxes"]
    return [fold("Does the score of a box tell wrong from right?", grid(head, lines, text=1), len(lines))]

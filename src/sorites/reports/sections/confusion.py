"""The section on confusions: which classes turn into which as a shift grows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core import CLEAN
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.reports.components.charts import COLOURS
from sorites.reports.components.markup import (
    DASH,
    Html,
    count,
    folded,
    grid,
    join,
    n_of,
    percent,
    picked,
    tag,
)
from sorites.reports.components.severities import severity_text
from sorites.reports.section import Section, add_section
from sorites.reports.view import View, box_models

# Pairs of classes per model and shift.
MAX_PAIRS = 10
# Classes that are drawn for each model and shift; each with at most three classes that it is taken for.
MAX_CLASSES = 6
# Classes of fewer images are in the table alone.
FEWEST = 3
RIGHT, MISSED, REST = "#4f9d69", "#9aa0a6", "#d9d4c7"
BACKGROUND = "background"
# The size of a drawing of stacked areas.
WIDTH, HEIGHT = 240.0, 110.0
Row = dict[str, Any]


@add_section(order=48)
def confusions(view: View) -> Section | None:
    """The most frequent confusions of each shift along its severities; absent without any."""
    detectors = box_models(view)
    frames = []
    for metric, models in (
        (metrics.confusion, [model for model in view.models if model not in detectors]),
        (metrics.box_confusion, detectors),
    ):
        if models:
            whole = metrics.with_clean(view.table)
            frames.append(metric(whole, by=("model", "shift", "severity")))
    cells = pl.concat([frame.drop("low", "high") for frame in frames]) if frames else pl.DataFrame()
    if not cells.height:
        return None
    # Settings without a severity, as those of grids, have no order to follow.
    along = (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null()
    apart = cells.filter(~pl.col("label").eq_missing(pl.col("pred")) & along)
    parts = {
        shift: join([_card(view, model, shift, cells, apart) for model in view.models])
        for shift in view.shifts
        if apart.filter(pl.col("shift") == shift).height
    }
    if not parts:
        return None
    lead = (
        f"What the classes that lose most, of at least {FEWEST}, are taken for, from the lowest"
        " severity (left) to the highest (right); the table has the pairs that grow most."
    )
    if detectors:
        lead += (
            " For detectors these are objects found as another class or missed (background), from a"
            f" confidence of {CONFIDENCE:g} and IoU 0.5, and the number of boxes on background."
        )
    return Section("Which classes turn into which?", picked("confusion", "Shift", parts), "Confusions", lead)


def _card(view: View, model: str, shift: str, cells: pl.DataFrame, apart: pl.DataFrame) -> Html:
    """Return the table of one model under one shift, one column per severity."""
    mine = (pl.col("model") == model) & (pl.col("shift") == shift)
    own = apart.filter(mine)
    if not own.height:
        return tag("span", "")
    severities = sorted(cells.filter(mine)["severity"].drop_nulls().unique())
    if not severities:
        return tag("span", "")
    shares = {
        (row["label"], row["pred"], row["severity"]): row
        for row in own.select("label", "pred", "severity", "value", "count").to_dicts()
    }
    pairs = {(label, pred) for label, pred, _ in shares}
    ranked = sorted(pairs, key=lambda pair: (-_growth(shares, pair, severities), str(pair)))[:MAX_PAIRS]
    run_id = view.table.select(pl.col("run_id").first()).collect().item()
    lines = [
        [
            _name(view, run_id, label),
            _name(view, run_id, pred),
            *(_share(shares.get((label, pred, severity)), label) for severity in severities),
        ]
        for label, pred in ranked
    ]
    head = ["class", "taken for", *(severity_text(view, shift, severity) for severity in severities)]
    table = folded("The pairs that grow most", grid(head, lines, text=2), len(lines), most=0)
    drawn = _cards(view, run_id, model, cells.filter(mine), severities) if len(severities) > 1 else []
    return tag("div", tag("h3", model), tag("div", *drawn, cls="cards"), table)


@dataclass(frozen=True)
class _Along:
    """The confusions of a model along the severities of a shift.

    Attributes:
        rows: Rows of the metric by class, predicted class and severity.
        unit: What is counted: images or objects.
    """

    view: View
    run_id: str
    rows: dict[tuple[int | None, int | None, float], Row]
    severities: list[float]
    unit: str

    def shares(self, label: int, pred: int | None) -> list[float]:
        """Return the share of a class that is taken for another, at each severity."""
        rows = [self.rows.get((label, pred, severity)) for severity in self.severities]
        return [0.0 if row is None else float(row["value"]) for row in rows]

    def n(self, label: int) -> int:
        """Return the number of images or objects of a class."""
        return max(int(row["n"]) for (one, _, _), row in self.rows.items() if one == label)

    def lost(self, label: int) -> float:
        """Return how many fewer images or objects of a class are right at the highest severity."""
        return -_growth(self.rows, (label, label), self.severities)

    def bands(self, label: int) -> list[Band]:
        """Return what a class is taken for: itself, the three most frequent others, nothing, and the rest."""
        others = {pred for one, pred, _ in self.rows if one == label and pred not in (label, None)}
        ranked = sorted(others, key=lambda pred: (-self.shares(label, pred)[-1], pred))
        name = functools.partial(_name, self.view, self.run_id)
        bands = [Band(name(label), RIGHT, self.shares(label, label))]
        bands += [
            Band(name(pred), COLOURS[colour], self.shares(label, pred))
            for pred, colour in zip(ranked, (1, 4, 3), strict=False)
        ]
        missed = self.shares(label, None)
        if any(missed):
            bands.append(Band("missed", MISSED, missed))
        rest = [max(1 - sum(shares), 0.0) for shares in zip(*(band.shares for band in bands), strict=True)]
        return [*bands, Band("other classes", REST, rest)] if max(rest) > 1e-9 else bands

    def card(self, label: int) -> Html:
        """Return the drawing of one class."""
        name = _name(self.view, self.run_id, label)
        head = tag("h4", name, " ", tag("small", n_of(self.n(label), self.unit)))
        areas = stacked(self.severities, self.bands(label), f"What {name} is taken for")
        return tag("article", head, areas, cls="card")


def _cards(view: View, run_id: str, model: str, cells: pl.DataFrame, severities: list[float]) -> list[Html]:
    """Return what the classes that lose most are taken for, along the severities."""
    rows = {(row["label"], row["pred"], row["severity"]): row for row in cells.to_dicts()}
    along = _Along(view, run_id, rows, severities, "object" if model in box_models(view) else "image")
    labels = {label for label, _, _ in rows if label is not None and along.n(label) >= FEWEST}
    worst = sorted(labels, key=lambda label: (-along.lost(label), label))[:MAX_CLASSES]
    return [along.card(label) for label in worst if along.lost(label) > 0]


def _growth(
    shares: dict[tuple[int | None, int | None, float], Row],
    pair: tuple[int | None, int | None],
    severities: list[float],
) -> float:
    """Return how many more images or objects are confused at the highest severity than at the lowest."""
    ends = [shares.get((*pair, severity)) for severity in (severities[0], severities[-1])]
    first, last = (0 if row is None else row["count"] for row in ends)
    return float(last - first)


def _share(row: Row | None, label: int | None) -> str:
    if row is None:
        return DASH if label is None else percent(0.0, 0)
    return count(row["count"]) if label is None else percent(row["value"], 0)


def _name(view: View, run_id: str, label: int | None) -> str:
    return BACKGROUND if label is None else view.class_name(run_id, label)


@dataclass(frozen=True)
class Band:
    """A part of the whole: its name, its colour, and its share at each severity."""

    name: str
    colour: str
    shares: Sequence[float]


def stacked(severities: Sequence[float], bands: Sequence[Band], alt: str) -> Html:
    """Return bands on top of each other, the first at the bottom, with a key of their names.

    Args:
        severities: At least two severities in rising order.
        bands: The parts, whose shares at a severity add up to 1.
        alt: The text of the picture.
    """
    first, last = severities[0], severities[-1]
    x = [WIDTH * (severity - first) / (last - first) for severity in severities]
    floor = [0.0] * len(x)
    shapes, names = [], []
    for band in bands:
        top = [low + share for low, share in zip(floor, band.shares, strict=True)]
        corners = [*zip(x, top, strict=True), *reversed(list(zip(x, floor, strict=True)))]
        points = " ".join(f"{across:.1f},{HEIGHT * (1 - up):.1f}" for across, up in corners)
        shapes.append(tag("polygon", points=points, fill=band.colour))
        ends = f"{100 * band.shares[0]:.0f} → {100 * band.shares[-1]:.0f} %"
        names.append(
            tag("li", tag("i", style=f"background:{band.colour}"), f"{band.name} ", tag("small", ends))
        )
        floor = top
    drawing = tag(
        "svg",
        tag("title", alt),
        *shapes,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        role="img",
        cls="areas",
    )
    return tag("div", drawing, tag("ul", *names, cls="key"))

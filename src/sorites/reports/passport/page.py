"""The page of a passport: the main numbers on the first screen, then folded details."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from sorites.analysis.passport.document import AnyPassport, Dial, Number, Passport
from sorites.core import CLEAN
from sorites.evaluation.estimate import input_words
from sorites.evaluation.storage.record import read_record
from sorites.io.files import write_bytes
from sorites.reports.components.images import Album
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    grid,
    join,
    n_of,
    number,
    percent,
    several,
    tag,
)
from sorites.reports.components.severities import in_words, title
from sorites.reports.page import document
from sorites.reports.passport.card import alarm_sentences, share, shift_count, sources_of
from sorites.reports.passport.numbers import NO_HALF, half_interval
from sorites.reports.report import load_views
from sorites.reports.section import Section
from sorites.reports.sections.images.strips import frames_of, strip_of
from sorites.reports.view import View, merge

# What the numbers of the first screen mean; docs/passport.md has the same sentences.
DEFINITIONS = (
    (
        "Accuracy on clean images is the share of clean images that are classified correctly; a sample that"
        " is in several parts counts once."
    ),
    (
        "Accuracy under shift is the mean over all listed shifts of the accuracy under each shift, which is"
        " the mean over its severities or settings; it contains no clean images, and every shift has the same"
        " weight."
    ),
    (
        "The half-accuracy severity is where the accuracy curve, interpolated linearly, first falls half-way"
        " from clean accuracy to chance; beyond the dial means that it does not within the tested severities,"
        " and it is undefined where the 95 % interval of clean accuracy contains chance."
    ),
    (
        "Chance is the accuracy of a guess: the mean over samples of accepted classes divided by the classes"
        " that the model can answer."
    ),
    (
        "The weakest dials are those with the greatest mean loss: clean accuracy minus the mean height of the"
        " accuracy curve between clean and the greatest severity, however many severities lie between."
    ),
    (
        "The error on the most confident 80 % is the share of misclassified images among the 80 % of all"
        " shifted images of the listed shifts that the battery's first scorer rates least OOD; every image"
        " has the same weight."
    ),
)

# --- Details


def details(passport: Passport) -> dict[str, Section]:
    """Return the sections below the first screen."""
    folds = [
        _curves(passport),
        _points(passport),
        *_grids(passport),
        *_scores(passport),
        runs_table(passport),
        *left_out_table(passport),
    ]
    return {"details": Section("Details", tag("div", *folds), "Details")}


def fold(summary: str, table: Html, rows: int) -> Html:
    """Return a table that is folded under its title."""
    return tag("details", tag("summary", summary, " ", tag("small", several(rows, "row"))), table, cls="fold")


def cell(value: Number) -> Html:
    """Return a share with its interval."""
    if value.value is None:
        return tag("span", DASH)
    ends = between(percent(value.low), percent(value.high)) if value.low is not None else ""
    return join([percent(value.value), tag("small", ends)])


def _curves(passport: Passport) -> Html:
    lines = [
        [
            title(dial.shift),
            in_words(dial.shift, setting.severity),
            number(setting.severity),
            cell(setting),
            count(setting.n),
        ]
        for dial in passport.dials
        for setting in dial.accuracy
    ]
    return fold(
        "Accuracy at every severity",
        grid(["dial", "meaning", "severity", "accuracy", "n"], lines, text=2),
        len(lines),
    )


def _points(passport: Passport) -> Html:
    lines = [
        [
            title(d.shift),
            d.unit or DASH,
            _half(d),
            _severity(d, d.failure_severity),
            cell(d.drop),
            number(d.top),
            _chance(d),
            count(d.half.n),
        ]
        for d in passport.dials
    ]
    head = [
        "dial", "unit", "half-accuracy severity", "failure severity", "mean drop", "last severity", "chance",
        "n",
    ]  # fmt: skip
    return fold(
        "Half-accuracy severities, failure severities and drops, in the unit of each dial",
        grid(head, lines, text=2),
        len(lines),
    )


def _half(dial: Dial) -> Html:
    return tag("span", "undefined") if dial.half.status in NO_HALF else _severity(dial, dial.half)


def _chance(dial: Dial) -> Html:
    """Return the accuracy of a guess, and that of the most frequent class where it is larger."""
    half = dial.half
    more = f"most frequent class {percent(half.majority)}" if half.majority is not None else ""
    assumed = "classes counted in the images" if half.assumed else ""
    return join([percent(half.chance), tag("small", ", ".join(filter(None, (more, assumed))))])


def _severity(dial: Dial, at: Number) -> Html:
    value = f"> {number(dial.top)}" if at.value is None else number(at.value)
    high = f"> {number(dial.top)}" if at.high is None else number(at.high)
    low = f"> {number(dial.top)}" if at.low is None else number(at.low)
    return join([value, tag("small", f"{low} to {high}")])


def _grids(passport: Passport) -> list[Html]:
    lines = [
        [
            title(entry.shift),
            count(entry.settings),
            cell(entry.mean),
            cell(entry.worst),
            entry.worst_setting,
            cell(entry.best),
            entry.best_setting,
        ]
        for entry in passport.grids
    ]
    head = ["grid", "settings", "mean accuracy", "worst", "at", "best", "at"]
    return [fold("Settings without an order", grid(head, lines), len(lines))] if lines else []


def _scores(passport: Passport) -> list[Html]:
    if passport.knows is None:
        return []
    alarms = [
        [title(a.shift), in_words(a.shift, a.severity), share(a.error), share(a.caught), share(a.alarm)]
        for a in passport.knows.alarms
    ]
    areas = [[entry.kind, entry.scorer, _area(entry), count(entry.n)] for entry in passport.knows.auroc]
    risks = [[f"{100 * kept.coverage:.0f} %", share(kept)] for kept in passport.knows.risk]
    return [
        fold(
            "OOD detection by each score",
            grid(["OOD images", "score", "AUROC", "n"], areas, text=2),
            len(areas),
        ),
        fold(
            f"Error among the most confident images, by {passport.knows.scorer}",
            grid(["answered", "error"], risks, text=2),
            len(risks),
        ),
        *(
            [
                fold(
                    f"Alarms by {passport.knows.scorer}",
                    grid(["shift", "at", "error", "alarm if wrong", "alarm"], alarms, text=2),
                    len(alarms),
                )
            ]
            if alarms
            else []
        ),
    ]


def _area(entry: Number) -> Html:
    ends = "" if entry.low is None or entry.high is None else f"{entry.low:.3f} to {entry.high:.3f}"
    return join([DASH if entry.value is None else f"{entry.value:.3f}", tag("small", ends)])


def runs_table(passport: AnyPassport) -> Html:
    """Return the data of each part."""
    lines = [
        [
            run.part,
            run.suite,
            run.source,
            count(run.samples),
            count(run.images),
            count(run.errors),
            tag("code", run.digest),
        ]
        for run in passport.runs
    ]
    head = ["part", "suite", "source", "samples", "images", "errors", "hash of the images"]
    return fold("Data of each part", grid(head, lines, text=3), len(lines))


def left_out_table(passport: AnyPassport) -> list[Html]:
    """Return the parts that were not measured, if any."""
    lines = [[part, why] for part, why in passport.left_out.items()]
    return [fold("Not measured", grid(["part", "reason"], lines, text=2), len(lines))] if lines else []


# --- The first screen

# Number of images shown for each of the weakest dials.
STRIPS_PER_DIAL = 2
# Total size of the thumbnails of one dial.
THUMBNAIL_BYTES = 300_000


def write_page(passport: Passport, folders: Mapping[str, Path], out: Path) -> Path:
    """Write the page atomically; its images are recomputed from the run folders."""
    style = files("sorites.reports.passport").joinpath("passport.css").read_text(encoding="utf-8")
    page = document(
        f"Passport of {passport.model.name}",
        _first(passport, folders),
        details(passport),
        bottom(passport, DEFINITIONS, input_words(*inputs_of(folders))),
        style,
    )
    write_bytes(page.encode("utf-8", errors="replace"), out)
    return out


def _first(passport: Passport, folders: Mapping[str, Path]) -> Html:
    parts = [
        top(passport, inputs_of(folders)[0]),
        _answer(passport),
        _ladder(passport),
        _cards(passport, folders),
    ]
    return tag("div", *parts, cls="pass", role="region", aria_label="The passport")


def top(passport: AnyPassport, inputs: Mapping[str, Any]) -> Html:
    """Return the name of the model, what was measured, and a warning if its preprocessing is assumed."""
    battery = f"battery {passport.battery.name} {passport.battery.version}"
    predictions = count(sum(run.images for run in passport.runs))
    rest = f", {predictions} predictions, {battery}, Sorites {passport.sorites}. Passport "
    measured = tag(
        "p",
        f"Measured on {sources_of(passport)}",
        rest,
        tag("code", passport.hash[:12]),
        cls="measured",
    )
    name = tag("div", tag("p", "Sorites · passport", cls="kind"), tag("h1", passport.model.name))
    fields = inputs.get("assumed", ())
    warning = (
        f"Its preprocessing is assumed ({', '.join(fields)}), because the model does not declare it. If it"
        " was trained with another, all numbers are too low."
    )
    return join([tag("div", name, measured, cls="head"), tag("p", warning, cls="warn") if fields else EMPTY])


def inputs_of(folders: Mapping[str, Path]) -> tuple[Mapping[str, Any], bool]:
    """Return the recorded preprocessing of the model, and whether images are cut to a frame first."""
    record = read_record(next(iter(folders.values())))
    return next(iter(record.inputs.values()), {}), record.suite.frame is not None


def _answer(passport: Passport) -> Html:
    """Return the main numbers: clean and shifted accuracy, and the error when answering only some images."""
    figures = [
        headline("accuracy on clean images", passport.clean),
        headline(f"accuracy under shift, mean over {shift_count(passport)}", passport.shifted),
    ]
    if passport.knows is not None:
        figures += [
            headline(f"error on the most confident {100 * kept.coverage:.0f} %", kept)
            for kept in passport.knows.risk[:2]
        ]
    return tag("dl", *figures, cls="answer")


def headline(name: str, number: Number, unit: str = "sample", units: str = "") -> Html:
    """Return one of the main numbers, which rests on n of a unit."""
    low_high = between(percent(number.low), percent(number.high)) if number.low is not None else ""
    rests = f"{low_high} · {n_of(number.n, unit, units)}"
    return tag(
        "div",
        tag("dt", name),
        tag("dd", tag("b", percent(number.value)), tag("small", rests)),
    )


def _ladder(passport: Passport) -> Html:
    rows: list[Html] = []
    for part, dials in groupby(passport.dials, key=lambda dial: dial.part):
        rows += [
            tag("li", part.replace("_", " "), cls="part"),
            *(_rung(dial, dial.shift in passport.weakest) for dial in dials),
        ]
    lead = (
        "Where accuracy is half-way between clean accuracy and chance, with 95 % intervals; a bar is the"
        " dial, from clean to the greatest tested severity."
    )
    head = tag("h2", "How far can conditions shift before accuracy falls half-way to chance?")
    return tag("div", head, tag("p", lead, cls="lead"), tag("ul", *rows, cls="ladder"))


def _rung(dial: Dial, weak: bool) -> Html:
    drawn = [] if dial.half.status in NO_HALF else marks(dial.half, dial.top)
    ends = half_interval(dial)
    bar = tag("div", *drawn, cls="track", role="img", aria_label=f"{title(dial.shift)}: {dial.words}; {ends}")
    line = tag("p", tag("b", title(dial.shift)), tag("span", dial.words))
    return tag("li", line, bar, tag("small", ends), cls="weak" if weak else None)


def marks(half: Number, top: float) -> list[Html]:
    """Return the bar up to a severity, its interval, and its mark, on a dial up to ``top``."""
    at, low, high = (top if value is None else value for value in (half.value, half.low, half.high))
    position, left, right = (100 * min(value / top, 1.0) for value in (at, low, high))
    return [
        tag("i", style=f"width:{position:.1f}%"),
        tag("u", style=f"left:{left:.1f}%;width:{max(right - left, 0):.1f}%"),
        tag("b", style=f"left:{position:.1f}%") if half.value is not None else EMPTY,
    ]


def _cards(passport: Passport, folders: Mapping[str, Path]) -> Html:
    weak = [_weak(passport.dial(shift), folders) for shift in passport.weakest]
    knows = _knows(passport)
    head = tag("h2", "Weakest dials and self-knowledge") if weak else tag("h2", "Does it know when it fails?")
    return tag("div", head, tag("div", *weak, knows, cls="three"))


def _weak(dial: Dial, folders: Mapping[str, Path]) -> Html:
    drop = f"{100 * (dial.drop.value or 0):.0f} points lost on average over the dial"
    half = "half-accuracy " if dial.half.value is None else "half-accuracy at "
    lost = f"{drop}, {half}{dial.words}."
    view = view_of(folders[dial.part], dial.shift)
    album = Album(view, THUMBNAIL_BYTES)
    strips = [strip_of(view, album, row) for row in frames_of(view)[:STRIPS_PER_DIAL]]
    return tag("article", tag("h3", title(dial.shift)), tag("p", lost, cls="about"), *strips, cls="card")


def view_of(folder: Path, shift: str) -> View:
    """Return a view of a run restricted to one of its shifts."""
    runs = load_views(folder)
    return merge(
        [
            dataclasses.replace(run, table=run.table.filter(pl.col("shift").is_in([CLEAN, shift])))
            for run in runs
        ]
    )


def _knows(passport: Passport) -> Html:
    if passport.knows is None:
        return EMPTY
    scorer = passport.knows.scorer
    areas = [area_figure(area.kind, area) for area in passport.knows.auroc if area.scorer == scorer]
    risks = [
        tag("li", f"If it answers {100 * kept.coverage:.0f} %, its error is {share(kept)}.")
        for kept in passport.knows.risk
    ]
    why = (
        f"AUROC of the OOD score {scorer}: 1 separates all OOD images from in-distribution images,"
        " 0.5 is chance."
    )
    parts = [tag("p", why, cls="about"), tag("dl", *areas, cls="figures"), tag("ul", *risks, cls="told")]
    if told := alarm_sentences(passport):
        rule = (
            f"With a threshold on {scorer} that raises an alarm for about 5 % of clean images, chosen on half"
            " of the samples and judged on the others:"
        )
        parts += [tag("p", rule, cls="about"), tag("ul", *(tag("li", text) for text in told), cls="told")]
    return tag("article", tag("h3", "Does it know when it fails?"), *parts, cls="card")


def area_figure(kind: str, number: Number, unit: str = "sample", units: str = "") -> Html:
    """Return an AUROC with its interval; it rests on n of a unit."""
    name = {"near": "OOD, near", "far": "OOD, far"}.get(kind, kind)
    value = "–" if number.value is None else f"{number.value:.2f}"
    low_high = "" if number.low is None or number.high is None else f"{number.low:.2f} to {number.high:.2f}"
    return tag(
        "div",
        tag("dt", name),
        tag("dd", tag("b", value), tag("small", join([low_high, f" · {n_of(number.n, unit, units)}"]))),
    )


def in_groups(digest: str, width: int = 16) -> Html:
    """Return a hash that may break between groups of letters."""
    groups = [digest[start : start + width] for start in range(0, len(digest), width)]
    return tag("code", join(groups, Html("<wbr>")), title=digest, cls="hash")


def bottom(passport: AnyPassport, definitions: Sequence[str], inputs: str) -> Html:
    """Return what the numbers rest on and how they are defined."""
    rules = [
        *definitions,
        (
            "An image with an error, or of a class that the model does not have, counts as missing, not as"
            " misclassified; n counts samples, which are the units of all intervals."
        ),
        (
            "The hash covers every number in passport.json; the same model, images and versions give the same"
            " hash."
        ),
    ]
    versions = ", ".join(f"{name} {version}" for name, version in passport.versions.items())
    battery = f"{passport.battery.name} {passport.battery.version} ({passport.battery.digest})"
    model = passport.model
    facts = [
        ("model", model.name),
        ("version", in_groups(model.version)),
        ("parameters", None if model.parameters is None else count(model.parameters)),
        ("input", inputs),
        ("battery", battery),
    ]
    facts += [("versions", versions), ("hash", in_groups(passport.hash))]
    pairs = [part for key, value in facts if value for part in (tag("dt", key), tag("dd", value))]
    columns = [
        tag("div", tag("h3", "Passport"), tag("dl", *pairs)),
        tag("div", tag("h3", "How the numbers are defined"), tag("ul", *(tag("li", rule) for rule in rules))),
    ]
    return tag("footer", tag("div", *columns, cls="columns"))

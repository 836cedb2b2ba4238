"""The details of a passport, folded: every severity of every dial, grids, scores, and what was measured on what."""

from __future__ import annotations

from sorites.passports.card import share
from sorites.passports.document import Dial, Number, Passport
from sorites.passports.words import in_words, title
from sorites.reports.parts.markup import DASH, Html, between, count, grid, join, number, percent, several, tag
from sorites.reports.section import Section


def details(passport: Passport) -> dict[str, Section]:
    """Return the sections below the first screen."""
    folds = [_curves(passport), _points(passport), *_grids(passport), *_scores(passport), _runs(passport), *_left_out(passport)]
    return {"details": Section("Details", tag("div", *folds), "Details")}


def _fold(summary: str, table: Html, rows: int) -> Html:
    return tag("details", tag("summary", summary, " ", tag("small", several(rows, "row"))), table, cls="fold")


def _cell(value: Number) -> Html:
    if value.value is None:
        return tag("span", DASH)
    ends = between(percent(value.low), percent(value.high)) if value.low is not None else ""
    return join([percent(value.value), tag("small", ends)])


def _curves(passport: Passport) -> Html:
    lines = [
        [title(dial.shift), in_words(dial.shift, stop.severity), number(stop.severity), _cell(stop), count(stop.n)]
        for dial in passport.dials
        for stop in dial.accuracy
    ]
    return _fold("Accuracy at every severity", grid(["dial", "in words", "severity", "accuracy", "n"], lines, text=2), len(lines))


def _points(passport: Passport) -> Html:
    lines = [
        [
            title(d.shift),
            d.unit or DASH,
            _place(d, d.half),
            _place(d, d.failure_point),
            _cell(d.drop),
            number(d.top),
            count(d.half.n),
        ]
        for d in passport.dials
    ]
    head = ["dial", "unit", "half lost", "failure point", "mean drop", "last severity", "n"]
    return _fold("Where half is lost, failure points and drops, in the unit of each dial", grid(head, lines, text=2), len(lines))


def _place(dial: Dial, at: Number) -> Html:
    value = f"> {number(dial.top)}" if at.value is None else number(at.value)
    high = f"> {number(dial.top)}" if at.high is None else number(at.high)
    low = f"> {number(dial.top)}" if at.low is None else number(at.low)
    return join([value, tag("small", f"{low} to {high}")])


def _grids(passport: Passport) -> list[Html]:
    lines = [
        [
            title(one.shift),
            count(one.settings),
            _cell(one.mean),
            _cell(one.worst),
            one.worst_setting,
            _cell(one.best),
            one.best_setting,
        ]
        for one in passport.grids
    ]
    head = ["grid", "settings", "mean accuracy", "worst", "at", "best", "at"]
    return [_fold("Settings without an order", grid(head, lines), len(lines))] if lines else []


def _scores(passport: Passport) -> list[Html]:
    if passport.knows is None:
        return []
    areas = [[one.kind, one.scorer, _area(one), count(one.n)] for one in passport.knows.auroc]
    risks = [[f"{100 * kept.coverage:.0f} %", share(kept)] for kept in passport.knows.risk]
    return [
        _fold(
            "How well each score finds strange pictures",
            grid(["strange pictures", "score", "AUROC", "n"], areas, text=2),
            len(areas),
        ),
        _fold(
            f"What is wrong among the surest pictures, by {passport.knows.scorer}",
            grid(["answered", "wrong"], risks, text=2),
            len(risks),
        ),
    ]


def _area(one: Number) -> Html:
    ends = "" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
    return join([DASH if one.value is None else f"{one.value:.3f}", tag("small", ends)])


def _runs(passport: Passport) -> Html:
    lines = [
        [run.part, run.suite, run.source, count(run.samples), count(run.pictures), count(run.errors), tag("code", run.digest)]
        for run in passport.runs
    ]
    head = ["part", "suite", "pictures of", "samples", "pictures", "errors", "hash of the pictures"]
    return _fold("What was measured on what", grid(head, lines, text=3), len(lines))


def _left_out(passport: Passport) -> list[Html]:
    lines = [[part, why] for part, why in passport.left_out.items()]
    return [_fold("What was not measured", grid(["part", "why"], lines, text=2), len(lines))] if lines else []

"""Render a comparison: Markdown for a pull request, JUnit XML for CI, and an HTML page."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import polars as pl

from sorites import __version__
from sorites.analysis.comparison.compare import MEASURES, Comparison
from sorites.analysis.comparison.gate import Verdict
from sorites.core import CLEAN, SHIFTS
from sorites.core.rng import hashed_order
from sorites.io.files import write_bytes
from sorites.reports.components.charts import Dot, Key, dot_chart, scale
from sorites.reports.components.images import Album
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    points,
    several,
    tag,
)
from sorites.reports.page import document, hero
from sorites.reports.report import load_views
from sorites.reports.section import Section
from sorites.reports.view import RunView, View, merge

SIGNIFICANT = 0.05


def markdown(comparison: Comparison, verdicts: Sequence[Verdict]) -> str:
    """Return the comparison as GitHub-flavoured Markdown: the gate's verdict, then one line per shift."""
    base, new = map(_escape, comparison.names)
    lines = [
        f"### {new} against {base}",
        "",
        *_verdict(verdicts),
        *(f"> {_escape(note)}" for note in comparison.notes),
    ]
    lines += [
        "",
        (
            f"| dial | n | {base} | {new} | drop, points | 95 % interval | lost / gained | Holm's p |"
            " detectable drop |"
        ),
    ]
    lines += ["|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    lines += [_line(row) for row in comparison.dials.to_dicts()]
    return "\n".join([*lines, "", _legend(), ""])


def _verdict(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    broken, met = (
        [_escape(f"{v.rule.text}: {v}") for v in verdicts if v.broken is side] for side in (True, False)
    )
    outcome = (
        f"fails**: {len(broken)} of {len(verdicts)} checks are broken."
        if broken
        else f"passes**: {len(verdicts)} checks."
    )
    details = [
        "<details><summary>checks that pass</summary>",
        "",
        *(f"- {line}" for line in met),
        "",
        "</details>",
        "",
    ]
    return [f"**The gate {outcome}", "", *(f"- {line}" for line in broken), "", *(details if met else [])]


def _line(row: dict[str, Any]) -> str:
    p = "–" if row["p_holm"] is None else f"{row['p_holm']:.3g}"
    mark = "**" if row["p_holm"] is not None and row["p_holm"] <= SIGNIFICANT else ""
    numbers = [f"{100 * row[key]:.1f}" for key in ("base", "new")] + [f"{mark}{100 * row['drop']:+.1f}{mark}"]
    between = f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}"
    cells = [
        _escape(row["dial"]),
        row["n"],
        *numbers,
        between,
        f"{row['lost']} / {row['gained']}",
        p,
        "–" if row["detectable"] is None else f"{100 * row['detectable']:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _legend() -> str:
    return (
        "Accuracies in percent on the same images; n counts samples. A drop is the base minus the new model."
        " p"
        " is from a sign-flip test over samples (with one image per sample: McNemar's exact test), corrected"
        f" over all dials by Holm; bold if it is at most {SIGNIFICANT:g}. The detectable drop is detected"
        " with"
        " 80 % power at this n; – if there is none."
    )


def _escape(text: str) -> str:
    """Escape text for a Markdown table."""
    return "".join(
        f"\\{letter}" if letter in "|*_`<>[]\\" else " " if letter in "\r\n" else letter for letter in text
    )


def junit(comparison: Comparison, verdicts: Sequence[Verdict]) -> bytes:
    """Return the verdicts of a gate as JUnit XML, one test case per rule and shift."""
    broken = [verdict for verdict in verdicts if verdict.broken]
    name = _legal(f"sorites compare: {comparison.names[1]} against {comparison.names[0]}")
    counts = {"tests": str(len(verdicts)), "failures": str(len(broken)), "errors": "0", "skipped": "0"}
    root = Xml.Element("testsuites", counts)
    suite = Xml.SubElement(root, "testsuite", {"name": name, **counts})
    for verdict in verdicts:
        case = Xml.SubElement(
            suite,
            "testcase",
            {"classname": _legal(verdict.rule.text), "name": _legal(verdict.dial), "time": "0"},
        )
        if verdict.broken:
            Xml.SubElement(case, "failure", {"message": _legal(str(verdict)), "type": "gate"}).text = _legal(
                str(verdict)
            )
        else:
            Xml.SubElement(case, "system-out").text = _legal(str(verdict))
    Xml.indent(root, " ")
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _legal(text: str) -> str:
    """Replace the characters that XML 1.0 does not allow."""
    return "".join(
        (
            letter
            if letter in "\t\n"
            or " " <= letter <= "\ud7ff"
            or "\ue000" <= letter <= "\ufffd"
            or letter > "\uffff"
            else "?"
        )
        for letter in text
    )


# --- The page of a comparison

# Number of flipped images shown, half of them newly misclassified.
MAX_CARDS = 12
# Total size of the thumbnails.
THUMBNAIL_BYTES = 900_000
Row = Mapping[str, Any]


def write_page(comparison: Comparison, verdicts: Sequence[Verdict], out: Path) -> Path:
    """Write the page of a comparison atomically."""
    parts = {
        "dials": _dials(comparison),
        "points": _points(comparison),
        "sides": _flips(comparison),
        "details": _details(comparison),
    }
    sections = {name: section for name, section in parts.items() if section is not None}
    if verdicts:
        sections = {"gate": _gate(verdicts), **sections}
    title = f"{comparison.names[1]} against {comparison.names[0]}"
    write_bytes(
        document(title, _top(comparison, verdicts), sections, _bottom(comparison)).encode(
            "utf-8", errors="replace"
        ),
        out,
    )
    return out


def _top(comparison: Comparison, verdicts: Sequence[Verdict]) -> Html:
    notes = tag(
        "div",
        tag("h2", "Before you read the numbers"),
        *(tag("p", note) for note in comparison.notes),
        cls="notice",
        role="note",
    )
    samples = comparison.pairs.select("source", "sample_id").n_unique()
    facts = [
        several(samples, "sample"),
        several(len(comparison.pairs), "image"),
        several(len(comparison.matrix.dials), "dial"),
    ]
    return hero(
        tag("p", "Sorites · comparison", cls="kind"),
        tag("h1", f"{comparison.names[1]} against {comparison.names[0]}"),
        notes if comparison.notes else EMPTY,
        tag("p", _short(comparison, verdicts), cls="short"),
        tag("p", " · ".join(facts), cls="facts"),
    )


def _short(comparison: Comparison, verdicts: Sequence[Verdict]) -> str:
    broken = [verdict for verdict in verdicts if verdict.broken]
    gate = (
        f"The gate fails: {len(broken)} of {len(verdicts)} checks are broken. "
        if broken
        else "The gate passes. "
        if verdicts
        else ""
    )
    rows = (
        comparison.dials.filter(pl.col("p_holm") <= comparison.rate).sort("drop", descending=True).to_dicts()
    )
    worse = [f"{row['dial']} ({points(-row['drop'])})" for row in rows if row["drop"] > 0]
    better = [f"{row['dial']} ({points(-row['drop'])})" for row in reversed(rows) if row["drop"] < 0]
    changes = [
        f"It is worse on {', '.join(worse)}." if worse else "",
        f"It is better on {', '.join(better)}." if better else "",
    ]
    return gate + (
        " ".join(filter(None, changes)) or "No dial shows a significant difference on the same images."
    )


def _gate(verdicts: Sequence[Verdict]) -> Section:
    ordered = sorted(verdicts, key=lambda verdict: not verdict.broken)
    lines = [
        [tag("b", "broken") if v.broken else "met", tag("code", v.rule.text), v.dial, str(v)] for v in ordered
    ]
    table = grid(["", "rule", "dial", "result"], lines, text=4)
    broken = sum(verdict.broken for verdict in verdicts)
    lead = (
        "A rule is broken if the bound of the paired interval exceeds its limit; bounds hold jointly over all"
        " dials of a rule."
    )
    body = (
        tag("article", table, cls="card")
        if len(lines) <= 12
        else folded(f"All checks, {broken} broken first", table, len(lines))
    )
    return Section("The gate", body, "Gate", lead)


def _dials(comparison: Comparison) -> Section:
    rows = comparison.dials.to_dicts()
    dots = {
        row["dial"]: {"change": Dot(-row["drop"], -row["high"], -row["low"], f"n = {row['n']}")}
        for row in rows
    }
    ends = [end for row in dots.values() for dot in row.values() for end in dot.ends()]
    label = f"Change of accuracy from {comparison.names[0]} to {comparison.names[1]} on each dial"
    drawn = dot_chart(
        dots, {"change": Key(0, "right of 0 is better")}, scale([*ends, 0.0]), {"no change": 0.0}, label
    )
    lines = [
        [
            row["dial"],
            percent(row["base"]),
            percent(row["new"]),
            _change(row),
            f"{count(row['lost'])} / {count(row['gained'])}",
            number(row["p"]),
            number(row["p_holm"]),
            _detectable(row),
            count(row["n"]),
        ]
        for row in rows
    ]
    head = ["dial", *comparison.names, "change", "lost / gained", "p", "Holm's p", "detectable drop", "n"]
    lead = (
        "Change of accuracy on the same images in points, with 95 % intervals. Lost images were correct and"
        " are now misclassified; gained images the reverse. Holm's p is corrected over all dials. Drops"
        " smaller"
        " than the detectable one are missed in more than one of five cases."
    )
    table = tag("div", tag("article", grid(head, lines), cls="card"), cls="below")
    return Section(
        "What changed on each dial?", join([tag("article", drawn, cls="card"), table]), "Dials", lead
    )


def _detectable(row: Row) -> str:
    return DASH if row["detectable"] is None else f"{100 * row['detectable']:.1f}"


def _change(row: Row) -> Html:
    low, high = (f"{-100 * row[end]:+.1f}".replace("-", "−") for end in ("high", "low"))
    return join([points(-row["drop"]), tag("small", between(low, high))])


def _points(comparison: Comparison) -> Section | None:
    lines = []
    for dial in comparison.curves:
        cells: list[object] = [dial, unit_of(dial)]
        for measure in MEASURES:
            severities = comparison.points(measure, dial)
            cells += [_point(severities.base, severities.top), _point(severities.new, severities.top)]
        lines.append([*cells, count(comparison.points("half_accuracy_severity", dial).n)])
    if not lines:
        return None
    base, new = comparison.names
    head = [
        "dial",
        "unit",
        f"half-accuracy severity, {base}",
        f"half-accuracy severity, {new}",
        f"failure severity, {base}",
        f"failure severity, {new}",
        "n",
    ]
    lead = (
        "Where half of the clean accuracy is lost, and the median severity at which images first fail; >"
        " means"
        " beyond the tested range."
    )
    return Section(
        "How far can each dial be turned?",
        tag("article", grid(head, lines, text=2), cls="card"),
        "Failure",
        lead,
    )


def _point(value: float, top: float) -> str:
    return f"> {number(top)}" if value >= top else number(value)


def unit_of(dial: str) -> str:
    """Return the unit of a registered shift, or an empty string."""
    return SHIFTS.get(dial).unit if dial in SHIFTS.names() else ""


def _flips(comparison: Comparison) -> Section | None:
    """Show flipped images, alternating directions, each sample once."""
    rows = comparison.changed.filter(pl.col("severity").is_not_null() | (pl.col("shift") == CLEAN)).to_dicts()
    shuffled = hashed_order(rows, lambda row: [row["sample_id"], row["shift"], row["severity"]])
    directions = ([row for row in shuffled if row["lost"] is direction] for direction in (True, False))
    turns = [row for pair in itertools.zip_longest(*directions) for row in pair if row is not None]
    once = list({(row["source"], row["sample_id"]): row for row in reversed(turns)}.values())[::-1]
    if not once:
        return None
    views = _images(comparison)
    albums = {part: Album(view, THUMBNAIL_BYTES // len(views)) for part, view in views.items()}
    cards = [_card(comparison, row, views[row["run_id"]], albums[row["run_id"]]) for row in once[:MAX_CARDS]]
    lost, gained = (
        comparison.pairs.filter(way).height
        for way in (pl.col("correct") & ~pl.col("correct_new"), ~pl.col("correct") & pl.col("correct_new"))
    )
    lead = (
        f"{several(lost, 'image')} became misclassified, {count(gained)} became correct. The examples of both"
        " are drawn at random."
    )
    return Section("Which images flipped?", tag("div", *cards, cls="cards"), "Images", lead)


def _images(comparison: Comparison) -> dict[str, View]:
    """Return a view of each part, from the folder of the base model."""
    views: dict[str, View] = {}
    for part, folder in comparison.base.parts.items():
        runs: list[RunView] = load_views(folder.name)
        views[part] = merge(runs)
    return views


def _card(comparison: Comparison, row: Row, view: View, album: Album) -> Html:
    run_id = view.runs[0].info.get("run_id", "")
    setting = 0.0 if row["shift"] == CLEAN else row["severity"]
    thumbnail = album.thumbnail(run_id, row["sample_id"], row["shift"], setting)
    ground_truth = view.class_name(run_id, row["label"])
    where = (
        CLEAN
        if row["shift"] == CLEAN
        else f"{row['shift']} {number(setting)} {unit_of(row['shift'])}".strip()
    )
    alt = f"{ground_truth}, {where}"
    image = (
        tag("img", src=thumbnail, alt=alt, decoding="async")
        if thumbnail
        else tag("div", "image not available", cls="gone")
    )
    predictions = [
        tag(
            "p",
            tag("b", name),
            ": ",
            view.class_name(run_id, row[f"pred{end}"]),
            f" {percent(row[f'conf{end}'], 0)}",
            cls="setting",
        )
        for name, end in zip(comparison.names, ("", "_new"), strict=True)
    ]
    kind = "wrong" if row["lost"] else "right"
    words = tag("figcaption", tag("b", "lost" if row["lost"] else "gained"), where)
    what = tag("p", tag("b", ground_truth), tag("span", row["sample_id"]), cls="what")
    return tag("article", what, tag("figure", image, words, cls=kind), *predictions, cls="card strip why")


def _details(comparison: Comparison) -> Section:
    lines = [
        [
            row["shift"],
            _setting(row),
            percent(row["base"]),
            percent(row["new"]),
            count(row["lost"]),
            count(row["gained"]),
            number(row["p"]),
            count(row["n"]),
        ]
        for row in comparison.settings.to_dicts()
    ]
    head = ["dial", "setting", *comparison.names, "lost", "gained", "McNemar's mid-p", "n"]
    return Section(
        "Setting by setting", folded("Every setting", grid(head, lines, text=2), len(lines)), "Settings"
    )


def _setting(row: Row) -> str:
    if row["severity"] is not None:
        return number(row["severity"])
    return ", ".join(f"{key} {value}" for key, value in json.loads(row["params"] or "{}").items())


def _bottom(comparison: Comparison) -> Html:
    pairs = [
        part
        for name, side in zip(("base", "new"), (comparison.base, comparison.new), strict=True)
        for part in (
            tag("dt", name),
            tag("dd", f"{side.model} ({side.version[:12] or 'no version'}) in {side.path}"),
        )
    ]
    rules = [
        (
            "The p of a dial is from a sign-flip test over samples; with one image per sample it is McNemar's"
            " exact test."
        ),
        (
            "Two equally good models break a rule of the gate on any of its dials in at most"
            f" {100 * comparison.rate:g} % of comparisons."
        ),
        (
            "Intervals of drops are those of paired differences (Agresti & Min); failure severities are"
            " bootstrapped over samples."
        ),
    ]
    columns = [
        tag("div", tag("h3", "Compared"), tag("dl", *pairs)),
        tag("div", tag("h3", "How the numbers are defined"), tag("ul", *map(_item, rules))),
    ]
    return tag(
        "footer",
        tag("div", *columns, cls="columns"),
        tag("p", f"Written by Sorites {__version__} from the tables of predictions."),
    )


def _item(text: str) -> Html:
    return tag("li", text)

"""Render a comparison: Markdown for a pull request, JUnit XML for CI, and an HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import polars as pl

from sorites import __version__
from sorites.analysis.comparison.compare import Comparison
from sorites.analysis.comparison.detectors import BoxComparison
from sorites.analysis.comparison.document import ComparisonDocument, comparison_document
from sorites.analysis.comparison.gate import Gate
from sorites.analysis.comparison.severities import MEASURES
from sorites.analysis.comparison.verdicts import Verdict, exit_code, summary
from sorites.core import CLEAN
from sorites.core.messages import in_shell
from sorites.core.progress import phase
from sorites.core.rng import hashed_order
from sorites.io.digests import digest_of
from sorites.io.files import write_bytes
from sorites.reports.box_comparison import (
    LEGEND,
    RULES,
    class_changes,
    facts_of,
    lost_and_gained,
    severities,
    severity_or_more,
)
from sorites.reports.components.charts import Dot, Key, dot_chart, scale
from sorites.reports.components.gallery import Item, gallery
from sorites.reports.components.images import Album
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    breakable,
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
from sorites.reports.components.severities import in_words, reading
from sorites.reports.page import document, hero
from sorites.reports.report import load_views
from sorites.reports.section import Section
from sorites.reports.view import RunView, View, merge

Row = Mapping[str, Any]
AnyComparison = Comparison | BoxComparison


def markdown(comparison: AnyComparison, verdicts: Sequence[Verdict]) -> str:
    """Return the comparison as GitHub-flavoured Markdown: the gate's verdict, then one line per shift."""
    base, new = map(_escape, comparison.names)
    lines = [
        f"### {new} against {base}",
        "",
        *_verdict(verdicts),
        *(f"> {_escape(note)}" for note in comparison.notes),
    ]
    head = [
        "dial",
        "n",
        base,
        new,
        "drop, points",
        "95 % interval",
        "at least",
        "lost / gained",
        "p",
        "detectable drop",
    ]
    lines += ["", f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    lines += [_line(row) for row in comparison.dials.to_dicts()]
    legend = (
        LEGEND.format(conf=comparison.conf, rate=comparison.rate)
        if isinstance(comparison, BoxComparison)
        else None
    )
    return "\n".join([*lines, "", legend or _legend(comparison.rate), ""])


def _verdict(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    broken, unjudged, met = (
        [_escape(f"{v.rule.text}: {v}") for v in verdicts if v.outcome == outcome]
        for outcome in ("broken", "not judged", "met")
    )
    lines = [
        f"**{_gate_result(verdicts)}** ({summary(verdicts)}).",
        "",
        *(f"- {line}" for line in broken),
        "",
    ]
    if unjudged:
        lines += ["Not judged:", "", *(f"- {line}" for line in unjudged), ""]
    if met:
        details = ["<details><summary>checks that are met</summary>", "", *(f"- {line}" for line in met)]
        lines += [*details, "", "</details>", ""]
    return lines


def _gate_result(verdicts: Sequence[Verdict]) -> str:
    results = ("The gate passes", "The gate fails", "The gate could not judge every check")
    return results[exit_code(verdicts)]


def _line(row: Row) -> str:
    significant = row["bound"] is not None and row["bound"] > 0
    mark = "**" if significant else ""
    p = row["p"] if row["p_family"] is None else row["p_family"]
    cells = [
        _escape(row["dial"]),
        row["n"],
        *(f"{100 * row[key]:.1f}" for key in ("base", "new")),
        f"{mark}{100 * row['drop']:+.1f}{mark}",
        between(*(DASH if row[end] is None else _signed(row[end]) for end in ("low", "high"))),
        _signed(row["bound"]) if row["judged"] else "not judged",
        f"{row['lost']} / {row['gained']}",
        "–" if p is None else f"{p:.2g}",
        _detectable(row),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}"


def _legend(rate: float) -> str:
    return (
        "Accuracies in percent on the same images; n counts samples. A drop is the base minus the new"
        " model, with the 95 % interval of each dial alone. The lower bounds (at least) hold jointly for"
        " all dials, and p is that of the gate's one-sided test, corrected over dials (the row all is"
        f" tested alone): a drop is bold where its bound is above 0, which is where p is at most {rate:g}."
        " The detectable drop is detected with 80 % power; – if none can be stated. Dials with too few"
        " samples are not judged."
    )


def _escape(text: str) -> str:
    """Return a message as text of a Markdown table."""
    return "".join(
        f"\\{letter}" if letter in "|*_`<>[]\\" else " " if letter in "\r\n" else letter
        for letter in in_shell(text)
    )


def junit(comparison: AnyComparison, verdicts: Sequence[Verdict]) -> bytes:
    """Return the verdicts of a gate as JUnit XML, one test case per rule and shift.

    Checks that could not be judged are skipped test cases.
    """
    outcomes = [verdict.outcome for verdict in verdicts]
    name = _legal(f"sorites compare: {comparison.names[1]} against {comparison.names[0]}")
    numbers = {
        "tests": len(verdicts),
        "failures": outcomes.count("broken"),
        "errors": 0,
        "skipped": outcomes.count("not judged"),
    }
    counts = {key: str(value) for key, value in numbers.items()}
    root = Xml.Element("testsuites", counts)
    suite = Xml.SubElement(root, "testsuite", {"name": name, **counts})
    for verdict in verdicts:
        case = Xml.SubElement(
            suite,
            "testcase",
            {"classname": _legal(verdict.rule.text), "name": _legal(verdict.dial), "time": "0"},
        )
        text = _legal(str(verdict))
        if verdict.broken:
            Xml.SubElement(case, "failure", {"message": text, "type": "gate"}).text = text
        elif verdict.unjudged:
            Xml.SubElement(case, "skipped", {"message": text})
        else:
            Xml.SubElement(case, "system-out").text = text
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
        for letter in in_shell(text)
    )


# --- The page of a comparison

# Number of flipped images shown, half of them newly misclassified.
MAX_CARDS = 48
# Total size of the thumbnails.
THUMBNAIL_BYTES = 1_200_000
# Longer side of a thumbnail, px: that of most inputs.
SIDE = 224


def write_page(
    comparison: AnyComparison, verdicts: Sequence[Verdict], out: Path, gate: Gate | None = None
) -> ComparisonDocument:
    """Write the page of a comparison atomically, with the comparison as data for ``sorites verify``.

    Returns:
        This data.
    """
    with phase("drawing the comparison"):
        return _write_page(comparison, verdicts, out, gate)


def _write_page(
    comparison: AnyComparison, verdicts: Sequence[Verdict], out: Path, gate: Gate | None
) -> ComparisonDocument:
    parts = {
        "dials": _dials(comparison),
        **(_box_parts(comparison) if isinstance(comparison, BoxComparison) else _parts(comparison)),
        "details": _details(comparison),
    }
    sections = {name: section for name, section in parts.items() if section is not None}
    if verdicts:
        sections = {"gate": _gate(verdicts), **sections}
    title = f"{comparison.names[1]} against {comparison.names[0]}"
    top, bottom = _top(comparison, verdicts), _bottom(comparison)
    shown = digest_of(_encoded(document(title, top, sections, bottom)))
    data = comparison_document(comparison, verdicts, gate, out.parent, shown)
    page = document(title, top, sections, bottom, data=data.model_dump(mode="json", by_alias=True))
    write_bytes(_encoded(page), out)
    return data


def as_json(data: ComparisonDocument) -> bytes:
    """Return the data of a comparison as a JSON file; its paths are relative to the folder of the page."""
    return data.model_dump_json(by_alias=True, indent=1).encode() + b"\n"


def _encoded(page: str) -> bytes:
    return page.encode("utf-8", errors="replace")


def _parts(comparison: Comparison) -> dict[str, Section | None]:
    return {"points": _points(comparison), "sides": _flips(comparison)}


def _box_parts(comparison: BoxComparison) -> dict[str, Section | None]:
    shown = first_flips(comparison, MAX_CARDS)
    return {
        "classes": class_changes(comparison),
        "points": severities(comparison),
        "sides": lost_and_gained(comparison, shown, _images(comparison)) if shown else None,
    }


def _top(comparison: AnyComparison, verdicts: Sequence[Verdict]) -> Html:
    notes = tag(
        "div",
        tag("h2", "Before you read the numbers"),
        *(tag("p", note) for note in comparison.notes),
        cls="notice",
        role="note",
    )
    samples = comparison.pairs.select("source", "sample_id").n_unique()
    boxes = isinstance(comparison, BoxComparison)
    images = (
        comparison.pairs.select("run_id", "source", "image_id").n_unique() if boxes else len(comparison.pairs)
    )
    shifts = sum(shift != CLEAN for shift in comparison.shifts)
    facts = [several(samples, "sample"), several(images, "image"), several(shifts, "shift")]
    return hero(
        tag("p", "Sorites · comparison", cls="kind"),
        tag("h1", f"{comparison.names[1]} against {comparison.names[0]}"),
        notes if comparison.notes else EMPTY,
        tag("p", _short(comparison, verdicts), cls="short"),
        tag("p", " · ".join(facts), cls="facts"),
    )


def _short(comparison: AnyComparison, verdicts: Sequence[Verdict]) -> str:
    gate = f"{_gate_result(verdicts)}: {summary(verdicts)}. " if verdicts else ""
    rows = {row["dial"]: row for row in comparison.dials.sort("drop", descending=True).to_dicts()}
    changed = {}
    for word, test in (("worse", comparison.worse), ("better", comparison.better)):
        clear = {dial for dial, broken in zip(comparison.shifts, test.broken, strict=True) if broken}
        changed[word] = [f"{dial} ({points(-row['drop'])})" for dial, row in rows.items() if dial in clear]
    changed["better"].reverse()
    unjudged = [dial for dial, row in rows.items() if not row["judged"]]
    sentences = [
        *(f"It is {word} on {', '.join(dials)}." for word, dials in changed.items() if dials),
        *(f"Too few samples to judge {', '.join(unjudged)}." for _ in unjudged[:1]),
    ]
    if not any(changed.values()):
        sentences.insert(0, "No dial shows a significant difference on the same images.")
    return gate + " ".join(sentences)


def _gate(verdicts: Sequence[Verdict]) -> Section:
    order = ("broken", "not judged", "met")
    ordered = sorted(verdicts, key=lambda verdict: order.index(verdict.outcome))
    lines = [[v.outcome, tag("code", v.rule.text), v.dial, str(v)] for v in ordered]
    table = grid(["", "rule", "dial", "result"], lines, text=4)
    lead = (
        "A rule is broken if the bound of the paired interval exceeds its limit; bounds hold jointly over all"
        " dials of a rule. Checks with too few samples are not judged: they are neither broken nor met."
    )
    body = (
        tag("article", table, cls="card")
        if len(lines) <= 12
        else folded(f"All checks: {summary(verdicts)}", table, len(lines))
    )
    return Section("The gate", body, "Gate", lead)


def _dials(comparison: AnyComparison) -> Section:
    rows = comparison.dials.to_dicts()
    dots = {
        row["dial"]: {
            "change": Dot(-row["drop"], _opposite(row["high"]), _opposite(row["low"]), f"n = {row['n']}")
        }
        for row in rows
    }
    ends = [end for row in dots.values() for dot in row.values() for end in dot.ends()]
    boxes = isinstance(comparison, BoxComparison)
    what, outcome = ("mAP", _OBJECTS) if boxes else ("accuracy", _IMAGES)
    label = f"Change of {what} from {comparison.names[0]} to {comparison.names[1]} on each dial"
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
            _signed(row["bound"]).replace("-", "−") if row["judged"] else "not judged",
            number(row["p"] if row["p_family"] is None else row["p_family"]),
            _detectable(row),
            count(row["n"]),
        ]
        for row in rows
    ]
    head = [
        "dial",
        *comparison.names,
        "change",
        "lost / gained",
        "drop at least",
        "p",
        "detectable drop",
        "n",
    ]
    lead = (
        f"Change of {what} on the same images in points, with the 95 % interval of each dial alone."
        f" {outcome} The lower bounds of"
        " drops hold jointly for all dials, and p is that of the gate's one-sided test, corrected over"
        f" dials: a bound is above 0 where p is at most {comparison.rate:g}. The row all is tested alone."
        " The detectable drop is detected with 80 % power; – if none can be stated."
    )
    table = tag("div", tag("article", grid(head, lines), cls="card"), cls="below")
    return Section(
        "What changed on each dial?", join([tag("article", drawn, cls="card"), table]), "Dials", lead
    )


_IMAGES = "Lost images were correct and are now misclassified; gained images the reverse."
_OBJECTS = "Lost objects are found by the base alone, gained objects by the new detector alone."


def _detectable(row: Row) -> str:
    return DASH if row["detectable"] is None else f"{100 * row['detectable']:.1f}"


def _change(row: Row) -> Html:
    ends = (_opposite(row[end]) for end in ("high", "low"))
    low, high = (DASH if end is None else _signed(end).replace("-", "−") for end in ends)
    return join([points(-row["drop"]), tag("small", between(low, high))])


def _opposite(value: float | None) -> float | None:
    return None if value is None else -value


def _points(comparison: Comparison) -> Section | None:
    lines = []
    for dial in comparison.curves:
        cells: list[object] = [dial, reading(dial).axis]
        for measure in MEASURES:
            found = comparison.points(measure, dial)
            both = (found.base, found.new)
            cells += [DASH if found.undefined else severity_or_more(dial, value, found.top) for value in both]
        lines.append([*cells, count(found.n)])
    if not lines:
        return None
    base, new = comparison.names
    head = [
        "dial",
        "in",
        f"half-accuracy severity, {base}",
        f"half-accuracy severity, {new}",
        f"failure severity, {base}",
        f"failure severity, {new}",
        "n",
    ]
    lead = (
        "Where accuracy is half-way from clean accuracy to chance, and the median severity at which images"
        f" first fail; beyond means outside the tested range, {DASH} that clean accuracy is not clearly above"
        " chance."
    )
    return Section(
        "How far can each dial be turned?",
        tag("article", grid(head, lines, text=2), cls="card"),
        "Failure",
        lead,
    )


def _flips(comparison: Comparison) -> Section | None:
    """Show flipped images of both directions, each sample once and at its first flip."""
    shown = first_flips(comparison, MAX_CARDS)
    if not shown:
        return None
    views = _images(comparison)
    albums = {part: Album(view, THUMBNAIL_BYTES // len(views), SIDE) for part, view in views.items()}
    items = [
        Item(
            _card(comparison, row, views[row["run_id"]], albums[row["run_id"]]),
            facts_of(row, views[row["run_id"]], row["label"]),
        )
        for row in shown
    ]
    lost, gained = (
        comparison.pairs.filter(way).height
        for way in (pl.col("correct") & ~pl.col("correct_new"), ~pl.col("correct") & pl.col("correct_new"))
    )
    lead = (
        f"Of all images, clean ones included, {several(lost, 'image')} became misclassified (lost) and"
        f" {count(gained)} became correct (gained). Examples of both are shown in turn, those that flip at"
        " the lowest severity first."
    )
    return Section("Which images flipped?", gallery(items, "flips", size="small"), "Images", lead)


def first_flips(comparison: AnyComparison, most: int) -> list[Row]:
    """Return flipped images, lost and gained in turn, each sample once per shift, all samples first.

    Samples that flip at the lowest severity come first, counted in settings of their shift because shifts
    have different units; equal ones are in hashed order. If one direction runs out, the other fills up.
    """
    places = comparison.settings.filter(pl.col("severity").is_not_null()).select(
        "shift", "severity", place=pl.col("severity").rank("dense").over("shift")
    )
    flipped = comparison.changed.join(places.unique(), on=["shift", "severity"], how="left")
    ordered = flipped.filter(pl.col("severity").is_not_null() | (pl.col("shift") == CLEAN))
    hashed = hashed_order(ordered.to_dicts(), lambda row: [row["source"], row["sample_id"], row["shift"]])
    rows = sorted(hashed, key=lambda row: 0 if row["shift"] == CLEAN else row["place"])
    shown: dict[tuple[str, ...], Row] = {}
    for keys in (("source", "sample_id"), ("source", "sample_id", "shift")):
        queues = {lost: iter([row for row in rows if row["lost"] is lost]) for lost in (True, False)}
        taken = {tuple(row[key] for key in keys) for row in shown.values()}
        while queues and len(shown) < most:
            for lost, queue in list(queues.items()):
                row = next((row for row in queue if tuple(row[key] for key in keys) not in taken), None)
                if row is None:
                    del queues[lost]
                elif len(shown) < most:
                    taken.add(tuple(row[key] for key in keys))
                    shown[row["source"], row["sample_id"], row["shift"]] = row
    return list(shown.values())


def _images(comparison: AnyComparison) -> dict[str, View]:
    """Return a view of each part, from the folder of the base model."""
    views: dict[str, View] = {}
    for part, folder in comparison.base.parts.items():
        runs: list[RunView] = load_views(folder.name)
        views[part] = merge(runs)
    return views


def _card(comparison: Comparison, row: Row, view: View, album: Album) -> Html:
    run_id = view.runs[0].record.run_id if view.runs[0].record else ""
    setting = 0.0 if row["shift"] == CLEAN else row["severity"]
    thumbnail = album.thumbnail(run_id, row["sample_id"], row["shift"], setting)
    ground_truth = view.class_name(run_id, row["label"])
    where = CLEAN if row["shift"] == CLEAN else f"{row['shift']}: {in_words(row['shift'], setting)}"
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
    what = tag("p", tag("b", ground_truth), tag("span", breakable(row["sample_id"])), cls="what")
    return tag("article", what, tag("figure", image, words, cls=kind), *predictions, cls="card strip why")


def _details(comparison: AnyComparison) -> Section:
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
    test = "p of swaps" if isinstance(comparison, BoxComparison) else "McNemar's mid-p"
    head = ["dial", "setting", *comparison.names, "lost", "gained", test, "n"]
    return Section(
        "Setting by setting", folded("Every setting", grid(head, lines, text=2), len(lines)), "Settings"
    )


def _setting(row: Row) -> str:
    if row["severity"] is not None:
        return in_words(row["shift"], row["severity"]) if row["shift"] != CLEAN else ""
    return ", ".join(f"{key} {value}" for key, value in json.loads(row["params"] or "{}").items())


def _bottom(comparison: AnyComparison) -> Html:
    pairs = [
        part
        for name, side in zip(("base", "new"), (comparison.base, comparison.new), strict=True)
        for part in (
            tag("dt", name),
            tag("dd", f"{side.model} ({side.version[:12] or 'no version'}) in {side.path}"),
        )
    ]
    rules = RULES if isinstance(comparison, BoxComparison) else _rules(comparison.rate)
    columns = [
        tag("div", tag("h3", "Compared"), tag("dl", *pairs)),
        tag("div", tag("h3", "How the numbers are defined"), tag("ul", *map(_item, rules))),
    ]
    return tag(
        "footer",
        tag("div", *columns, cls="columns"),
        tag("p", f"Written by Sorites {__version__} from the tables of predictions."),
    )


def _rules(rate: float) -> tuple[str, ...]:
    return (
        "The p of a dial is from a one-sided sign-flip test over samples; with one image per sample it is"
        " McNemar's exact test.",
        "Two equally good models break a rule of the gate on any of its dials in at most"
        f" {100 * rate:g} % of comparisons.",
        "Intervals of drops are those of paired differences (Agresti & Min); bounds of drops invert the"
        " sign-flip test; failure severities are bootstrapped over samples.",
    )


def _item(text: str) -> Html:
    return tag("li", text)

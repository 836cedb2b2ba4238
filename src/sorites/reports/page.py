"""The page is one HTML file that needs neither network nor server."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from sorites import __version__, metrics
from sorites.core import named_spec
from sorites.io.files import write_bytes
from sorites.metrics.detection.scenes import without_ground_truth
from sorites.reports.components.markup import EMPTY, Html, between, count, join, percent, several, tag
from sorites.reports.section import Section, sections
from sorites.reports.view import UNTOUCHED, RunView, View, merge

# Costs of shifts in whole points, as sentences say them.


def whole(share: float) -> str:
    """Return a share as whole points."""
    return f"{round(100 * share)}".replace("-", "−")


def unit(value: str) -> str:
    """Return the word that follows a number of whole points."""
    return "point" if value in ("1", "−1") else "points"


def all_alike(what: str, count: int, least: float, most: float) -> str:
    """Say that all shifts cost the same of something, where the least and the most are the same
    whole points; else nothing.
    """
    cost = whole(most)
    return (
        f"All {count} shifts cost about the same {what}, {cost} {unit(cost)}." if cost == whole(least) else ""
    )


# Say in two sentences what detectors do under shift.


def boxes_in_short(view: View) -> list[str]:
    """Return sentences on mAP clean and under shift, and on the shifts that cost most and least;
    none without detectors.
    """
    clean = view.compute(metrics.map, UNTOUCHED, by=("model",)).drop_nulls("value")
    if clean.is_empty():
        return (
            ["No image was judged, because the source has no ground-truth boxes."]
            if without_ground_truth(view.table)
            else []
        )
    shifted = view.compute(metrics.mean_map, by=("model",)).drop_nulls("value")
    parts = [
        f"{_span(clean)} on the clean images",
        *([f"{_span(shifted)} on shifted ones"] if shifted.height else []),
    ]
    whose = "The detector has" if clean.height == 1 else f"The {clean.height} detectors have"
    return [f"{whose} a mAP of {' and '.join(parts)}.", *_hardest(view)]


def _span(frame: pl.DataFrame) -> str:
    """Return one value with its interval, or the range of several."""
    if frame.height == 1:
        row = frame.row(0, named=True)
        ends = (
            f" ({between(percent(row['low'], 0), percent(row['high'], 0))})" if row["low"] is not None else ""
        )
        return percent(row["value"], 0) + ends
    return between(percent(frame["value"].min(), 0), percent(frame["value"].max(), 0))  # type: ignore[arg-type]


def _hardest(view: View) -> list[str]:
    drops = view.compute(metrics.map_drop, by=("model", "shift")).drop_nulls("value")
    means = drops.group_by("shift").agg(pl.col("value").mean()).sort("value", "shift")
    if means.height < 2:
        return []
    (least, low), (most, high) = means.row(0), means.row(-1)
    every = "" if drops["model"].n_unique() == 1 else ", on average over detectors"
    if alike := all_alike("mAP", means.height, low, high):
        return [f"{alike[:-1]}{every}."]
    dear, cheap = (f"{cost} {unit(cost)}" for cost in (whole(high), whole(low)))
    return [f"{most} costs the most mAP ({dear}), {least} the least ({cheap}){every}."]


# The run in three sentences with numbers from the table; no model is called better unless the same
# images say so.


def in_short(view: View) -> str:
    """Return the summary of the page: accuracy, the shifts that cost most and least, and the best model."""
    return " ".join(sentences(view))


def sentences(view: View) -> list[str]:
    """Return the sentences of the summary, at least one; the first is the answer of the page."""
    said = [_overall(view), _summary_hardest(view), _ahead(view), *boxes_in_short(view)]
    return [sentence for sentence in said if sentence] or ["No image was judged."]


def _summary_span(values: pl.Series) -> str:
    low, high = percent(values.min(), 0), percent(values.max(), 0)  # type: ignore[arg-type]
    return low if low == high else between(low, high)


def _overall(view: View) -> str:
    answers = [
        ("clean", view.compute(metrics.accuracy, UNTOUCHED, by=("model",))),
        ("shifted", view.compute(metrics.mean_accuracy, by=("model",))),
    ]
    parts = [
        f"{_summary_span(values)} of the {name} images"
        for name, frame in answers
        if len(values := frame["value"].drop_nulls())
    ]
    whose = "The model is" if len(view.models) == 1 else f"The {len(view.models)} models are"
    return f"{whose} right about {' and '.join(parts)}." if parts else ""


def _summary_hardest(view: View) -> str:
    """Say which shifts cost the most and the least accuracy, over all models, with their 95 % intervals."""
    drops = view.compute(metrics.accuracy_drop, by=("shift",)).drop_nulls("value").sort("value")
    if drops.height < 2:
        return ""
    least, most = drops.row(0, named=True), drops.row(-1, named=True)
    if alike := all_alike("accuracy", drops.height, least["value"], most["value"]):
        return alike
    return (
        f"{most['shift']} costs the most accuracy ({_points(most)}), {least['shift']} the least"
        f" ({_points(least)})."
    )


def _points(row: dict[str, float]) -> str:
    value, low, high = (whole(row[name]) for name in ("value", "low", "high"))
    return f"{value} {unit(value)}, {low} to {high}"


def _ahead(view: View) -> str:
    under = (
        view.compute(metrics.mean_accuracy, by=("model",)).drop_nulls("value").sort("value", descending=True)
    )
    if under.height < 2:
        return ""
    best, next_best = under.row(0, named=True), under.row(1, named=True)
    if not view.comparable:
        return ""
    gaps = view.compute(metrics.paired_difference, other=best["model"]).drop_nulls("value")
    if gaps.height < under.height - 1:
        return "The models were not judged on the same images, so no order of them follows."
    close = gaps.filter(pl.col("high") >= 0).sort("value", descending=True)["model"].to_list()
    if close:
        rivals = (
            " or ".join(close) if len(close) < 4 else f"{', '.join(close[:3])} or {len(close) - 3} others"
        )
        return (
            f"No model is clearly ahead under shift: the same images do not tell {best['model']} apart from"
            f" {rivals}."
        )
    gap = gaps.filter(pl.col("model") == next_best["model"]).row(0, named=True)
    lead = _points({"value": -gap["value"], "low": -gap["high"], "high": -gap["low"]})
    return (
        f"{best['model']} holds up best under shift: it is right about {percent(best['value'])} of the"
        f" images, {next_best['model']} about {percent(next_best['value'])} of the same ({lead})."
    )


# The footer says what the page was made from and how its numbers are defined.


# Characters of a model's version that are shown.
SHOWN = 12
CONVENTIONS = (
    (
        "Intervals are two-sided 95 %: Wilson's for shares, from paired differences for drops, order"
        " statistics for failure severities."
    ),
    (
        "In simulated runs 93 to 97 % of the intervals hold the truth, but for these: calibration errors of"
        " fewer than 1000 images are too high; failure severities pooled over shifts, F1, and risk-coverage"
        " areas, gaps and mAP of few images have intervals that are too narrow (88 to 92 %); FPR and AUPR,"
        " by which scores are judged, have wide ones."
    ),
    (
        "Accuracy under shift is the mean over shifts of the mean over the severities of each shift; every"
        " shift counts the same."
    ),
    (
        "A failure severity is the least severity at which the model is wrong about an image, refined between"
        " the severities of the suite where the run asked for it; it is 0 where the clean image is already"
        " wrong. Survivors are right at every severity."
    ),
    (
        "Accuracy is halved where its curve, joined by straight lines, first comes down to half of the clean"
        " accuracy; what was wrong when clean does not count there. Its interval resamples the images."
    ),
    (
        "One model is called ahead of another only where the 95 % interval of their difference, image by"
        " image, is above 0."
    ),
    "Models whose one-sigma intervals overlap share a rank.",
    (
        "mAP is COCO's: IoU 0.50 to 0.95, the best 100 boxes per image and class, crowds ignored; its"
        " intervals resample images."
    ),
    (
        "An image with an error, or of a class the model does not know, is missing and not wrong; n counts"
        " the judged images."
    ),
)


def footer(view: View) -> Html:
    """Return the footer: what each run was, and the conventions of the numbers."""
    rules = tag(
        "div", tag("h3", "How the numbers are defined"), tag("ul", *(tag("li", rule) for rule in CONVENTIONS))
    )
    written = tag("p", f"Written by Sorites {__version__} from the table of predictions alone.")
    return tag("footer", tag("div", *map(_run, view.runs), rules, cls="columns"), written)


# Keys of the suite that are shown where they are set.
SUITE_KEYS = ("source", "frame", "reference", "limit", "order", "precision", "device", "refine")


def _run(run: RunView) -> Html:
    entries = [
        ("suite", run.name),
        ("the suite says", run.suite.get("about")),
        *((key, run.suite.get(key)) for key in SUITE_KEYS),
        *_models(run),
    ]
    entries += [("seed", run.suite.get("seed")), ("run", run.info.get("run_id"))]
    entries += [(f"chosen for {name}", chosen) for name, chosen in (run.info.get("chosen") or {}).items()]
    entries += [("note", note) for note in run.info.get("fit_notes", ())]
    versions: Mapping[str, Any] = run.info.get("versions") or {}
    entries += [("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))]
    pairs = [
        part
        for key, value in entries
        if value not in (None, "")
        for part in (tag("dt", key), tag("dd", _text(value)))
    ]
    return tag("div", tag("h3", "Run"), tag("dl", *pairs))


def _models(run: RunView) -> list[tuple[str, Any]]:
    """Return the run's models with the beginnings of their versions, those with a name of their own
    with their spec.
    """
    specs = dict(named_spec(spec) for spec in run.suite.get("models", ()))
    told = [
        f"{name}{f' = {specs[name]}' if specs.get(name, name) != name else ''}"
        f" ({str(version or '')[:SHOWN] or 'no version'})"
        for name, version in (run.info.get("models") or {}).items()
    ]
    unsteady = run.info.get("not_repeating") or ()
    why = f"{', '.join(unsteady)}: shown the same images again, other answers came" if unsteady else ""
    return [("models", ", ".join(told)), ("not deterministic", why)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items() if part is not None)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def page(runs: Sequence[RunView], out: Path, partial: bool = False) -> Path:
    """Write the report of one or more runs to ``out``, completely or not at all, and return its path."""
    view = merge(runs, partial)
    write_bytes(render(view).encode("utf-8", errors="replace"), Path(out))
    return Path(out)


def render(view: View) -> Html:
    """Return the whole document."""
    found = sections(view)
    return document(_title(view), _hero(view), found, footer(view))


def document(title: str, top: Html, found: Mapping[str, Section], bottom: Html, style: str = "") -> Html:
    """Return a document of sections.

    Its security policy lets only its own two scripts run and nothing be fetched.

    ``style`` are further rules for a page that looks otherwise.
    """
    import plotly.offline

    body = join([top, _navigation(found), tag("main", *(_section(*item) for item in found.items())), bottom])
    scripts = (
        [plotly.offline.get_plotlyjs(), _asset("page.js")] if 'class="chart"' in body else [_asset("page.js")]
    )
    head = join(
        [
            Html(
                '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            ),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'),
            tag("title", f"{title} · Sorites"),
            Html(f'<link rel="icon" href="data:,"><style>{_asset("page.css")}{style}</style>'),
        ]
    )
    code = join(Html(f"<script>{script}</script>") for script in scripts)
    return Html(f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}{code}</body></html>\n')


def _asset(name: str) -> str:
    return files("sorites.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy, which allows scripts by their hash.

    ``eval`` stays allowed for tools that drive a browser; neither of the scripts uses it.
    """
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rules = [
        f"script-src 'unsafe-eval' {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
    ]
    return "; ".join(["default-src 'none'", *rules, "form-action 'none'"])


def _title(view: View) -> str:
    return " + ".join(dict.fromkeys(run.name for run in view.runs))


def _hero(view: View) -> Html:
    notes = [tag("p", note) for note in view.notes]
    answer, *more = sentences(view)
    words = [
        tag("p", f"Sorites · {_title(view)}", cls="kind"),
        tag("p", "How far can the world shift before the model fails?", cls="question"),
        tag("h1", answer),
        (
            tag("div", tag("h2", "Before you read the numbers"), *notes, cls="notice", role="note")
            if notes
            else EMPTY
        ),
        tag("p", " ".join(more), cls="short") if more else EMPTY,
        tag("p", _counts(view), cls="facts"),
    ]
    return hero(*words)


def hero(*words: Html) -> Html:
    """Return the top of a page: some words beside the drawing of the heaps."""
    return tag("header", tag("div", *words), _heaps(), cls="hero")


def _counts(view: View) -> str:
    """Describe this page's rows in words: how many images of which sources, and which shifts and models."""
    labels = view.table.filter(pl.col("output").is_in(["label", "boxes"]) & pl.col("error").is_null())
    counted = labels.select(
        rows=pl.len(),
        samples=pl.struct("source", "sample_id").n_unique(),
        sources=pl.col("source").unique().sort().implode(),
    ).collect(engine="streaming")
    sources = [name for name in counted["sources"].item() if name]
    limits = {
        name: cut
        for run in view.runs
        for name, cut in (run.info.get("limited") or {}).items()
        if name in sources
    }
    of = f" of {_few(sources)}" if sources else ""
    parts = [
        several(counted["samples"].item(), "image") + of + _cut(limits) + _by_shards(view),
        *([f"{several(len(view.shifts), 'shift')} ({_few(view.shifts)})"] if view.shifts else []),
        several(len(view.models), "model") + (f" ({_few(view.models)})" if view.models else ""),
        several(counted["rows"].item(), "prediction"),
    ]
    return " · ".join(parts)


def _cut(limits: Mapping[str, Sequence[int]]) -> str:
    """Say how many images there are where a limit took fewer."""
    each = [
        f"{count(taken)} of {count(of)}" + (f" of {name}" if len(limits) > 1 else "")
        for name, (taken, of) in limits.items()
    ]
    return f" (a limit of {' and '.join(each)})" if each else ""


def _by_shards(view: View) -> str:
    """Say where images stand in the order of their shards, so that the first are no fair sample of all."""
    cut = any(run.suite.get("order") == "shards" and run.suite.get("limit") for run in view.runs)
    return ", from the first shards of a shuffled order, not a fair sample of all shards" if cut else ""


def _few(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _heaps(sizes: Sequence[int] = (6, 5, 4, 3, 2, 1), gap: float = 7.0) -> Html:
    """Draw the sorites paradox: a heap that loses grains until nobody would call it a heap."""
    grains, left = [], 0.0
    for size in sizes:
        for row in range(size):
            y = gap * (sizes[0] - size + row + 0.6)
            grains += [
                f'<circle cx="{left + gap * (size + 2 * i - row) / 2:.1f}" cy="{y:.1f}" r="2.6"/>'
                for i in range(row + 1)
            ]
        left += gap * (size + 1.5)
    return Html(
        f'<svg viewBox="0 0 {left:.0f} {gap * sizes[0] + 2:.0f}" aria-hidden="true">{"".join(grains)}</svg>'
    )


def _navigation(found: Mapping[str, Section]) -> Html:
    links = [tag("li", tag("a", section.short, href=f"#{name}")) for name, section in found.items()]
    return tag("nav", tag("ul", *links), aria_label="Sections") if links else EMPTY


def _section(name: str, section: Section) -> Html:
    lead = tag("p", section.lead, cls="lead") if section.lead else EMPTY
    return tag("section", tag("h2", section.title), lead, section.body, id=name)

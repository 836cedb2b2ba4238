"""Render the report: one HTML file that needs neither network nor server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from sorites import __version__, metrics
from sorites.core import named_spec
from sorites.evaluation.storage.schema import RunRecord
from sorites.io.files import write_bytes
from sorites.metrics.detection.scenes import without_ground_truth
from sorites.reports.components.markup import EMPTY, THIN, Html, between, count, join, percent, several, tag
from sorites.reports.section import Section, sections
from sorites.reports.sections.data import assumed_note
from sorites.reports.view import UNTOUCHED, RunView, View, box_models, merge
from sorites.suites.suite import Suite, builtin_suites, load

# --- Costs of shifts in whole points


def whole(share: float) -> str:
    """Format a share as whole percentage points."""
    return f"{round(100 * share)}".replace("-", "−")


def unit(value: str) -> str:
    """Return "point" or "points" for a formatted number."""
    return "point" if value in ("1", "−1") else "points"


def all_alike(what: str, count: int, least: float, most: float) -> str:
    """Return a sentence if all shifts cost the same number of whole points, else an empty string."""
    cost = whole(most)
    return (
        f"All {count} shifts cost about the same {what}, {cost} {unit(cost)}." if cost == whole(least) else ""
    )


# --- Summary of detectors


def boxes_in_short(view: View) -> list[str]:
    """Return sentences on clean and shifted mAP and on the costliest shifts; none without detectors."""
    clean = view.compute(metrics.map, UNTOUCHED, by=("model",)).drop_nulls("value")
    if clean.is_empty():
        return (
            ["No image was evaluated, because the source has no ground-truth boxes."]
            if without_ground_truth(view.table)
            else []
        )
    shifted = view.compute(metrics.mean_map, by=("model",)).drop_nulls("value")
    parts = [
        f"{_span(clean)} on clean images",
        *([f"{_span(shifted)} on shifted images"] if shifted.height else []),
    ]
    subject = "The detector has" if clean.height == 1 else f"The {clean.height} detectors have"
    return [f"{subject} a mAP of {' and '.join(parts)}.", *_costs_of_map(view)]


def _span(frame: pl.DataFrame) -> str:
    """Format one value with its interval, or the range of several."""
    if frame.height == 1:
        row = frame.row(0, named=True)
        ends = (
            f" ({between(percent(row['low'], 0), percent(row['high'], 0))})" if row["low"] is not None else ""
        )
        return percent(row["value"], 0) + ends
    return between(percent(frame["value"].min(), 0), percent(frame["value"].max(), 0))  # type: ignore[arg-type]


def _costs_of_map(view: View) -> list[str]:
    drops = view.compute(metrics.map_drop, by=("model", "shift")).drop_nulls("value")
    means = drops.group_by("shift").agg(pl.col("value").mean()).sort("value", "shift")
    if means.height < 2:
        return []
    (least, low), (most, high) = means.row(0), means.row(-1)
    averaged = "" if drops["model"].n_unique() == 1 else ", on average over detectors"
    if alike := all_alike("mAP", means.height, low, high):
        return [f"{alike[:-1]}{averaged}."]
    highest, lowest = (f"{cost} {unit(cost)}" for cost in (whole(high), whole(low)))
    return [f"{most} costs the most mAP ({highest}), {least} the least ({lowest}){averaged}."]


# --- Summary of classifiers; a model is called better only if paired differences on the same images show it


def sentences(view: View) -> list[str]:
    """Return the sentences of the summary, at least one: accuracy, costs of shifts, and the best model."""
    summary = [_accuracies(view), _costs_of_accuracy(view), _best_model(view), *boxes_in_short(view)]
    return [sentence for sentence in summary if sentence] or [_nothing(view)]


def _nothing(view: View) -> str:
    """Return why there is no accuracy: no predictions, or none that can be judged."""
    predicted = view.table.filter(pl.col("output").is_in(["label", "boxes"]) & pl.col("error").is_null())
    if predicted.select(pl.len()).collect(engine="streaming").item():
        return "No image has a label, so no prediction can be judged as correct or misclassified."
    return "No image was evaluated."


def _range(values: pl.Series) -> str:
    low, high = percent(values.min(), 0), percent(values.max(), 0)  # type: ignore[arg-type]
    return low if low == high else between(low, high)


def _accuracies(view: View) -> str:
    frames = [
        ("clean", view.compute(metrics.accuracy, UNTOUCHED, by=("model",))),
        ("shifted", view.compute(metrics.mean_accuracy, by=("model",))),
    ]
    parts = [
        f"{_range(values)} of the {name} images"
        for name, frame in frames
        if len(values := frame["value"].drop_nulls())
    ]
    subject = "The model classifies" if len(view.models) == 1 else f"The {len(view.models)} models classify"
    return f"{subject} {' and '.join(parts)} correctly." if parts else ""


def _costs_of_accuracy(view: View) -> str:
    """Return a sentence on the shifts that cost most and least accuracy, over all models."""
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
    value = whole(row["value"])
    if row["low"] is None or row["high"] is None:
        return f"{value} {unit(value)}"
    return f"{value} {unit(value)}, {whole(row['low'])} to {whole(row['high'])}"


def _best_model(view: View) -> str:
    means = view.compute(metrics.mean_accuracy, by=("model",)).drop_nulls("value")
    shifted = means.sort("value", "model", descending=[True, False])
    if shifted.height < 2:
        return ""
    best, next_best = shifted.row(0, named=True), shifted.row(1, named=True)
    if not view.comparable:
        return ""
    gaps = view.compute(metrics.paired_difference, other=best["model"]).drop_nulls("value")
    if gaps.height < shifted.height - 1:
        return "The models were not evaluated on the same images, so they are not ranked."
    rival = gaps.filter((pl.col("high") >= 0).fill_null(True))
    close = rival.sort("value", "model", descending=[True, False])["model"].to_list()
    if close:
        rivals = (
            " or ".join(close) if len(close) < 4 else f"{', '.join(close[:3])} or {len(close) - 3} others"
        )
        return (
            f"No model is clearly best under shift: on the same images, {best['model']} is not significantly"
            " better"
            f" than {rivals}."
        )
    gap = gaps.filter(pl.col("model") == next_best["model"]).row(0, named=True)
    lead = _points({"value": -gap["value"], "low": -gap["high"], "high": -gap["low"]})
    return (
        f"{best['model']} is best under shift: it classifies {percent(best['value'])} of the images"
        " correctly,"
        f" {next_best['model']} {percent(next_best['value'])} of the same images ({lead})."
    )


# --- Footer: what the page was made from, and how its numbers are defined

# Number of characters shown of a model's version.
VERSION_LENGTH = 12
CONVENTIONS = (
    (
        "Intervals are two-sided 95 %: Wilson's for shares, from paired differences for drops, order"
        " statistics for failure severities."
    ),
    (
        "In simulations, 93 to 98 % of the intervals of 100 or 1000 samples contain the true value, and 93 to"
        " 99 % of those of 20 samples."
    ),
    (
        "Accuracy under shift is the mean over shifts of the mean over severities, so every shift has equal"
        " weight."
    ),
    (
        "A failure severity is the least severity at which an image is misclassified, refined between the"
        " severities of the suite if the run asked for it; it is 0 if the clean image is misclassified."
        " Survivors are correct at every severity."
    ),
    (
        "The half-accuracy severity is where the accuracy curve, interpolated linearly, first falls half-way"
        " from clean accuracy to chance, the accuracy of a guess. Its interval resamples samples."
    ),
    (
        "A model is called better than another only if the 95 % interval of their paired difference is above"
        " 0."
    ),
    "Models share a rank unless their paired difference on the same images is clear.",
    (
        "An image with an error, or of a class that the model does not have, counts as missing, not as"
        " misclassified; n counts samples unless it names images."
    ),
)
MAP_CONVENTION = (
    "mAP is COCO's: IoU 0.50 to 0.95, the best 100 boxes per image and class, crowds ignored; its intervals"
    " resample images."
)


def footer(view: View) -> Html:
    """Return the footer: the settings of each run, and the conventions of the numbers."""
    rules = [*CONVENTIONS, *([MAP_CONVENTION] if box_models(view) else [])]
    defined = tag(
        "div", tag("h3", "How the numbers are defined"), tag("ul", *(tag("li", rule) for rule in rules))
    )
    written = tag("p", f"Written by Sorites {__version__} from the table of predictions.")
    return tag("footer", tag("div", *map(_run, view.runs), defined, cls="columns"), written)


# Keys of the suite that are shown if they are set.
SUITE_KEYS = ("source", "frame", "reference", "limit", "order", "precision", "device", "refine")


def _run(run: RunView) -> Html:
    entries: list[tuple[str, Any]] = [("suite", run.name)]
    if (record := run.record) is not None:
        suite = record.suite.model_dump(mode="json", include={"about", "seed", *SUITE_KEYS})
        versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        about = "" if _on_other_images(record.suite) else suite["about"]
        entries += [("about", about), *((key, suite[key]) for key in SUITE_KEYS)]
        entries += [*_models(record), ("seed", suite["seed"]), ("run", record.run_id)]
        entries += [(f"chosen for {name}", fit.chosen()) for name, fit in run.fits.items() if fit.search]
        entries += [
            ("note", f"{name}: {note}") for name, fit in run.fits.items() for note in fit.notes.values()
        ]
        entries += [("versions", versions)]
    pairs = [
        part
        for key, value in entries
        if value not in (None, "")
        for part in (tag("dt", key), tag("dd", _text(value)))
    ]
    return tag("div", tag("h3", "Run"), tag("dl", *pairs))


def _on_other_images(suite: Suite) -> bool:
    """Return whether a built-in suite was run on other images than its description is about."""
    return suite.name in builtin_suites() and load(suite.name).source != suite.source


def _models(record: RunRecord) -> list[tuple[str, str]]:
    """Return the models of a run with abbreviated versions, and with their spec if they were renamed."""
    specs = dict(named_spec(spec) for spec in record.suite.models)
    models = [
        f"{name}{f' = {specs[name]}' if specs.get(name, name) != name else ''}"
        f" ({str(version or '')[:VERSION_LENGTH] or 'no version'})"
        for name, version in record.models.items()
    ]
    nondeterministic = record.not_repeating
    why = f"{', '.join(nondeterministic)}: repeated inputs gave different outputs" if nondeterministic else ""
    return [("models", ", ".join(models)), ("not deterministic", why)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items() if part is not None)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def page(runs: Sequence[RunView], out: Path, partial: bool = False) -> Path:
    """Write the report of one or more runs to ``out`` atomically, and return its path."""
    view = merge(runs, partial)
    write_bytes(render(view).encode("utf-8", errors="replace"), Path(out))
    return Path(out)


def render(view: View) -> Html:
    """Return the whole document."""
    return document(_title(view), _hero(view), sections(view), footer(view))


# The id of the element that contains the data of a page.
DATA = "sorites-document"


def document(
    title: str,
    top: Html,
    found: Mapping[str, Section],
    bottom: Html,
    style: str = "",
    data: Mapping[str, Any] | None = None,
) -> Html:
    """Return a document of sections.

    Its content security policy allows only its own scripts, and no network access.

    Args:
        title: The title of the document.
        top: The header, usually a ``hero``.
        found: The sections by their id.
        bottom: The footer.
        style: Additional CSS.
        data: The document that the page shows, embedded as JSON for programs.
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
    if data is not None:
        # Within a script element nothing is escaped, so no "<" may occur.
        text = json.dumps(data, indent=1).replace("<", "\\u003c")
        code = join([Html(f'<script type="application/json" id="{DATA}">{text}</script>'), code])
    return Html(f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}{code}</body></html>\n')


def _asset(name: str) -> str:
    return files("sorites.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy, which allows scripts by hash.

    ``eval`` stays allowed for browser automation; neither script uses it.
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
    notes = [tag("p", note) for note in (*view.notes, assumed_note(view)) if note]
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


def hero(*texts: Html) -> Html:
    """Return the header of a page: text beside the drawing of the heaps."""
    return tag("header", tag("div", *texts), _heaps(), cls="hero")


def _counts(view: View) -> str:
    """Summarise the data: the number of images, sources, shifts, models and predictions."""
    labels = view.table.filter(pl.col("output").is_in(["label", "boxes"]) & pl.col("error").is_null())
    counted = labels.select(
        rows=pl.len(),
        samples=pl.struct("source", "sample_id").n_unique(),
        sources=pl.col("source").unique().sort().implode(),
    ).collect(engine="streaming")
    sources = [name for name in counted["sources"].item() if name]
    limits = {
        name: taken for record in view.records for name, taken in record.limited.items() if name in sources
    }
    of = f" of {_few(sources)}" if sources else ""
    parts = [
        several(counted["samples"].item(), "sample") + of + _cut(limits) + _by_shards(view),
        *([f"{several(len(view.shifts), 'shift')} ({_few(view.shifts)})"] if view.shifts else []),
        several(len(view.models), "model") + (f" ({_few(view.models)})" if view.models else ""),
        several(counted["rows"].item(), "prediction"),
    ]
    return " · ".join(parts)


def _cut(limits: Mapping[str, Sequence[int]]) -> str:
    """Return how many images a limit took, and of how many."""
    each = [
        f"{count(taken)} of {count(of)}" + (f" of {name}" if len(limits) > 1 else "")
        for name, (taken, of) in limits.items()
    ]
    return f" (a limit of {' and '.join(each)})" if each else ""


def _by_shards(view: View) -> str:
    """Return a warning if a limit took the first shards, which are no random sample."""
    cut = any(record.suite.order == "shards" and record.suite.limit for record in view.records)
    return ", from the first shards, not a random sample" if cut else ""


def _few(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _heaps(sizes: Sequence[int] = (6, 5, 4, 3, 2, 1), gap: float = 7.0) -> Html:
    """Draw the sorites paradox: a heap that loses grains until it is no heap."""
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


def _navigation(sections_by_id: Mapping[str, Section]) -> Html:
    links = [tag("li", tag("a", section.short, href=f"#{name}")) for name, section in sections_by_id.items()]
    return tag("nav", tag("ul", *links), aria_label="Sections") if links else EMPTY


def _unbroken(text: str) -> str:
    """Keep a number and its percent sign on one line."""
    return text if isinstance(text, Html) else re.sub(r"(?<=\d) %", f"{THIN}%", text)


def _section(name: str, section: Section) -> Html:
    lead = tag("p", _unbroken(section.lead), cls="lead") if section.lead else EMPTY
    return tag("section", tag("h2", section.title), lead, section.body, id=name)

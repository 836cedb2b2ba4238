"""The page is one HTML file that needs neither network nor server."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import polars as pl

from sorites.files import write_bytes
from sorites.reports.parts.footer import footer
from sorites.reports.parts.markup import EMPTY, Html, count, join, several, tag
from sorites.reports.parts.summary import sentences
from sorites.reports.section import Section, sections
from sorites.reports.view import RunView, View, merge


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
    """Return a document of sections. Its security policy lets only its own two scripts run and nothing be fetched.

    ``style`` are further rules for a page that looks otherwise.
    """
    import plotly.offline

    body = join([top, _navigation(found), tag("main", *(_section(*item) for item in found.items())), bottom])
    scripts = [plotly.offline.get_plotlyjs(), _asset("page.js")] if 'class="chart"' in body else [_asset("page.js")]
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
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
    rules = [f"script-src 'unsafe-eval' {allowed}", "style-src 'unsafe-inline'", "img-src data:", "base-uri 'none'"]
    return "; ".join(["default-src 'none'", *rules, "form-action 'none'"])


def _title(view: View) -> str:
    return " + ".join(dict.fromkeys(run.name for run in view.runs))


def _hero(view: View) -> Html:
    notes = [tag("p", join(note.split("--partial"), tag("code", "--partial"))) for note in view.notes]
    answer, *more = sentences(view)
    words = [
        tag("p", f"Sorites · {_title(view)}", cls="kind"),
        tag("p", "How far can the world shift before the model fails?", cls="question"),
        tag("h1", answer),
        tag("div", tag("h2", "Before you read the numbers"), *notes, cls="notice", role="note") if notes else EMPTY,
        tag("p", " ".join(more), cls="short") if more else EMPTY,
        tag("p", _counts(view), cls="facts"),
    ]
    return hero(*words)


def hero(*words: Html) -> Html:
    """Return the top of a page: some words beside the drawing of the heaps."""
    return tag("header", tag("div", *words), _heaps(), cls="hero")


def _counts(view: View) -> str:
    """Describe this page's rows in words: how many pictures of which sources, and which shifts and models."""
    labels = view.table.filter(pl.col("output").is_in(["label", "boxes"]) & pl.col("error").is_null())
    counted = labels.select(
        rows=pl.len(), samples=pl.struct("source", "sample_id").n_unique(), sources=pl.col("source").unique().sort().implode()
    ).collect(engine="streaming")
    sources = [name for name in counted["sources"].item() if name]
    limits = {name: cut for run in view.runs for name, cut in (run.info.get("limited") or {}).items() if name in sources}
    of = f" of {_few(sources)}" if sources else ""
    parts = [
        several(counted["samples"].item(), "picture") + of + _cut(limits) + _by_shards(view),
        *([f"{several(len(view.shifts), 'shift')} ({_few(view.shifts)})"] if view.shifts else []),
        several(len(view.models), "model") + (f" ({_few(view.models)})" if view.models else ""),
        several(counted["rows"].item(), "prediction"),
    ]
    return " · ".join(parts)


def _cut(limits: Mapping[str, Sequence[int]]) -> str:
    """Say how many pictures there are where a limit took fewer."""
    each = [f"{count(taken)} of {count(of)}" + (f" of {name}" if len(limits) > 1 else "") for name, (taken, of) in limits.items()]
    return f" (a limit of {' and '.join(each)})" if each else ""


def _by_shards(view: View) -> str:
    """Say where pictures stand in the order of their shards, so that the first are no fair sample of all."""
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
            grains += [f'<circle cx="{left + gap * (size + 2 * i - row) / 2:.1f}" cy="{y:.1f}" r="2.6"/>' for i in range(row + 1)]
        left += gap * (size + 1.5)
    return Html(f'<svg viewBox="0 0 {left:.0f} {gap * sizes[0] + 2:.0f}" aria-hidden="true">{"".join(grains)}</svg>')


def _navigation(found: Mapping[str, Section]) -> Html:
    links = [tag("li", tag("a", section.short, href=f"#{name}")) for name, section in found.items()]
    return tag("nav", tag("ul", *links), aria_label="Sections") if links else EMPTY


def _section(name: str, section: Section) -> Html:
    lead = tag("p", section.lead, cls="lead") if section.lead else EMPTY
    return tag("section", tag("h2", section.title), lead, section.body, id=name)

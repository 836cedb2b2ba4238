"""What the page was made from, and by which rules its numbers were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sorites import __version__
from sorites.reports.parts.markup import Html, tag
from sorites.reports.view import RunView, View

CONVENTIONS = (
    "Intervals are two-sided 95 %: Wilson for shares, from paired differences for drops, order statistics for failure points.",
    "Under shift: the mean over shifts of the mean over the stops of each dial; every shift counts the same.",
    "A failure point is the least severity at which the model is wrong, refined between stops where the run was asked to; "
    "0 where the clean picture is wrong already. Survivors stand above the top of the dial.",
    "Ranks: models whose one-sigma intervals overlap share a rank.",
    "A picture with an error, or with a class the model does not know, is missing and not wrong; n says how many were judged.",
)


def footer(view: View) -> Html:
    rules = tag("div", tag("h3", "How the numbers are made"), tag("ul", *(tag("li", rule) for rule in CONVENTIONS)))
    made = tag("p", f"Written by Sorites {__version__} from the table of predictions alone.")
    return tag("footer", tag("div", *map(_run, view.runs), rules, cls="columns"), made)


def _run(run: RunView) -> Html:
    facts = [("suite", run.name), *((key, run.suite.get(key)) for key in ("source", "frame", "reference", "limit", "refine"))]
    facts += [("seed", run.suite.get("seed")), ("run", run.info.get("run_id"))]
    versions: Mapping[str, Any] = run.info.get("versions") or {}
    facts += [("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))]
    pairs = [part for key, value in facts if value not in (None, "") for part in (tag("dt", key), tag("dd", _say(value)))]
    return tag("div", tag("h3", "Run"), tag("dl", *pairs))


def _say(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_say(part)}" for key, part in value.items() if part is not None)
    return value if isinstance(value, str) else json.dumps(value, default=str)

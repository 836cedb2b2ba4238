"""The footer says what the page was made from and how its numbers are defined."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sorites import __version__
from sorites.core import named_spec
from sorites.reports.parts.markup import Html, tag
from sorites.reports.view import RunView, View

SHOWN = 12
"""Characters of a model's version that are shown."""
CONVENTIONS = (
    "Intervals are two-sided 95 %: Wilson's for shares, from paired differences for drops, order statistics for failure points.",
    "In simulated runs 93 to 97 % of the intervals hold the truth, but for these: calibration errors of fewer than 1000 pictures "
    "are too high; failure points pooled over shifts, F1, and risk-coverage areas, gaps and mAP of few pictures have intervals "
    "that are too narrow (88 to 92 %); FPR and AUPR, by which scores are judged, have wide ones.",
    "Accuracy under shift is the mean over shifts of the mean over the severities of each shift; every shift counts the same.",
    "A failure point is the least severity at which the model is wrong about a picture, refined between the severities of the "
    "suite where the run asked for it; it is 0 where the clean picture is already wrong. Survivors are right at every severity.",
    "Accuracy is halved where its curve, joined by straight lines, first comes down to half of the clean accuracy; what was "
    "wrong when clean does not count there. Its interval resamples the pictures.",
    "One model is called ahead of another only where the 95 % interval of their difference, picture by picture, is above 0.",
    "Models whose one-sigma intervals overlap share a rank.",
    "mAP is COCO's: IoU 0.50 to 0.95, the best 100 boxes per picture and class, crowds ignored; its intervals resample pictures.",
    "A picture with an error, or of a class the model does not know, is missing and not wrong; n counts the judged pictures.",
)


def footer(view: View) -> Html:
    """Return the footer: what each run was, and the conventions of the numbers."""
    rules = tag("div", tag("h3", "How the numbers are defined"), tag("ul", *(tag("li", rule) for rule in CONVENTIONS)))
    written = tag("p", f"Written by Sorites {__version__} from the table of predictions alone.")
    return tag("footer", tag("div", *map(_run, view.runs), rules, cls="columns"), written)


SUITE_KEYS = ("source", "frame", "reference", "limit", "order", "precision", "device", "refine")
"""Keys of the suite that are shown where they are set."""


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
    pairs = [part for key, value in entries if value not in (None, "") for part in (tag("dt", key), tag("dd", _text(value)))]
    return tag("div", tag("h3", "Run"), tag("dl", *pairs))


def _models(run: RunView) -> list[tuple[str, Any]]:
    """Return the run's models with the beginnings of their versions, those with a name of their own with their spec."""
    specs = dict(named_spec(spec) for spec in run.suite.get("models", ()))
    told = [
        f"{name}{f' = {specs[name]}' if specs.get(name, name) != name else ''} ({str(version or '')[:SHOWN] or 'no version'})"
        for name, version in (run.info.get("models") or {}).items()
    ]
    unsteady = run.info.get("not_repeating") or ()
    why = f"{', '.join(unsteady)}: shown the same pictures again, other answers came" if unsteady else ""
    return [("models", ", ".join(told)), ("not deterministic", why)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items() if part is not None)
    return value if isinstance(value, str) else json.dumps(value, default=str)

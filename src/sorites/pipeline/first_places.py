"""Keep the first places of a run's pictures: its id follows from the specs of that time, and stays when pictures move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sorites.core import split_spec
from sorites.suite import Suite

KEY = "first_places"
"""The key of ``run.json`` that keeps the first specs of sources that have moved since."""


def first_places(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specs of a run's sources as they were when it began."""
    suite = before["suite"]
    now = {
        "source": suite.get("source"),
        "sources": [entry.get("spec") for entry in suite.get("sources") or ()],
        "fit": (suite.get("fit") or {}).get("source"),
    }
    return {**now, **(before.get(KEY) or {})}


def at_first_places(suite: Suite, before: Mapping[str, Any]) -> Suite:
    """Return the suite with its sources where a run had them first, as far as the same readers read them."""
    then = first_places(before)
    entries = [
        entry.model_copy(update={"spec": _former(entry.spec, spec)})
        for entry, spec in zip(suite.sources, [*then["sources"], *[None] * len(suite.sources)], strict=False)
    ]
    changed: dict[str, Any] = {"source": _former(suite.source, then["source"]), "sources": tuple(entries)}
    if suite.fit is not None:
        changed["fit"] = suite.fit.model_copy(update={"source": _former(suite.fit.source, then["fit"])})
    return suite.model_copy(update=changed)


def _former(spec: str, then: Any) -> str:
    return then if isinstance(then, str) and split_spec(then)[0] == split_spec(spec)[0] else spec

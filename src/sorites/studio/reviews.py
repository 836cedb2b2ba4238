"""Keep the reviewers' remarks on the sheets: an append-only file of flags, and the pictures that must be shot again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sorites.studio import log as logs
from sorites.studio.folder import CaptureFolder

NAME = "review.jsonl"
KINDS = {"crop": "crop error", "missed": "missed picture", "label": "label mismatch"}
"""The issues that the paper's reviewers documented."""


def verdicts(folder: CaptureFolder) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the last verdict of every reviewer on every picture."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in logs.read(folder.root / NAME):
        if line["event"] == "verdict" and isinstance(line.get("sample"), str):
            found[str(line.get("reviewer", "")), line["sample"]] = line
    return found


def flagged(folder: CaptureFolder) -> frozenset[str]:
    """Return the pictures that anyone flagged and that were not shot again since."""
    last: dict[str, float] = {}
    for line in folder.done().values():
        sample, when = str(line["sample"]), float(line["time"])
        last[sample] = min(last.get(sample, when), when)
    flags = {sample: line for (_, sample), line in verdicts(folder).items() if line.get("flags")}
    return frozenset(sample for sample, line in flags.items() if last.get(sample, 0.0) < float(line["time"]))

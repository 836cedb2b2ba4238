"""Say in words what every model of a run does to a picture before it looks at it, and whether pictures have labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from sorites.pipeline.plan import Plan

LOOKED = 100_000
"""The most pictures among which one with a label is looked for."""


def input_lines(plan: Plan) -> list[str]:
    """Return a line for each model: how it scales, crops and normalises a picture."""
    framed = plan.suite.frame is not None
    return [f"{name} sees {input_words(model.input, framed)}" for name, model in plan.models.items()]


def note_unlabelled(plan: Plan) -> str:
    """Say that no picture has a label or true boxes; no words where one has, which is looked for among the first."""
    samples = itertools.islice((sample for group in plan.groups.values() for sample in group), LOOKED)
    if any(sample.label is not None or sample.accept or sample.truth is not None for sample in samples):
        return ""
    return f"no picture of {plan.suite.source} has a label that the run knows, so that no answer can be right or wrong"


def input_words(told: Mapping[str, Any], framed: bool = False) -> str:
    """Say in one line what a model's input is; a framed picture is only scaled, never cropped."""
    if not told:
        return "pictures as they are; what it does with them is its own"
    tall, wide = told["size"]
    scaled = "the frame scaled" if framed else _cropped(told)
    return f"{wide} x {tall} px: {scaled} ({told['filter']}); mean {_numbers(told['mean'])}, std {_numbers(told['std'])}"


def _cropped(told: Mapping[str, Any]) -> str:
    sides = sorted({math.floor(side / told["crop_pct"]) for side in told["size"]})
    to = " and ".join(map(str, sides))
    if told["mode"] == "squash":
        return f"both sides scaled to {to} and the middle cut out"
    return f"the shorter side scaled to {to} and the middle cut out"


def _numbers(values: Any) -> str:
    return " ".join(f"{value:.3g}" for value in values)

"""Rules of a gate as they are typed: ``drop > 2``, ``failure_point.defocus_disk < 0.9 * base``; read before any work."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from sorites.errors import SoritesError, UnknownName
from sorites.frame import Strict
from sorites.reading.mistakes import mistakes
from sorites.reading.texts import toml_file

METRICS = {
    "drop": "accuracy of the base minus that of the new model, in points",
    "accuracy": "accuracy of the new model, in percent",
    "failure_point": "median severity at which pictures are first judged wrong, in the unit of the dial",
    "half_accuracy": "severity at which half of the clean accuracy is lost, in the unit of the dial",
}
"""The numbers that a rule can limit, with their meaning."""
IN_PERCENT = ("drop", "accuracy")
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)"
_RULE = re.compile(r"\s*([A-Za-z_]\w*)(?:\.([\w.:/-]+))?\s*(<=|>=|<|>|==|=)\s*(.+?)\s*", re.IGNORECASE)
_PLAIN = re.compile(rf"({NUMBER})", re.IGNORECASE)
_TIMES = re.compile(rf"({NUMBER})\s*\*\s*base|base\s*\*\s*({NUMBER})", re.IGNORECASE)
_PLUS = re.compile(rf"base(?:\s*([+-])\s*({NUMBER}))?", re.IGNORECASE)
EXAMPLES = '"drop > 2", "drop.clean > 1", "accuracy.rain < base - 3" or "failure_point.defocus_disk < 0.9 * base"'


@dataclass(frozen=True)
class Rule:
    """``metric`` on a dial (None: on each) fails below or above ``times`` x base + ``plus``."""

    text: str
    metric: str
    dial: str | None
    above: bool
    times: float
    plus: float

    def limit(self, base: float) -> float:
        """Return the limit where the base model has this value."""
        return self.times * base + self.plus


def parse(text: str) -> Rule:
    """Read a rule; one that cannot be meant is an error that says what can be typed."""
    found = _RULE.fullmatch(text)
    if not found:
        raise SoritesError(f"wanted a rule such as {EXAMPLES}, got {text!r}")
    metric, dial, sign, right = found.groups()
    if metric not in METRICS:
        raise UnknownName("metric of a gate", metric, METRICS, f"There are {', '.join(METRICS)}.")
    if sign not in ("<", ">"):
        raise SoritesError(f"a rule fails on < or >, got {sign} in {text!r}")
    times, plus = _limit(right, text)
    if not (math.isfinite(times) and math.isfinite(plus)):
        raise SoritesError(f"wanted a finite number in {text!r}, got {right}")
    if metric == "drop" and times:
        raise SoritesError(f'a drop is measured from the base already: type "drop > 2" instead of {text!r}')
    scale = 100 if metric in IN_PERCENT else 1
    return Rule(" ".join(text.split()), metric, dial, sign == ">", times, plus / scale)


def _limit(right: str, text: str) -> tuple[float, float]:
    if plain := _PLAIN.fullmatch(right):
        return 0.0, float(plain[1])
    if times := _TIMES.fullmatch(right):
        return float(times[1] or times[2]), 0.0
    if plus := _PLUS.fullmatch(right):
        return 1.0, float(plus[2] or 0) * (-1 if plus[1] == "-" else 1)
    raise SoritesError(f"wanted a number, 0.9 * base, or base - 2 on the right of {text!r}, got {right!r}")


class Gate(Strict):
    """A file of rules: ``fail_if = ["drop > 2"]``, with how often equal models may fail and what is judged."""

    fail_if: tuple[str, ...] = Field(min_length=1)
    error_rate: float = Field(default=0.05, gt=0, lt=0.5, allow_inf_nan=False)
    """The rate at which two equal models fail on any rule."""
    judge: Literal["bound", "estimate"] = "bound"
    """``bound``: the bound of the paired interval must break the limit; ``estimate``: the estimate alone decides."""


def read_gate(path: Path) -> Gate:
    """Read a gate from its TOML file; each mistake stands on a line of its own."""
    held: dict[str, Any] = toml_file(path, 'a gate in TOML: fail_if = ["drop > 2"]')
    try:
        return Gate.model_validate(held)
    except ValidationError as error:
        raise SoritesError("\n".join(f"{path}: {line}" for line in mistakes(error, Gate))) from error


def rules_of(gate: Gate) -> list[Rule]:
    """Return the rules of a gate, each read."""
    return [parse(text) for text in gate.fail_if]


def with_rules(texts: Sequence[str], gate: Path | None, estimate: bool) -> Gate | None:
    """Return the gate that a command line asks for, or None where it asks for none."""
    if gate is None and not texts:
        return None
    held = read_gate(gate) if gate is not None else Gate(fail_if=tuple(texts))
    both = held.model_copy(update={"fail_if": (*held.fail_if, *(texts if gate is not None else ()))})
    return both.model_copy(update={"judge": "estimate"}) if estimate else both

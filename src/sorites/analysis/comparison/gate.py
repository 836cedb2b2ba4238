"""The gate: which rules a new model breaks, by how much, and what it could have noticed.

A rule about accuracies is judged by flipping the sides of samples (``statistics.flips``): the
bounds of all dials hold together, so that equal models break a rule on any dial at no more than its
rate. A rule about failure severities is judged by the bootstrap over samples, with Bonferroni's share
of the rate for each dial. Several rules share the rate out evenly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from sorites.analysis.comparison.compare import Comparison
from sorites.analysis.comparison.pairs import ALL
from sorites.analysis.comparison.statistics import POWER, flips, noticed
from sorites.core.errors import SoritesError, UnknownName
from sorites.io.readers import toml_file
from sorites.io.validation import mistakes
from sorites.suites.suite import Strict

# Rules of a gate as they are typed: ``drop > 2``, ``failure_severity.defocus_disk < 0.9 * base``; read
# before any work.


# The numbers that a rule can limit, with their meaning.
METRICS = {
    "drop": "accuracy of the base minus that of the new model, in points",
    "accuracy": "accuracy of the new model, in percent",
    "failure_severity": "median severity at which images are first judged wrong, in the unit of the dial",
    "half_accuracy_severity": "severity at which half of the clean accuracy is lost, in the unit of the dial",
}
IN_PERCENT = ("drop", "accuracy")
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)"
_RULE = re.compile(r"\s*([A-Za-z_]\w*)(?:\.([\w.:/-]+))?\s*(<=|>=|<|>|==|=)\s*(.+?)\s*", re.IGNORECASE)
_PLAIN = re.compile(rf"({NUMBER})", re.IGNORECASE)
_TIMES = re.compile(rf"({NUMBER})\s*\*\s*base|base\s*\*\s*({NUMBER})", re.IGNORECASE)
_PLUS = re.compile(rf"base(?:\s*([+-])\s*({NUMBER}))?", re.IGNORECASE)
EXAMPLES = (
    '"drop > 2", "drop.clean > 1", "accuracy.rain < base - 3" or "failure_severity.defocus_disk < 0.9 * base"'
)


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
    """A file of rules: ``fail_if = ["drop > 2"]``, with how often equal models may fail and what is
    judged.
    """

    fail_if: tuple[str, ...] = Field(min_length=1)
    error_rate: float = Field(default=0.05, gt=0, lt=0.5, allow_inf_nan=False)
    """The rate at which two equal models fail on any rule."""
    judge: Literal["bound", "estimate"] = "bound"
    """``bound``: the bound of the paired interval must break the limit; ``estimate``: the estimate
    alone decides.
    """


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


@dataclass(frozen=True)
class Verdict:
    """A rule on one dial: the value with its bound, the limit, and whether the rule is broken.

    Shares are fractions.
    """

    rule: Rule
    dial: str
    value: float
    bound: float
    limit: float
    broken: bool
    n: int
    detectable: float | None
    """The distance beyond the limit that is noticed in four of five cases; None where there is
    none, or it is not known.
    """

    @property
    def by(self) -> float:
        """Return how far the value lies beyond the limit; negative where it is within."""
        return self.value - self.limit if self.rule.above else self.limit - self.value

    def __str__(self) -> str:
        """Say in one line what was found."""
        unit = " points" if self.rule.metric == "drop" else " %" if self.rule.metric == "accuracy" else ""
        scale = 100 if self.rule.metric in IN_PERCENT else 1

        def told(value: float) -> str:
            return f"{round(scale * value, 6) + 0.0:.3g}"

        side = "at least" if self.rule.above else "at most"
        found = (
            f"{self.rule.metric}.{self.dial} is {told(self.value)}{unit} ({side} {told(self.bound)}), limit"
            f" {told(self.limit)}"
        )
        where = f"beyond by {told(self.by)}" if self.by > 0 else f"within by {told(abs(self.by))}"
        return f"{found}, {where}, n = {self.n}; {self._power(told)}"

    def _power(self, told: Callable[[float], str]) -> str:
        """Say what the check would have noticed."""
        if self.detectable is not None:
            return f"{told(self.detectable)} beyond would be noticed with {POWER:.0%} power"
        if self.rule.metric in IN_PERCENT:
            return f"with so few images nothing would be noticed with {POWER:.0%} power"
        if not self.rule.above and self.limit <= 0:
            return "nothing can lie beyond this limit"
        return "its power is not known"


def judge(found: Comparison, gate: Gate) -> list[Verdict]:
    """Judge every rule on its dials."""
    rules = rules_of(gate)
    return [
        one
        for rule in rules
        for one in _judged(found, rule, gate.error_rate / len(rules), gate.judge == "estimate")
    ]


def _judged(found: Comparison, rule: Rule, rate: float, estimate: bool) -> list[Verdict]:
    if rule.metric in IN_PERCENT:
        return _means(
            found, rule, _dials(rule, (*found.matrix.dials, ALL), found.matrix.dials), rate, estimate
        )
    if not found.curves:
        raise SoritesError(f"{rule.text!r}: no dial of these runs has an order that images could fail along")
    return _points(found, rule, _dials(rule, tuple(found.curves), tuple(found.curves)), rate, estimate)


def _dials(rule: Rule, known: Sequence[str], each: Sequence[str]) -> Sequence[str]:
    if rule.dial is None:
        return each
    if rule.dial not in known:
        raise UnknownName("dial", rule.dial, known, f"These runs have {', '.join(known)}.")
    return [rule.dial]


def _means(found: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool) -> list[Verdict]:
    """Judge means over samples: what lies beyond the limit is a mean too, tested on all dials of
    the rule together.
    """
    base, new = found.matrix.columns(dials)
    value = base - new if rule.metric == "drop" else new
    limit = rule.times * base + rule.plus
    way = 1 if rule.above else -1
    test = flips(way * (value - limit), rate)
    seen, wanted = np.nanmean(value, axis=0), np.nanmean(limit, axis=0)
    broken = way * (seen - wanted) > 0 if estimate else test.above
    counts = np.isfinite(value).sum(axis=0)
    return [
        Verdict(
            rule, dial, float(seen[i]), float(wanted[i] + way * test.bound[i]), float(wanted[i]), bool(broken[i]), int(counts[i]),
            noticed(float(test.cautious[i]), test.critical, rate, float(1 - wanted[i] if rule.above else wanted[i])),
        )
        for i, dial in enumerate(dials)
    ]  # fmt: skip


def _points(
    found: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool
) -> list[Verdict]:
    """Judge failure severities by the bootstrap; each dial has its share of the rate."""
    way = 1 if rule.above else -1
    verdicts = []
    for dial in dials:
        held = found.points(rule.metric, dial)
        beyond = way * (held.drawn_new - rule.times * held.drawn_base - rule.plus)
        limit = rule.limit(held.base)
        least = float(np.quantile(beyond, rate / len(dials), method="lower"))
        broken = way * (held.new - limit) > 0 if estimate else least > 0
        verdicts.append(Verdict(rule, dial, held.new, limit + way * least, limit, broken, held.n, None))
    return verdicts

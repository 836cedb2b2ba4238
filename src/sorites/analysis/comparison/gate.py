"""The gate: rules that a new model must satisfy, tested with a bound on false alarms.

Rules on accuracy are tested by sign flips over samples (``statistics.flips``). The bounds of all shifts hold
jointly, so two equal models break a rule on any shift at most at its rate. Rules on failure severities use a
bootstrap over samples with a Bonferroni correction over shifts. Several rules share the rate equally.
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
from sorites.analysis.comparison.statistics import POWER, detectable_mean, flips
from sorites.core.errors import SoritesError, UnknownName
from sorites.io.readers import toml_file
from sorites.io.validation import problems
from sorites.suites.suite import Strict

# --- Rules as users type them: ``drop > 2``, ``failure_severity.defocus_disk < 0.9 * base``

# The quantities that a rule can limit, with their meaning.
METRICS = {
    "drop": "accuracy of the base minus that of the new model, in points",
    "accuracy": "accuracy of the new model, in percent",
    "failure_severity": "median severity at which images are first misclassified, in the unit of the shift",
    "half_accuracy_severity": "severity at which half of clean accuracy is lost, in the unit of the shift",
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
    """Fails if ``metric`` under a shift (None: under each) is below or above ``times`` x base + ``plus``."""

    text: str
    metric: str
    dial: str | None
    above: bool
    times: float
    plus: float

    def limit(self, base: float) -> float:
        """Return the limit for this value of the base model."""
        return self.times * base + self.plus


def parse(text: str) -> Rule:
    """Parse a rule.

    Raises:
        SoritesError: The text is not a rule, or names an unknown metric.
    """
    match = _RULE.fullmatch(text)
    if not match:
        raise SoritesError(f"Expected a rule such as {EXAMPLES}, got {text!r}.")
    metric, dial, sign, right = match.groups()
    if metric not in METRICS:
        raise UnknownName("metric of a gate", metric, METRICS, f"There are {', '.join(METRICS)}.")
    if sign not in ("<", ">"):
        raise SoritesError(f"A rule needs < or >, got {sign} in {text!r}.")
    times, plus = _limit(right, text)
    if not (math.isfinite(times) and math.isfinite(plus)):
        raise SoritesError(f"Expected a finite number in {text!r}, got {right}.")
    if metric == "drop" and times:
        raise SoritesError(f'A drop is relative to the base already: use "drop > 2" instead of {text!r}.')
    scale = 100 if metric in IN_PERCENT else 1
    return Rule(" ".join(text.split()), metric, dial, sign == ">", times, plus / scale)


def _limit(right: str, text: str) -> tuple[float, float]:
    if plain := _PLAIN.fullmatch(right):
        return 0.0, float(plain[1])
    if times := _TIMES.fullmatch(right):
        return float(times[1] or times[2]), 0.0
    if plus := _PLUS.fullmatch(right):
        return 1.0, float(plus[2] or 0) * (-1 if plus[1] == "-" else 1)
    raise SoritesError(f"Expected a number, 0.9 * base, or base - 2 on the right of {text!r}, got {right!r}.")


class Gate(Strict):
    """A file of rules, such as ``fail_if = ["drop > 2"]``, with the error rate and what decides."""

    fail_if: tuple[str, ...] = Field(min_length=1)
    error_rate: float = Field(default=0.05, gt=0, lt=0.5, allow_inf_nan=False)
    """The rate at which two equal models fail any rule."""
    judge: Literal["bound", "estimate"] = "bound"
    """``bound``: the bound of the interval must break the limit; ``estimate``: the estimate decides."""


def read_gate(path: Path) -> Gate:
    """Read a gate from a TOML file; an error lists every mistake on a line."""
    data: dict[str, Any] = toml_file(path, 'a gate in TOML: fail_if = ["drop > 2"]')
    try:
        return Gate.model_validate(data)
    except ValidationError as error:
        raise SoritesError("\n".join(f"{path}: {line}" for line in problems(error, Gate))) from error


def parse_rules(gate: Gate) -> list[Rule]:
    """Parse the rules of a gate."""
    return [parse(text) for text in gate.fail_if]


def combine_rules(texts: Sequence[str], gate: Path | None, estimate: bool) -> Gate | None:
    """Return the gate of a file and further rules, or None if there are neither."""
    if gate is None and not texts:
        return None
    base = read_gate(gate) if gate is not None else Gate(fail_if=tuple(texts))
    merged = base.model_copy(update={"fail_if": (*base.fail_if, *(texts if gate is not None else ()))})
    return merged.model_copy(update={"judge": "estimate"}) if estimate else merged


@dataclass(frozen=True)
class Verdict:
    """A rule under one shift: the value with its bound, the limit, and whether the rule is broken.

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
    """The excess over the limit detected with 80 % power; None if there is none, or it is unknown."""

    @property
    def by(self) -> float:
        """How far the value exceeds the limit; negative if it is within."""
        return self.value - self.limit if self.rule.above else self.limit - self.value

    def __str__(self) -> str:
        unit = " points" if self.rule.metric == "drop" else " %" if self.rule.metric == "accuracy" else ""
        scale = 100 if self.rule.metric in IN_PERCENT else 1

        def number(value: float) -> str:
            return f"{round(scale * value, 6) + 0.0:.3g}"

        side = "at least" if self.rule.above else "at most"
        estimate = f"{number(self.value)}{unit} ({side} {number(self.bound)})"
        margin = f"exceeded by {number(self.by)}" if self.by > 0 else f"met by {number(abs(self.by))}"
        return (
            f"{self.rule.metric}.{self.dial} is {estimate}, limit {number(self.limit)}, {margin},"
            f" n = {self.n}; {self._power(number)}"
        )

    def _power(self, number: Callable[[float], str]) -> str:
        if self.detectable is not None:
            return f"{POWER:.0%} power to detect an excess of {number(self.detectable)}"
        if self.rule.metric in IN_PERCENT:
            return f"too few images to detect anything with {POWER:.0%} power"
        if not self.rule.above and self.limit <= 0:
            return "no value can exceed this limit"
        return "power unknown"


def judge(comparison: Comparison, gate: Gate) -> list[Verdict]:
    """Evaluate every rule of a gate under each of its shifts."""
    rules = parse_rules(gate)
    rate, estimate = gate.error_rate / len(rules), gate.judge == "estimate"
    return [verdict for rule in rules for verdict in _verdicts(comparison, rule, rate, estimate)]


def _verdicts(comparison: Comparison, rule: Rule, rate: float, estimate: bool) -> list[Verdict]:
    if rule.metric in IN_PERCENT:
        shifts = comparison.matrix.dials
        return _mean_verdicts(comparison, rule, _dials(rule, (*shifts, ALL), shifts), rate, estimate)
    curves = tuple(comparison.curves)
    if not curves:
        raise SoritesError(f"{rule.text!r}: no shift of these runs has ordered severities.")
    return _severity_verdicts(comparison, rule, _dials(rule, curves, curves), rate, estimate)


def _dials(rule: Rule, available: Sequence[str], each: Sequence[str]) -> Sequence[str]:
    if rule.dial is None:
        return each
    if rule.dial not in available:
        raise UnknownName("dial", rule.dial, available, f"These runs have {', '.join(available)}.")
    return [rule.dial]


def _mean_verdicts(
    comparison: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool
) -> list[Verdict]:
    """Test means over samples: the excess over the limit is a mean too, tested jointly over all shifts."""
    base, new = comparison.matrix.columns(dials)
    value = base - new if rule.metric == "drop" else new
    limit = rule.times * base + rule.plus
    sign = 1 if rule.above else -1
    test = flips(sign * (value - limit), rate)
    means, limits = np.nanmean(value, axis=0), np.nanmean(limit, axis=0)
    broken = sign * (means - limits) > 0 if estimate else test.above
    counts = np.isfinite(value).sum(axis=0)
    verdicts = []
    for i, dial in enumerate(dials):
        mean, mean_limit = float(means[i]), float(limits[i])
        # The greatest possible excess: accuracies and drops end at 0 and 1.
        room = 1 - mean_limit if rule.above else mean_limit
        detectable = detectable_mean(float(test.cautious[i]), test.critical, rate, room)
        bound = float(limits[i] + sign * test.bound[i])
        verdicts.append(
            Verdict(rule, dial, mean, bound, mean_limit, bool(broken[i]), int(counts[i]), detectable)
        )
    return verdicts


def _severity_verdicts(
    comparison: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool
) -> list[Verdict]:
    """Test failure severities by the bootstrap, with a Bonferroni share of the rate per shift."""
    sign = 1 if rule.above else -1
    verdicts = []
    for dial in dials:
        points = comparison.points(rule.metric, dial)
        excess = sign * (points.drawn_new - rule.times * points.drawn_base - rule.plus)
        limit = rule.limit(points.base)
        least = float(np.quantile(excess, rate / len(dials), method="lower"))
        broken = sign * (points.new - limit) > 0 if estimate else least > 0
        verdicts.append(Verdict(rule, dial, points.new, limit + sign * least, limit, broken, points.n, None))
    return verdicts

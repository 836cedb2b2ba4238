"""The gate: rules that a new model must satisfy, tested with a bound on false alarms.

Rules on accuracy are tested by sign flips over samples (``statistics.flip_test``). The bounds of all shifts
hold jointly, so two equal models break a rule on any shift at most at its rate. Rules on failure severities
use a bootstrap over samples, and sign flips too where the limit is at the base or beyond, with a Bonferroni
correction over shifts. Several rules share the rate equally. A shift with too few samples is not judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from sorites.analysis.comparison.compare import Comparison, Points
from sorites.analysis.comparison.pairs import ALL
from sorites.analysis.comparison.statistics import (
    POWER,
    TERNARY,
    TIE,
    Support,
    detectable_drop,
    flip_test,
    judgeable,
    samples_needed,
)
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
    "half_accuracy_severity": "severity at which accuracy is half-way to chance, in the unit of the shift",
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

    @property
    def sign(self) -> int:
        """1 if values above the limit break the rule, -1 if values below it do."""
        return 1 if self.above else -1

    @property
    def margin(self) -> float | None:
        """The drop of accuracy that the rule allows, or None if it is not about a drop."""
        if self.metric == "drop":
            return self.plus if self.above else None
        return -self.plus if self.metric == "accuracy" and self.times == 1 and not self.above else None

    @property
    def support(self) -> Support:
        """The values that the excess of a single image over the limit can take."""
        if self.metric == "drop":
            return Support(tuple(self.sign * (drop - self.plus) for drop in TERNARY))
        pairs = [(base, new) for base in (0, 1) for new in (0, 1)]
        return Support(tuple(self.sign * (new - self.limit(base)) for base, new in pairs))

    @property
    def beyond_base(self) -> bool:
        """Whether two models with the same failure severities satisfy the rule."""
        if self.above:
            return self.times >= 1 and self.plus >= 0
        return 0 < self.times <= 1 and self.plus <= 0


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

    Shares are fractions. A check that could not be judged is neither broken nor met.
    """

    rule: Rule
    dial: str
    value: float | None
    bound: float | None
    limit: float | None
    broken: bool
    n: int
    p: float | None = None
    """The p of the check, corrected for all shifts of the rule."""
    detectable: float | None = None
    """The drop detected with 80 % power; None if there is none, or it is unknown."""
    unjudged: str = ""
    """Why the check could not be judged; empty if it was."""

    @property
    def outcome(self) -> Literal["broken", "met", "not judged"]:
        """The result of the check."""
        return "not judged" if self.unjudged else "broken" if self.broken else "met"

    @property
    def by(self) -> float:
        """How far the value exceeds the limit; negative if it is within."""
        if self.value is None or self.limit is None:
            return 0.0
        return self.rule.sign * (self.value - self.limit)

    def _number(self, value: float) -> str:
        scale = 100 if self.rule.metric in IN_PERCENT else 1
        return f"{round(scale * value, 6) + 0.0:.3g}"

    def __str__(self) -> str:
        if self.value is None or self.limit is None:
            return f"{self.rule.metric}.{self.dial} is not judged, n = {self.n}: {self.unjudged}"
        unit = " points" if self.rule.metric == "drop" else " %" if self.rule.metric == "accuracy" else ""
        estimate = f"{self.rule.metric}.{self.dial} is {self._number(self.value)}{unit}"
        limit = f"limit {self._number(self.limit)}"
        if self.unjudged or self.bound is None:
            return f"{estimate}, {limit}, n = {self.n}; not judged: {self.unjudged}"
        side = "at least" if self.rule.above else "at most"
        margin = f"{self._number(abs(self.by))} {'beyond' if self.by > 0 else 'within'} it"
        p = "" if self.p is None else f", p = {self.p:.2g}"
        bound = f"({side} {self._number(self.bound)})"
        return f"{estimate} {bound}, {limit}, {margin}{p}, n = {self.n}{self._power()}"

    def _power(self) -> str:
        if self.detectable is not None:
            return f"; {POWER:.0%} power to detect a drop of {100 * self.detectable:.3g} points"
        return "; no detectable drop can be stated" if self.rule.margin is not None else ""


def exit_code(verdicts: Sequence[Verdict], allow_unjudged: bool = False) -> int:
    """Return 1 if a check is broken, else 2 if one could not be judged (unless allowed), else 0."""
    if any(verdict.broken for verdict in verdicts):
        return 1
    return 2 if not allow_unjudged and any(verdict.unjudged for verdict in verdicts) else 0


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return how many checks are broken, met and not judged, as in "2 broken, 5 met, 1 not judged"."""
    outcomes = [verdict.outcome for verdict in verdicts]
    counts = ((outcome, outcomes.count(outcome)) for outcome in ("broken", "met", "not judged"))
    return ", ".join(f"{count} {outcome}" for outcome, count in counts if count)


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
    test = flip_test(rule.sign * (value - limit), rate, rule.support)
    means, limits = np.nanmean(value, axis=0), np.nanmean(limit, axis=0)
    verdicts = []
    for i, dial in enumerate(dials):
        mean, mean_limit, n = float(means[i]), float(limits[i]), int(test.n[i])
        if estimate:
            broken = rule.sign * (mean - mean_limit) > TIE
            verdicts.append(
                Verdict(
                    rule, dial, mean, mean_limit + rule.sign * float(test.bound[i]), mean_limit, broken, n
                )
            )
        elif not test.judged[i]:
            why = _too_few(n, rate, int(test.judged.sum()) + 1, rule.support)
            verdicts.append(Verdict(rule, dial, mean, None, mean_limit, False, n, unjudged=why))
        else:
            bound = mean_limit + rule.sign * float(test.bound[i])
            several = dial in comparison.matrix.several
            drops = (base - new)[:, i]
            detectable = _detectable(rule, drops, float(test.levels[i]), test.share, several)
            p, broken = float(test.p_family[i]), bool(test.broken[i])
            verdicts.append(Verdict(rule, dial, mean, bound, mean_limit, broken, n, p, detectable))
    return verdicts


def _detectable(
    rule: Rule, drops: NDArray[np.float64], level: float, share: float, several: bool
) -> float | None:
    """Return the drop detected with 80 % power, where it can be computed."""
    margin = rule.margin
    if margin is None or rule.support.guarded:
        return None
    excess = detectable_drop(drops, level, margin, share, several)
    return None if excess is None else margin + excess


def _too_few(n: int, rate: float, shifts: int, support: Support) -> str:
    needed = samples_needed(rate / shifts, support)
    few = f"{n} {'sample is' if n == 1 else 'samples are'} too few"
    family = f" over {shifts} shifts" if shifts > 1 else ""
    return f"{few} for an error rate of {100 * rate:.3g} %{family}; at least {needed} are needed"


def _severity_verdicts(
    comparison: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool
) -> list[Verdict]:
    """Test failure severities, with a Bonferroni share of the rate per shift."""
    points = {dial: comparison.points(rule.metric, dial) for dial in dials}
    support = Support(TERNARY)
    defined = [dial for dial in dials if not points[dial].undefined]
    enough = judgeable([points[dial].n for dial in defined], rate, support)
    judged = [dial for dial, kept in zip(defined, enough, strict=True) if kept or estimate]
    share = rate / max(len(judged), 1)
    verdicts = []
    for dial, found in points.items():
        if found.undefined:
            verdicts.append(Verdict(rule, dial, None, None, None, False, found.n, unjudged=found.undefined))
        elif dial not in judged:
            why = _too_few(found.n, rate, len(judged) + 1, support)
            limit = rule.limit(found.base)
            verdicts.append(Verdict(rule, dial, found.new, None, limit, False, found.n, unjudged=why))
        else:
            verdicts.append(_severity_verdict(rule, dial, found, share, estimate))
    return verdicts


def _severity_verdict(rule: Rule, dial: str, points: Points, share: float, estimate: bool) -> Verdict:
    """Judge one failure severity by its bootstrap bound, and by sign flips where equal models must pass.

    The bootstrap alone is too eager if few images changed: it breaks a rule on three lost images.
    """
    excess = rule.sign * (points.drawn_new - rule.times * points.drawn_base - rule.plus)
    limit = rule.limit(points.base)
    least = float(np.quantile(excess, share, method="lower"))
    if estimate:
        broken = rule.sign * (points.new - limit) > TIE
        return Verdict(rule, dial, points.new, limit + rule.sign * least, limit, broken, points.n)
    if rule.beyond_base and points.flip_p(rule.sign) > share:
        least = min(least, 0.0)
    return Verdict(rule, dial, points.new, limit + rule.sign * least, limit, least > TIE, points.n)

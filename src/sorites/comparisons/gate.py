"""The gate: which rules a new model breaks, by how much, and what it could have noticed.

A rule about accuracies is judged by flipping the sides of samples (``statistics.flips``): the bounds of all dials hold together,
so that equal models break a rule on any dial at no more than its rate. A rule about failure points is judged by the
bootstrap over samples, with Bonferroni's share of the rate for each dial. Several rules share the rate out evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sorites.comparisons.compare import Comparison
from sorites.comparisons.pairs import ALL
from sorites.comparisons.rules import IN_PERCENT, Gate, Rule, rules_of
from sorites.comparisons.statistics import POWER, flips, noticed
from sorites.errors import SoritesError, UnknownName


@dataclass(frozen=True)
class Verdict:
    """A rule on one dial: the value with its bound, the limit, and whether the rule is broken. Shares are fractions."""

    rule: Rule
    dial: str
    value: float
    bound: float
    limit: float
    broken: bool
    n: int
    detectable: float | None
    """The distance beyond the limit that is noticed in four of five cases; None where there is none, or it is not known."""

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
            f"{self.rule.metric}.{self.dial} is {told(self.value)}{unit} ({side} {told(self.bound)}), limit {told(self.limit)}"
        )
        where = f"beyond by {told(self.by)}" if self.by > 0 else f"within by {told(abs(self.by))}"
        return f"{found}, {where}, n = {self.n}; {self._power(told)}"

    def _power(self, told: Callable[[float], str]) -> str:
        """Say what the check would have noticed."""
        if self.detectable is not None:
            return f"{told(self.detectable)} beyond would be noticed with {POWER:.0%} power"
        if self.rule.metric in IN_PERCENT:
            return f"with so few pictures nothing would be noticed with {POWER:.0%} power"
        if not self.rule.above and self.limit <= 0:
            return "nothing can lie beyond this limit"
        return "its power is not known"


def judge(found: Comparison, gate: Gate) -> list[Verdict]:
    """Judge every rule on its dials."""
    rules = rules_of(gate)
    return [one for rule in rules for one in _judged(found, rule, gate.error_rate / len(rules), gate.judge == "estimate")]


def _judged(found: Comparison, rule: Rule, rate: float, estimate: bool) -> list[Verdict]:
    if rule.metric in IN_PERCENT:
        return _means(found, rule, _dials(rule, (*found.matrix.dials, ALL), found.matrix.dials), rate, estimate)
    if not found.curves:
        raise SoritesError(f"{rule.text!r}: no dial of these runs has an order that pictures could fail along")
    return _points(found, rule, _dials(rule, tuple(found.curves), tuple(found.curves)), rate, estimate)


def _dials(rule: Rule, known: Sequence[str], each: Sequence[str]) -> Sequence[str]:
    if rule.dial is None:
        return each
    if rule.dial not in known:
        raise UnknownName("dial", rule.dial, known, f"These runs have {', '.join(known)}.")
    return [rule.dial]


def _means(found: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool) -> list[Verdict]:
    """Judge means over samples: what lies beyond the limit is a mean too, tested on all dials of the rule together."""
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


def _points(found: Comparison, rule: Rule, dials: Sequence[str], rate: float, estimate: bool) -> list[Verdict]:
    """Judge failure points by the bootstrap; each dial has its share of the rate."""
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

"""The result of one check of a gate, and the result of all checks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sorites.analysis.comparison.rules import IN_PERCENT, Rule
from sorites.analysis.comparison.statistics import POWER, Support, samples_needed


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
        """Return by how much the value exceeds the limit; negative if it is within."""
        if self.value is None or self.limit is None:
            return 0.0
        return self.rule.sign * (self.value - self.limit)

    def _number(self, value: float) -> str:
        scale = 100 if self.rule.metric in IN_PERCENT else 1
        return f"{round(scale * value, 6) + 0.0:.3g}"

    def __str__(self) -> str:
        if self.value is None or self.limit is None:
            return f"{self.rule.name}.{self.dial} is not judged, n = {self.n}: {self.unjudged}"
        estimate = f"{self.rule.name}.{self.dial} is {self._number(self.value)}{self.rule.unit}"
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


def too_few(n: int, rate: float, shifts: int, support: Support) -> str:
    """Return why a check with this many samples cannot be judged."""
    needed = samples_needed(rate / shifts, support)
    few = f"{n} {'sample is' if n == 1 else 'samples are'} too few"
    family = f" over {shifts} shifts" if shifts > 1 else ""
    return f"{few} for an error rate of {100 * rate:.3g} %{family}; at least {needed} are needed"

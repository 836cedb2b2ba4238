"""The gate of a comparison: rules in a file, and the result of each rule under each shift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from sorites.analysis.comparison.box_gate import judge_boxes, severity_verdict
from sorites.analysis.comparison.compare import Comparison
from sorites.analysis.comparison.detectors import BoxComparison
from sorites.analysis.comparison.pairs import ALL
from sorites.analysis.comparison.rules import BOX_METRICS, IN_PERCENT, METRICS, Rule, parse
from sorites.analysis.comparison.statistics import (
    TERNARY,
    TIE,
    Support,
    detectable_drop,
    flip_test,
    judgeable,
)
from sorites.analysis.comparison.verdicts import Verdict, too_few
from sorites.core.errors import SoritesError, UnknownName
from sorites.io.readers import toml_file
from sorites.io.validation import problems
from sorites.suites.suite import Strict


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


def judge(comparison: Comparison | BoxComparison, gate: Gate) -> list[Verdict]:
    """Evaluate every rule of a gate under each of its shifts."""
    rules = parse_rules(gate)
    rate, estimate = gate.error_rate / len(rules), gate.judge == "estimate"
    detectors = isinstance(comparison, BoxComparison)
    for rule in rules:
        if rule.of_boxes != detectors:
            kind, known = ("detectors", BOX_METRICS) if detectors else ("classifiers", METRICS)
            raise SoritesError(f"{rule.text!r}: these runs have {kind}; rules can limit {', '.join(known)}.")
    if isinstance(comparison, BoxComparison):
        return [verdict for rule in rules for verdict in judge_boxes(comparison, rule, rate, estimate)]
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
            why = too_few(n, rate, int(test.judged.sum()) + 1, rule.support)
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
            why = too_few(found.n, rate, len(judged) + 1, support)
            limit = rule.limit(found.base)
            verdicts.append(Verdict(rule, dial, found.new, None, limit, False, found.n, unjudged=why))
        else:
            verdicts.append(severity_verdict(rule, dial, found, share, estimate))
    return verdicts

"""The gate of a comparison: rules in a file, and the result of each rule under each shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from sorites.analysis.comparison.compare import Comparison
from sorites.analysis.comparison.detectors import BoxComparison, Place
from sorites.analysis.comparison.pairs import ALL
from sorites.analysis.comparison.quantities import EVERY, Cell, Label, Quantity
from sorites.analysis.comparison.rules import BOX_METRICS, DROPS, EACH, IN_PERCENT, METRICS, Rule, parse
from sorites.analysis.comparison.severities import Points
from sorites.analysis.comparison.statistics import (
    TERNARY,
    TIE,
    Support,
    detectable_drop,
    flip_test,
    judgeable,
    weighted_drops,
    weighted_means,
)
from sorites.analysis.comparison.swaps import SwapTest, detectable, resampled_bound, swap_test
from sorites.analysis.comparison.verdicts import Verdict, too_few
from sorites.core.errors import SoritesError, UnknownName
from sorites.io.readers import toml_file
from sorites.io.validation import problems
from sorites.metrics.detection.operating import SIZES
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
    weights = comparison.matrix.weights(dials)
    test = flip_test(rule.sign * (value - limit), rate, rule.support, weights=weights)
    means, limits = (weighted_means(side, weights) for side in (value, limit))
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
            drops = weighted_drops((base - new)[:, i], weights[:, i])
            detectable = None
            if drops is not None:
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


# --- Detectors: the cells of a rule (shift, class, size), and the test of each


def judge_boxes(comparison: BoxComparison, rule: Rule, rate: float, estimate: bool) -> list[Verdict]:
    """Evaluate a rule in each of its cells, which share the rate of false alarms."""
    if rule.metric == "box_failure_severity":
        return _box_severity_verdicts(comparison, rule, rate, estimate)
    cells = _cells(comparison, rule)
    names = [place.named(comparison.labels) for place in cells]
    found = list(cells.values())
    if rule.metric in DROPS or rule.times == 1:
        return _difference_verdicts(rule, names, found, rate, estimate)
    return _resampled_verdicts(rule, names, found, rate, estimate)


def _sizes(rule: Rule) -> Sequence[str | None]:
    return tuple(SIZES) if rule.size == EACH else (rule.size,)


def _labels(comparison: BoxComparison, rule: Rule) -> Sequence[Label]:
    if rule.label is None:
        return (EVERY,)
    return comparison.classes() if rule.label == EACH else (comparison.label_named(rule.label),)


def _cells(comparison: BoxComparison, rule: Rule) -> Mapping[Place, Cell]:
    """Return the cells of a rule: shifts x classes x sizes that have objects.

    Raises:
        UnknownName: No run has this shift or class.
        SoritesError: No object is of this class and size.
    """
    if rule.dial is not None and rule.dial not in (*comparison.shifts, ALL):
        available = (*comparison.shifts, ALL)
        raise UnknownName("dial", rule.dial, available, f"These runs have {', '.join(available)}.")
    shifts = comparison.shifts if rule.dial is None else (rule.dial,)
    labels = _labels(comparison, rule)
    name = "map" if rule.metric in DROPS else rule.metric
    cells = {}
    for size in _sizes(rule):
        by_shift = comparison.cells(Quantity(name, rule.conf or 0.0, size))[""]
        for shift in shifts:
            for label in labels:
                cell = by_shift.get((shift, label))
                if cell is not None and cell.objects:
                    cells[Place(shift, label, size)] = cell
    if not cells:
        raise SoritesError(f"{rule.text!r}: these runs have no object of this class and size.")
    return cells


def _difference_verdicts(
    rule: Rule, names: Sequence[str], cells: Sequence[Cell], rate: float, estimate: bool
) -> list[Verdict]:
    """Test differences of the two detectors by swapping them, jointly over all cells."""
    # A drop breaks the rule, or a gain.
    sign = rule.sign if rule.metric in DROPS else -rule.sign
    margin = sign * rule.plus if rule.metric in DROPS else rule.sign * rule.plus
    n = [len(cell.samples) for cell in cells]
    test = swap_test([cell.draws for cell in cells], n, rate, margin, sign)
    verdicts = []
    for i, (name, cell) in enumerate(zip(names, cells, strict=True)):
        draws = cell.draws
        if not draws.defined:
            verdicts.append(_undefined(rule, name, n[i]))
            continue
        value = draws.drop if rule.metric in DROPS else draws.new
        limit = rule.plus if rule.metric in DROPS else draws.base + rule.plus
        if estimate:
            broken = rule.sign * (value - limit) > TIE
            verdicts.append(
                Verdict(rule, name, value, _bound(rule, limit, test, i, margin), limit, broken, n[i])
            )
        elif not test.judged[i]:
            why = too_few(n[i], rate, int(test.judged.sum()) + 1, Support(TERNARY))
            verdicts.append(Verdict(rule, name, value, None, limit, False, n[i], unjudged=why))
        else:
            stated = None
            if rule.margin is not None:
                level = float(test.levels[i])
                excess = detectable(draws, n[i], level, margin, test.share, sign, cell.worth)
                stated = None if excess is None else margin + excess
            bound = _bound(rule, limit, test, i, margin)
            p, broken = float(test.p_family[i]), bool(test.broken[i])
            verdicts.append(Verdict(rule, name, value, bound, limit, broken, n[i], p, stated))
    return verdicts


def _bound(rule: Rule, limit: float, test: SwapTest, i: int, margin: float) -> float:
    """Return the bound of the value that the rule limits; a value in [-1, 1]."""
    excess = float(np.clip(test.bound[i] - margin, -2.0, 2.0))
    return float(np.clip(limit + rule.sign * excess, -1.0, 1.0))


def _undefined(rule: Rule, name: str, n: int) -> Verdict:
    why = "a detector has no box of this confidence" if rule.metric == "precision" else "there is no object"
    return Verdict(rule, name, None, None, None, False, n, unjudged=why)


def _resampled_verdicts(
    rule: Rule, names: Sequence[str], cells: Sequence[Cell], rate: float, estimate: bool
) -> list[Verdict]:
    """Test limits that are no plain difference (a number, or a multiple of the base) by random halves.

    Each cell has a Bonferroni share of the rate. Where two equal detectors must pass, swaps must agree too.
    """
    n = np.array([len(cell.samples) if cell.draws.defined else 0 for cell in cells])
    judged = judgeable(n, rate, Support(TERNARY))
    share = rate / max(int(judged.sum()), 1)
    verdicts = []
    for i, (name, cell) in enumerate(zip(names, cells, strict=True)):
        draws = cell.draws
        if not draws.defined:
            verdicts.append(_undefined(rule, name, len(cell.samples)))
            continue
        limit, count = rule.limit(draws.base), int(n[i])
        if not judged[i] and not estimate:
            why = too_few(count, rate, int(judged.sum()) + 1, Support(TERNARY))
            verdicts.append(Verdict(rule, name, draws.new, None, limit, False, count, unjudged=why))
            continue
        least = resampled_bound(
            draws, lambda base, new: rule.sign * (new - rule.times * base - rule.plus), share
        )
        broken = rule.sign * (draws.new - limit) > TIE
        if not estimate:
            if rule.beyond_base and swap_test([draws], [count], share, sign=-rule.sign).p[0] > share:
                least = min(least, 0.0)
            broken = least > TIE
        bound = float(np.clip(limit + rule.sign * least, 0.0, 1.0))
        verdicts.append(Verdict(rule, name, draws.new, bound, limit, broken, count))
    return verdicts


# --- Severities at which objects are lost


def _box_severity_verdicts(
    comparison: BoxComparison, rule: Rule, rate: float, estimate: bool
) -> list[Verdict]:
    """Test the severities at which half of the objects are lost; each cell has a share of the rate."""
    points = _points(comparison, rule)
    support = Support(TERNARY)
    enough = judgeable([found.n for found in points.values()], rate, support)
    share = rate / max(int(enough.sum()), 1)
    verdicts = []
    for (place, found), judged in zip(points.items(), enough, strict=True):
        name = place.named(comparison.labels)
        if judged or estimate:
            verdicts.append(severity_verdict(rule, name, found, share, estimate))
        else:
            why, limit = too_few(found.n, rate, int(enough.sum()) + 1, support), rule.limit(found.base)
            verdicts.append(Verdict(rule, name, found.new, None, limit, False, found.n, unjudged=why))
    return verdicts


def _points(comparison: BoxComparison, rule: Rule) -> Mapping[Place, Points]:
    conf = rule.conf or 0.0
    every = tuple(comparison.curves(conf))
    if not every:
        raise SoritesError(f"{rule.text!r}: no shift of these runs has ordered severities.")
    if rule.dial is not None and rule.dial not in every:
        raise UnknownName("dial", rule.dial, every, f"These runs have {', '.join(every)}.")
    points = {}
    for size in _sizes(rule):
        for label in _labels(comparison, rule):
            for dial in every if rule.dial is None else (rule.dial,):
                found = comparison.points(conf, dial, label, size)
                if found is not None:
                    points[Place(dial, label, size)] = found
    if not points:
        raise SoritesError(f"{rule.text!r}: these runs have no object of this class and size.")
    return points


def severity_verdict(rule: Rule, dial: str, points: Points, share: float, estimate: bool) -> Verdict:
    """Judge one failure severity by its bootstrap bound, and by swaps where equal models must pass.

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

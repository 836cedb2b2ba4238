"""Choose a threshold on OOD scores: by accepted images, by risk, by tolerated severity, or by cost.

The threshold is chosen on one half of the samples, and what it does is estimated on the other, so that the
estimates are not biased by the choice. Images of one sample are not independent: a rate of several images per
sample counts as one of the effective number of samples (Kish 1965), as if all images of a sample agreed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sorites.core import CLEAN
from sorites.core.errors import InvalidOption, SoritesError, TooFewImages
from sorites.core.messages import option
from sorites.deploy.record import Rate
from sorites.io.readers import toml_file
from sorites.io.validation import problems

# Shares of images without an alarm that a rule for the risk tries.
TRIED = 20
# The name of OOD images where others have that of their shift.
OOD = "ood"

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Scored:
    """Images with their OOD scores.

    Attributes:
        score: The OOD score.
        wrong: Whether an answer without an alarm would be an error: the image is misclassified or OOD.
        judged: Whether that is known.
        clean: Whether it is an unshifted in-distribution image.
        sample: The number of its sample.
        shift: The name of its shift; "ood" for OOD images.
        severity: Its severity; NaN where there is none.
    """

    score: Array
    wrong: Flags
    judged: Flags
    clean: Flags
    sample: NDArray[np.int64]
    shift: NDArray[np.str_]
    severity: Array

    def where(self, chosen: Flags) -> Scored:
        """Return some of the images."""
        return Scored(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True)
class Chosen:
    """A threshold, and what its rule promises in words."""

    threshold: float
    note: str
    confidence: float | None = None


# Chooses a threshold on some images.
Choose = Callable[[Scored], Chosen]


def parse_rule(at: str, power: float, confidence: float) -> Choose:
    """Return the rule of a text: tpr=0.95, risk=0.05, beyond=SHIFT:SEVERITY, cost=FILE.

    Raises:
        InvalidOption: It is none of these.
    """
    kind, equals, value = at.partition("=")
    if equals and kind == "cost":
        costs = read_costs(Path(value))
        return lambda images: by_cost(images, costs)
    if equals and kind == "beyond":
        shift, colon, severity = value.rpartition(":")
        if colon and shift:
            least = _number(severity, at)
            return lambda images: by_severity(images, shift, least, power, confidence)
    if equals and kind in ("tpr", "risk"):
        share = _number(value, at)
        if 0 < share < 1:
            if kind == "tpr":
                return lambda images: by_accepted(images, share)
            return lambda images: by_risk(images, share, confidence)
    raise InvalidOption(
        "at",
        f"{option('at', None)}: expected tpr=0.95, risk=0.05, beyond=SHIFT:SEVERITY or cost=FILE, with shares"
        f" between 0 and 1, got {at!r}",
    )


def _number(text: str, at: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidOption("at", f"{option('at', None)}: expected a number in {at!r}, got {text!r}")
    return value


# Rates with exact intervals.


def effective(sample: NDArray[np.int64]) -> float:
    """Return the effective number of samples of some images (Kish 1965)."""
    counts = np.unique(sample, return_counts=True)[1].astype(np.float64)
    return float(counts.sum() ** 2 / (counts**2).sum()) if len(counts) else 0.0


def upper(hits: float, n: float, level: float) -> float:
    """Return the upper bound of a share (Clopper and Pearson 1934), which it exceeds with ``1 - level``."""
    from scipy.special import betaincinv

    return 1.0 if hits >= n else float(betaincinv(hits + 1, n - hits, level))


def lower(hits: float, n: float, level: float) -> float:
    """Return the lower bound of a share, below which it is with ``1 - level``."""
    return 1 - upper(n - hits, n, level)


def rate(hits: Flags, sample: NDArray[np.int64]) -> Rate:
    """Return a share with its 95 % interval (Clopper and Pearson, with the effective number of samples)."""
    if not len(hits):
        return Rate(None, None, None, 0)
    value, n = float(hits.mean()), effective(sample)
    return Rate(value, lower(value * n, n, 0.975), upper(value * n, n, 0.975), len(hits))


# Rules.


def by_accepted(images: Scored, share: float) -> Chosen:
    """Accept a share of clean images: the threshold is the order statistic that a new one stays below with at
    least this probability.
    """
    scores = np.sort(images.score[images.clean])
    rank = math.ceil(share * (len(scores) + 1))
    if rank > len(scores):
        least = math.ceil(share / (1 - share))
        raise TooFewImages(
            f"tpr={share:g} needs at least {least} clean images to choose the threshold and as many to"
            f" estimate what it does, got {len(scores)} to choose on"
        )
    return Chosen(float(scores[rank - 1]), f"no alarm for at least {share:.4g} of clean images, on average")


def by_risk(images: Scored, risk: float, confidence: float) -> Chosen:
    """Keep the share of errors among images without an alarm below ``risk``, with this confidence.

    Of twenty shares of images without an alarm, the largest is chosen for which an upper bound of the risk is
    low enough; the level of the bounds accounts for twenty of them (Bonferroni).
    """
    judged = images.where(images.judged)
    if not len(judged):
        raise SoritesError("risk: no image of the run has a label, so errors are not known")
    order = np.argsort(judged.score, kind="stable")
    scores, wrong, sample = judged.score[order], judged.wrong[order], judged.sample[order]
    level = 1 - (1 - confidence) / TRIED
    lowest = math.inf
    for step in range(TRIED, 0, -1):
        threshold = scores[max(round(step / TRIED * len(scores)), 1) - 1]
        count = int(np.searchsorted(scores, threshold, side="right"))
        n = effective(sample[:count])
        bound = upper(float(wrong[:count].mean()) * n, n, level)
        if bound <= risk:
            note = (
                f"at most {risk:.4g} of the images of this run without an alarm are errors, with"
                f" {confidence:.4g} confidence"
            )
            return Chosen(float(threshold), note, confidence)
        lowest = min(lowest, bound)
    raise SoritesError(
        f"risk={risk:g}: no threshold keeps the risk below it with {confidence:g} confidence; the lowest"
        f" upper bound is {lowest:.3g}. Use a higher risk, another scorer, or a run with more samples."
    )


def by_severity(images: Scored, shift: str, severity: float, power: float, confidence: float) -> Chosen:
    """Raise an alarm for at least ``power`` of the images at or beyond a severity, with this confidence, and
    for as few others as possible.
    """
    known = sorted(set(images.shift[~np.isnan(images.severity)].tolist()) - {CLEAN, OOD})
    if shift not in known:
        has = ", ".join(known) or "none"
        raise SoritesError(f"beyond: the run has no shift {shift!r} with severities; it has {has}")
    past = images.where((images.shift == shift) & (images.severity >= severity))
    if not len(past):
        most = np.nanmax(images.severity[images.shift == shift])
        raise SoritesError(
            f"beyond: the run has no image of {shift} at or beyond {severity:g}, only to {most:g}"
        )
    n = effective(past.sample)
    hits = next((k for k in np.linspace(0, n, 1001) if lower(float(k), n, confidence) >= power), None)
    if hits is None:
        raise TooFewImages(
            f"beyond: {n:.0f} samples are too few to promise a power of {power:g} with {confidence:g}"
            f" confidence; {math.ceil(math.log(1 - confidence) / math.log(power))} are needed"
        )
    needed = math.ceil(round(hits / n * len(past), 6))
    scores = np.sort(past.score)
    least = scores[len(scores) - needed]
    below = scores[scores < least]
    threshold = float(below[-1]) if len(below) else float(np.nextafter(least, -np.inf))
    note = (
        f"an alarm for at least {power:.4g} of images of {shift} at or beyond {severity:g}, with"
        f" {confidence:.4g} confidence"
    )
    return Chosen(threshold, note, confidence)


class Costs(BaseModel):
    """Costs of outcomes per image, and how often each shift occurs.

    ``missed``: an error without an alarm. ``false_alarm``: an alarm for a correct answer. ``caught``: an
    alarm for an error. ``shares``: the share of images of each shift, "clean" and "ood" among them; without
    it, each image of the run counts the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    missed: float = Field(ge=0)
    false_alarm: float = Field(ge=0)
    caught: float = Field(default=0.0, ge=0)
    shares: Mapping[str, float] = {}

    def weights(self, shift: NDArray[np.str_]) -> Array:
        """Return the weight of each image; they sum to 1."""
        if not self.shares:
            return np.full(len(shift), 1 / max(len(shift), 1))
        names, places, counts = np.unique(shift, return_inverse=True, return_counts=True)
        if missing := sorted(set(self.shares) - set(names.tolist())):
            raise SoritesError(f"cost: the run has no images of {missing[0]!r}; it has {', '.join(names)}")
        each = np.array([self.shares.get(str(name), 0.0) for name in names]) / counts
        return np.asarray(each[places] / sum(self.shares.values()))

    def costs(self, wrong: Flags, alarm: Flags) -> Array:
        """Return the cost of each image."""
        without_alarm = np.where(wrong, self.missed, 0.0)
        return np.where(alarm, np.where(wrong, self.caught, self.false_alarm), without_alarm)


def read_costs(path: Path) -> Costs:
    """Read a TOML file of costs.

    Raises:
        SoritesError: It is invalid.
    """
    data: dict[str, Any] = toml_file(path, "costs in TOML")
    try:
        costs = Costs.model_validate(data)
    except ValidationError as error:
        raise SoritesError(f"{path}: {problems(error, Costs)[0]}") from error
    if any(share < 0 for share in costs.shares.values()) or (costs.shares and not sum(costs.shares.values())):
        raise SoritesError(f"{path}: expected shares of at least 0 that are not all 0")
    return costs


def by_cost(images: Scored, costs: Costs) -> Chosen:
    """Choose the threshold with the lowest mean cost; of equal ones the highest, with fewest alarms."""
    judged = images.where(images.judged)
    if not len(judged):
        raise SoritesError("cost: no image of the run has a label, so errors are not known")
    weights = costs.weights(judged.shift)
    order = np.argsort(judged.score, kind="stable")
    scores, wrong = judged.score[order], judged.wrong[order]
    alarm = weights[order] * costs.costs(wrong, np.ones(len(wrong), bool))
    quiet = weights[order] * costs.costs(wrong, np.zeros(len(wrong), bool))
    # The cost if the first k images raise no alarm.
    total = np.concatenate([[0.0], np.cumsum(quiet)]) + np.concatenate([np.cumsum(alarm[::-1])[::-1], [0.0]])
    last_of_ties = np.flatnonzero(np.append(np.diff(scores) > 0, True)) + 1
    allowed = np.concatenate([[0], last_of_ties])
    best = allowed[len(allowed) - 1 - int(np.argmin(np.round(total[allowed], 12)[::-1]))]
    threshold = scores[best - 1] if best else np.nextafter(scores[0], -np.inf)
    return Chosen(
        float(threshold),
        f"the lowest mean cost per image, {total[best]:.4g} on the images that chose the threshold",
    )

"""Rules of a gate as users type them: ``drop > 2``, ``recall@0.5.fog [class=cup] < base - 3``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sorites.analysis.comparison.statistics import TERNARY, Support
from sorites.core.errors import SoritesError, UnknownName
from sorites.metrics.detection.operating import SIZES

# The quantities that a rule about classifiers can limit, with their meaning.
METRICS = {
    "drop": "accuracy of the base minus that of the new model, in points",
    "accuracy": "accuracy of the new model, in percent",
    "failure_severity": "median severity at which images are first misclassified, in the unit of the shift",
    "half_accuracy_severity": "severity at which accuracy is half-way to chance, in the unit of the shift",
}
# Those of rules about detectors.
BOX_METRICS = {
    "map_drop": "mAP of the base minus that of the new detector, in points",
    "map": "mAP of the new detector, in percent",
    "recall": "share of objects that the new detector finds from a confidence on (recall@0.5), in percent",
    "precision": "share of its boxes from a confidence on that find an object (precision@0.5), in percent",
    "box_failure_severity": "median severity at which objects are lost, in the unit of the shift",
}
IN_PERCENT = ("drop", "accuracy", "map_drop", "map", "recall", "precision")
DROPS = ("drop", "map_drop")
AT_CONFIDENCE = ("recall", "precision")
# Each class or each size on its own, in a rule.
EACH = "*"
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?)"
_RULE = re.compile(
    r"\s*([A-Za-z_]\w*)(?:@(\d*\.?\d+))?(?:\.([\w.:/-]+))?\s*(?:\[([^\]]*)\])?"
    r"\s*(<=|>=|<|>|==|=)\s*(.+?)\s*",
    re.IGNORECASE,
)
_PLAIN = re.compile(rf"({NUMBER})", re.IGNORECASE)
_TIMES = re.compile(rf"({NUMBER})\s*\*\s*base|base\s*\*\s*({NUMBER})", re.IGNORECASE)
_PLUS = re.compile(rf"base(?:\s*([+-])\s*({NUMBER}))?", re.IGNORECASE)
EXAMPLES = (
    '"drop > 2", "drop.clean > 1", "accuracy.rain < base - 3" or'
    ' "failure_severity.defocus_disk < 0.9 * base"; for detectors "map_drop > 2",'
    ' "recall@0.5.fog < base - 3" or "map_drop [class=cup, size=small] > 5"'
)


@dataclass(frozen=True)
class Rule:
    """Fails if ``metric`` under a shift (None: under each) is below or above ``times`` x base + ``plus``.

    ``conf``, ``label`` and ``size`` are of rules about detectors: the confidence from which boxes count, and
    the class and size of objects (None: all together; ``*``: each on its own).
    """

    text: str
    metric: str
    dial: str | None
    above: bool
    times: float
    plus: float
    conf: float | None = None
    label: str | None = None
    size: str | None = None

    def limit(self, base: float) -> float:
        """Return the limit for this value of the base model."""
        return self.times * base + self.plus

    @property
    def name(self) -> str:
        """The metric with its confidence."""
        return self.metric if self.conf is None else f"{self.metric}@{self.conf:g}"

    @property
    def unit(self) -> str:
        """The unit of values in a sentence, with a space before it; empty for severities."""
        if self.metric in DROPS:
            return " points"
        return " %" if self.metric in IN_PERCENT else ""

    @property
    def of_boxes(self) -> bool:
        """True if the rule is about detectors."""
        return self.metric in BOX_METRICS

    @property
    def sign(self) -> int:
        """1 if values above the limit break the rule, -1 if values below it do."""
        return 1 if self.above else -1

    @property
    def margin(self) -> float | None:
        """The drop that the rule allows, or None if it is not about a drop."""
        if self.metric in DROPS:
            return self.plus if self.above else None
        in_percent = self.metric in IN_PERCENT
        return -self.plus if in_percent and self.times == 1 and not self.above else None

    @property
    def support(self) -> Support:
        """The values that the excess of a single image over the limit can take."""
        if self.metric == "drop":
            return Support(tuple(self.sign * (drop - self.plus) for drop in TERNARY))
        pairs = [(base, new) for base in (0, 1) for new in (0, 1)]
        return Support(tuple(self.sign * (new - self.limit(base)) for base, new in pairs))

    @property
    def beyond_base(self) -> bool:
        """True if two models with the same values satisfy the rule."""
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
    metric, conf, dial, chosen, sign, right = match.groups()
    if metric not in (*METRICS, *BOX_METRICS):
        known = f"There are {', '.join(METRICS)}; for detectors {', '.join(BOX_METRICS)}."
        raise UnknownName("metric of a gate", metric, [*METRICS, *BOX_METRICS], known)
    if sign not in ("<", ">"):
        raise SoritesError(f"A rule needs < or >, got {sign} in {text!r}.")
    times, plus = _limit(right, text)
    if not (math.isfinite(times) and math.isfinite(plus)):
        raise SoritesError(f"Expected a finite number in {text!r}, got {right}.")
    if metric in DROPS and times:
        raise SoritesError(f'A drop is relative to the base already: use "{metric} > 2" instead of {text!r}.')
    scale = 100 if metric in IN_PERCENT else 1
    label, size = _chosen(metric, chosen, text)
    return Rule(
        " ".join(text.split()),
        metric,
        dial,
        sign == ">",
        times,
        plus / scale,
        _conf(metric, conf, text),
        label,
        size,
    )


def _conf(metric: str, conf: str | None, text: str) -> float | None:
    if conf is None:
        if metric in AT_CONFIDENCE:
            raise SoritesError(f"{metric} needs a confidence, as in {metric}@0.5; got {text!r}.")
        return None
    if metric not in (*AT_CONFIDENCE, "box_failure_severity"):
        raise SoritesError(f"{metric} has no confidence: leave out @{conf} in {text!r}.")
    if float(conf) > 1:
        raise SoritesError(f"Expected a confidence from 0 to 1 in {text!r}, got {conf}.")
    return float(conf)


def _chosen(metric: str, chosen: str | None, text: str) -> tuple[str | None, str | None]:
    """Return the class and the size in brackets."""
    if chosen is None:
        return None, None
    if metric not in BOX_METRICS:
        raise SoritesError(f"Classes and sizes are for detectors; leave out [{chosen}] in {text!r}.")
    found: dict[str, str] = {}
    for part in chosen.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if key not in ("class", "size") or not equals or not value or key in found:
            raise SoritesError(f"Expected [class=NAME], [size=small] or both in {text!r}, got [{chosen}].")
        found[key] = value
    size = found.get("size")
    if size not in (None, EACH, *SIZES):
        raise UnknownName("size", str(size), SIZES, f"There are {', '.join(SIZES)}, and {EACH} for each.")
    return found.get("class"), size


def _limit(right: str, text: str) -> tuple[float, float]:
    if plain := _PLAIN.fullmatch(right):
        return 0.0, float(plain[1])
    if times := _TIMES.fullmatch(right):
        return float(times[1] or times[2]), 0.0
    if plus := _PLUS.fullmatch(right):
        return 1.0, float(plus[2] or 0) * (-1 if plus[1] == "-" else 1)
    raise SoritesError(f"Expected a number, 0.9 * base, or base - 2 on the right of {text!r}, got {right!r}.")

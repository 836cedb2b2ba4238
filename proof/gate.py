"""The gate: its false alarms and its power in simulation, and a model made worse on purpose.

Simulated models change images at random, with correlated shifts. Equal models must not break ``drop > 0``
more often than stated, nor models that are worse by exactly two points ``drop > 2``; at the median stated
detectable drop, 75 to 85 % must be detected.

lite0 is the base of real models. One variant has noise in its weights, another a wrong resize: every second
pixel, doubled. They must fail on dials only on which they are worse on a larger set: the gate sees 61 photo
cut-outs and is checked on all 122.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

import sorites
from proof._lines import Line
from sorites.analysis.comparison.compare import Comparison, compare
from sorites.analysis.comparison.gate import Gate, judge
from sorites.analysis.comparison.rules import parse
from sorites.analysis.comparison.statistics import FLIPS as GATE_FLIPS
from sorites.analysis.comparison.statistics import (
    TIE,
    FlipTest,
    _drawn_p,
    _flipped,
    detectable_drop,
    family,
    flip_test,
    judgeable,
)

Array = NDArray[np.float64]

NOISE = 0.15
"""The noise in every weight of a convolution, in standard deviations of its layer."""
DIALS, LEVELS = ("gaussian_noise", "jpeg", "defocus_disk"), (2, 4)
SMALL, LARGE = 61, 122


RATE = 0.05
SIZES, CHURN, SHIFTS = (5, 15, 30, 60, 122, 500), (0.01, 0.02, 0.05, 0.2), (1, 8, 24)
NULLS, ALTERNATIVES = 1000, 500
# Sign flips of a simulated test, drawn anew for each. A test by random flips is valid for any number of them,
# but few of them cost power.
FLIPS = 1_000
# Standard errors below which a mean cannot break a rule.
SCREEN = 1.2


@dataclass(frozen=True)
class Cell:
    """One kind of comparison: samples, share of images that change, and shifts."""

    n: int
    churn: float
    shifts: int

    def __str__(self) -> str:
        return f"n = {self.n}, churn {self.churn:.0%}, {self.shifts} shifts"

    @property
    def rng(self) -> np.random.Generator:
        """The random numbers of the cell, the same in whichever order cells are simulated."""
        return np.random.default_rng(CELLS.index(self))


@dataclass(frozen=True)
class Rule:
    """The rule ``drop > limit``, asked of samples with so many images under each shift."""

    limit: float
    images: int

    def __str__(self) -> str:
        return f"drop > {100 * self.limit:g}, {self.images} per sample"

    def alarm(self, drops: Array, seed: int, flips: int = FLIPS) -> bool:
        """Return whether any shift breaks the rule, as ``test`` does, without the bounds and where possible
        without flips: a mean of less than 1.2 standard errors breaks no rule at 5 %.
        """
        support, excess = parse(f"drop > {100 * self.limit}").support, drops - self.limit
        n, shifts = excess.shape
        error = np.sqrt((excess**2).sum(axis=0))
        likely = excess.sum(axis=0) > SCREEN * error
        if not likely.any() or not judgeable(np.full(shifts, n), RATE, support).all():
            return False
        sums, _, guards = _flipped(excess, np.ones_like(excess, np.bool_), flips, seed)
        drawn = _drawn_p(excess, sums + support.least * guards if support.guarded else sums, support)
        return bool((family(drawn, drawn[0], RATE)[1] <= RATE * (1 + TIE)).any())

    def test(self, drops: Array, seed: int, flips: int = FLIPS) -> FlipTest:
        support = parse(f"drop > {100 * self.limit}").support
        return flip_test(drops - self.limit, RATE, support, flips, seed)


CELLS = [Cell(*values) for values in itertools.product(SIZES, CHURN, SHIFTS)]
RULES = [Rule(0.0, 1), Rule(0.0, 5), Rule(0.02, 1), Rule(0.02, 5)]


def run() -> Iterator[Line]:
    yield from simulated()
    yield from _real()


def simulated() -> Iterator[Line]:
    """Yield the false alarms and the power of simulated comparisons."""
    for rule in RULES:
        yield from alarm_lines(rule, {cell: alarms(rule, cell) for cell in CELLS})
    yield from limit_lines()
    for rule in RULES:
        found = {cell: power(rule, cell) for cell in CELLS}
        yield from power_lines(rule, {cell: share for cell, share in found.items() if share is not None})


LIMITS = (10, 45, 50, 55, 80, 90)


def limit_lines() -> Iterator[Line]:
    """Yield the greatest share of alarms of models whose accuracy is exactly a fixed limit, in percent."""
    for images in (1, 5):
        found = {
            f"accuracy.rain < {limit}, n = {n}": limit_alarms(limit, n, images)
            for limit, n in itertools.product(LIMITS, (8, 16, 30, 60))
        }
        cell, worst = max(found.items(), key=lambda item: item[1])
        most = 100 * (RATE + 3 * np.sqrt(RATE * (1 - RATE) / NULLS))
        yield Line(
            f"fixed limit, {images} per sample: alarms in the worst cell, %", 100 * worst, cell, most=most
        )


def limit_alarms(limit: int, n: int, images: int, nulls: int = NULLS) -> float:
    """Return the share of models of this accuracy that break the limit; half of the variance is the sample's."""
    rng, support = np.random.default_rng([limit, n, images]), parse(f"accuracy.rain < {limit}").support
    broken = []
    for i in range(nulls):
        z = np.sqrt(0.5) * (rng.normal(size=(n, 1)) + rng.normal(size=(n, images)))
        excess = limit / 100 - (z < ndtri(limit / 100)).mean(axis=1, keepdims=True)
        broken.append(bool(flip_test(excess, RATE, support, FLIPS, i).broken[0]))
    return float(np.mean(broken))


def _changes(rng: np.random.Generator, n: int, lost: Array, gained: float, images: int = 1) -> Array:
    """Simulate the drops of n samples, with a share ``lost`` of images lost under each shift.

    Half of the variance is shared by the shifts of a sample, a quarter by the images of a shift.
    """
    sizes = ((0.5, (n, 1, 1)), (0.25, (n, len(lost), 1)), (0.25, (n, len(lost), images)))
    z: Array = sum((np.sqrt(share) * rng.normal(size=size) for share, size in sizes), np.zeros(1))
    drops: Array = (1.0 * (z > ndtri(1 - lost)[None, :, None]) - 1.0 * (z < ndtri(gained))).mean(axis=2)
    return drops


def alarms(rule: Rule, cell: Cell, nulls: int = NULLS) -> float:
    """Return the share of comparisons that break a rule, of models that are worse by exactly its limit."""
    rng, gained = cell.rng, max(cell.churn - rule.limit, 0.0) / 2
    lost = np.full(cell.shifts, gained + rule.limit)
    return float(
        np.mean([rule.alarm(_changes(rng, cell.n, lost, gained, rule.images), i) for i in range(nulls)])
    )


def power(rule: Rule, cell: Cell, alternatives: int = ALTERNATIVES) -> float | None:
    """Return the share detected at the median of the detectable drops that 100 equal models state.

    None if fewer than half of them state one. Few sign flips cost power: a share outside 75 to 85 % is simulated
    again with as many as the gate draws.
    """
    few = _power(rule, cell, alternatives, FLIPS)
    return few if few is None or 0.75 <= few <= 0.85 else _power(rule, cell, alternatives, GATE_FLIPS)


def _power(rule: Rule, cell: Cell, alternatives: int, flips: int) -> float | None:
    rng, gained = cell.rng, cell.churn / 2
    lost, stated = np.full(cell.shifts, gained), []
    for i in range(100):
        drops = _changes(rng, cell.n, lost, gained, rule.images)
        test = rule.test(drops, i, flips)
        level = float(test.levels[0])
        drop = detectable_drop(drops[:, 0], level, rule.limit, test.share, rule.images > 1)
        if test.judged[0] and drop is not None:
            stated.append(drop)
    if len(stated) < 50:
        return None
    lost[0] += rule.limit + float(np.median(stated))
    found = [
        rule.test(_changes(rng, cell.n, lost, gained, rule.images), i, flips).broken[0]
        for i in range(alternatives)
    ]
    return float(np.mean(found))


def alarm_lines(rule: Rule, found: Mapping[Cell, float]) -> Iterator[Line]:
    """Yield the greatest share of alarms in a cell and the pooled share, in percent."""
    error = np.sqrt(RATE * (1 - RATE) / NULLS)
    cell, worst = max(found.items(), key=lambda item: item[1])
    note = f"{cell}; {NULLS} draws each of {len(found)} cells"
    yield Line(f"{rule}: alarms in the worst cell, %", 100 * worst, note, most=100 * (RATE + 3 * error))
    pooled = RATE + 2 * error / np.sqrt(len(found))
    yield Line(f"{rule}: alarms pooled, %", 100 * float(np.mean(list(found.values()))), most=100 * pooled)


def power_lines(rule: Rule, found: Mapping[Cell, float]) -> Iterator[Line]:
    """Yield the least, the greatest and the median share detected in a cell, in percent.

    The bars of single cells are three standard errors wider.
    """
    slack = 300 * np.sqrt(0.8 * 0.2 / ALTERNATIVES)
    for word, pick in (("least", min), ("most", max)):
        cell, share = pick(found.items(), key=lambda item: item[1])
        note = f"{cell}, of {len(found)} cells"
        yield Line(
            f"{rule}: detected at the stated drop, %, {word}",
            100 * share,
            note,
            least=75 - slack,
            most=85 + slack,
        )
    middle = 100 * float(np.median(list(found.values())))
    yield Line(f"{rule}: detected at the stated drop, %, median of cells", middle, least=75, most=85)


def _real() -> Iterator[Line]:
    variants = {
        "noise in the weights": _noisy(),
        "a wrong resize": _resized(),
        "the same weights": sorites.model("lite0"),
    }
    with tempfile.TemporaryDirectory() as folder:
        base = _runs(Path(folder) / "base", sorites.model("lite0"))
        for name, model in variants.items():
            new = _runs(Path(folder) / model.name, replace(model, name=f"{model.name}-new"))
            small, large = (compare(one, two) for one, two in zip(base, new, strict=True))
            yield from _lines(name, small, large)


def _lines(name: str, small: Comparison, large: Comparison) -> Iterator[Line]:
    verdicts = judge(small, Gate(fail_if=("drop > 0",)))
    broken = [verdict.dial for verdict in verdicts if verdict.broken]
    worse = {row["dial"] for row in large.dials.to_dicts() if row["low"] > 0}
    note = (
        f"{', '.join(broken) or 'none'}; worse on all {LARGE}: {', '.join(sorted(worse - {'all'})) or 'none'}"
    )
    same = name == "the same weights"
    yield Line(
        f"{name}: dials that fail at n = {SMALL}",
        len(broken),
        note,
        least=None if same else 1,
        most=0 if same else None,
    )
    yield Line(f"{name}: of these, not worse on the larger set", len(set(broken) - worse), most=0)
    stated = [100 * verdict.detectable for verdict in verdicts if verdict.detectable is not None]
    yield Line(f"{name}: least drop detected with 80 % power, points", min(stated, default=0.0))


def _runs(folder: Path, model: Any) -> list[Path]:
    places = [folder / str(limit) for limit in (SMALL, LARGE)]
    for place, limit in zip(places, (SMALL, LARGE), strict=True):
        sorites.run("demo", models=[model], shifts=DIALS, levels=LEVELS, limit=limit, out=place)
    return places


def _noisy() -> Any:
    """Return lite0 with normal noise in the weights of its convolutions."""
    import torch

    from sorites.core.labels import imagenet
    from sorites.models.lite import input_of, load, one_pass
    from sorites.models.torch_module import linear_head, torch_model

    network, draw = load(0), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight += NOISE * layer.weight.std() * torch.randn(layer.weight.shape, generator=draw)
    return torch_model("noisy", one_pass(network), input_of(0), imagenet().ids, linear_head(network._fc))


def _resized() -> Any:
    """Return lite0 behind a resize that takes every second pixel."""
    whole = sorites.model("lite0")

    def prepare(image: Any, framed: bool = False) -> Any:
        return whole.prepare(image[::2, ::2].repeat(2, axis=0).repeat(2, axis=1), framed)

    return replace(whole, name="resized", prepare=prepare, version=f"{whole.version}-resized")

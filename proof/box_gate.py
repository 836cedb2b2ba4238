"""The gate for detectors: false alarms and power in simulation.

Two equally good detectors must not break ``map_drop > 0`` (or a rule about recall or precision) more often than
stated, over images drawn anew; nor must rules about each class or each size on its own. At the median stated
detectable drop, 75 to 85 % must be detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.analysis.comparison.box_worlds import MAP, World, cells, class_cells, size_cells

from proof._lines import Line
from sorites.analysis.comparison.quantities import Cell, Quantity
from sorites.analysis.comparison.swaps import detectable, swap_test

RATE, NULLS, ALTERNATIVES, SWAPS = 0.05, 500, 400, 200
QUANTITIES = {"mAP": MAP, "recall@0.5": Quantity("recall", 0.5), "precision@0.5": Quantity("precision", 0.5)}
WORLDS = {"n = 60": World(60), "n = 200": World(200), "n = 60, 3 shifts": World(60, 3)}
# Four classes, or small, medium and large objects, on their own: all are in the family.
FAMILIES: dict[str, tuple[World, Callable[..., list[Cell]]]] = {
    "each of 4 classes, n = 100": (World(100, classes=4), class_cells),
    "each size, n = 100": (World(100, sides=(24.0, 60.0, 120.0)), size_cells),
}


def run() -> Iterator[Line]:
    yield from families()
    for name, quantity in QUANTITIES.items():
        for what, world in WORLDS.items():
            yield from _false_alarms(f"{name}, {what}", quantity, world)
    for what in ("n = 60", "n = 200"):
        yield from _detected(f"mAP, {what}", MAP, WORLDS[what])
    yield from _detected("recall@0.5, n = 200", QUANTITIES["recall@0.5"], WORLDS["n = 200"])


def families() -> Iterator[Line]:
    """Rules about each class and each size."""
    for what, (world, family) in FAMILIES.items():
        for name, quantity in QUANTITIES.items():
            yield from _false_alarms(f"{name}, {what}", quantity, world, family)


def _broken(
    world: World,
    rng: np.random.Generator,
    seed: int,
    quantity: Quantity,
    family: Callable[..., list[Cell]] = cells,
) -> np.ndarray:
    found = family(world, rng, SWAPS, seed, quantity)
    return swap_test([cell.draws for cell in found], [len(cell.samples) for cell in found], RATE).broken


def _false_alarms(
    name: str,
    quantity: Quantity,
    world: World,
    family: Callable[..., list[Cell]] = cells,
) -> Iterator[Line]:
    rng = np.random.default_rng(0)
    alarms = float(np.mean([_broken(world, rng, i, quantity, family).any() for i in range(NULLS)]))
    error = np.sqrt(RATE * (1 - RATE) / NULLS)
    yield Line(f"{name}: false alarms, %", 100 * alarms, f"{NULLS} nulls", most=100 * (RATE + 2 * error))


def _detected(name: str, quantity: Quantity, world: World) -> Iterator[Line]:
    rng = np.random.default_rng(1)
    stated = []
    for i in range(100):
        cell = cells(world, rng, SWAPS, i, quantity)[0]
        stated.append(detectable(cell.draws, world.images, RATE, worth=cell.worth))
    drop = float(np.median([value for value in stated if value is not None]))
    worse = _worse(drop, quantity, world)
    alternative = World(world.images, world.shifts, world.own, worse)
    found = [_broken(alternative, rng, i, quantity)[0] for i in range(ALTERNATIVES)]
    note = f"median stated drop {100 * drop:.1f} points, {ALTERNATIVES} comparisons"
    slack = 200 * np.sqrt(0.8 * 0.2 / ALTERNATIVES)
    yield Line(
        f"{name}: detected at the stated drop, %", 100 * float(np.mean(found)), note, 75 - slack, 85 + slack
    )


def _worse(drop: float, quantity: Quantity, world: World) -> float:
    """Return the share of objects to lose for a drop, by bisection on many images.

    The drop of equal detectors on the same random numbers is subtracted: its expectation is 0.
    """

    def dropped(worse: float) -> float:
        return cells(World(3_000, 1, world.own, worse), np.random.default_rng(7), 2, 0, quantity)[
            0
        ].draws.drop

    equal, low, high = dropped(0.0), 0.0, 0.9
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (low, middle) if dropped(middle) - equal >= drop else (middle, high)
    return (low + high) / 2

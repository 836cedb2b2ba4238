"""The swap test: exact against enumeration, false alarms and power in simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.analysis.comparison.box_worlds import MAP, World, cells
from tests.metrics.box_sets import random_scene

from sorites.analysis.comparison.quantities import EVERY, Cell, Paired, Quantity, measure
from sorites.analysis.comparison.swaps import (
    Draws,
    SwapTest,
    detectable,
    plan_of,
    resampled_bound,
    swap_test,
)
from sorites.metrics.detection import coco

RATE = 0.05


def gate_test(found: list[Cell], margin: float = 0.0, rate: float = RATE) -> SwapTest:
    return swap_test([cell.draws for cell in found], [len(cell.samples) for cell in found], rate, margin)


def test_swapped_values_are_those_of_exchanged_images() -> None:
    """Each swap equals mAP computed on scenes whose images were exchanged one by one."""
    base, new = random_scene(1, images=6), random_scene(2, images=6)
    shared = type(new)(new.keys, new.sample, new.start, new.image, new.found, base.objects, {})
    draws = plan_of(6, np.zeros((6, 0), np.uint8), swaps=40)
    cell = measure(Paired(base, shared, 6), MAP, draws, draws.counts())[EVERY]

    def value(from_new: np.ndarray) -> float:
        merged = Paired(base.only(from_new == 0), shared.only(from_new == 1), 6).both()
        return float(coco.over_classes(coco.values(coco.by_class(merged, ["map"]), "map")))

    for k in range(8):
        swapped = draws.swapped[:, k].astype(np.int64)
        expected = value(swapped) - value(1 - swapped)
        assert cell.draws.swapped[k] == pytest.approx(expected, abs=2e-6)


def test_p_is_the_share_of_all_swaps() -> None:
    """With few samples, drawn swaps approach the enumeration of all of them."""
    contributions = np.array([0.05, 0.02, -0.01, 0.04, 0.03, 0.01, 0.02])
    draws = plan_of(7, np.zeros((7, 0), np.uint8), swaps=40_000)
    signs = 1 - 2.0 * draws.swapped.T
    cell = Draws(0.16, 0.0, signs @ contributions, contributions, np.zeros(0), np.zeros(0))
    every = np.array([np.dot(flip, contributions) for flip in itertools.product((1, -1), repeat=7)])
    expected = float((every >= contributions.sum() - 1e-9).mean())
    found = swap_test([cell], [7], RATE)
    assert found.p[0] == pytest.approx(expected, abs=3 * np.sqrt(expected / 40_000))
    assert found.broken[0] == (found.bound[0] > 0)


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_bound_p_and_verdict_agree(margin: float) -> None:
    rng = np.random.default_rng(4)
    for seed in range(6):
        found = gate_test(cells(World(60, 3, 0.4, 0.15), rng, 100, seed), margin)
        assert np.array_equal(found.broken, found.bound > margin)
        assert np.array_equal(found.broken, found.p_family <= RATE)
        assert (found.p_family >= found.p - 1e-12).all()


def test_gains_are_drops_the_other_way_round() -> None:
    found = cells(World(60, 1, 0.4, 0.3), np.random.default_rng(5), 200)
    draws = found[0].draws
    other = Draws(draws.new, draws.base, -draws.swapped, -draws.single, draws.drawn_new, draws.drawn_base)
    n = [len(found[0].samples)]
    gains, drops = swap_test([other], n, RATE, sign=-1), swap_test([draws], n, RATE)
    assert (gains.p[0], gains.bound[0]) == (drops.p[0], drops.bound[0])


def test_few_samples_and_undefined_values_are_not_judged() -> None:
    found = cells(World(4), np.random.default_rng(6), 50)
    assert not gate_test(found).judged.any()
    nothing = Draws(np.nan, 0.5, np.full(50, np.nan), np.zeros(0), np.zeros(0), np.zeros(0))
    test = swap_test([nothing, found[0].draws], [100, 100], RATE)
    assert test.judged.tolist() == [False, True]
    assert detectable(found[0].draws, 4, RATE) is None


def test_a_resampled_bound_is_moved_to_the_value() -> None:
    rng = np.random.default_rng(7)
    drawn = 0.6 + 0.05 * rng.normal(size=2_000)
    cell = Draws(0.7, 0.5, np.zeros(1), np.zeros(0), drawn, drawn)
    bound = resampled_bound(cell, lambda base, new: new - 0.4, 0.05)
    assert bound == pytest.approx(0.1 - 1.645 * 0.05, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("quantity", [MAP, Quantity("recall", 0.5), Quantity("precision", 0.5)])
def test_equal_detectors_raise_few_false_alarms(quantity: Quantity) -> None:
    """A small simulation; ``proof/box_gate.py`` has the large one."""
    rng, runs = np.random.default_rng(8), 60
    alarms = sum(
        gate_test(cells(World(40, 2, 0.6), rng, 60, i, quantity), rate=0.2).broken.any() for i in range(runs)
    )
    assert alarms / runs <= 0.2 + 2 * np.sqrt(0.2 * 0.8 / runs)


@pytest.mark.slow
def test_the_stated_drop_is_detected_in_four_of_five_comparisons() -> None:
    rng, n = np.random.default_rng(9), 120
    stated = []
    for i in range(40):
        cell = cells(World(n, 1, 0.4), rng, 200, i)[0]
        stated.append(detectable(cell.draws, n, RATE, worth=cell.worth))
    drop = float(np.median([value for value in stated if value is not None]))
    # The same random numbers for each, so that only the lost objects differ.
    worlds = [World(3_000, 1, 0.4, worse) for worse in (0.0, 0.1)]
    equal, large = (cells(world, np.random.default_rng(7), 2)[0].draws.drop for world in worlds)
    worse = 0.1 * drop / (large - equal)
    found = [bool(gate_test(cells(World(n, 1, 0.4, worse), rng, 200, i)).broken[0]) for i in range(150)]
    assert 0.7 <= np.mean(found) <= 0.9

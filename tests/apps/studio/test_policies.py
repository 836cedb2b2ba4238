"""Policies on answers that follow a known law: the surest setting is found, shots are counted,
gains are those by hand.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from sorites.apps.studio import policies
from sorites.apps.studio.control import summary
from sorites.apps.studio.policies import Answer, by_exposure, key_of
from sorites.core.camera_grid import Params, published_grid
from sorites.core.errors import SoritesError

GRID = [{**params, "mode": "manual"} for params in published_grid("test").manual]


def world(best: int) -> tuple[Callable[[Params], Answer], list[Params]]:
    """A model that is surer the nearer a shot's exposure is to one place of the line, and right
    within two of it.
    """
    line, shot = by_exposure(GRID), list[Params]()

    def shoot(params: Params) -> Answer:
        shot.append(params)
        if params["mode"] == "auto":
            return Answer(False, 0.3, 5.0)
        amount = params["iso"] * params["shutter"] / params["aperture"] ** 2
        place = min(
            range(len(line)),
            key=lambda i: abs(line[i]["iso"] * line[i]["shutter"] / line[i]["aperture"] ** 2 - amount),
        )
        return Answer(abs(place - best) <= 2, 1 / (1 + abs(place - best)), abs(place - best))

    return shoot, shot


def test_exposures_rise() -> None:
    amounts = [p["iso"] * p["shutter"] / p["aperture"] ** 2 for p in by_exposure(GRID)]
    assert amounts == sorted(amounts)
    assert len({round(a, 6) for a in amounts}) == len(amounts)


@pytest.mark.parametrize("best", range(0, len(by_exposure(GRID)), 3))
def test_bisection_comes_near_the_best_with_few_shots(best: int) -> None:
    shoot, shot = world(best)
    outcome = policies.bisect(shoot, GRID)
    assert outcome.shots == len({key_of(p) for p in shot}) == len(shot) <= 9
    assert outcome.answer.confidence >= 1 / 4


def test_sample_wise_policies_take_the_whole_grid_and_the_surest_or_least_ood() -> None:
    for policy in (policies.confidence, policies.scorer, policies.oracle):
        shoot, shot = world(10)
        outcome = policy(shoot, GRID)
        assert (outcome.answer.confidence, outcome.shots) == (1.0, 27)
        assert len(shot) == 27
    shoot, shot = world(3)
    assert policies.auto(shoot, GRID).shots == 1
    assert shot == [{"mode": "auto", "shot": 1}]


def test_the_aggregate_setting_is_the_one_with_most_right() -> None:
    answers = {key_of(params): [Answer(False, 0.5)] * 2 for params in GRID}
    answers[key_of(GRID[7])] = [Answer(True, 0.2), Answer(False, 0.2)]
    assert policies.best_of(answers, GRID) == GRID[7]
    assert policies.fixed(GRID[7])(lambda params: Answer(params == GRID[7], 1.0), GRID).answer.right


def test_the_summary_is_arithmetic() -> None:
    rows = [
        {"policy": name, "light": "on", "sample": str(i), "right": right[i], "shots": shots}
        for name, right, shots in (
            ("auto", (True, False, False, False), 1),
            ("bisect", (True, True, True, False), 5),
        )
        for i in range(4)
    ]
    table = summary(pl.DataFrame(rows))
    found = table.filter(pl.col("policy") == "bisect").row(0, named=True)
    assert (found["accuracy"], found["n"], found["shots"], found["gain"]) == (0.75, 4, 5.0, 0.5)
    assert found["low"] < 0.75 < found["high"]
    assert table.filter(pl.col("policy") == "auto")["gain_low"].to_list() == [None]
    # Agresti & Min: half a pair is added to each of the four outcomes
    half = 1.96 * ((3 / 6 - (2 / 6) ** 2) / 6) ** 0.5
    assert (found["gain_low"], found["gain_high"]) == pytest.approx((2 / 6 - half, 2 / 6 + half), abs=1e-4)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(SoritesError, match="Did you mean bisect"):
        policies.checked_names(["bisekt"])
    assert policies.checked_names([]) == policies.NAMES

"""Policies of camera control against loops over scenes, and on tables whose best policy is known."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites import metrics
from sorites.core import table
from sorites.core.errors import SoritesError
from sorites.metrics.camera import fold_of
from sorites.metrics.control.policies import Views, candidate_order, cross_fitted, first_setting

LIGHTS = ("dim", "bright")
SETTINGS = [(100, 1 / 8), (100, 1 / 250), (1600, 1 / 60), (6400, 1 / 1000)]
Answers = dict[tuple[str, str, str, int], dict[str, Any]]


def rows(samples: int = 30, entropy: bool = True, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Two models, two lights, four settings and two automatic shots, drawn at random."""
    rng = np.random.default_rng(seed)
    for model, skill in (("a", 0.5), ("b", 0.35)):
        for i in range(samples):
            for light in LIGHTS:
                shots = [
                    (k, {"iso": iso, "shutter": t, "aperture": 8.0, "mode": "manual"})
                    for k, (iso, t) in enumerate(SETTINGS)
                ]
                shots += [
                    (8 + n, {"mode": "auto", "shot": n, "iso": 400, "shutter": 0.02, "aperture": 5.0})
                    for n in (1, 2)
                ]
                for k, params in shots:
                    right = bool(rng.random() < skill + 0.1 * k * (light == "dim"))
                    shared = {
                        "run_id": "r",
                        "source": "s",
                        "sample_id": f"p{i}",
                        "image_id": f"p{i} {light} {k}",
                        "shift": "camera",
                        "params": json.dumps({**params, "light": light}),
                        "probe": False,
                        "model": model,
                        "label": 0,
                        "correct": right,
                    }
                    yield {
                        **shared,
                        "output": "label",
                        "pred": 0 if right else int(rng.integers(1, 3)),
                        "conf": float(rng.random()),
                    }
                    if entropy:
                        yield {
                            **shared,
                            "output": "ood",
                            "scorer": "entropy",
                            "score": float(rng.random()),
                            "correct": None,
                        }


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return table.rows(list(rows()))


def answers(made: pl.DataFrame) -> Answers:
    """(model, sample, light, setting) to what the table says, without any code of the metric."""
    found: Answers = defaultdict(dict)
    for row in made.to_dicts():
        params = json.loads(row["params"])
        if params["mode"] == "manual":
            key = (
                row["model"],
                row["sample_id"],
                params["light"],
                SETTINGS.index((params["iso"], params["shutter"])),
            )
            part = (
                {"entropy": row["score"]}
                if row["output"] == "ood"
                else {k: row[k] for k in ("correct", "pred", "conf")}
            )
            found[key] = found[key] | part
    return found


def by_dials() -> list[int]:
    """The settings in the order of the metric: by ISO, then shutter."""
    return sorted(range(len(SETTINGS)), key=lambda k: SETTINGS[k])


def greedy(known: Answers, model: str, scenes: list[tuple[str, str]]) -> list[int]:
    order: list[int] = []
    left = set(scenes)
    for _ in SETTINGS:
        free = [k for k in by_dials() if k not in order]
        hits = {k: sum(known[model, *s, k]["correct"] for s in left) for k in free}
        overall = {k: sum(known[model, *s, k]["correct"] for s in scenes) for k in free}
        best = max(free, key=lambda k: (hits[k], overall[k]))
        order.append(best)
        left -= {s for s in left if known[model, *s, best]["correct"]}
    return order


def follow(policy: str, choose: list[dict[str, Any]], judge: list[dict[str, Any]]) -> bool:
    if policy == "fixed":
        return bool(judge[0]["correct"])
    if policy == "confidence":
        return bool(judge[max(range(len(choose)), key=lambda i: choose[i]["conf"])]["correct"])
    if policy == "oracle":
        return bool(
            judge[max(range(len(choose)), key=lambda i: (choose[i]["correct"], choose[i]["conf"]))]["correct"]
        )
    kept = sorted(range(len(choose)), key=lambda i: choose[i]["entropy"])[: math.ceil(len(choose) / 2)]
    votes = Counter(judge[i]["pred"] for i in kept)
    first = next(i for i in kept if votes[judge[i]["pred"]] == max(votes.values()))
    return bool(judge[first]["correct"])


def accuracy(known: Answers, chooser: str, judge: str, policy: str, shots: int) -> float:
    scenes = sorted({(sample, light) for _, sample, light, _ in known})
    right = []
    orders = {
        fold: greedy(known, chooser, [other for other in scenes if fold_of(other[0]) != fold])
        for fold in range(5)
    }
    for scene in scenes:
        order = orders[fold_of(scene[0])][:shots]
        right.append(
            follow(
                policy, [known[chooser, *scene, k] for k in order], [known[judge, *scene, k] for k in order]
            )
        )
    return sum(right) / len(right)


def test_every_policy_and_budget_equals_a_loop(made: pl.DataFrame) -> None:
    known, found = answers(made), metrics.control_policies(made)
    compared = 0
    for row in found.filter(pl.col("policy") != "auto").to_dicts():
        expected = accuracy(known, row["model"], row["model"], row["policy"], row["shots"])
        assert row["value"] == pytest.approx(expected, abs=1e-12), row
        assert row["n"] == 30
        compared += 1
    assert compared == 2 * (1 + 3 * 3)


def test_transfer_equals_a_loop(made: pl.DataFrame) -> None:
    known, found = answers(made), metrics.control_transfer(made)
    assert found.height == 2 * 2 * 4
    for row in found.to_dicts():
        shots = 1 if row["policy"] == "fixed" else len(SETTINGS)
        expected = accuracy(known, row["chooser"], row["model"], row["policy"], shots)
        assert row["value"] == pytest.approx(expected, abs=1e-12), row


def test_automatic_shots_cost_one_and_are_averaged(made: pl.DataFrame) -> None:
    auto = metrics.control_policies(made).filter(policy="auto", model="a").row(0, named=True)
    shots = made.filter(pl.col("params").str.contains("auto"), output="label", model="a")
    assert auto["value"] == pytest.approx(float(shots["correct"].mean()))  # type: ignore[arg-type]
    assert (auto["shots"], auto["exposure_ms"]) == (1, pytest.approx(20))


def test_costs_are_shots_and_exposure_time(made: pl.DataFrame) -> None:
    found = metrics.control_policies(made).filter(model="a", policy="oracle")
    assert found["shots"].to_list() == [2, 3, 4]
    whole = found.filter(shots=4)["exposure_ms"].item()
    assert whole == pytest.approx(1000 * sum(shutter for _, shutter in SETTINGS))


def test_the_best_fixed_setting_is_not_optimistic() -> None:
    """Where all settings are equally good, the best on the same samples seems better, that of other samples does
    not.
    """
    rng, honest, optimistic = np.random.default_rng(3), [], []
    folds = np.arange(40) % 5
    for _ in range(400):
        right = rng.random((40, 12)) < 0.5
        views = Views(right, np.zeros((40, 12), np.int64), np.zeros((40, 12)), np.zeros((40, 12)))
        answer = cross_fitted(views, views, folds, first_setting, 1)
        assert answer is not None
        honest.append(answer[0].mean())
        optimistic.append(right.mean(0).max())
    assert np.mean(honest) == pytest.approx(0.5, abs=0.015)  # four standard errors
    assert np.mean(optimistic) > 0.6


def test_the_oracle_is_a_ceiling_that_rises_with_shots(made: pl.DataFrame) -> None:
    found = metrics.control_policies(made)
    for model in ("a", "b"):
        oracle = dict(found.filter(model=model, policy="oracle").select("shots", "value").iter_rows())
        assert list(oracle.values()) == sorted(oracle.values())
        for row in found.filter(model=model).to_dicts():
            if row["policy"] in ("confidence", "mvp"):
                assert row["value"] <= oracle[row["shots"]]


def test_without_the_scorer_the_vote_is_ordered_by_confidence_and_says_so(made: pl.DataFrame) -> None:
    def kept_by(frame: pl.DataFrame) -> list[str]:
        return metrics.control_policies(frame).filter(policy="mvp")["kept_by"].unique().to_list()

    assert kept_by(made) == ["entropy"]
    assert kept_by(table.rows(list(rows(entropy=False)))) == ["confidence"]


def test_scenes_without_all_settings_are_left_out(made: pl.DataFrame) -> None:
    lost = (pl.col("sample_id") == "p0") & (pl.col("image_id").str.ends_with(" 2")) & (pl.col("model") == "a")
    fewer = metrics.control_policies(made.filter(~lost))
    assert fewer.filter(model="a", policy="fixed")["n"].to_list() == [29]
    assert fewer.filter(model="b", policy="fixed")["n"].to_list() == [30]
    assert set(metrics.control_transfer(made.filter(~lost))["n"]) == {29, 30}


def test_lights_can_be_told_apart_but_not_the_settings(made: pl.DataFrame) -> None:
    found = metrics.control_policies(made, by=("model", "light"))
    assert set(found["light"]) == set(LIGHTS)
    pooled = metrics.control_policies(made).filter(model="a", policy="fixed")["value"].item()
    assert found.filter(model="a", policy="fixed")["value"].mean() == pytest.approx(pooled)
    with pytest.raises(SoritesError, match="cannot be grouped by 'iso'"):
        metrics.control_policies(made, by=("model", "iso"))


def test_candidates_cover_scenes_before_they_repeat_successes() -> None:
    """The second candidate solves what the first does not, although a third setting is more accurate."""
    correct = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]], bool)
    assert candidate_order(correct).tolist() == [0, 2, 1]

import itertools
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from sorites.core.errors import SoritesError
from sorites.metrics import augrc, aurc, risk_coverage, scod


def answers(row: Any, frame: Any, drawn: list[tuple[float, bool]], samples: int = 1000) -> Any:
    more = {"output": "ood", "scorer": "msp"}
    return frame(
        row(f"p{i % samples}", "clean", 0.0, right, score=score, image_id=f"{i}", **more)
        for i, (score, right) in enumerate(drawn)
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
def test_area_is_the_mean_over_every_order_of_ties(
    row: Any, frame: Any, drawn: list[tuple[int, bool]]
) -> None:
    def area(order: tuple[tuple[int, bool], ...]) -> float:
        wrong = [not right for _, right in order]
        return fmean(fmean(wrong[: k + 1]) for k in range(len(wrong)))

    allowed = [area(p) for p in itertools.permutations(drawn) if list(p) == sorted(p, key=lambda one: one[0])]
    found = aurc(answers(row, frame, drawn)).row(0, named=True)
    assert found["value"] == pytest.approx(fmean(allowed))
    assert found["best"] == pytest.approx(min(area(p) for p in itertools.permutations(drawn)))
    assert found["risk"] == pytest.approx(fmean(not right for _, right in drawn))
    assert found["n"] == len(drawn)


def test_a_blind_score_has_the_overall_risk_and_a_perfect_one_the_best(row: Any, frame: Any) -> None:
    rights = [True] * 30 + [False] * 10
    blind = aurc(answers(row, frame, [(1.0, right) for right in rights])).row(0, named=True)
    assert blind["value"] == pytest.approx(0.25)
    perfect = aurc(answers(row, frame, [(float(not right), right) for right in rights])).row(0, named=True)
    assert perfect["value"] < blind["value"]
    best = fmean(max(k - 30, 0) / k for k in range(1, 41))
    assert perfect["best"] == pytest.approx(best)
    assert aurc(answers(row, frame, [(0.0, True), (1.0, True)])).select("value", "low", "high").row(0) == (
        0.0,
        None,
        None,
    )


@pytest.mark.parametrize("images", [1, 4])
def test_interval_is_as_wide_as_the_bootstraps(row: Any, frame: Any, images: int) -> None:
    rng = np.random.default_rng(11)
    samples = 150
    hard = np.tile(rng.normal(size=samples), images)
    score = np.round(hard + rng.normal(0, 0.3, samples * images), 1)
    wrong = rng.random(samples * images) < 1 / (1 + np.exp(1 - 1.5 * hard))
    found = aurc(answers(row, frame, list(zip(score, ~wrong, strict=True)), samples)).row(0, named=True)
    drawn = []
    for _ in range(600):
        chosen = (rng.integers(0, samples, samples)[:, None] + samples * np.arange(images)).ravel()
        order = chosen[np.lexsort((rng.random(len(chosen)), score[chosen]))]
        drawn.append(np.mean(np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)))
    assert (found["high"] - found["low"]) / 2 == pytest.approx(1.96 * np.std(drawn), rel=0.12)


def test_risk_at_each_coverage(row: Any, frame: Any) -> None:
    drawn = [(float(i), i not in (5, 8, 9)) for i in range(10)]
    found = risk_coverage(answers(row, frame, drawn), points=5)
    assert found.select("coverage", "n").rows() == [(0.2, 2), (0.4, 4), (0.6, 6), (0.8, 8), (1.0, 10)]
    assert found["value"].to_list() == pytest.approx([0, 0, 1 / 6, 1 / 8, 3 / 10])
    with pytest.raises(SoritesError, match="at least 1"):
        risk_coverage(answers(row, frame, drawn), points=0)


def test_images_without_outcome_or_score_are_left_out(row: Any, frame: Any) -> None:
    more = {"output": "ood", "scorer": "msp"}
    rows = [row("a", "clean", 0.0, False, score=1.0, **more), row("b", "clean", 0.0, None, score=2.0, **more)]
    assert aurc(frame([*rows, row("c", "clean", 0.0, True, score=None, **more)])).select(
        "value", "n"
    ).rows() == [(1.0, 1)]


def test_models_without_scores_are_ranked_by_confidence(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(4)
    conf = rng.random(60).astype(np.float32)
    right = rng.random(60) < conf
    labels = [
        row(f"p{i}", "clean", 0.0, bool(right[i]), conf=float(conf[i]), image_id=f"{i}") for i in range(60)
    ]
    scores = [
        {**one, "output": "ood", "scorer": "msp", "score": 1 - float(conf[i])} for i, one in enumerate(labels)
    ]
    ranked, scored = aurc(frame(labels)), aurc(frame(labels + scores))
    assert ranked["scorer"].to_list() == ["conf"]
    assert scored["scorer"].to_list() == ["msp"]
    assert ranked.drop("scorer").equals(scored.drop("scorer"))
    assert (
        risk_coverage(frame(labels))
        .drop("scorer")
        .equals(risk_coverage(frame(labels + scores)).drop("scorer"))
    )


@pytest.mark.slow
def test_the_generalised_area_is_the_closed_form_of_its_paper(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(5)
    score = np.round(rng.normal(0, 1, 300), 1)
    right = rng.random(300) > 1 / (1 + np.exp(-score))
    found = augrc(answers(row, frame, list(zip(score.tolist(), right.tolist(), strict=True)))).row(
        0, named=True
    )
    accuracy = right.mean()
    separates = roc_auc_score(~right, score)
    wanted = (1 - separates) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert found["value"] == pytest.approx(wanted, abs=1e-12)
    assert found["risk"] == pytest.approx(1 - accuracy)
    assert found["best"] == pytest.approx((1 - accuracy) ** 2 / 2)
    # The interval is as wide as the bootstrap's.
    draws = []
    for _ in range(400):
        own = rng.integers(0, 300, 300)
        accuracy = right[own].mean()
        separates = roc_auc_score(~right[own], score[own])
        draws.append((1 - separates) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.97 * np.std(draws), rel=0.15)


def test_answered_ood_images_are_errors(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(6)
    more = {"output": "ood", "scorer": "energy"}
    known = [
        row(
            f"p{i}",
            "clean",
            0.0,
            bool(rng.random() < 0.8),
            score=float(rng.normal()),
            image_id=f"{i}",
            **more,
        )
        for i in range(80)
    ]
    unknown = [
        {
            **row(f"o{i}", "clean", 0.0, None, score=float(rng.normal(1)), image_id=f"o{i}", **more),
            "known": False,
        }
        for i in range(40)
    ]
    found = scod(frame(known + unknown)).row(0, named=True)
    ranked = sorted([*known, *unknown], key=lambda one: one["score"])
    wrong = [not one["correct"] for one in ranked]
    assert found["value"] == pytest.approx(fmean(fmean(wrong[: k + 1]) for k in range(120)), abs=1e-12)
    assert (found["n"], found["id"], found["ood"]) == (120, 80, 40)
    assert found["risk"] == pytest.approx(fmean(wrong))
    assert found["generalised"] == pytest.approx(
        fmean((sum(wrong[:k]) + sum(wrong[: k + 1])) / 240 for k in range(120)), abs=1e-12
    )
    # The other areas leave OOD images out, and without any there is no number.
    assert aurc(frame(known + unknown))["n"].to_list() == [80]
    assert scod(frame(known)).select("value", "ood").rows() == [(None, 0)]

"""Policies that choose the camera settings of a scene, on arrays of scene x setting.

A scene is a sample under one light. Every policy gets the same candidate settings, in an order that was
learnt
on other samples: the first is the best fixed setting, and each further one solves most of the scenes that the
earlier ones do not (greedy coverage).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Numbers = NDArray[np.float64]
Order = NDArray[np.int64]
# Share of the photographs that a vote keeps: those of lowest entropy.
KEPT_SHARE = 0.5


@dataclass(frozen=True)
class Views:
    """What one model says about the photographs of scenes, each array scene x setting.

    Attributes:
        correct: Whether the prediction is correct.
        predicted: Predicted class.
        confidence: Largest softmax probability.
        entropy: Entropy of the softmax, or what stands for it; lower is more certain.
    """

    correct: Flags
    predicted: NDArray[np.int64]
    confidence: Numbers
    entropy: Numbers

    def at(self, scenes: NDArray[np.int64], settings: Order) -> Views:
        """Return some scenes at some settings."""
        part = np.ix_(scenes, settings)
        return Views(self.correct[part], self.predicted[part], self.confidence[part], self.entropy[part])


def candidate_order(correct: Flags) -> Order:
    """Return the settings by greedy coverage of scenes; ties go to the more accurate, then the earlier
    one.
    """
    accuracy = correct.mean(0)
    left = np.ones(len(correct), bool)
    order: list[int] = []
    free = np.ones(correct.shape[1], bool)
    while free.any():
        gain = correct[left].sum(0) if order else correct.sum(0)
        # The accuracy is below 1 scene, so that it only decides ties.
        best = int(np.where(free, gain + accuracy / 2, -1.0).argmax())
        order.append(best)
        free[best] = False
        left &= ~correct[:, best]
    return np.array(order)


# A policy gets the chooser's and the judge's views of scenes at the candidate settings, and returns whether
# each scene is correct.
Policy = Callable[[Views, Views], Flags]


def trust_confidence(chooser: Views, judge: Views) -> Flags:
    """Trust the photograph of highest confidence (VisiT, arXiv 2503.02170)."""
    best = chooser.confidence.argmax(1)
    return np.asarray(judge.correct[np.arange(len(best)), best], bool)


def vote(chooser: Views, judge: Views) -> Flags:
    """Keep the photographs of lowest entropy and let them vote (MVP without augmentation, arXiv 2512.12571).

    The class of the most certain photograph decides a tie.
    """
    settings = chooser.entropy.shape[1]
    kept = max(1, int(np.ceil(KEPT_SHARE * settings)))
    ranked = np.argsort(chooser.entropy, axis=1, kind="stable")[:, :kept]
    predicted = np.take_along_axis(judge.predicted, ranked, 1)
    votes = (predicted[:, :, None] == predicted[:, None, :]).sum(2)
    winner = np.take_along_axis(ranked, votes.argmax(1)[:, None], 1)  # argmax: the first, so the most certain
    return np.take_along_axis(judge.correct, winner, 1)[:, 0]


def trust_oracle(chooser: Views, judge: Views) -> Flags:
    """Trust a photograph that the chooser gets right, the most confident of them; an upper bound if the
    chooser is the judge.
    """
    best = (chooser.confidence + 2 * chooser.correct).argmax(1)
    return np.asarray(judge.correct[np.arange(len(best)), best], bool)


def first_setting(chooser: Views, judge: Views) -> Flags:
    """Use the first candidate, the best fixed setting."""
    return judge.correct[:, 0]


SEARCHES: dict[str, Policy] = {"confidence": trust_confidence, "mvp": vote, "oracle": trust_oracle}


def budgets(settings: int) -> list[int]:
    """Return the numbers of shots at which policies are compared, up to all settings."""
    steps = (2, 3, 4, 6, 9, 13, 18, 27, 40, 64)
    return sorted({*(step for step in steps if step < settings), settings} - {1})


def cross_fitted(
    chooser: Views, judge: Views, folds: NDArray[np.int64], policy: Policy, shots: int
) -> tuple[Flags, Order] | None:
    """Return whether each scene is correct, and the settings of each scene: candidates are learnt on other
    folds.

    Args:
        chooser: The model that chooses.
        judge: The model whose answer counts.
        folds: Fold of each scene; scenes of one sample share it.
        policy: The policy.
        shots: Number of candidates.

    Returns:
        None if a fold has no other samples to learn from and not all settings are taken.
    """
    settings = chooser.correct.shape[1]
    correct = np.zeros(len(folds), bool)
    used = np.zeros((len(folds), shots), np.int64)
    for fold in np.unique(folds):
        scenes, others = np.flatnonzero(folds == fold), folds != fold
        if not others.any() and shots < settings:
            return None
        order = candidate_order(chooser.correct[others])[:shots] if others.any() else np.arange(settings)
        correct[scenes] = policy(chooser.at(scenes, order), judge.at(scenes, order))
        used[scenes] = order
    return correct, used

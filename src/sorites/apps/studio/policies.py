"""Policies of model-friendly capture: which settings to shoot and which shot to trust, from the model's
answers.

A policy requests photographs from a ``Shooter`` and returns the trusted answer and the number of shots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sorites.core.camera_grid import Params
from sorites.core.errors import UnknownName

# Bisection steps over exposure.
HALVINGS = 3


@dataclass(frozen=True)
class Answer:
    """The model's answer for one photograph.

    Attributes:
        right: Whether it is correct.
        confidence: Its largest softmax probability.
        ood: Its OOD score.
    """

    right: bool
    confidence: float
    ood: float | None = None


# Photographs one image under one light at a setting, and returns the model's answer.
Shooter = Callable[[Params], Answer]


@dataclass(frozen=True)
class Outcome:
    """The trusted answer of a policy and the number of shots."""

    answer: Answer
    shots: int


# Maps a shooter and the settings of the grid to an outcome.
Policy = Callable[[Shooter, Sequence[Params]], Outcome]


def auto(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Use the camera's automatic exposure: one shot."""
    return Outcome(shoot({"mode": "auto", "shot": 1}), 1)


def fixed(setting: Params) -> Policy:
    """Return the policy that uses one setting for all images: one shot."""
    return lambda shoot, grid: Outcome(shoot(setting), 1)


def confidence(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Shoot every setting and trust the most confident answer."""
    answers = [shoot(params) for params in grid]
    return Outcome(max(answers, key=lambda answer: answer.confidence), len(answers))


def scorer(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Shoot every setting and trust the answer with the lowest OOD score."""
    answers = [shoot(params) for params in grid]
    return Outcome(min(answers, key=lambda answer: 0.0 if answer.ood is None else answer.ood), len(answers))


def bisect(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Bisect the exposure range toward higher confidence and trust the most confident of all shots."""
    settings = by_exposure(grid)
    answers: dict[int, Answer] = {}

    def at(index: int) -> Answer:
        if index not in answers:
            answers[index] = shoot(settings[index])
        return answers[index]

    low, high = 0, len(settings) - 1
    at((low + high) // 2)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        below, above = (low + middle) // 2, (middle + high + 1) // 2
        best = max((below, middle, above), key=lambda index: at(index).confidence)
        low, high = (below, above) if best == middle else (low, middle) if best == below else (middle, high)
        if high - low < 2:
            break
    return Outcome(max(answers.values(), key=lambda answer: answer.confidence), len(answers))


def oracle(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Upper bound: correct if any shot of the grid is correct."""
    answers = [shoot(params) for params in grid]
    return Outcome(max(answers, key=lambda answer: (answer.right, answer.confidence)), len(answers))


def by_exposure(grid: Sequence[Params]) -> list[Params]:
    """Return settings from dark to bright, one per amount of light, with the lowest ISO."""
    by_amount: dict[float, Params] = {}
    for params in sorted(grid, key=lambda params: float(params["iso"])):
        by_amount.setdefault(round(params["iso"] * params["shutter"] / params["aperture"] ** 2, 6), params)
    return [by_amount[amount] for amount in sorted(by_amount)]


def best_of(answers: Mapping[str, Iterable[Answer]], grid: Sequence[Params]) -> Params:
    """Return the setting with the most correct images; ties go to the higher mean confidence."""

    def quality(params: Params) -> tuple[float, float]:
        at_setting = list(answers[key_of(params)])
        return sum(a.right for a in at_setting) / len(at_setting), sum(
            a.confidence for a in at_setting
        ) / len(at_setting)

    return max(grid, key=quality)


def key_of(params: Params) -> str:
    """Return a canonical key of a setting, independent of the order of its values."""
    return json.dumps({key: params[key] for key in sorted(params) if key != "light"})


PLAIN: dict[str, Any] = {
    "auto": auto,
    "confidence": confidence,
    "scorer": scorer,
    "bisect": bisect,
    "oracle": oracle,
}
# All policies; ``fixed`` and ``aggregate`` take a setting.
NAMES = ("auto", "fixed", "aggregate", "confidence", "scorer", "bisect", "oracle")


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the unique policies, or all of them if none is named."""
    for name in names:
        if name not in NAMES:
            raise UnknownName("policy", name, NAMES, f"There are {', '.join(NAMES)}.")
    return tuple(dict.fromkeys(names)) or NAMES

"""Policies of model-friendly capture: which settings to shoot, and which of the shots to believe,
from the model's own answers.

A policy asks a ``Shooter`` for photographs at settings, and returns the answer that it believes and
how many were shot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sorites.core.camera_grid import Params
from sorites.core.errors import UnknownName

# The times the search over exposure halves its bracket.
HALVINGS = 3


@dataclass(frozen=True)
class Answer:
    """The model's answer for one photograph: whether it is right, how sure it is, and how OOD
    it finds it.
    """

    right: bool
    confidence: float
    ood: float | None = None


# Takes a photograph of one image under one light at a setting, and returns what the model says of
# it.
Shooter = Callable[[Params], Answer]


@dataclass(frozen=True)
class Outcome:
    """The answer that a policy believes, and how many shots it took."""

    answer: Answer
    shots: int


# From a shooter and the settings of the grid to an outcome.
Policy = Callable[[Shooter, Sequence[Params]], Outcome]


def auto(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """The camera's automatic exposure: one shot."""
    return Outcome(shoot({"mode": "auto", "shot": 1}), 1)


def fixed(setting: Params) -> Policy:
    """One setting for all images: one shot."""
    return lambda shoot, grid: Outcome(shoot(setting), 1)


def confidence(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Every setting of the grid, and of the shots the one of which the model is surest."""
    answers = [shoot(params) for params in grid]
    return Outcome(max(answers, key=lambda answer: answer.confidence), len(answers))


def scorer(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Every setting of the grid, and of the shots the one that the scorer finds least OOD."""
    answers = [shoot(params) for params in grid]
    return Outcome(min(answers, key=_ood_score), len(answers))


def bisect(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """Halve the range of exposures toward the side where the model is surer; the surest of all
    shots is believed.
    """
    line = by_exposure(grid)
    known: dict[int, Answer] = {}

    def at(place: int) -> Answer:
        if place not in known:
            known[place] = shoot(line[place])
        return known[place]

    low, high = 0, len(line) - 1
    at((low + high) // 2)
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        below, above = (low + middle) // 2, (middle + high + 1) // 2
        best = max((below, middle, above), key=lambda place: at(place).confidence)
        low, high = (below, above) if best == middle else (low, middle) if best == below else (middle, high)
        if high - low < 2:
            break
    return Outcome(max(known.values(), key=lambda answer: answer.confidence), len(known))


def oracle(shoot: Shooter, grid: Sequence[Params]) -> Outcome:
    """A bound and no policy: right if any shot of the grid is right, which only the truth knows."""
    answers = [shoot(params) for params in grid]
    return Outcome(max(answers, key=lambda answer: (answer.right, answer.confidence)), len(answers))


def by_exposure(grid: Sequence[Params]) -> list[Params]:
    """Return settings from dark to bright, one for each amount of light: the one of the lowest ISO."""
    kept: dict[float, Params] = {}
    for params in sorted(grid, key=lambda params: float(params["iso"])):
        kept.setdefault(round(params["iso"] * params["shutter"] / params["aperture"] ** 2, 6), params)
    return [kept[amount] for amount in sorted(kept)]


def best_of(answers: Mapping[str, Iterable[Answer]], grid: Sequence[Params]) -> Params:
    """Return the setting at which the most images are right; of equal ones the one that the model
    is surer at.
    """

    def worth(params: Params) -> tuple[float, float]:
        held = list(answers[key_of(params)])
        return sum(a.right for a in held) / len(held), sum(a.confidence for a in held) / len(held)

    return max(grid, key=worth)


def key_of(params: Params) -> str:
    """Return a setting as a key: the same for the same setting, whatever the order of its values."""
    return json.dumps({key: params[key] for key in sorted(params) if key != "light"})


PLAIN: dict[str, Any] = {
    "auto": auto,
    "confidence": confidence,
    "scorer": scorer,
    "bisect": bisect,
    "oracle": oracle,
}
# All policies; ``fixed`` and ``aggregate`` are made with a setting.
NAMES = ("auto", "fixed", "aggregate", "confidence", "scorer", "bisect", "oracle")


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the policies, each once; all of them if none is named."""
    for name in names:
        if name not in NAMES:
            raise UnknownName("policy", name, NAMES, f"There are {', '.join(NAMES)}.")
    return tuple(dict.fromkeys(names)) or NAMES


def _ood_score(answer: Answer) -> float:
    return 0.0 if answer.ood is None else answer.ood

"""The settings of an attack: its norm, sizes, losses, steps and restarts, checked before any work is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from sorites.core import Shift
from sorites.errors import SoritesError, UnknownName
from sorites.training.attack.balls import Norm
from sorites.training.attack.losses import LOSSES

VERSION = 1
"""Rises when the same settings would give other points."""
FAMILY = "attack"
UNITS: dict[Norm, str] = {"l2": "l2 distance, pixels in 0..1", "linf": "largest change, pixels in 0..1"}


@dataclass(frozen=True)
class Settings:
    """An attack: how far it may go, by which losses, and how long it tries."""

    norm: Norm
    eps: tuple[float, ...]
    losses: tuple[str, ...]
    steps: int
    restarts: int

    @property
    def shifts(self) -> dict[str, str]:
        """The names of the attack in the table, each with its loss: ``apgd_ce_l2``."""
        return {f"apgd_{loss}_{self.norm}": loss for loss in self.losses}

    def shift(self, name: str, model: str = "") -> Shift:
        """Return the attack as a shift of a plan; ``model`` says against which model, and stands in the ids of its images."""
        version = f"{VERSION} steps={self.steps} restarts={self.restarts}" + (f" {model}" if model else "")
        return Shift(name, _refuse, FAMILY, UNITS[self.norm], version=version)

    def recorded(self) -> dict[str, Any]:
        """Return the settings as ``run.json`` keeps them."""
        return {**asdict(self), "eps": list(self.eps), "losses": list(self.losses), "version": VERSION}


def settings(norm: str, eps: str | Sequence[float], losses: str | Sequence[str], steps: int, restarts: int) -> Settings:
    """Return checked settings; each mistake is an error that says what was wanted."""
    if norm not in get_args(Norm):
        raise UnknownName("norm", norm, get_args(Norm), "--norm is l2 or linf.")
    named = [one.strip() for one in losses.split(",")] if isinstance(losses, str) else list(losses)
    for loss in named or [""]:
        if loss not in LOSSES:
            raise UnknownName("attack", loss, LOSSES, "--attack is ce, dlr or both: ce,dlr.")
    for option, value in (("--steps", steps), ("--restarts", restarts)):
        if value < 1:
            raise SoritesError(f"{option} wants a whole number above 0, got {value}")
    known: Norm = "l2" if norm == "l2" else "linf"
    return Settings(known, epsilons(eps, known), tuple(dict.fromkeys(named)), steps, restarts)


def epsilons(given: str | Sequence[float], norm: Norm = "l2") -> tuple[float, ...]:
    """Return the sizes of an attack from the least to the greatest: ``"4/255,.1,.25"`` or numbers."""
    texts = [one.strip() for one in given.split(",")] if isinstance(given, str) else list(given)
    found = [_epsilon(text) for text in texts]
    if not found:
        raise SoritesError("--eps wants at least one number above 0, such as 4/255,.1,.25")
    over = next((text for text, eps in zip(texts, found, strict=True) if norm == "linf" and eps > 1), None)
    if over is not None:
        raise SoritesError(
            f"--eps {over}: pixels are in 0..1, so with --norm linf nothing changes by more than 1. Is it {over}/255?"
        )
    return tuple(sorted(set(found)))


def _epsilon(text: str | float) -> float:
    top, slash, bottom = str(text).partition("/")
    try:
        value = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise SoritesError(f"--eps wants finite numbers above 0, such as 4/255,.1,.25; got {str(text)!r}")
    return value


def _refuse(image: Any, stop: Any, rng: Any) -> Any:
    raise SoritesError("an attack is made against a model, not of a picture alone; type: sorites attack MODEL")

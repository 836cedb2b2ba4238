"""List the trainings of a comparison: each arm with each seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sorites.errors import SoritesError
from sorites.training.recipe import Recipe

DEFAULT = ("none", "optics", "augmix", "cascade")


@dataclass(frozen=True)
class Member:
    """One training of a comparison. An arm is the name of an augmentation; ``a+b`` is the chain ``a,b``."""

    arm: str
    seed: int

    @property
    def name(self) -> str:
        """The name of the trained model in the table, and of its folder."""
        return f"{self.arm}_{self.seed}"

    def folder(self, out: Path) -> Path:
        return out / "models" / self.name

    def recipe(self, base: Recipe) -> Recipe:
        """Return the recipe with this arm's augmentation and seed."""
        return base.override({"augment.names": self.arm.replace("+", ","), "seed": self.seed})


def members(arms: Sequence[str], seeds: int, first: int = 0) -> tuple[Member, ...]:
    """Return the trainings, seed by seed, so that a comparison that is stopped has whole seeds; the first arm is what the others
    are compared with."""
    named = [arm.strip() for arm in arms]
    twice = next((arm for arm in named if named.count(arm) > 1), None)
    if twice is not None or "" in named:
        raise SoritesError(f"arms: wanted each augmentation once, such as {','.join(DEFAULT)}, got {','.join(arms)!r}")
    if len(named) < 2:
        raise SoritesError(f"arms: wanted at least two to compare, such as {','.join(DEFAULT)}, got {','.join(arms)!r}")
    if seeds < 1:
        raise SoritesError(f"arms: wanted at least one seed, got {seeds}")
    return tuple(Member(arm, first + place) for place in range(seeds) for arm in named)

"""Recipes that learn words: every parameter with its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sorites.errors import SoritesError, UnknownName

TEMPLATES = (
    "a photo of a {class}", "a picture of a {class}", "a close-up photo of a {class}", "a good photo of the {class}",
    "a cropped photo of a {class}", "a bright photo of the {class}", "a photo of one {class}", "an image of a {class}",
)  # fmt: skip
"""Sentences in which a word is learnt, so that it learns the thing and not the sentence; the wording is ours."""


@dataclass(frozen=True)
class WordRecipe:
    """The parameters of learning one word. The defaults are those of the public example that IN* was made with."""

    name: str = "released"
    steps: int = 3000
    rate: float = 5e-4
    batch: int = 4
    vectors: int = 1
    """The number of vectors that stand for a class."""
    templates: tuple[str, ...] = TEMPLATES
    decay: bool = False
    """True where the learning rate falls to 0 as half a cosine."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be learnt."""
        checks = (
            ("steps", 1 <= self.steps <= 1_000_000, "a whole number from 1"),
            ("rate", 0 < self.rate < 10, "a number above 0, below 10"),
            ("batch", 1 <= self.batch <= 512, "a whole number from 1 to 512"),
            ("vectors", 1 <= self.vectors <= 32, "a whole number from 1 to 32"),
            ("templates", all(text.count("{class}") == 1 for text in self.templates), "sentences with {class} once in each"),
        )
        for name, right, wanted in checks:
            if not right:
                raise SoritesError(f"{name}: wanted {wanted}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return every parameter by its name."""
        return {**asdict(self), "templates": list(self.templates)}


RELEASED = WordRecipe()
TOY = WordRecipe(
    name="toy", steps=80, rate=0.2, batch=16, decay=True,
    templates=("a picture of a {class}", "a photo of a {class}", "{class}"),
)  # fmt: skip
RECIPES = {recipe.name: recipe for recipe in (RELEASED, TOY)}


def word_recipe(name: str) -> WordRecipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        raise UnknownName("word recipe", name, RECIPES)
    return RECIPES[name]

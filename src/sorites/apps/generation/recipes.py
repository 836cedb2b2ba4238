"""Recipes that train a slider: the released trainer's numbers, and a small recipe of our own for
the toy world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sorites.core.errors import SoritesError, UnknownName


@dataclass(frozen=True)
class SliderRecipe:
    """The parameters of training. The defaults are those of the trainer that CNS-Bench released."""

    name: str = "released"
    eta: float = 4.0
    """The distance of the target in the direction of the shift."""
    rank: int = 4
    alpha: float = 1.0
    layers: str = "noxattn"
    steps: int = 400
    rate: float = 2e-4
    batch: int = 16
    noise_steps: int = 50
    """The steps of the trajectories on which it learns; the paper says 100, the released configuration 50."""
    side: int | None = 512
    """The width of the images that it learns on, or the pipeline's own where that is smaller or
    this is not set.
    """
    neutral: str = "{class}"
    positive: str = "{class}, in {shift}"
    """The words for the class, and for it in the shift; the paper has "A picture of a {class} in {shift}"."""
    refresh: int = 1
    """The number of steps that use the same trajectories, each at another noise step; 1 as released."""
    decay: bool = False
    """True where the learning rate falls to 0 as half a cosine; it is constant in the released trainer."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        checks = (
            ("eta", 0 < self.eta <= 100, "a number above 0, at most 100"),
            ("rank", 1 <= self.rank <= 256, "a whole number from 1 to 256"),
            ("alpha", 0 < self.alpha <= 256, "a number above 0"),
            ("steps", 1 <= self.steps <= 100_000, "a whole number from 1"),
            ("rate", 0 < self.rate < 1, "a number between 0 and 1"),
            ("batch", 1 <= self.batch <= 512, "a whole number from 1 to 512"),
            ("noise_steps", 2 <= self.noise_steps <= 1000, "a whole number from 2 to 1000"),
            ("refresh", 1 <= self.refresh <= 1000, "a whole number from 1"),
            ("neutral", "{class}" in self.neutral, "words with {class} in them"),
            ("positive", "{shift}" in self.positive, "words with {shift} in them"),
        )
        for name, right, wanted in checks:
            if not right:
                raise SoritesError(f"{name}: wanted {wanted}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return every parameter by its name."""
        return asdict(self)

    def words(self, concept: str, shift: str) -> tuple[str, str]:
        """Return the neutral and the positive prompt."""
        made = (
            text.replace("{class}", concept).replace("{shift}", shift)
            for text in (self.neutral, self.positive)
        )
        neutral, positive = made
        return neutral, positive

    def passes(self) -> float:
        """Return how many images go through the network in training, one that is also gone back
        through counted as three.

        A trajectory is walked to a noise step drawn evenly, half way on average, or to its end
        where it is used several times.
        """
        walked = self.noise_steps / 2 if self.refresh == 1 else self.noise_steps / self.refresh
        return self.steps * self.batch * (walked + 2 + 3)


RELEASED = SliderRecipe()
TOY = SliderRecipe(
    name="toy", eta=1.0, alpha=4.0, steps=80, rate=1e-3, batch=8, noise_steps=20, side=None, refresh=8, decay=True,
    neutral="a picture of a {class}", positive="a picture of a {class} in {shift}",
)  # fmt: skip
RECIPES = {recipe.name: recipe for recipe in (RELEASED, TOY)}


def recipe(name: str) -> SliderRecipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        raise UnknownName("slider recipe", name, RECIPES)
    return RECIPES[name]


# Recipes that learn words: every parameter with its default.


# Sentences in which a word is learnt, so that it learns the object and not the sentence; the wording
# is ours.
TEMPLATES = (
    "a photo of a {class}", "a picture of a {class}", "a close-up photo of a {class}", "a good photo of the {class}",
    "a cropped photo of a {class}", "a bright photo of the {class}", "a photo of one {class}", "a picture of a {class}",
)  # fmt: skip


@dataclass(frozen=True)
class WordRecipe:
    """The parameters of learning one word.

    The defaults are those of the public example that IN* was made with.
    """

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
            (
                "templates",
                all(text.count("{class}") == 1 for text in self.templates),
                "sentences with {class} once in each",
            ),
        )
        for name, right, wanted in checks:
            if not right:
                raise SoritesError(f"{name}: wanted {wanted}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return every parameter by its name."""
        return {**asdict(self), "templates": list(self.templates)}


RELEASED_WORDS = WordRecipe()
TOY_WORDS = WordRecipe(
    name="toy", steps=80, rate=0.2, batch=16, decay=True,
    templates=("a picture of a {class}", "a photo of a {class}", "{class}"),
)  # fmt: skip
WORD_RECIPE_RECIPES = {recipe.name: recipe for recipe in (RELEASED_WORDS, TOY_WORDS)}


def word_recipe(name: str) -> WordRecipe:
    """Return a recipe by its name."""
    if name not in WORD_RECIPE_RECIPES:
        raise UnknownName("word recipe", name, WORD_RECIPE_RECIPES)
    return WORD_RECIPE_RECIPES[name]

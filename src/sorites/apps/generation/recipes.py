"""Training recipes for sliders and words: the released parameters, and small ones for the toy world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from sorites.core.errors import SoritesError, UnknownName
from sorites.diffusion.sliders import METHODS


@dataclass(frozen=True)
class SliderRecipe:
    """Parameters of slider training. The defaults are those of the trainer that CNS-Bench released."""

    name: str = "released"
    eta: float = 4.0
    """Distance of the target in the direction of the shift."""
    rank: int = 4
    alpha: float = 1.0
    layers: str = "noxattn"
    steps: int = 400
    rate: float = 2e-4
    batch: int = 16
    noise_steps: int = 50
    """Steps of the training trajectories; the paper says 100, the released configuration 50."""
    side: int | None = 512
    """Width of the training images; the pipeline's own if that is smaller, or if None."""
    neutral: str = "{class}"
    positive: str = "{class}, in {shift}"
    """Prompts for the class, and for the class in the shift; the paper has "A picture of a {class} in
    {shift}".
    """
    refresh: int = 1
    """Number of steps that share trajectories, each at another noise step; 1 as released."""
    decay: bool = False
    """Decay the learning rate to 0 along half a cosine; the released trainer keeps it constant."""
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("eta", 0 < self.eta <= 100, "a number above 0, at most 100"),
            ("rank", 1 <= self.rank <= 256, "a whole number from 1 to 256"),
            ("alpha", 0 < self.alpha <= 256, "a number above 0"),
            ("layers", self.layers in METHODS, f"one of {', '.join(METHODS)}"),
            ("steps", 1 <= self.steps <= 100_000, "a whole number from 1"),
            ("rate", 0 < self.rate < 1, "a number between 0 and 1"),
            ("batch", 1 <= self.batch <= 512, "a whole number from 1 to 512"),
            ("noise_steps", 2 <= self.noise_steps <= 1000, "a whole number from 2 to 1000"),
            ("side", self.side is None or 8 <= self.side <= 4096, "pixels from 8 to 4096"),
            ("refresh", 1 <= self.refresh <= 1000, "a whole number from 1"),
            ("neutral", "{class}" in self.neutral, "words with {class} in them"),
            ("positive", "{shift}" in self.positive, "words with {shift} in them"),
        )
        for name, is_valid, expected in checks:
            if not is_valid:
                raise SoritesError(f"{name} must be {expected}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return all parameters by name."""
        return asdict(self)

    def words(self, concept: str, shift: str) -> tuple[str, str]:
        """Return the neutral and the positive prompt."""
        prompts = (
            text.replace("{class}", concept).replace("{shift}", shift)
            for text in (self.neutral, self.positive)
        )
        neutral, positive = prompts
        return neutral, positive

    def passes(self) -> float:
        """Return the training cost in forward passes; an image with a backward pass counts as three.

        A trajectory runs to a uniformly drawn noise step, half way on average, or to its end if it is reused.
        """
        walked = self.noise_steps / 2 if self.refresh == 1 else self.noise_steps / self.refresh
        return self.steps * self.batch * (walked + 2 + 3)


R = TypeVar("R", "SliderRecipe", "PairRecipe")
RELEASED = SliderRecipe()
TOY = SliderRecipe(
    name="toy",
    eta=1.0,
    alpha=4.0,
    steps=80,
    rate=1e-3,
    batch=8,
    noise_steps=20,
    side=None,
    refresh=8,
    decay=True,
    neutral="a picture of a {class}",
    positive="a picture of a {class} in {shift}",
)
RECIPES = {recipe.name: recipe for recipe in (RELEASED, TOY)}


def suited(recipe: R, is_transformer: bool) -> R:
    """Return a recipe with the layers of a transformer, which has no cross-attention."""
    return replace(recipe, layers="attention") if is_transformer else recipe


def recipe(name: str) -> SliderRecipe:
    if name not in RECIPES:
        raise UnknownName("slider recipe", name, RECIPES)
    return RECIPES[name]


# Sliders from pairs of images.


@dataclass(frozen=True)
class PairRecipe:
    """Parameters of learning a slider from pairs of images, before and after a shift.

    The defaults are those of the released trainer of sliders where they apply.
    """

    name: str = "released"
    rank: int = 4
    alpha: float = 1.0
    layers: str = "noxattn"
    steps: int = 1000
    rate: float = 2e-4
    batch: int = 4
    start: int = 750
    """Noise steps up to this number, of 1000, are trained: those in which sliders act."""
    prompt: str = "{class}"
    decay: bool = False
    """Decay the learning rate to 0 along half a cosine."""
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("rank", 1 <= self.rank <= 256, "a whole number from 1 to 256"),
            ("alpha", 0 < self.alpha <= 256, "a number above 0"),
            ("layers", self.layers in METHODS, f"one of {', '.join(METHODS)}"),
            ("steps", 1 <= self.steps <= 100_000, "a whole number from 1"),
            ("rate", 0 < self.rate < 1, "a number between 0 and 1"),
            ("batch", 1 <= self.batch <= 512, "a whole number from 1 to 512"),
            ("start", 1 <= self.start <= 1000, "a noise step from 1 to 1000"),
            ("prompt", self.prompt.count("{class}") == 1, "words with {class} once in them"),
        )
        for name, is_valid, expected in checks:
            if not is_valid:
                raise SoritesError(f"{name} must be {expected}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return all parameters by name."""
        return asdict(self)


RELEASED_PAIRS = PairRecipe()
TOY_PAIRS = PairRecipe(
    name="toy", alpha=4.0, steps=200, rate=2e-3, batch=8, prompt="a picture of a {class}", decay=True
)
PAIR_RECIPES = {recipe.name: recipe for recipe in (RELEASED_PAIRS, TOY_PAIRS)}


def pair_recipe(name: str) -> PairRecipe:
    if name not in PAIR_RECIPES:
        raise UnknownName("recipe of sliders from pairs", name, PAIR_RECIPES)
    return PAIR_RECIPES[name]


# Words.


# Sentences in which a word is learnt, so that it captures the object and not the sentence. Our own wording.
TEMPLATES = (
    "a photo of a {class}",
    "a picture of a {class}",
    "a close-up photo of a {class}",
    "a good photo of the {class}",
    "a cropped photo of a {class}",
    "a bright photo of the {class}",
    "a photo of one {class}",
    "an image of a {class}",
)


@dataclass(frozen=True)
class WordRecipe:
    """Parameters of learning a word. The defaults are those of the public example that IN* was made with."""

    name: str = "released"
    steps: int = 3000
    rate: float = 5e-4
    batch: int = 4
    vectors: int = 1
    """Number of vectors per class."""
    templates: tuple[str, ...] = TEMPLATES
    decay: bool = False
    """Decay the learning rate to 0 along half a cosine."""
    seed: int = 0

    def __post_init__(self) -> None:
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
        for name, is_valid, expected in checks:
            if not is_valid:
                raise SoritesError(f"{name} must be {expected}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return all parameters by name."""
        return {**asdict(self), "templates": list(self.templates)}


RELEASED_WORDS = WordRecipe()
TOY_WORDS = WordRecipe(
    name="toy", steps=80, rate=0.2, batch=16, decay=True,
    templates=("a picture of a {class}", "a photo of a {class}", "{class}"),
)  # fmt: skip
WORD_RECIPES = {recipe.name: recipe for recipe in (RELEASED_WORDS, TOY_WORDS)}


def word_recipe(name: str) -> WordRecipe:
    if name not in WORD_RECIPES:
        raise UnknownName("word recipe", name, WORD_RECIPES)
    return WORD_RECIPES[name]

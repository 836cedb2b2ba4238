"""Define requests to the sampler: pictures of a prompt and a seed, at places of some sliders; and how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sorites.diffusion.sliders import Slider
from sorites.errors import SoritesError
from sorites.rng import digest

NEGATIVE = "blurry,text,caption,lowquality,lowresolution,low res,grainy,ugly"
"""The negative prompt of CNS-Bench."""
SCHEDULERS, SEEDINGS = ("ddim", "own"), ("prompt", "plain")
ALL_STEPS = 1000
"""A start at which sliders are active from the first step."""


@dataclass(frozen=True)
class Drawing:
    """The settings of the sampler. The defaults are those of CNS-Bench."""

    steps: int = 50
    guidance: float = 7.5
    start: int = 750
    """Sliders are active at noise steps of this number and below, of 1000: 750 is the last three quarters."""
    negative: str = NEGATIVE
    side: int | None = None
    """The width in pixels at which the network draws; its own where it is not set."""
    size: int | None = None
    """The width to which a finished picture is scaled; as it is drawn where it is not set."""
    scheduler: str = "ddim"
    """``ddim``, or ``own`` for the one in the pipeline's folder."""
    seeding: str = "prompt"
    """``prompt``: the noise follows from the class and the seed; ``plain``: from the seed alone, as diffusers does it."""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        checks = (
            ("steps", 1 <= self.steps <= 1000, "a whole number from 1 to 1000"),
            ("guidance", 0 <= self.guidance <= 100, "a number from 0 to 100"),
            ("start", 0 <= self.start <= 1000, "a noise step from 0 to 1000"),
            ("side", self.side is None or 8 <= self.side <= 4096, "pixels from 8 to 4096"),
            ("size", self.size is None or 8 <= self.size <= 4096, "pixels from 8 to 4096"),
            ("scheduler", self.scheduler in SCHEDULERS, " or ".join(SCHEDULERS)),
            ("seeding", self.seeding in SEEDINGS, " or ".join(SEEDINGS)),
        )
        for name, right, wanted in checks:
            if not right:
                raise SoritesError(f"{name}: wanted {wanted}, got {getattr(self, name)!r}")

    def facts(self) -> Mapping[str, Any]:
        """Return every parameter by its name."""
        return asdict(self)


def drawing_from(facts: Mapping[str, Any], **changes: Any) -> Drawing:
    """Return how pictures are drawn, from what was recorded with a slider; ``changes`` that are not None come first."""
    known = {field.name for field in fields(Drawing)}
    recorded = facts.get("drawing")
    had = {key: value for key, value in recorded.items() if key in known} if isinstance(recorded, Mapping) else {}
    return Drawing(**{**had, **{key: value for key, value in changes.items() if value is not None}})


TOY_DRAWING = Drawing(steps=20, guidance=2.0, negative="")
"""The settings of the sampler for the toy world."""


@dataclass(frozen=True, eq=False)
class Request:
    """One trajectory: a prompt and a seed, the sliders on it, and for each picture where every slider stands."""

    prompt: str
    seed: int
    sliders: tuple[Slider, ...] = ()
    places: tuple[tuple[float, ...], ...] = ((),)
    noise: str = ""
    """The text that fixes the noise beside the seed; the prompt unless it is set. Two prompts can share their noise this way."""

    def __post_init__(self) -> None:
        """Refuse places that do not fit the sliders."""
        wrong = [place for place in self.places if len(place) != len(self.sliders)]
        if wrong:
            raise SoritesError(f"wanted one severity for each of {len(self.sliders)} sliders, got {wrong[0]}")

    @property
    def beginning(self) -> tuple[str, str, int]:
        """Return what the early steps follow from: they are the same whatever the sliders are."""
        return self.prompt, self.noise or self.prompt, self.seed


def along(prompt: str, seed: int, slider: Slider, severities: tuple[float, ...], noise: str = "") -> Request:
    """Return the request for one slider at several severities."""
    return Request(prompt, seed, (slider,), tuple((severity,) for severity in severities), noise)


def noise_seed(noise: str, seed: int, seeding: str) -> int:
    """Return the seed of torch's generator for one picture."""
    return seed if seeding == "plain" else int.from_bytes(digest(noise, seed, size=8), "little") >> 1

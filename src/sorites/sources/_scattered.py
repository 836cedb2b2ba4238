"""Pictures of several cut-outs in one place, made when they are asked for; their boxes are known when they are listed.

A picture follows from the seed, its number and the cut-outs alone: a longer list begins with the shorter one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sorites.core import Attr, Box, Picture, Sample, to_picture
from sorites.errors import SoritesError
from sorites.rng import rng_for
from sorites.scenes.composite import CutOut
from sorites.scenes.scenery import Photograph, place
from sorites.scenes.several import SEEN, Seen, Spot, draw, seen, stand

VERSION = 1
KEPT = 48
"""Drawn pictures that are kept: a slice of a run shows each of them to several shifts."""

SIDES = (64, 4096)
"""The smallest and the largest side of a picture in px."""


@dataclass(frozen=True)
class Thing:
    """A cut-out with the name of its class, its label if the suite knows the class, and the places it is met in."""

    name: str
    label: int | None
    places: tuple[str, ...]
    cut: Callable[[], CutOut]


@dataclass(frozen=True)
class Recipe:
    """A recipe for pictures: the seed, the range of the number of things, the side in px, and whether all places are drawn."""

    seed: int = 0
    things: tuple[int, int] = (3, 8)
    side: int = 640
    drawn: bool = False

    @property
    def id(self) -> str:
        """The first part of a sample's id, from which everything but the cut-outs can be read."""
        low, high = self.things
        return f"v{VERSION}-seed{self.seed}-things{low}..{high}-{self.side}px{'-drawn' if self.drawn else ''}"


@dataclass(frozen=True)
class Scene:
    """The things of one picture, their places, and the location behind them."""

    things: tuple[Thing, ...]
    spots: tuple[Spot, ...]
    location: str


def parse_range(text: str) -> tuple[int, int]:
    """Return how many things a picture may have, from ``"3"`` or ``"1..5"``."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()) or not 1 <= int(low) <= int(high or low) <= 50:
        raise SoritesError(f"wanted how many things stand in a picture, such as 3 or 1..5 (at most 50), got {text!r}")
    return int(low), int(high or low)


def samples(things: Sequence[Thing], recipe: Recipe, count: int, photographs: Sequence[Photograph]) -> list[Sample]:
    """Return ``count`` pictures with the boxes of the things that can be seen; a thing that is mostly hidden is an attribute."""
    if not SIDES[0] <= recipe.side <= SIDES[1]:
        raise SoritesError(f"wanted pictures of {SIDES[0]} to {SIDES[1]} px, got {recipe.side}")
    by_class: dict[str, list[Thing]] = {}
    for thing in things:
        by_class.setdefault(thing.name, []).append(thing)
    groups = [by_class[name] for name in sorted(by_class)]

    @functools.lru_cache(maxsize=KEPT)
    def picture(number: int) -> Picture:
        scene, rng = _scene(groups, recipe, number), _rng(recipe, number, "place")
        ground = place(scene.location, recipe.side, rng, photographs)
        cuts = [thing.cut() for thing in scene.things]
        pixels = to_picture(draw(cuts, scene.spots, ground, 0.2 if scene.location == "water" else 0.55))
        pixels.flags.writeable = False
        return pixels

    return [_sample(_scene(groups, recipe, n), recipe, n, functools.partial(picture, n)) for n in range(count)]


def _rng(recipe: Recipe, number: int, what: str) -> np.random.Generator:
    return rng_for(recipe.seed, f"{number:05d}", f"composites {VERSION} {what}")


def _scene(groups: Sequence[Sequence[Thing]], recipe: Recipe, number: int) -> Scene:
    """Draw a scene: a class for each thing and one of its cut-outs; the first thing says where they are."""
    rng = _rng(recipe, number, "things")
    count = int(rng.integers(recipe.things[0], recipe.things[1] + 1))
    chosen = [group[int(rng.integers(len(group)))] for group in (groups[int(rng.integers(len(groups)))] for _ in range(count))]
    location = chosen[0].places[int(rng.integers(len(chosen[0].places)))]
    spots = stand([thing.cut() for thing in chosen], recipe.side, rng)
    return Scene(tuple(chosen), tuple(spots), location)


def _sample(scene: Scene, recipe: Recipe, number: int, load: Callable[[], Picture]) -> Sample:
    shown = list(zip(scene.things, seen([thing.cut() for thing in scene.things], scene.spots, recipe.side), strict=True))
    hidden = [Attr("hidden", thing.name) for thing, part in shown if part.share < SEEN]
    return Sample(
        id=f"{recipe.id}/{number:05d}",
        load=load,
        truth=tuple(_box(thing.label, part) for thing, part in shown if part.share >= SEEN and thing.label is not None),
        attrs=(Attr("location", scene.location), Attr("things", str(len(shown))), *dict.fromkeys(hidden)),
    )


def _box(label: int, part: Seen) -> Box:
    return Box(part.box, label, area=float(part.area))

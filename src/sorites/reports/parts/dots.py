"""Estimates as dots with their intervals, one row a name: readable with many names, and drawn without a script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sorites.reports.parts.markup import EMPTY, Html, between, join, percent, tag

MARKS = 6
"""How many marks the page's style has, each of another colour and shape."""
STEPS = (0.01, 0.02, 0.05, 0.1, 0.25)
MOST_STEPS = 7


@dataclass(frozen=True)
class Scale:
    """A stretch of shares from one tick to another, so that charts side by side can share it."""

    step: float
    first: int
    """The tick it starts at, in steps from 0."""
    last: int

    def at(self, value: float) -> float:
        """Where a value lies, in percent of the way."""
        return 100 * (value / self.step - self.first) / (self.last - self.first)

    def ticks(self) -> list[float]:
        return [i * self.step for i in range(self.first, self.last + 1)]


def scale(values: Iterable[float]) -> Scale:
    """The narrowest that holds all these shares in a few round steps."""
    held = list(values)
    tried = (Scale(step, *_ends(min(held), max(held), step)) for step in STEPS)
    return next(on for on in tried if on.last - on.first <= MOST_STEPS)


def _ends(low: float, high: float, step: float) -> tuple[int, int]:
    first = math.floor(low / step + 1e-9)
    return first, max(first + 1, math.ceil(high / step - 1e-9))


@dataclass(frozen=True)
class Dot:
    """A share, its interval where there is one, and how many it rests on, in words."""

    value: float
    low: float | None
    high: float | None
    n: str

    @classmethod
    def of(cls, row: Mapping[str, Any], n: str) -> Dot:
        return cls(row["value"], row["low"], row["high"], n)

    def ends(self) -> tuple[float, float]:
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Key:
    """How a view is drawn: its mark, from 0 up to ``MARKS``, and how many pictures it rests on, in words."""

    mark: int
    n: str


Dots = Mapping[str, Mapping[str, Dot]]
"""Name to view to dot."""


def ordered(dots: Dots, highest: bool = True) -> list[str]:
    """Names by the mean over their views, the best first; equal ones stay as they stood."""
    mean = {name: math.fsum(dot.value for dot in own.values()) / len(own) for name, own in dots.items() if own}
    return sorted(mean, key=mean.__getitem__, reverse=highest)


def dot_chart(dots: Dots, views: Mapping[str, Key], on: Scale, lines: Mapping[str, float], label: str) -> Html:
    """The names in the order they come; ``views`` says how each is drawn, ``lines`` are values to be held against."""
    rules = [tag("u", style=f"left:{on.at(value):.1f}%") for value in lines.values()]
    rows = [
        part
        for name, own in dots.items()
        for part in (tag("b", name), tag("div", *rules, *_row(name, own, views, on), cls="row"))
    ]
    ticks = [tag("span", f"{100 * tick:.0f}", style=f"left:{on.at(tick):.1f}%") for tick in on.ticks()]
    step = f"--step:{100 / (on.last - on.first):.3f}%"
    drawn = tag("div", *rows, tag("div", *ticks, cls="ticks"), cls="dots", role="img", aria_label=label, style=step)
    return join([_keys(views, lines), drawn])


def _keys(views: Mapping[str, Key], lines: Mapping[str, float]) -> Html:
    marks = [tag("span", tag("i", cls=f"m{key.mark}"), f"{name} ({key.n})") for name, key in views.items()]
    return tag("p", *marks, *(tag("span", tag("u"), f"{name}, {percent(at)}") for name, at in lines.items()), cls="keys")


def _row(name: str, own: Mapping[str, Dot], views: Mapping[str, Key], on: Scale) -> list[Html]:
    return [_dot(f"{name}, {view}", key.mark, own.get(view), on) for view, key in views.items()]


def _dot(name: str, mark: int, dot: Dot | None, on: Scale) -> Html:
    if dot is None:
        return tag("span")
    low, high = (on.at(end) for end in dot.ends())
    inside = 100 * (on.at(dot.value) - low) / (high - low) if high > low else 0
    interval = EMPTY if dot.low is None else f", 95 %: {between(percent(dot.low), percent(dot.high))}"
    said = f"{name}: {percent(dot.value)}{interval}, {dot.n}"
    bar = f"margin-left:{low:.1f}%;width:{high - low:.1f}%"
    return tag("span", tag("i", style=f"left:{inside:.0f}%"), cls=f"m{mark}", style=bar, title=said)

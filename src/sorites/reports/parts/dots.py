"""Dot charts of estimates with their intervals, one row per name: readable with many names, and drawn without a script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sorites.reports.parts.markup import EMPTY, Html, between, join, percent, tag

MARKS = 6
"""The page's style sheet has this many marks, each with its own colour and shape."""
STEPS = (0.01, 0.02, 0.05, 0.1, 0.25)
MOST_STEPS = 7


@dataclass(frozen=True)
class Scale:
    """A range of shares from one tick to another, which charts side by side can share."""

    step: float
    first: int
    """The number of steps from 0 to the first tick."""
    last: int

    def at(self, value: float) -> float:
        """Return the position of a value on the scale in percent."""
        return 100 * (value / self.step - self.first) / (self.last - self.first)

    def ticks(self) -> list[float]:
        """Return the values of the ticks."""
        return [i * self.step for i in range(self.first, self.last + 1)]


def scale(values: Iterable[float]) -> Scale:
    """Return the narrowest scale that holds all these shares in a few round steps."""
    shares = list(values)
    tried = (Scale(step, *_ends(min(shares), max(shares), step)) for step in STEPS)
    return next(on for on in tried if on.last - on.first <= MOST_STEPS)


def _ends(low: float, high: float, step: float) -> tuple[int, int]:
    first = math.floor(low / step + 1e-9)
    return first, max(first + 1, math.ceil(high / step - 1e-9))


@dataclass(frozen=True)
class Dot:
    """A share, its interval where there is one, and the number of pictures it rests on, as text."""

    value: float
    low: float | None
    high: float | None
    n: str

    @classmethod
    def of(cls, row: Mapping[str, Any], n: str) -> Dot:
        """Make a dot of a metric's row."""
        return cls(row["value"], row["low"], row["high"], n)

    def ends(self) -> tuple[float, float]:
        """Return the ends of the interval, or the value twice where there is none."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Key:
    """The key of one series: its mark, from 0 to below ``MARKS``, and the number of pictures it rests on, as text."""

    mark: int
    n: str


Dots = Mapping[str, Mapping[str, Dot]]
"""The dots by name (a row of the chart) and by series."""


def ordered(dots: Dots, highest: bool = True) -> list[str]:
    """Return the names sorted by the mean over their series, the best first; equal ones keep their order."""
    mean = {
        name: math.fsum(dot.value for dot in by_series.values()) / len(by_series) for name, by_series in dots.items() if by_series
    }
    return sorted(mean, key=mean.__getitem__, reverse=highest)


def dot_chart(dots: Dots, series: Mapping[str, Key], on: Scale, lines: Mapping[str, float], label: str) -> Html:
    """Draw one row per name in the given order; ``series`` says how each series is drawn, ``lines`` are reference values."""
    rules = [tag("u", style=f"left:{on.at(value):.1f}%") for value in lines.values()]
    rows = [
        part
        for name, by_series in dots.items()
        for part in (tag("b", name), tag("div", *rules, *_row(name, by_series, series, on), cls="row"))
    ]
    ticks = [tag("span", f"{100 * tick:.0f}", style=f"left:{on.at(tick):.1f}%") for tick in on.ticks()]
    step = f"--step:{100 / (on.last - on.first):.3f}%"
    drawn = tag("div", *rows, tag("div", *ticks, cls="ticks"), cls="dots", role="img", aria_label=label, style=step)
    return join([_keys(series, lines), drawn])


def _keys(series: Mapping[str, Key], lines: Mapping[str, float]) -> Html:
    marks = [tag("span", tag("i", cls=f"m{key.mark}"), f"{name} ({key.n})") for name, key in series.items()]
    return tag("p", *marks, *(tag("span", tag("u"), f"{name}, {percent(at)}") for name, at in lines.items()), cls="keys")


def _row(name: str, by_series: Mapping[str, Dot], series: Mapping[str, Key], on: Scale) -> list[Html]:
    return [_dot(f"{name}, {one}", key.mark, by_series.get(one), on) for one, key in series.items()]


def _dot(name: str, mark: int, dot: Dot | None, on: Scale) -> Html:
    if dot is None:
        return tag("span")
    low, high = (on.at(end) for end in dot.ends())
    inside = 100 * (on.at(dot.value) - low) / (high - low) if high > low else 0
    interval = EMPTY if dot.low is None else f", 95 %: {between(percent(dot.low), percent(dot.high))}"
    hover = f"{name}: {percent(dot.value)}{interval}, {dot.n}"
    bar = f"margin-left:{low:.1f}%;width:{high - low:.1f}%"
    return tag("span", tag("i", style=f"left:{inside:.0f}%"), cls=f"m{mark}", style=bar, title=hover)

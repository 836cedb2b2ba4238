"""Timing several works side by side."""

from __future__ import annotations

from collections.abc import Callable


def in_turns(rounds: int, clock: Callable[[], float], *works: Callable[[], object]) -> list[list[float]]:
    """Return the seconds of each work in each round; they take turns, so that a busy moment of the
    machine falls on all.
    """
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, seconds in zip(works, taken, strict=True):
            start = clock()
            work()
            seconds.append(clock() - start)
    return taken

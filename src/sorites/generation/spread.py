"""Spread the drawing of pictures over an engine: each process opens the pipeline once, and writes the pictures of its units."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sorites.diffusion.pipeline import Pipe, load
from sorites.diffusion.shelf import Concept
from sorites.diffusion.words import with_words
from sorites.engines import Engine

Unit = tuple[str, Concept, tuple[int, ...]]
"""A shift, a class and some seeds."""


@dataclass(frozen=True)
class Spread:
    """An engine, the number of units at a time, and the way to open the pipeline in another process."""

    engine: Engine
    workers: int
    open: Callable[[], Pipe]


@functools.lru_cache(maxsize=2)
def open_pipe(path: str, device: str | None = None, dtype: str | None = None, words: str | None = None) -> Pipe:
    """Load a pipeline, with learnt words where a folder of them is given; a process loads it once."""
    pipe = load(path, device, dtype)
    return with_words(pipe, words) if words else pipe


def units_of(places: Sequence[tuple[str, Concept]], seeds: Sequence[int], most: int) -> Iterator[Unit]:
    """Yield units of at most so many seeds."""
    for shift, concept in places:
        for first in range(0, len(seeds), most):
            yield shift, concept, tuple(seeds[first : first + most])
